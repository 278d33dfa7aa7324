"""Who is over delta, and how surely: worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fairfox.certainty import Rule, certainty, towards_decision
from fairfox.data.contrasts import moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.verdicts.discoveries import benjamini_hochberg
from fairfox.verdicts.intervals import p_values

SEX = Protected("sex", "binary", ("Female", "Male"))
RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
NAN = math.nan


def measured(refits: list[Any], c: list[Any], *protected: Protected) -> Measurement:
    """Return what re-fits (M, N, Q) found."""
    values = torch.tensor(c, dtype=torch.float32).reshape(len(c), -1)
    data = Dataset.from_arrays(torch.zeros(len(c), 1), values, protected=list(protected))
    return combine(torch.tensor(refits), data, contrasts=moves(protected), signed=True)


def certain(found: Measurement, predictions: list[float], cut: float, *protected: Protected) -> dict[str, list[bool]]:
    sure = Rule(decision_threshold=cut).certainty(found, 0.05, torch.tensor(predictions), protected)
    marks = {"flags": sure.flags, "confident": sure.confident_flags, "perhaps": sure.perhaps, "listed": sure.listed}
    return {name: mark.tolist() for name, mark in marks.items() if mark is not None}


def test_p_values_and_the_list_are_those_of_the_people_alone():
    found = measured([[[0.1], [0.04], [NAN], [0.2]], [[0.12], [0.06], [NAN], [0.19]]], [0.0, 1.0, 0.0, 1.0], SEX)
    sure = certainty(found, 0.05, 0.2)
    judged = torch.tensor([True, True, False, True])
    assert sure.p_values is not None
    assert sure.listed is not None
    expected = p_values(found.refits[judged], 0.05)
    torch.testing.assert_close(sure.p_values[judged], expected)
    assert math.isnan(sure.p_values[2])
    assert sure.listed[judged].tolist() == benjamini_hochberg(expected, 0.2).tolist()
    assert not sure.listed[2]


def test_with_three_classes_a_p_value_counts_two_comparisons():
    one, two = [[0.3], [0.3]], [[0.32], [0.31]]
    alone = certainty(measured([one, two], [0.0, 1.0], SEX), 0.29, 0.1).p_values
    values = [[[NAN, v[0], 0.0] if n == 0 else [v[0], NAN, 0.0] for n, v in enumerate(fit)] for fit in (one, two)]
    both = certainty(measured(values, [0.0, 1.0], RACE), 0.29, 0.1).p_values
    assert alone is not None
    assert both is not None
    torch.testing.assert_close(both, (2 * alone).clamp(max=1.0))


def test_one_refit_flags_but_leaves_open_how_surely():
    sure = certainty(measured([[[0.1], [0.01]]], [0.0, 1.0], SEX), 0.05, 0.1)
    assert sure.flags.tolist() == [True, False]
    assert [sure.interval, sure.confident_flags, sure.perhaps, sure.p_values, sure.listed] == [None] * 5


def test_an_interval_that_reaches_delta_says_perhaps():
    found = measured([[[0.0], [0.1], [-0.04]], [[0.0], [0.102], [-0.05]]], [0.0, 0.0, 0.0], SEX)
    sure = certainty(found, 0.05, 0.1)
    assert sure.flags.tolist() == [False, True, False]
    assert sure.perhaps is not None
    assert sure.perhaps.tolist() == [False, True, True]


def test_decisions_turn_by_effects_towards_the_cut_and_past_it():
    # from 0.4 up by 0.2, up by 0.05, down by 0.2; from 0.6 down by 0.2, up by 0.2
    values = [[0.2], [0.05], [-0.2], [-0.2], [0.2]]
    found = measured([values, values], [0.0] * 5, SEX)
    told = certain(found, [0.4, 0.4, 0.4, 0.6, 0.6], 0.5, SEX)
    assert set(told) == {"flags", "confident", "perhaps", "listed"}
    assert all(mark == [True, False, False, True, False] for mark in told.values())


def test_a_smaller_effect_that_turns_the_decision_counts_beside_a_larger_one_that_does_not():
    # from 0.4: 0.3 down towards b, 0.15 up towards c
    values = [[NAN, -0.3, 0.15], [NAN, -0.3, 0.05]]
    found = measured([values, values], [0.0, 0.0], RACE)
    assert certain(found, [0.4, 0.4], 0.5, RACE)["flags"] == [True, False]
    assert found.score.tolist() == pytest.approx([0.3, 0.3])  # the score stays the largest


def test_a_number_that_goes_down_is_signed_as_if_it_went_up():
    # up: 0.01 less; down: the prediction rises by 0.2, written as -0.2
    found = measured([[[-0.01, -0.2]], [[-0.01, -0.2]]], [40.0], AGE)
    assert certain(found, [0.4], 0.5, AGE)["flags"] == [True]
    assert certain(found, [0.6], 0.5, AGE)["flags"] == [False]


def test_a_doubtful_effect_that_points_away_may_still_turn_the_decision():
    # from 0.49: on average 0.01 down, but one re-fit says up by 0.08
    found = measured([[[0.08]], [[-0.1]]], [0.0], SEX)
    told = certain(found, [0.49], 0.5, SEX)
    assert told == {"flags": [False], "confident": [False], "perhaps": [True], "listed": [False]}


def test_towards_the_decision_the_furthest_contrast_counts_and_the_abstained_stay_so():
    values = [[NAN, -0.3, 0.15], [NAN, NAN, NAN]]
    found = measured([values, values], [0.0, NAN], RACE)
    up, down = (towards_decision(found, torch.tensor([no, no]), (RACE,)) for no in (True, False))
    assert up.signed is not None
    assert down.signed is not None
    assert up.signed.tolist() == pytest.approx([0.15, 0.0])
    assert down.signed.tolist() == pytest.approx([0.3, 0.0])
    assert up.refits.tolist() == [pytest.approx([0.15, 0.15]), [0.0, 0.0]]
