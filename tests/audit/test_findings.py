"""What an audit says about each protected variable, from readings made by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score

import fairfox
from fairfox.assessment import finding_of
from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.benchmark.worlds import LENDING
from fairfox.data.contrasts import derivatives, moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.effect import Share
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.fairtests.readings import Readings
from fairfox.findings import Finding
from fairfox.statistics.groups import Rule, own_deltas

SEX = Protected("sex", "binary", ("Female", "Male"))
RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
NAN = math.nan


def readings(values: list[Any], c: list[Any], *protected: Protected, **options: Any) -> Readings:
    """Return readings of two equal re-fits whose three tests all found the same values (N, Q)."""
    data = Dataset.from_arrays(torch.zeros(len(c), 1), torch.tensor(c).reshape(len(c), -1), protected=protected)
    if "weights" in options:
        data = Dataset(**{**vars(data), "weights": torch.tensor(options["weights"])})
    contrasts = options.get("contrasts", moves(protected))
    found: Measurement = combine(torch.tensor([values, values]), data, contrasts=contrasts, signed=bool(contrasts))
    inferred = torch.tensor(options.get("inferred", [[False] * len(protected)] * len(c)))
    qualities = tuple(AuxiliaryQuality(p.name, "auc", 0.8, 0.5, 0.5, 0.7, 10) for p in protected)
    signed = found if contrasts else combine(torch.zeros(2, len(c), 1), data, contrasts=moves(protected), signed=True)
    return Readings(
        main=found,
        direct=signed,
        total=signed,
        people=data,
        inferred=inferred,
        quality=qualities,
        proxy=tuple({"x0": 1.0} for _ in protected),
        alignment=tuple(Share(0.25, 0.01) for _ in protected),
    )


def finding(runs: Readings, variable: int = 0, **options: Any) -> Finding:
    defaults: dict[str, Any] = {
        "delta": 0.05,
        "fitted": runs.people,
        "merged": {},
        "predictions": torch.zeros(len(runs.people)),
        "rule": Rule(),
    }
    return finding_of(runs, variable, **defaults | options)


def test_two_groups_have_a_column_each_and_nobody_one_towards_their_own():
    found = finding(readings([[0.1], [-0.2]], [0.0, 1.0], SEX))
    assert found.contrasts == ("Female", "Male")
    torch.testing.assert_close(found.effects, torch.tensor([[NAN, 0.1], [-0.2, NAN]]), equal_nan=True)
    assert found.towards == ("Male", "Female")
    assert found.group == ("Female", "Male")
    assert found.groups[0].towards == {"Male": pytest.approx(0.1)}


def test_the_largest_of_many_classes_counts_and_is_named():
    values = [[NAN, 0.02, -0.3], [0.1, NAN, 0.04], [0.01, 0.02, NAN]]
    found = finding(readings(values, [0.0, 1.0, 2.0], RACE))
    assert found.towards == ("c", "a", "b")
    assert found.flagged.tolist() == [True, True, False]
    torch.testing.assert_close(found.effect, torch.tensor([-0.3, 0.1, 0.02]))
    assert found.groups[0].towards == {"b": pytest.approx(0.02), "c": pytest.approx(-0.3)}
    assert [group.share_flagged for group in found.groups] == [1.0, 1.0, 0.0]


def test_a_number_goes_up_and_down_by_one_standard_deviation():
    found = finding(readings([[0.1, 0.2], [0.3, NAN]], [30.0, 60.0], AGE))  # the standard deviation is 15
    assert found.contrasts == ("age + 15", "age - 15")
    assert found.towards == ("age - 15", "age + 15")


def test_a_number_s_groups_are_quarters_of_the_people_who_were_learnt_from():
    ages = [20.0, 30.0, 40.0, 50.0, 60.0]
    found = finding(readings([[0.1, 0.1]] * 5, ages, AGE))
    assert [group.level for group in found.groups] == ["below 25", "25 to below 35", "35 to below 45", "45 and above"]
    assert [group.people for group in found.groups] == [1, 1, 1, 2]
    assert found.group[-1] == "45 and above"
    old = readings([[0.1, 0.1]] * 5, [60.0, 70.0, 80.0, 90.0, 100.0], AGE)
    assert [group.people for group in finding(old, fitted=readings([[0.1, 0.1]] * 5, ages, AGE).people).groups] == [
        *(0, 0),
        *(0, 5),
    ]


def test_a_derivative_away_from_the_own_class_is_told_so():
    found = finding(readings([[0.5, 0.1, 0.1]], [0.0], RACE, contrasts=derivatives([RACE])))
    assert found.towards == ("away from a",)


def test_a_test_without_protected_variables_names_none():
    found = finding(readings([[0.5], [0.1]], [0.0, 1.0], SEX, contrasts=()))
    assert found.contrasts == ()
    assert found.effects.shape == (2, 0)
    assert found.towards == (None, None)
    assert found.effect is None
    assert found.groups[0].mean_effect is None


def test_each_variable_has_its_own_scores_and_abstentions():
    runs = readings([[0.1, NAN, NAN, NAN], [0.2, 0.3, NAN, 0.1]], [[0.0, NAN], [1.0, 1.0]], SEX, RACE)
    sex, race = finding(runs, 0), finding(runs, 1)
    assert sex.scores.tolist() == pytest.approx([0.1, 0.2])
    assert race.abstained.tolist() == [True, False]
    assert race.towards == (None, "a")
    assert race.group == ("unknown", "b")
    assert race.groups[0].people == 0
    assert math.isnan(race.groups[0].share_flagged)


def test_means_and_shares_are_weighted_and_counts_are_not():
    runs = readings([[0.1], [0.0], [-0.1]], [0.0, 0.0, 1.0], SEX, weights=[3.0, 1.0, 2.0])
    women = finding(runs, predictions=torch.tensor([0.2, 0.6, 0.5])).groups[0]
    assert women.people == 2
    assert women.share_flagged == pytest.approx(0.75)
    assert women.mean_effect == pytest.approx(0.075)
    assert women.mean_prediction == pytest.approx(0.3)  # (3 * 0.2 + 0.6) / 4


def test_inferred_people_are_counted_in_their_group():
    runs = readings([[0.1], [0.1], [0.1]], [0.0, 0.0, 1.0], SEX, inferred=[[True], [False], [True]])
    assert [group.inferred for group in finding(runs).groups] == [1, 1]


def test_of_several_own_deltas_the_strictest_counts():
    data = readings([[0.1, 0.1, NAN, 0.1]] * 3, [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], SEX, RACE).people
    assert own_deltas(data, 0.05, {}) == 0.05
    found = own_deltas(data, 0.05, {"sex=Female": 0.03, "race=b": 0.08})
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, torch.tensor([0.03, 0.08, 0.05]))


def test_a_finding_has_the_verdict_of_its_own_people():
    runs = readings([[0.2]] * 30 + [[0.0]] * 30 + [[NAN]], [0.0] * 61, SEX)
    verdict = finding(runs, rule=Rule(fdr=0.2, allowed=0.1)).verdict
    assert (verdict.word, verdict.variable) == ("fails", "sex")
    assert (verdict.judged, verdict.significant, verdict.possible, verdict.allowed) == (60, 30, 30, 0.1)
    assert verdict.reason.endswith("(50 %) are significantly affected: their effect is over delta; the limit is 10 %.")
    decided = finding(runs, rule=Rule(decision_threshold=0.3), predictions=torch.full((61,), 0.2)).verdict
    assert (decided.word, decided.significant) == ("fails", 30)
    assert decided.mean.value == pytest.approx(0.1)


def test_decisions_in_groups_and_at_intersections_are_those_of_fairlearn():
    rng = np.random.default_rng(0)
    people = LENDING.sample(300, seed=2).table.to_pandas()
    people["region"] = rng.choice(["north", "south", "far"], 300, p=[0.54, 0.43, 0.03])  # few live far away
    model = LogisticRegression(max_iter=1000).fit(people[["income", "debt_ratio"]], people["approved"])
    result = fairfox.audit(
        model, people, protected=["sex", "region"], label="approved", options={"refits": 2, "folds": 2}
    )
    yes = (model.predict_proba(people[["income", "debt_ratio"]])[:, 1] >= 0.5).astype(int)
    metrics = {
        "selection_rate": fairlearn.selection_rate,
        "true_positive_rate": fairlearn.true_positive_rate,
        "false_positive_rate": fairlearn.false_positive_rate,
        "accuracy": accuracy_score,
    }

    def by_group(columns: list[str]) -> pd.DataFrame:
        truth, own = people["approved"], people[columns]
        return fairlearn.MetricFrame(metrics=metrics, y_true=truth, y_pred=yes, sensitive_features=own).by_group

    fields = json.loads(result.to_json())
    assert fields["settings"]["audited_class"] == "1"
    for variable in fields["variables"]:
        expected = by_group([variable["name"]])
        for group in variable["groups"]:
            row = expected.loc[group["level"]].to_dict()
            assert {name: group[name] for name in metrics} == pytest.approx(row, rel=0, abs=1e-12)
            ratio = row["selection_rate"] / expected["selection_rate"].max()
            assert group["impact_ratio"] == pytest.approx(ratio, rel=0, abs=1e-12)
            low, high = group["intervals"]["selection_rate"]
            assert low < group["selection_rate"] < high
    expected = by_group(["sex", "region"])
    sizes = people.groupby(["sex", "region"]).size()
    assert [group["level"] for group in fields["intersections"]] == [
        " & ".join(cell) for cell, count in sizes.items() if count >= 5
    ]
    assert sizes.min() < 5  # rates of so few would tell of single people
    named = people.assign(approved=np.where(people["approved"] > 0, "a: yes", "b: no"))  # in the other order
    for positive, start in (
        (None, "Predictions are lower for people whose 'approved' is 'b: no' (AUC 0."),
        ("a: yes", ""),
    ):
        how = {"protected": "sex", "label": "approved", "options": {"refits": 1, "folds": 2, "positive": positive}}
        again = fairfox.audit(model, named, **how).record
        assert again.settings["audited_class"] == (positive or "b: no")
        assert [line.startswith(start) for line in again.warnings if "AUC 0." in line] == [True] * bool(start)
    assert again.performance == result.record.performance
    largest = max(group["selection_rate"] for group in fields["intersections"])
    for group in fields["intersections"]:
        row = expected.loc[tuple(group["level"].split(" & "))].to_dict()
        assert {name: group[name] for name in metrics} == pytest.approx(row, rel=0, abs=1e-12)
        assert group["impact_ratio"] == pytest.approx(row["selection_rate"] / largest, rel=0, abs=1e-12)
    assert result.groups["impact_ratio"].max() == 1
