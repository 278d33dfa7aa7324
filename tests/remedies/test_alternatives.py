import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

import fairfox
from fairfox.errors import FairfoxError, OptionError
from fairfox.remedies.alternatives import probability_of_improvement
from tests.remedies.test_repair import ABOUT, chance, people_of

pytestmark = pytest.mark.brief


@pytest.fixture(scope="module")
def people():
    return people_of(500, seed=3)


@pytest.fixture(scope="module")
def found(people):
    own = {"skill alone": lambda table: 1 / (1 + np.exp(-2 * table["skill"]))}
    logistic = LogisticRegression()
    grid = {"C": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0], "class_weight": [None, "balanced"]}
    table = people.drop(columns="job")

    def model(table):
        return 1 / (1 + np.exp(-(table["income"] + 0.2 * table["skill"])))

    return fairfox.alternatives(
        model, table, candidates=own, estimator=logistic, grid=grid, searched=12, max_loss=0.02, **ABOUT
    )


def test_every_kind_is_tried_and_the_best_within_the_loss_is_named(found):
    kinds = [each.kind for each in found.tried]
    assert kinds[0] == "model"
    assert {*kinds} == {"model", "repair", "feature", "train_fair", "own", "search"}
    assert kinds.count("search") == 12
    assert found.best.loss <= 0.02
    assert all(found.best.mean_effect <= each.mean_effect for each in found.tried if each.loss <= 0.02)
    assert found.best.mean_effect < 0.5 * found.tried[0].mean_effect
    assert f"The best within a loss of 0.02 is {found.best.name}" in found.summary()


def test_the_candidate_that_predicts_best_is_repaired_too(found):
    best = min((each for each in found.tried if each.kind in ("own", "search", "train_fair")), key=lambda one: one.loss)
    assert best.loss < 0
    repaired = [each for each in found.tried if each.name.startswith(f"{best.name}, repaired")]
    assert [each.kind for each in repaired] == ["repair"] * len(repaired)
    assert repaired[3].name == f"{best.name}, repaired, strength 1"
    assert repaired[3].mean_effect < 0.4 * best.mean_effect
    assert {each.name.count("repaired") for each in found.tried} <= {0, 1}


@pytest.mark.parametrize("other", [0, 300])
def test_a_candidate_is_fitted_once_on_all_who_may_be_learnt_from_and_its_repairs_are_of_that_model(people, other):
    people, fits = people.assign(label=np.where(people["label"] > 0, "yes", "no")), []
    people["label"] = people["label"].where(people.index % 5 > 0)  # one in five is unknown
    reference = people_of(other, seed=4).replace({"label": {0: "no", 1: "yes"}}) if other else None

    class Counting(LogisticRegression):
        def fit(self, rows, labels):
            fits.append(labels)
            return super().fit(rows, labels)

    about = {"estimator": Counting(), "grid": {"C": [1.0]}, "columns": ["income", "skill"], "reference": reference}
    found = fairfox.alternatives(lambda table: 1 / (1 + np.exp(-table["income"])), people, **about, **ABOUT)
    assert sum(each.name.startswith("C=1.0, repaired") for each in found.tried) >= 4
    taught = people if reference is None else reference
    assert len(fits) == (2 if reference is None else 1)
    assert ("each half learns once" if reference is None else "they learnt from 300 others") in found.summary()
    assert sorted(np.concatenate(fits)) == sorted(taught["label"].dropna())


def test_performance_and_effects_are_those_of_an_audit(found, people):
    one = next(each for each in found.tried if each.name == "skill alone")
    assert one.performance[0].value == pytest.approx(roc_auc_score(people["label"], people["skill"]), abs=1e-12)
    assert one.mean_effect < 0.005
    assert one.share_over == 0
    model = found.tried[0]

    def same(table):
        return 1 / (1 + np.exp(-(table["income"] + 0.2 * table["skill"])))

    audit = fairfox.audit(same, people.drop(columns="job"), **ABOUT).record
    assert model.mean_effect == pytest.approx(float(audit.scores.mean()), rel=0.1)
    assert model.share_over == pytest.approx(audit.share_flagged, abs=0.05)


def test_dominated_ones_are_marked(found):
    points = [(each.loss, each.mean_effect) for each in found.tried]
    for each, (loss, effect) in zip(found.tried, points, strict=True):
        better = [other for other in points if other[0] <= loss and other[1] <= effect and other != (loss, effect)]
        assert each.dominated == bool(better)


def test_files_have_every_candidate(found, tmp_path):
    paths = found.write(tmp_path / "out")
    assert [path.name for path in paths] == ["alternatives.json", "alternatives.csv", "alternatives.svg"]
    fields = json.loads(paths[0].read_text())
    assert fields["best"] == found.best.name
    assert len(fields["tried"]) == len(found.tried) == found.table.num_rows
    assert "<svg" in paths[2].read_text()


def test_what_would_begin_too_late_is_named(people):
    deltas = {"f": 0.9, "m": 0.9}
    found = fairfox.alternatives(chance, people, delta=deltas, options={"max_minutes": 1e-6}, **ABOUT)
    assert [(each.kind, each.share_over) for each in found.tried] == [("model", 0.0)]
    assert found.best is found.tried[0]
    assert "repaired, strength 1" in found.not_run
    assert "Not run: repaired, strength 1 (time was up (max_minutes))." in found.summary()


def test_a_candidate_with_other_columns_is_refused(people):
    wrong = LogisticRegression().fit(people[["skill"]].rename(columns={"skill": "Skill"}), people["label"])
    with pytest.raises(OptionError, match=r"'Skill', which the model as it is does not.* Did you mean 'skill'"):
        fairfox.alternatives(chance, people, candidates={"mine": wrong}, **ABOUT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_loss": 2}, "max_loss is 2"),
        ({"options": {"fdr": 0.2}}, "fdr says nothing about alternatives; leave it out"),
        ({"estimator": LogisticRegression()}, "both an estimator and a grid"),
        ({"estimator": LogisticRegression(), "grid": {"D": [1]}}, "no setting 'D'"),
        ({"protected": "age", "columns": ["income", "skill", "job"]}, "Alternatives compare groups"),
        (
            {"reference": people_of(500, seed=3).assign(age=20 + np.arange(500) % 50)[:0:-2]},
            "^50.0 % of the people in the table seem to be in the reference, too; give others",
        ),
        ({"reference": people_of(90, seed=1).drop(columns="label")}, "Nobody in the reference has a known outcome"),
        ({"reference": people_of(90, seed=1).replace({"label": {0: "n", 1: "y"}})}, "Nobody in the table has a known"),
    ],
)
def test_what_cannot_be_is_refused(people, given, message):
    with pytest.raises(FairfoxError, match=message):
        fairfox.alternatives(chance, people.assign(age=20 + people.index % 50), **{**ABOUT, **given})


def test_a_search_learns_with_the_weights_of_people_and_says_how_much_better_counts(people):
    table, weighed = people.assign(weight=1.0 + people.index % 3, label=people["skill"]).drop(columns="job"), []

    class Weighing(LinearRegression):
        def fit(self, rows, labels, sample_weight=None):
            weighed.append(sorted(sample_weight))
            return super().fit(rows, labels, sample_weight)

    about = {"estimator": make_pipeline(Weighing()), "grid": {"weighing__positive": [False]}, "delta": 0.4, **ABOUT}
    model = LinearRegression().fit(table[["income", "skill"]], table["label"])
    found = fairfox.alternatives(model, table, options={"weights": "weight", "max_minutes": 9}, **about)
    assert sorted(weighed[0] + weighed[1]) == sorted(table["weight"])
    assert found.better == pytest.approx(0.04)


def test_the_probability_of_improvement_holds_for_candidates_in_random_order():
    rng = np.random.default_rng(0)
    claims = []
    for _ in range(4000):
        drawn = rng.beta(2, 5, 40) * rng.choice([0.02, 0.1, 0.4])
        claims.append((probability_of_improvement(drawn[:30]), drawn[30:].min() < drawn[:30].min() - 0.005))
    claimed, improved = np.array(claims, dtype=float).T
    small = claimed <= 0.1
    assert 100 < small.sum() < 3900
    assert improved[small].mean() <= claimed[small].mean() + 0.02
    assert improved.mean() <= claimed.mean() + 0.02
    assert probability_of_improvement(drawn[:10]) is None
