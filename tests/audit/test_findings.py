"""What an audit says about each protected variable, from readings made by hand."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.data.contrasts import derivatives, moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.effect import Share
from fairfox.fairtests.fitted import Readings
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.findings import Finding, find, own_deltas
from fairfox.statistics.groups import Rule

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
        "spread": 10.0,
        "merged": {},
        "predictions": torch.zeros(len(runs.people)),
    }
    return find(runs, variable, **defaults | options)


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
    assert found.flags.tolist() == [True, True, False]
    torch.testing.assert_close(found.signed, torch.tensor([-0.3, 0.1, 0.02]))
    assert found.groups[0].towards == {"b": pytest.approx(0.02), "c": pytest.approx(-0.3)}
    assert [group.share_flagged for group in found.groups] == [1.0, 1.0, 0.0]


def test_a_number_goes_up_and_down_by_one_standard_deviation():
    found = finding(readings([[0.1, 0.2], [0.3, NAN]], [30.0, 60.0], AGE), spread=13.64)
    assert found.contrasts == ("age + 13.6", "age - 13.6")
    assert found.towards == ("age - 13.6", "age + 13.6")


def test_a_number_s_groups_are_quarters_of_the_people():
    ages = [20.0, 30.0, 40.0, 50.0, 60.0]
    found = finding(readings([[0.1, 0.1]] * 5, ages, AGE))
    assert [group.level for group in found.groups] == ["below 25", "25 to 35", "35 to 45", "45 and above"]
    assert [group.people for group in found.groups] == [1, 1, 1, 2]
    assert found.group[-1] == "45 and above"


def ranges_of(values: list[float]) -> list[str]:
    return [group.level for group in finding(readings([[0.1, 0.1]] * len(values), values, AGE)).groups]


def test_the_ranges_of_a_number_are_cut_at_values_that_several_people_have_or_at_nobody_s():
    # quartiles 20, 30, 40: the ranges begin with values that 10, or 1, people have
    assert ranges_of([10.0] * 10 + [20.0] * 10 + [30.0] * 10 + [40.0] * 10) == [
        *("below 20", "20 to 30"),
        *("30 to 40", "40 and above"),
    ]
    assert ranges_of([21.0, 34.0, 35.0, 36.0, 37.0]) == ["below 30", "30 to 34.5", "34.5 to 35.5", "35.5 and above"]
    assert ranges_of([-3.0, -0.0001, 0.0001, 5.0, 6.0]) == ["below -2", "-2 to 0", "0 to 3", "3 and above"]
    assert ranges_of([7.0] * 6) == ["any"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=40))
def test_the_ranges_of_a_number_hold_their_people_and_tell_nobody_s_value(values: list[float]):
    found = finding(readings([[0.1, 0.1]] * len(values), values, AGE))
    assert len({group.level for group in found.groups}) == len(found.groups)
    quartiles = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    quarters = [sum(value >= cut for cut in quartiles.tolist()) for value in values]
    assert len(set(zip(quarters, found.group, strict=True))) == len(found.groups)  # the same people together
    for value, level in zip(values, found.group, strict=True):
        bounds = [Decimal(word) for word in level.split() if word not in ("below", "to", "and", "above", "any")]
        low = bounds[0] if level.endswith("above") or " to " in level else Decimal("-Infinity")
        high = bounds[-1] if level.startswith("below") or " to " in level else Decimal("Infinity")
        assert low <= Decimal(value) < high
        assert all(values.count(value) >= 5 for value in values if Decimal(value) in bounds)


def test_a_derivative_away_from_the_own_class_is_told_so():
    found = finding(readings([[0.5, 0.1, 0.1]], [0.0], RACE, contrasts=derivatives([RACE])))
    assert found.towards == ("away from a",)


def test_a_test_without_protected_variables_names_none():
    found = finding(readings([[0.5], [0.1]], [0.0, 1.0], SEX, contrasts=()))
    assert found.contrasts == ()
    assert found.effects.shape == (2, 0)
    assert found.towards == (None, None)
    assert found.signed is None
    assert found.groups[0].mean_signed is None


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
    assert women.mean_signed == pytest.approx(0.075)
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


def test_people_are_flagged_by_their_own_delta():
    runs = readings([[0.06], [-0.06]], [0.0, 1.0], SEX)
    found = finding(runs, delta=own_deltas(runs.people, 0.05, {"sex=Male": 0.1}))
    assert found.flags.tolist() == [True, False]
    assert found.confident_flags is not None
    assert found.confident_flags.tolist() == [True, False]


def test_a_finding_has_the_verdict_of_its_own_people():
    runs = readings([[0.2]] * 30 + [[0.0]] * 30 + [[NAN]], [0.0] * 61, SEX)
    verdict = finding(runs, rule=Rule(fdr=0.2, allowed=0.1)).verdict
    assert verdict is not None
    assert (verdict.word, verdict.variable) == ("fails", "sex")
    assert (verdict.judged, verdict.surely, verdict.perhaps, verdict.allowed) == (60, 30, 30, 0.1)
    assert verdict.why.endswith("(at most 20 % of these wrongly), and no more than 10 % may be.")
    decided = finding(runs, rule=Rule(decision_threshold=0.3), predictions=torch.full((61,), 0.2)).verdict
    assert decided is not None
    assert "30 of 60 people are surely decided on otherwise" in decided.why
    assert decided.mean is not None
    assert decided.mean.value == pytest.approx(0.1)
