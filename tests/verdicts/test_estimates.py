import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.verdicts.estimates import (
    errors_of_intervals,
    estimate,
    left_over,
    mean_draws,
    refit_error,
    refit_error_of_share,
    standard_error,
)
from fairfox.verdicts.intervals import interval, standard_errors


def test_all_of_a_persons_error_stays_in_a_mean_over_people_with_the_same_maps():
    assert left_over(5, None) == 1.0


def test_folds_that_share_most_people_take_little_of_it_away():
    # K = M = 5: (4/5 + 1/25) / (1 + 1/5) = 0.7; two halves share nobody: (1/2 + 1/10) / (6/5) = 0.5
    assert left_over(5, 5) == pytest.approx(0.7)
    assert left_over(5, 2) == pytest.approx(0.5)


def test_the_error_of_maps_does_not_average_out():
    assert refit_error(np.array([0.1, 0.3])) == pytest.approx(0.2)
    assert refit_error(np.array([0.1, 0.3]), np.array([3.0, 1.0]), part=0.25) == pytest.approx(0.075)
    assert refit_error(np.array([])) == 0.0


def test_the_error_of_a_share_is_half_of_what_it_grows_when_everyone_moves_by_an_error():
    # One error up: 3 of 4 are over 0.5; one down: 1 of 4.
    scores = np.array([0.1, 0.45, 0.55, 0.9])
    assert refit_error_of_share(scores, np.full(4, 0.1), 0.5) == pytest.approx(0.25)


def test_the_error_that_an_interval_stands_for_is_that_it_was_made_from():
    shared = torch.randn(1, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    refits = 0.2 + 0.05 * shared.expand(400, 5) * torch.linspace(0.9, 1.1, 400, dtype=torch.float64)[:, None]
    lower, upper = interval(refits).numpy().T
    found = errors_of_intervals(lower, upper, 5)
    assert found == pytest.approx(standard_errors(refits)[0].numpy(), rel=0.05)


def test_without_an_interval_nothing_is_known_of_the_maps():
    nothing = np.full(3, np.nan)
    assert errors_of_intervals(nothing, nothing, 1).tolist() == [0.0] * 3


def test_the_standard_error_has_a_part_of_people_and_a_part_of_maps():
    # sd of 0, 1, 0, 1 is 1/√3, over √4: 1/√12; with 0.5 of the maps √(1/12 + 1/4)
    values = np.array([0.0, 1.0, 0.0, 1.0])
    assert standard_error(values, 0.0) == pytest.approx(12**-0.5)
    assert standard_error(values, 0.5) == pytest.approx((1 / 12 + 1 / 4) ** 0.5)
    assert np.isnan(standard_error(values[:1], 0.5))


def test_draws_scatter_as_the_standard_error_says_and_are_the_same_again():
    values = np.random.default_rng(1).exponential(size=300)
    draws = mean_draws(values, 0.1, seed=3)
    assert mean_draws(values, 0.1, seed=3).tolist() == draws.tolist()
    assert draws.std() == pytest.approx(standard_error(values, 0.1), rel=0.1)
    found = estimate(float(values.mean()), draws)
    assert found.lower < found.value < found.upper
    assert found.upper - found.lower == pytest.approx(2 * 1.96 * found.error, rel=0.1)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0.5, 20))
def test_weights_count_by_their_proportions_only(values, scale):
    values, weights = np.array(values), np.arange(1.0, len(values) + 1)
    assert standard_error(values, 0.0, scale * weights) == pytest.approx(standard_error(values, 0.0, weights))
    one, other = (mean_draws(values, 0.0, w, seed=0) for w in (weights, scale * weights))
    assert one == pytest.approx(other)
