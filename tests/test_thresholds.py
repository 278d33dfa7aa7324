"""Flags and deltas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import OptionError
from fairfox.thresholds import confident_flag, decision_limits, default_delta, flag

SCORES = torch.tensor([0.04, 0.05, 0.06, 0.9])


def test_scores_above_delta_are_flagged_and_scores_at_delta_are_not():
    assert flag(SCORES, 0.05).tolist() == [False, False, True, True]
    assert flag(SCORES, 0).tolist() == [True] * 4


def test_abstained_people_are_never_flagged():
    abstained = torch.tensor([False, False, False, True])
    assert flag(SCORES, 0.05, abstained=abstained).tolist() == [False, False, True, False]
    interval = torch.tensor([[0.1, 0.2]] * 4)
    assert confident_flag(interval, 0.05, abstained=abstained).tolist() == [True, True, True, False]


@pytest.mark.parametrize("delta", [-0.1, float("nan")])
def test_a_delta_that_is_no_threshold_is_refused(delta):
    with pytest.raises(OptionError, match=rf"delta is {delta}; expected a number of at least 0"):
        flag(SCORES, delta)


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


def test_default_delta_of_a_probability_is_the_share_itself():
    assert default_delta(0.05, torch.tensor([0.4, 0.6]), unit="probability") == 0.05


def test_default_delta_of_a_value_is_a_share_of_its_usual_range():
    # 0 to 100 in steps of 1: the 1st percentile is 1, the 99th 99
    predictions = torch.arange(101.0)
    assert default_delta(0.05, predictions, unit="value") == pytest.approx(0.05 * 98)
    assert default_delta(0.05, 1e6 + predictions, unit="logit") == pytest.approx(0.05 * 98)


def test_one_outlier_hardly_moves_the_default_delta():
    predictions = torch.arange(1001.0)
    outlier = predictions.clone()
    outlier[-1] = 1e9
    assert default_delta(0.05, outlier, unit="value") == pytest.approx(
        default_delta(0.05, predictions, unit="value"), rel=1e-3
    )


def test_a_constant_or_absent_prediction_leaves_the_share():
    assert default_delta(0.05, torch.full((9,), 7.0), unit="value") == 0.05
    assert default_delta(0.05, torch.zeros(0), unit="value") == 0.05


def test_millions_of_predictions_are_thinned_evenly():
    predictions = torch.arange(20_000_001.0)  # torch.quantile takes at most 16 million
    assert default_delta(1.0, predictions, unit="value") == pytest.approx(0.98 * 20e6, rel=1e-3)
