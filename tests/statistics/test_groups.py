"""Who is over delta, and how sure that is: worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.choices.tests import FAIR_TESTS
from fairfox.data.contrasts import moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.statistics.groups import (
    Decisions,
    Rule,
    certainty,
    confident_flag,
    decision_limits,
    default_delta,
    flag,
    judged_share,
    net_share,
    weighted_mean,
)
from fairfox.statistics.intervals import p_values
from fairfox.statistics.multiplicity import benjamini_hochberg

SEX = Protected("sex", "binary", ("Female", "Male"))


RACE = Protected("race", "categorical", ("a", "b", "c"))


AGE = Protected("age", "continuous", ())


NAN = math.nan


def measured(refits: list[Any], c: list[Any], *protected: Protected) -> Measurement:
    """Return what refits (M, N, Q) found."""
    values = torch.tensor(c, dtype=torch.float32).reshape(len(c), -1)
    data = Dataset.from_arrays(torch.zeros(len(c), 1), values, protected=list(protected))
    return combine(torch.tensor(refits), data, contrasts=moves(protected), signed=True)


def certain(found: Measurement, predictions: list[float], cut: float, *protected: Protected) -> dict[str, list[bool]]:
    sure = Rule(decision_threshold=cut).certainty(found, 0.05, torch.tensor(predictions))
    marks = {
        "flagged": sure.flagged,
        "confident": sure.confident,
        "possible": sure.possible,
        "listed": sure.significant,
    }
    return {name: mark.tolist() for name, mark in marks.items() if mark is not None}


def test_p_values_and_the_list_are_those_of_the_people_alone():
    found = measured([[[0.1], [0.04], [NAN], [0.2]], [[0.12], [0.06], [NAN], [0.19]]], [0.0, 1.0, 0.0, 1.0], SEX)
    sure = certainty(found, 0.05, 0.2)
    judged = torch.tensor([True, True, False, True])
    expected = p_values(found.refits[judged], 0.05)
    torch.testing.assert_close(sure.p_values[judged], expected)
    assert math.isnan(sure.p_values[2])
    assert sure.significant[judged].tolist() == benjamini_hochberg(expected, 0.2).tolist()
    assert not sure.significant[2]


def test_with_three_classes_a_p_value_counts_two_comparisons():
    one, two = [[0.3], [0.3]], [[0.32], [0.31]]
    alone = certainty(measured([one, two], [0.0, 1.0], SEX), 0.29, 0.1).p_values
    values = [[[NAN, v[0], 0.0] if n == 0 else [v[0], NAN, 0.0] for n, v in enumerate(fit)] for fit in (one, two)]
    both = certainty(measured(values, [0.0, 1.0], RACE), 0.29, 0.1).p_values
    assert alone is not None
    assert both is not None
    torch.testing.assert_close(both, (2 * alone).clamp(max=1.0))


def test_an_interval_of_a_probability_ends_at_0_and_1_towards_the_first_of_three_classes_too():
    rising = [[0.1, NAN, NAN], [0.95, NAN, NAN]]  # towards class 0; the second would get more than 1
    sure = certainty(measured([rising, rising], [1.0, 2.0], RACE), 0.05, 0.1, within=torch.tensor([0.03, 0.2]))
    torch.testing.assert_close(sure.interval, torch.tensor([[0.1, 0.1], [0.8, 0.8]]))
    assert sure.possible.tolist() == [True, True]


def test_one_refit_flags_but_gives_no_interval():
    sure = certainty(measured([[[0.1], [0.01]]], [0.0, 1.0], SEX), 0.05, 0.1)
    assert sure.flagged.tolist() == [True, False]
    assert [sure.interval, sure.confident, sure.possible, sure.p_values, sure.significant] == [None] * 5


def test_decisions_turn_by_effects_towards_the_cut_and_past_it():
    # from 0.4 up by 0.2, up by 0.05, down by 0.2; from 0.6 down by 0.2, up by 0.2
    values = [[0.2], [0.05], [-0.2], [-0.2], [0.2]]
    found = measured([values, values], [0.0] * 5, SEX)
    told = certain(found, [0.4, 0.4, 0.4, 0.6, 0.6], 0.5, SEX)
    assert set(told) == {"flagged", "confident", "possible", "listed"}
    assert all(mark == [True, False, False, True, False] for mark in told.values())


def test_a_smaller_effect_that_turns_the_decision_counts_beside_a_larger_one_that_does_not():
    # from 0.4: 0.3 down towards b, 0.15 up towards c
    values = [[NAN, -0.3, 0.15], [NAN, -0.3, 0.05]]
    found = measured([values, values], [0.0, 0.0], RACE)
    assert certain(found, [0.4, 0.4], 0.5, RACE)["flagged"] == [True, False]
    assert found.score.tolist() == pytest.approx([0.3, 0.3])  # the score stays the largest


def test_a_number_that_goes_down_is_signed_as_if_it_went_up():
    # up: 0.01 less; down: the prediction rises by 0.2, written as -0.2
    found = measured([[[-0.01, -0.2]], [[-0.01, -0.2]]], [40.0], AGE)
    assert certain(found, [0.4], 0.5, AGE)["flagged"] == [True]
    assert certain(found, [0.6], 0.5, AGE)["flagged"] == [False]


def test_a_doubtful_effect_that_points_away_may_still_turn_the_decision():
    # from 0.49: on average 0.01 down, but one refit says up by 0.08
    found = measured([[[0.08]], [[-0.1]]], [0.0], SEX)
    told = certain(found, [0.49], 0.5, SEX)
    assert told == {"flagged": [False], "confident": [False], "possible": [True], "listed": [False]}


SCORES = torch.tensor([0.04, 0.05, 0.06, 0.9])


def test_scores_above_delta_are_flagged_and_scores_at_delta_are_not():
    assert flag(SCORES, 0.05).tolist() == [False, False, True, True]
    assert flag(SCORES, 0).tolist() == [True] * 4


def test_abstained_people_are_never_flagged():
    abstained = torch.tensor([False, False, False, True])
    assert flag(SCORES, 0.05, abstained=abstained).tolist() == [False, False, True, False]
    interval = torch.tensor([[0.1, 0.2]] * 4)
    assert confident_flag(interval, 0.05, abstained=abstained).tolist() == [True, True, True, False]


def test_a_confident_flag_needs_the_whole_interval_beyond_delta_on_one_side():
    interval = torch.tensor([[0.06, 0.2], [0.04, 0.2], [-0.2, -0.06], [-0.2, -0.04], [-0.2, 0.2], [0.05, 0.1]])
    assert confident_flag(interval, 0.05).tolist() == [True, False, True, False, False, False]


def test_a_decision_is_as_far_away_as_the_prediction_is_from_the_cut():
    predictions = torch.tensor([0.2, 0.5, 0.9])
    torch.testing.assert_close(decision_limits(predictions, 0.5), torch.tensor([0.3, 0.0, 0.4]))
    torch.testing.assert_close(decision_limits(10 * predictions - 7, -2.0), torch.tensor([3.0, 0.0, 4.0]))


@given(st.integers(0, 64), st.integers(0, 64), st.integers(1, 63))
def test_an_effect_above_the_limit_is_one_that_turns_the_decision_ties_included(here: int, there: int, cut: int):
    # multiples of 1/64, so that differences are exact and many predictions lie on the cut itself
    f, other, c = here / 64, there / 64, cut / 64
    (limit,) = decision_limits(torch.tensor([f]), c).tolist()
    towards = other - f if f < c else f - other
    assert (towards > limit) == ((f >= c) != (other >= c))


def test_default_delta_of_a_value_is_a_share_of_its_usual_range():
    # 0 to 100 in steps of 1: the 1st percentile is 1, the 99th 99
    predictions = torch.arange(101.0)
    assert default_delta(FAIR_TESTS["rank"], predictions, unit="value") == pytest.approx(0.05 * 98)
    assert default_delta(FAIR_TESTS["rank"], 1e6 + predictions, unit="logit") == pytest.approx(0.05 * 98)


def test_millions_of_predictions_are_thinned_evenly():
    predictions = torch.arange(20_000_001.0)  # torch.quantile takes at most 16 million
    assert default_delta(replace(FAIR_TESTS["rank"], delta=1.0), predictions, unit="value") == pytest.approx(
        0.98 * 20e6, rel=1e-3
    )


@pytest.mark.parametrize(
    ("predictions", "unit"), [([0.4, 0.6], "probability"), ([7.0, 7.0, 7.0], "value"), ([], "value")]
)
def test_of_probabilities_and_predictions_without_a_range_the_default_delta_is_the_share_itself(predictions, unit):
    assert default_delta(FAIR_TESTS["rank"], torch.tensor(predictions), unit=unit) == 0.05


def test_the_mean_counts_people_by_their_weights():
    assert weighted_mean(np.array([1.0, 4.0]), np.array([3.0, 1.0])) == pytest.approx(1.75)  # (3 + 4) / 4
    assert math.isnan(weighted_mean(np.array([]), np.array([])))
    assert weighted_mean(np.array([5.0]), np.array([0.0]), nobody=0.0) == 0.0


def test_the_share_is_that_of_judged_people():
    marked, abstained = torch.tensor([True, False, True, True]), torch.tensor([False, False, False, True])
    assert judged_share(marked, abstained, None) == pytest.approx(2 / 3)
    assert judged_share(marked, abstained, torch.tensor([1.0, 2.0, 3.0, 9.0])) == pytest.approx(4 / 6)
    assert judged_share(marked, torch.ones(4, dtype=torch.bool), None) == 0.0


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 5)), min_size=1, max_size=20))
def test_a_weight_stands_for_as_many_people(people: list[tuple[float, int]]):
    values, weights = (np.array(each, dtype=np.float64) for each in zip(*people, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    assert weighted_mean(values, weights) == pytest.approx(repeated.mean(), abs=1e-9)


# --- where ranks persist in part -----------------------------------------------------------------------------------


def test_people_over_the_limit_count_less_those_who_go_the_other_way():
    # of four women two gain and one loses, of two men one loses: (1 + 1) / 6; refits agree
    net = torch.tensor([1.0, 1.0, -1.0, 0.0, -1.0, 0.0]).double()[:, None].expand(-1, 3)
    groups, weights = torch.tensor([0.0, 0, 0, 0, 1, 1]), torch.ones(6).double()
    assert net_share(net, groups, weights) == pytest.approx(2 / 6)
    assert net_share(net, groups * 0, weights) == pytest.approx(0.0)  # one group: two up, two down
    assert net_share(net, groups, torch.tensor([0.0, 1, 1, 1, 3, 0]).double()) == pytest.approx(3 / 6)


def test_refits_that_disagree_about_the_net_share_leave_nothing():
    net = torch.tensor([[1.0, 0.0, 1.0, 0.0]]).double().expand(10, -1)
    assert net_share(net, torch.zeros(10), torch.ones(10).double()) == 0.0


def drawn(deviations: list[float], refits: list[float]) -> Measurement:
    """Return people of two groups with effects .1 in both refits, and what draws add: the same for all."""
    found = measured([[[r]] * 4 for r in refits], [0, 1, 0, 1], SEX)
    return replace(found, deviations=torch.tensor(deviations)[:, None, None].expand(-1, 4, 1))


def test_draws_widen_the_interval_and_leave_effect_flags_and_sampling():
    still, moving = (drawn(each, [0.1, 0.1]) for each in ([0.0, 0.0], [-0.08, 0.08]))
    before, after = (certainty(each, 0.05, 0.1) for each in (still, moving))
    assert before.flagged.tolist() == after.flagged.tolist() == [True] * 4
    torch.testing.assert_close(before.sampling, after.sampling)
    torch.testing.assert_close(before.interval, before.sampling)
    torch.testing.assert_close(after.interval, torch.tensor([[0.02, 0.18]]).expand(4, 2))
    assert (before.confident.tolist(), after.confident.tolist()) == ([True] * 4, [False] * 4)
    assert after.significant.tolist() == [True] * 4  # the list where ranks persist
    assert after.robust.tolist() == [False] * 4
    assert after.possible.tolist() == before.possible.tolist()


def test_intervals_of_probabilities_end_where_probabilities_do():
    found = certainty(drawn([-0.4, 0.4], [0.1, 0.1]), 0.05, 0.1, within=torch.tensor([0.1, 0.5, 0.8, 1.0]))
    expected = torch.tensor([[-0.1, 0.5], [-0.3, 0.5], [-0.3, 0.2], [-0.3, 0.0]])
    torch.testing.assert_close(found.interval, expected)


def test_the_intervals_of_rates_and_ratios_are_those_of_scipy():
    rng = np.random.default_rng(1)
    predictions, truth = torch.tensor(rng.random(200)), torch.tensor((rng.random(200) < 0.3).astype(float))
    first, second = torch.arange(200) < 70, torch.arange(200) >= 70
    found = Decisions(0.7, truth).rates(predictions, torch.ones(200), [first, second])
    yes = predictions >= 0.7
    counts = [(int((yes & own).sum()), int(own.sum())) for own in (first, second)]
    counted = {"selection_rate": counts[0]}
    counted["true_positive_rate"] = (int((yes & first & (truth == 1)).sum()), int((first & (truth == 1)).sum()))
    counted["false_positive_rate"] = (int((yes & first & (truth == 0)).sum()), int((first & (truth == 0)).sum()))
    counted["accuracy"] = (int(((yes == (truth == 1)) & first).sum()), 70)
    for name, (cases, people) in counted.items():
        expected = scipy.stats.binomtest(cases, people).proportion_ci(0.95, method="wilson")
        assert found[0]["intervals"][name] == pytest.approx((expected.low, expected.high), abs=1e-12)
    (small,) = [own for own in found if own["impact_ratio"] < 1]
    (few, all_few), (many, all_many) = sorted(counts, key=lambda each: each[0] / each[1])
    expected = scipy.stats.contingency.relative_risk(few, all_few, many, all_many)
    assert small["impact_ratio"] == pytest.approx(expected.relative_risk, abs=1e-12)
    assert small["intervals"]["impact_ratio"] == pytest.approx(expected.confidence_interval(0.95), abs=1e-12)


def test_weights_that_are_all_alike_change_no_interval_and_uneven_ones_widen_it():
    predictions, members = torch.tensor([0.9, 0.1] * 20), [torch.ones(40, dtype=torch.bool)]

    def width(weights: torch.Tensor) -> float:
        low, high = Decisions(0.5).rates(predictions, weights, members)[0]["intervals"]["selection_rate"]
        return high - low

    assert width(torch.full((40,), 3.0)) == pytest.approx(width(torch.ones(40)))
    assert width(torch.tensor([1.0] * 20 + [9.0] * 20)) > 1.1 * width(torch.ones(40))


def test_rates_without_outcomes_and_of_groups_that_get_no_yes():
    predictions, weights = torch.tensor([0.9, 0.1, 0.2]), torch.ones(3)
    members = [torch.tensor([True, True, False]), torch.tensor([False, False, True]), torch.zeros(3, dtype=torch.bool)]
    first, none, nobody = Decisions(0.5).rates(predictions, weights, members)
    assert (first["selection_rate"], first["impact_ratio"], none["selection_rate"], none["impact_ratio"]) == (
        0.5,
        1,
        0,
        0,
    )
    assert set(first["intervals"]) == {"selection_rate"}  # it has the highest rate: its ratio is 1 for certain
    low, high = none["intervals"]["impact_ratio"]
    assert low == 0
    assert math.isnan(high)
    assert math.isnan(nobody["selection_rate"])
    unknown = Decisions(0.5, torch.tensor([1.0, math.nan, 0.0])).rates(predictions, weights, members[:1])[0]
    assert (unknown["accuracy"], unknown["true_positive_rate"]) == (1.0, 1.0)  # of one known outcome
    assert math.isnan(unknown["false_positive_rate"])
