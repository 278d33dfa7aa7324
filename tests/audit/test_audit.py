from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from populations import by_income, earners
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression
from support import audited
from torch import nn

import fairfox
from fairfox.errors import ColumnError, DataError, ModelError, OptionError
from fairfox.findings import AuditRecord
from fairfox.report.files import scores_table
from fairfox.result import AuditResult

pytestmark = pytest.mark.brief


def table(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Return people with names, of whom nobody knows beforehand who pays."""
    paid = np.random.default_rng(seed).integers(0, 2, n)
    return earners(n, seed=seed).assign(name=[f"p{i}" for i in range(n)], paid=paid)


QUICK = {"protected": "sex", "label": "paid", "id": "name", "refits": 2, "folds": 2}


@pytest.fixture(scope="module")
def plain() -> AuditRecord:
    """The audit that several tests look at."""
    return audited(by_income, table(), **QUICK)


def test_a_model_on_income_is_found_to_treat_women_worse(plain: AuditRecord):
    result = plain
    women = torch.tensor([g == "Female" for g in result.findings[0].group])
    assert float(result.effect[women].mean()) > 0.2  # 600 of 400 * 4: about a third of the range
    assert float(result.effect[~women].mean()) < -0.2
    assert next(iter(result.features.effect.total)) == "income"
    assert result.features.effect.total["age"] == 0.0
    assert next(iter(result.features.proxy)) == "income"
    assert result.share_flagged > 0.8
    assert result.ids[:2].tolist() == ["p0", "p1"]
    assert result.delta == 0.05


def test_contributions_of_features_sum_to_each_persons_effect(plain: AuditRecord):
    per_person = plain.features.effect.per_person
    explained = ~per_person.isnan().any(1)
    assert 400 <= int(explained.sum()) <= 420  # a black box is explained on a sample and on the worst
    torch.testing.assert_close(per_person[explained].sum(1), plain.effect[explained])


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda t: pl.from_pandas(t).to_arrow()])
def test_pandas_polars_and_arrow_tables_get_the_same_scores(convert: Any, plain: AuditRecord):
    result = audited(by_income, convert(table()), **QUICK)
    torch.testing.assert_close(result.scores, plain.scores)


def test_a_plain_array_is_audited_by_column_names():
    people = table()
    array = np.column_stack([people["sex"] == "Male", people["income"], people["age"]]).astype(float)
    expected = audited(by_income, people[["sex", "income", "age"]], protected="sex", refits=2, folds=2)
    result = audited(lambda x: by_income({"income": x[:, 0]}), array, protected="x0", kind="matrix", refits=2, folds=2)
    torch.testing.assert_close(result.scores, expected.scores)


def test_aligned_tests_are_the_effect_times_the_alignment_share(plain: AuditRecord):
    aligned = audited(by_income, table(), **QUICK, test="rank/a")
    share = aligned.alignment_share["sex"]
    assert 0 < share < 1
    torch.testing.assert_close(aligned.scores, plain.scores * share)
    ends = torch.stack([-plain.predictions, 1 - plain.predictions], dim=1)  # where intervals of probabilities are cut
    inside = (plain.interval > ends[:, :1]) & (plain.interval < ends[:, 1:])
    assert float(inside.double().mean()) > 0.8
    torch.testing.assert_close(aligned.interval[inside], plain.interval[inside] * share)


def test_a_constant_model_is_fair_with_a_warning():
    result = audited(lambda frame: np.full(len(frame), 0.3), table(), **QUICK)
    assert result.share_flagged == 0.0
    assert float(result.scores.abs().max()) == 0.0
    assert result.alignment_share == {"sex": 0.0}
    assert any("constant" in text for text in result.warnings)


def test_people_of_unknown_group_are_taken_for_members_of_the_most_probable_one():
    people = table()
    people.loc[:9, "sex"] = None
    result = audited(by_income, people, **QUICK)
    assert result.inferred.tolist() == [True] * 10 + [False] * 390
    assert not result.abstained.any()
    for income, group in zip(people["income"][:10], result.findings[0].group, strict=False):
        if abs(income - 3300) > 400:  # those in the middle may go either way
            assert group == ("Male" if income > 3300 else "Female")
    assert any("'sex' is unknown for 10 of 400 people" in text for text in result.warnings)
    assert sum(group.inferred for group in result.groups) == 10


def test_the_default_delta_of_a_regressor_is_a_share_of_its_usual_range():
    people = table()
    model = LinearRegression().fit(people[["income"]], people["income"] * 2.0)
    result = audited(model, people, **QUICK)
    low, high = np.quantile(2 * people["income"], [0.01, 0.99])
    assert result.delta == pytest.approx(0.05 * (high - low), rel=1e-6)
    assert "value" in result.unit


def test_small_groups_are_warned_about():
    people, once = table(600), QUICK | {"refits": 1}
    people["sex"] = ["Male"] * 20 + ["Female"] * 580
    result = audited(by_income, people, **once)
    assert any("'Male' (3.3 %)" in text for text in result.warnings)
    people["race"] = ["a"] * 20 + ["b"] * 300 + ["c"] * 280
    people = people.assign(name="p1", paid=1)
    result = audited(by_income, people, **(once | {"protected": "race"}))
    assert any("'a' (3.3 %)" in text and "--merge-rare" in text for text in result.warnings)
    merged = audited(by_income, people, **(once | {"protected": "race", "merge_rare": 0.01})).warnings
    assert [text for text in merged if "'a' (3.3 %)" in text and "--merge-rare" not in text]
    assert any("The ids in 'name' repeat: there are 1 for 600 people" in text for text in result.warnings)
    assert any("The label 'paid' has fewer than two values" in text for text in result.warnings)


def test_counterfactual_rows_come_back_in_the_tables_own_units(plain: AuditRecord):
    people = table()
    assert list(plain.counterfactual_table.columns) == ["income", "age", "job"]
    women = (people["sex"] == "Female").to_numpy()
    gain = (plain.counterfactual_table["income"] - people["income"])[women].mean()
    assert gain == pytest.approx(600, abs=120)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"protected": "sexe"}, ColumnError, "Did you mean 'sex'"),
        ({"protected": "name", "id": None}, DataError, "'name' has 400 different values, and at most 50 groups"),
        ({"delta": float("nan")}, OptionError, "delta is nan"),
        ({"delta": "0.1"}, OptionError, "delta is '0.1'"),
        ({"seed": 1.5}, OptionError, "seed is 1.5"),
        ({"label": "sex"}, OptionError, "'sex' is given as the label and as protected"),
        ({"id": "paid"}, OptionError, "'paid' is given as the label and as the id"),
        ({"columns": ["income", "paid"]}, OptionError, "as the label and as a column of the model"),
        ({"folds": 1}, OptionError, "folds is 1"),
        ({"drop": ["agee"]}, ColumnError, "Did you mean 'age'"),
        ({"id": None}, DataError, "'name' has 400 different values"),
        ({"protected": "age<5"}, DataError, "0 of 400 people"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        audited(by_income, table(), **(QUICK | options))


@pytest.mark.parametrize("test", ["faux", "faux+ng", "fta"])
def test_gradient_tests_see_the_slope_of_a_tree_ensemble(test: str):
    people = table(600)
    model = HistGradientBoostingClassifier(max_iter=30).fit(people[["age", "income"]], by_income(people) > 0.5)
    result = audited(model, people, **QUICK, test=test)
    assert float((result.scores == 0).double().mean()) < 0.5
    assert not any("exactly zero" in text for text in result.warnings)


def test_missing_numbers_stay_missing_in_every_counterfactual():
    people = table()
    people.loc[people.index % 7 == 0, "income"] = np.nan

    def score(frame: Any) -> np.ndarray:
        return np.where(np.isnan(frame["income"]), 0.25, by_income(frame))

    for test in ("rank", "move", "move-direct"):
        result = audited(score, people, **QUICK, test=test, direct=True)
        gone = people["income"].isna()
        assert (result.counterfactual_table["income"].isna() == gone).all()
        assert float(result.direct[torch.tensor(gone.tolist())].abs().max()) == 0.0


def test_the_counterfactual_is_that_of_the_chosen_test():
    people = table()
    result = audited(by_income, people, **(QUICK | {"refits": 1}), test="move")
    effect = by_income(result.counterfactual_table) - by_income(people)
    np.testing.assert_allclose(effect, result.effect.numpy(), atol=1e-9)


def test_groups_that_are_small_among_people_alike_are_compared_by_regression():
    people = table()
    people["race"] = np.where(people.index % 2, "a", "b")
    men_b = ((people["sex"] == "Male") & (people["race"] == "b")).to_numpy()
    people = people[~men_b | (np.cumsum(men_b) <= 4)]  # four men of race b: no rank among so few
    result = audited(by_income, people, **(QUICK | {"protected": ["sex", "race"]}), hold_others=True)
    assert not result.abstained.any()
    assert float(result.findings[0].effect[torch.tensor((people["sex"] == "Female").to_numpy())].mean()) > 0


def test_the_columns_of_a_function_can_be_named_with_the_protected_one_among_them():
    people = table()
    people["sex"] = (people["sex"] == "Male").astype(int)
    result = audited(lambda t: 0.2 + 0.5 * t["sex"], people, **QUICK, columns=["sex", "age"])
    torch.testing.assert_close(result.scores, torch.full_like(result.scores, 0.5))


def test_a_reference_that_spells_the_groups_otherwise_is_refused():
    reference = table(seed=1).replace({"sex": {"Male": "M", "Female": "F"}})
    with pytest.raises(DataError, match="use the same spelling"):
        audited(by_income, table(), **QUICK, reference=reference)


def test_groups_and_labels_that_differ_only_in_spaces_or_capitals_are_named():
    people = table()
    people["paid"] = people["paid"].map({0: "no", 1: "yes"})
    people.loc[::7, "paid"] = "Yes "
    people.loc[::5, "sex"] = people["sex"].str.lower() + " "
    found = audited(by_income, people, **QUICK).warnings
    said, _, of_label = (text for text in found if "spaces or capitals" in text)
    assert of_label.startswith(
        "'Yes ' and 'yes' are separate values of 'paid', although only spaces or capitals differ"
    )
    assert said.startswith("'Female' and 'female ' are separate groups of 'sex', although")


def test_log_odds_and_decisions_are_noticed():
    result = audited(lambda t: (t["income"] - 3300) / 400, table(), **QUICK)
    assert any("if they are log-odds" in text for text in result.warnings)
    decided = audited(lambda t: (t["income"] > 3300) * 1.0, table(), **QUICK)
    assert any("The model returns only 0 and 1" in text for text in decided.warnings)


def test_numbers_that_came_as_text_are_named_in_warnings_and_where_a_model_fails():
    people = table().astype({"age": str})
    result = audited(by_income, people, **QUICK)
    assert any("'age' holds numbers as text: it is read as categories" in text for text in result.warnings)
    people.loc[3, "age"] = "forty"
    model = LinearRegression().fit(table()[["income"]], table()["income"])
    with pytest.raises(ModelError, match="'age' holds 'forty' among numbers: correct the table, fill the gaps"):
        audited(lambda t: model.predict(t[["age"]].astype(float)), people, **QUICK)
    people = table()
    people.loc[3, "income"] = np.nan
    with pytest.raises(ModelError, match=r"NaN.* 'income' lacks values: correct the table, fill the gaps, or leave"):
        audited(model, people, **QUICK, columns=["income"])


def test_a_model_that_answers_by_chance_is_noticed():
    noise = np.random.default_rng(0)
    result = audited(lambda t: noise.random(len(t)), table(), **QUICK)
    assert any("predicts differently when asked again" in text for text in result.warnings)


def test_a_threshold_that_is_no_probability_is_refused():
    with pytest.raises(OptionError, match="decision_threshold is 50, but predictions are probabilities"):
        audited(by_income, table(), **QUICK, decision_threshold=50)


def test_an_extreme_gradient_is_warned_about():
    def cliff(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(200 * (x[:, 0] - 3.3)) + 0.001 * x[:, 1]

    people = table()
    people["income"] /= 1000
    result = audited(cliff, people, **QUICK, drop=["job"], returns="value")
    assert any("gradient is extreme" in text for text in result.warnings)


def test_the_default_audit_of_a_black_box_asks_for_fourteen_predictions_a_person_and_one_a_draw_at_most():
    rng = np.random.default_rng(0)
    male = rng.integers(0, 2, 10_000)
    people = pd.DataFrame(rng.normal(0, 1, (10_000, 10)) + 0.3 * male[:, None], columns=[f"x{j}" for j in range(10)])
    asked = []

    def model(frame: pd.DataFrame) -> np.ndarray:
        asked.append(len(frame))
        return 1 / (1 + np.exp(-frame.sum(axis=1)))

    result = audited(model, people.assign(sex=male), protected="sex")
    assert result.interval is not None
    curve, cause = 12 * 20 * 500, 32 * 500  # correlations, draws, people; shifts, people
    assert sum(asked) <= (14 + 40) * len(people) + curve + cause


def test_a_function_that_leaves_the_range_of_probabilities_late_is_refused():
    people = table(1500)
    with pytest.raises(OptionError, match="probabilities lie within 0 and 1: say what they are"):
        audited(lambda t: np.where(t.index < 1000, 0.5, 2.0), people, **QUICK)


def mixed(n: int = 1500, seed: int = 0) -> pd.DataFrame:
    """Return people whose income depends on sex, race and age."""
    rng = np.random.default_rng(seed)
    people = table(n, seed)
    race = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    people["race"] = np.array(["White", "Black", "Asian"])[race]
    people["income"] += np.array([0, -900, 200])[race] + 4.0 * (people["age"] - 44)
    return people


def test_contributions_of_a_number_point_upwards_like_its_effect():
    result = audited(by_income, mixed(500), **(QUICK | {"protected": "age"}), gate=False)
    explained = ~result.features.effect.per_person.isnan().any(1)
    torch.testing.assert_close(result.features.effect.per_person[explained].sum(1), result.effect[explained])
    assert any("-" in towards for towards in result.findings[0].towards)
    assert float(result.effect.mean()) > 0  # income grows with age


def test_aligned_scores_of_several_variables_are_scaled_one_by_one():
    people = mixed(400)
    options = QUICK | {"protected": ["sex", "race"]}
    plain, aligned = (audited(by_income, people, **options, test=test) for test in ("rank", "rank/a"))
    for before, after in zip(plain.findings, aligned.findings, strict=True):
        torch.testing.assert_close(after.scores, before.scores * after.alignment_share)
    explained = ~aligned.features.effect.per_person.isnan().any(1)
    torch.testing.assert_close(aligned.features.effect.per_person[explained].sum(1), aligned.effect[explained])


def test_intersections_are_one_more_variable():
    asked = QUICK | {"protected": ["sex", "race"], "contrasts": "all"}
    result = audited(by_income, mixed(1800), **asked, intersections=True)
    crossing = result.findings[2]
    assert crossing.name == "sex x race"
    assert crossing.parts == ("sex", "race")
    assert len(crossing.levels) == 6
    women = torch.tensor([group == "Female & Black" for group in crossing.group])
    named = [crossing.towards[row] for row in women.nonzero()[:, 0].tolist()]
    assert named.count("Male & Asian") > 0.8 * len(named)  # 600 + 900 + 200 more


def test_many_classes_are_compared_with_the_largest_unless_all_are_wanted():
    asked = QUICK | {"protected": "race"}
    default, every = (audited(by_income, mixed(600), **asked, **more) for more in ({}, {"contrasts": "all"}))
    race = default.findings[0]
    sizes = sorted(race.levels, key=lambda level: -race.group.count(level))
    assert (race.reference, race.second) == tuple(sizes[:2])
    assert set(zip(race.group, race.towards, strict=True)) == {
        *((level, sizes[0]) for level in sizes[1:]),
        (sizes[0], sizes[1]),
    }
    reached = ~race.effects.isnan()
    assert reached.sum(1).tolist() == [1] * 600
    same = every.findings[0].effects[reached]  # but for what the displacements there and back have in common
    torch.testing.assert_close(race.effects[reached], same, atol=0.02, rtol=0)
    assert (every.findings[0].reference, every.findings[0].second) == (None, None)
    assert (default.settings["contrasts"], every.settings["contrasts"]) == ("largest", "all")


def test_rare_classes_are_put_together_and_the_rule_is_told():
    people = mixed()
    people.loc[people.index[:5], "race"] = "Other"
    people.loc[people.index[20:45], "race"] = "Native"
    with_rare = QUICK | {"protected": "race", "folds": 5, "refits": 1}
    result = audited(by_income, people, **with_rare, merge_rare=0.025)
    assert result.findings[0].merged == {"other (Native, Other)": ("Native", "Other")}
    with pytest.raises(DataError, match=r"Group 'Other' of 'race' has only 5 people .*--merge-rare"):
        audited(by_income, people, **with_rare)


def test_groups_may_have_deltas_and_limits_of_their_own():
    people = mixed(600)
    own = {"delta": {"": 0.2, "Female": 0.9}, "max_flagged": {"": 1.0, "sex=Male": 0.01}}
    result = audited(by_income, people, **(QUICK | {"refits": 5}), **own)
    women = torch.tensor([group == "Female" for group in result.findings[0].group])
    assert torch.equal(result.flagged, result.scores > torch.where(women, 0.9, 0.2))
    assert result.deltas == {"sex=Female": 0.9}
    assert result.settings["max_flagged"] == {"": 1.0, "sex=Male": 0.01}
    assert (result.verdict.word, result.verdict.variable, result.verdict.allowed) == ("fails", "sex=Male", 0.01)


@pytest.fixture(scope="module")
def unweighted() -> AuditRecord:
    """An audit to compare with those that have weights."""
    return audited(by_income, mixed(800), **QUICK)


def test_weights_count_in_shares_and_in_what_is_learnt(unweighted: AuditRecord):
    people = mixed(800)
    people["weight"] = np.where(people["income"] > 3300, 3.0, 1.0)
    result = audited(by_income, people, **QUICK, weights="weight")
    weight = torch.tensor(people["weight"].to_numpy())
    assert result.share_flagged == pytest.approx(float((weight * result.flagged).sum() / weight.sum()))
    assert "weight" not in result.settings["columns"]
    assert float((result.effect - unweighted.effect).abs().mean()) > 0.01  # ranks among weighted people are others
    with pytest.raises(DataError, match="weight"):
        audited(by_income, people.assign(weight=-1.0), **QUICK, weights="weight")


def test_equal_weights_count_in_nothing(unweighted: AuditRecord):
    result = audited(by_income, mixed(800).assign(weight=2.5), **QUICK, weights="weight")
    torch.testing.assert_close(result.effect, unweighted.effect)
    assert result.share_flagged == pytest.approx(unweighted.share_flagged)


def test_the_protected_column_may_live_in_another_table():
    people = mixed(600)
    panel = people[["name", "sex"]].sample(frac=0.8, random_state=0)
    options = {k: v for k, v in QUICK.items() if k != "id"}
    joined = audited(by_income, people.drop(columns="sex"), **options, protected_from=panel, on="name")
    assert joined.settings["matched_rows"] == 480
    assert int(joined.inferred.sum()) == 120
    assert "name" not in joined.settings["columns"]
    with pytest.raises(OptionError, match="--protected-from"):
        audited(by_income, people, **QUICK, on="name")


def test_a_reference_tells_the_groups_of_a_table_that_does_not():
    people, panel = mixed(800, seed=1), mixed(800, seed=0)
    blind = audited(by_income, people.drop(columns="sex"), **QUICK, reference=panel)
    seeing = audited(by_income, people, **QUICK, reference=panel)
    assert blind.inferred.all()
    assert not seeing.inferred.any()
    assert blind.findings[0].quality.rows > 0  # of the panel
    agree = np.mean([a == b for a, b in zip(blind.findings[0].group, seeing.findings[0].group, strict=True)])
    assert agree > 0.6


def test_where_nobody_s_group_is_known_the_way_out_is_told():
    people = mixed(100).assign(sex=None)
    with pytest.raises(DataError, match=r"has only missing values; give a reference .*--protected-from TABLE --on ID"):
        audited(by_income, people, **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intersections": True}, "at least two protected variables"),
        ({"reference_group": "Womn"}, "There is no group 'Womn'"),
        ({"delta": {"Femal": 0.1}}, "There is no group 'Femal'"),
        ({"delta": {"Female": -1}}, "delta of 'Female' is -1"),
        ({"max_flagged": {"Female": 2}}, "max_flagged of 'Female' is 2"),
        ({"max_flagged": {"Male": 0.1, "x": 0.2}}, "There is no group 'x'"),
        ({"protected": ["sex", "age"], "intersections": True}, "give a cut such as 'age<"),
        ({"protected": ["sex", "age"], "hold_others": True, "test": "faux+ng"}, "use rank, move or faux"),
    ],
)
def test_bad_options_about_groups_are_refused_in_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        audited(by_income, table(), **(QUICK | options))


def test_weights_of_a_second_variable_s_groups_count_for_the_first():
    people = mixed(1200)
    people["weight"] = np.where(people["race"] == "Black", 20.0, 1.0)
    one, two = (
        audited(by_income, people, **(QUICK | {"protected": names, "drop": ["race"]}), weights="weight")
        for names in (["sex"], ["sex", "race"])
    )
    for alone, together in zip(one.findings[0].groups, two.findings[0].groups, strict=True):
        assert together.mean_effect == pytest.approx(alone.mean_effect, abs=0.04)


@pytest.mark.parametrize("test", ["rank", "move"])
def test_held_values_that_some_lack_are_still_held(test: str):
    rng = np.random.default_rng(0)
    people = table(500).drop(columns="paid")
    age = 20 + 40 * (people["sex"] == "Male") + rng.normal(0, 8, 500)  # only age matters
    people["income"] = 2500 + 20 * age + rng.normal(0, 200, 500)
    options = QUICK | {"protected": ["sex", "age"], "test": test, "label": None}
    sizes = []
    for known in (1.0, 0.7):
        people["age"] = np.where(rng.random(500) < known, age, np.nan)
        result = audited(by_income, people, **options, hold_others=True)
        sizes.append(float(result.findings[0].scores.mean()))
    alone = audited(by_income, people, **options)
    assert max(sizes) < float(alone.findings[0].scores.mean()) / 2


def test_how_well_a_number_is_told_does_not_depend_on_the_reference_s_range():
    rng = np.random.default_rng(0)
    young, old = (pd.DataFrame({"age": rng.normal(mean, 5, 500)}) for mean in (30, 40))
    for frame in (young, old):
        frame["income"] = 2000 + 30 * frame["age"] + rng.normal(0, 20, 500)
    result = audited(by_income, old, protected="age", reference=young, refits=1)
    assert result.findings[0].quality.value > 0.5


def test_a_test_without_a_sign_still_tells_variables_apart():
    result = audited(by_income, mixed(300), **(QUICK | {"protected": ["sex", "race"]}), test="fta+linear")
    assert sum(result.worst_case.values()) == pytest.approx(1.0)
    assert set(scores_table(result)["variable"].to_pylist()) <= {"sex", "race"}
    assert "knows no protected variable" not in AuditResult(result).to_html()


def test_all_tests_that_apply_are_compared_with_rank():
    given = {"fliptest.steps": 20, "graph": {"income": ["sex"], "job": ["sex"]}}
    result = audited(by_income, table(200), test="all", settings=given, **QUICK)
    alone = audited(by_income, table(200), **QUICK)
    assert result.test == "rank"
    assert torch.equal(result.scores, alone.scores)
    compared = result.comparison
    assert set(compared.skipped) == {"faux+ig", "faux+ig/s", "unfair_map", "unawareness", "lic"}
    assert set(compared.tests) | set(compared.skipped) == {n for n in fairfox.FAIR_TESTS if not n.endswith("/a")}
    assert compared.scores.shape == (200, len(compared.tests))
    torch.testing.assert_close(compared.scores[:, compared.tests.index("rank")], result.scores.double())
    rank, graph = compared.tests.index("rank"), compared.tests.index("counterfactual")
    assert compared.agreement[rank, graph] > 0.7  # the model looks at income alone, and both let it shift with sex
    assert all(seconds > 0 for seconds in compared.seconds.values())


def test_fliptest_reports_its_checks_and_doubts():
    result = audited(by_income, table(200), test="fliptest", settings={"steps": 20, "width": 8}, **QUICK)
    assert set(result.checks) == {"ks", "ks_worst", "ks_unmapped", "ks_chance", "mse", "mse_real"}
    assert any("FlipTest's mapped people differ" in text for text in result.warnings)  # after 20 steps
    assert "distance of mapped people&#39;s features from real ones (KS)" in AuditResult(result).to_html()


def test_unfair_map_gives_a_bound_for_the_model():
    net = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())
    people = table(200)[["sex", "income", "age", "paid"]]
    options = {"protected": "sex", "label": "paid", "refits": 2, "folds": 2}
    result = audited(net, people, test="unfair_map", settings={"steps": 5}, **options)
    assert set(result.checks) == {"bound", "p_value", "mean", "non_finite"}
    judged = result.scores[~result.abstained].double()
    expected = judged.mean() - 1.645 * judged.std(correction=0) / len(judged) ** 0.5
    assert result.checks["bound"] == pytest.approx(float(expected))


def test_flips_are_the_people_whose_decision_changes_with_their_group(plain: AuditRecord):
    result = plain
    (finding,) = result.findings
    found = result.flips(finding)["sex=Female"]
    there = result.predictions + finding.effect
    female = torch.tensor([group == "Female" for group in finding.group])
    expected = (female & (result.predictions < 0.5) & (there >= 0.5)).nonzero()[:, 0]
    assert torch.equal(found.negative, expected)
    assert len(expected) > 10


def test_unawareness_tells_the_column_alone_from_its_proxies():
    def both(frame: Any) -> np.ndarray:
        return np.asarray(0.1 * (frame["sex"] == "Male") + 0.0001 * frame["income"] + 0.2)

    options = {**QUICK, "columns": ["sex", "income"]}
    result = audited(both, table(), test="unawareness", **options)
    torch.testing.assert_close(result.scores, torch.full((400,), 0.1).to(result.scores))
    assert result.checks == {"changed by sex": 1.0}
    with pytest.raises(OptionError, match="the model does not take 'sex'"):
        audited(by_income, table(), test="unawareness", **QUICK)


def test_fta_with_epsilon_speaks_of_changes_of_the_prediction():
    net = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())
    people = table(200)[["sex", "income", "age"]]
    result = audited(net, people, protected="sex", refits=2, folds=2, test="fta", settings={"epsilon": 0.5})
    assert result.unit == "largest change of the prediction found (probability)"
    assert result.delta == 0.05
    assert "at most epsilon" in result.meaning
    assert not result.is_effect


def test_progress_runs_from_start_to_end_and_a_long_training_tells_how_far_it_is():
    told: list[tuple[str, float]] = []
    options = {**QUICK, "settings": {"steps": 40, "width": 8}, "progress": lambda what, done: told.append((what, done))}
    audited(by_income, table(200), test="fliptest", **options)
    training = [done for what, done in told if what == "fitting: fliptest"]
    assert len(training) > 4  # more than the beginning in each fold
    fractions = [done for _, done in told]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


# --- given columns -------------------------------------------------------------------------------------------------


def overworked(n: int = 800) -> pd.DataFrame:
    """Return people of whom men work longer, and are paid by the hour and nothing else."""
    rng = np.random.default_rng(0)
    people = table(n)
    people["hours"] = 30 + 8 * (people["sex"] == "Male") + rng.normal(0, 5, n)
    people["income"] = 80 * people["hours"] + rng.normal(0, 100, n)
    return people


def test_what_hours_explain_is_no_effect_once_they_are_given():
    plain, kept = (audited(by_income, overworked(), **QUICK, given=own) for own in ((), "hours"))
    assert float(kept.scores.mean()) < 0.1 * float(plain.scores.mean())
    assert (plain.settings["given"], kept.settings["given"]) == (None, ["hours"])
    torch.testing.assert_close(kept.findings[0].direct, plain.findings[0].direct)  # whatever is given
    assert kept.meaning.startswith(plain.meaning)
    assert kept.meaning.endswith("and with them what they explain of the others: hours.")
    assert ", given hours; the limit is 5 %." in AuditResult(kept).summary()
