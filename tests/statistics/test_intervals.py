"""How sure an effect is: intervals and p-values of people, and means over people with all of their error."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import normal
from scipy.stats import t

from fairfox.statistics import intervals
from fairfox.statistics.intervals import (
    errors_of_intervals,
    estimate,
    interval,
    interval_of,
    left_over,
    mean_draws,
    moderated,
    p_values,
    refit_error,
    refit_error_of_share,
    robust_interval,
    standard_error,
    standard_errors,
)


def test_of_one_person_the_interval_is_student_s_with_the_scatter_of_one_refit():
    # Mean 2, s² = 2, standard error √(2 · (1 + 1/2)) = √3 = 1.7321, t(.95, 1) = 6.3138.
    found = interval(torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[2 - 10.9357, 2 + 10.9357]]), atol=1e-3, rtol=0)


def test_scatter_that_people_have_in_common_is_found_though_each_has_few_refits():
    # All have s = 1: what is common counts as much as each one's own four degrees of freedom, so half of it is noise.
    error, freedom = standard_errors(normal(5_000, 5))
    assert freedom == 8.0
    own = normal(5_000, 5).var(1)
    torch.testing.assert_close(error.square() / 1.2, (own + 1.0) / 2, atol=0.03, rtol=0)


def test_scatter_that_differs_from_person_to_person_stays_their_own():
    scale = torch.logspace(-6, 6, 2_000, dtype=torch.float64)
    values = normal(2_000, 5) * scale[:, None]
    error, freedom = standard_errors(values)
    assert 4.0 < freedom < 4.5
    large = slice(1_000, None)  # what is common lies far below
    torch.testing.assert_close(error[large], values.std(1)[large] * math.sqrt(1.2), rtol=0.05, atol=0)


def test_the_common_variance_has_the_moments_of_log_s2():
    # True variances from a scaled inverse chi-square with 3 degrees of freedom around 0.04, which is then recovered.
    prior = 3.0
    chi = torch.distributions.Chi2(torch.tensor(prior, dtype=torch.float64))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        true = 0.04 * prior / chi.sample((100_000,))
    variance = (normal(100_000, 5, seed=2) * true.sqrt()[:, None]).var(1)
    found, freedom = moderated(variance, 4)
    assert freedom == pytest.approx(4 + prior, rel=0.03)
    common = (found * freedom - 4 * variance) / (freedom - 4)
    torch.testing.assert_close(common, torch.full_like(common, 0.04), rtol=0.03, atol=0)


def test_who_shows_no_scatter_is_as_unsure_as_people_are_in_general():
    values = torch.cat([normal(500, 5), torch.zeros(20, 5)])
    error, _ = standard_errors(values)
    alone, _ = standard_errors(values[:500])
    torch.testing.assert_close(error[:500], alone)  # they take no part in what is common
    assert (error[500:] > 0.5).all()


def test_where_nobody_s_refits_differ_there_is_no_error():
    found = interval(torch.full((3, 5), 0.1))
    torch.testing.assert_close(found, torch.full((3, 2), 0.1))
    assert (found[:, 0] == found[:, 1]).all()


@given(st.floats(1e-6, 1e6), st.integers(2, 6), st.integers(1, 12), st.randoms(use_true_random=False))
def test_intervals_scale_with_the_effects_and_go_with_the_people(factor, fits, people, random):
    values = normal(people, fits, seed=random.randint(0, 1000))
    torch.testing.assert_close(interval(factor * values), factor * interval(values), rtol=1e-6, atol=0)
    order = random.sample(range(people), people)
    torch.testing.assert_close(interval(values[order]), interval(values)[order])
    torch.testing.assert_close(interval(-values), -interval(values).flip(1))
    torch.testing.assert_close(p_values(factor * values, factor * 0.3), p_values(values, 0.3), rtol=1e-5, atol=1e-9)


def test_estimates_that_scatter_as_their_refits_are_held_nine_times_in_ten():
    true, own = normal(4_000, seed=3), normal(4_000, seed=4)
    values = (true + own)[:, None] + normal(4_000, 5, seed=5)  # re-fits scatter around the estimate as it does
    found = interval(values)
    held = ((found[:, 0] <= true) & (true <= found[:, 1])).double().mean()
    assert 0.885 < float(held) < 0.93  # what is common is trusted less than it could be here


def test_p_values_are_those_of_the_worst_effect_that_is_not_more_than_delta():
    values = normal(30, 5) + 1.0
    error, freedom = standard_errors(values)
    size = values.mean(1).abs()
    expected = t.sf(((size - 0.2) / error).numpy(), freedom) + t.sf(((size + 0.2) / error).numpy(), freedom)
    torch.testing.assert_close(p_values(values, 0.2), torch.as_tensor(expected).clamp(max=1.0))


def test_at_the_edge_of_the_null_hypothesis_p_values_are_uniform_and_inside_it_they_are_larger():
    own = normal(20_000, seed=6)[:, None] + normal(20_000, 5, seed=7)
    edge, inside = p_values(own + 3.0, 3.0), p_values(own + 1.0, 3.0)
    for level in (0.05, 0.2, 0.5):
        assert float((edge <= level).double().mean()) == pytest.approx(level, abs=0.02)
        assert float((inside <= level).double().mean()) < level


def test_without_any_scatter_an_effect_is_over_delta_or_not():
    values = torch.tensor([[0.3, 0.3], [0.1, 0.1], [-0.3, -0.3], [0.25, 0.25]])
    assert p_values(values, 0.25).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_intervals_have_the_type_of_the_refits_and_nobody_has_none():
    for people in (0, 6):
        values = normal(people, 5).float()
        found = interval(values), p_values(values, 0.1), standard_errors(values)[0]
        assert [each.dtype for each in found] == [torch.float32] * 3
        assert [each.shape for each in found] == [(people, 2), (people,), (people,)]


def test_abstained_people_have_no_part_in_the_intervals_of_others():
    values = normal(4, 5)
    found = interval_of(values, torch.tensor([False, True, False, False]))
    assert found[1].tolist() == [0.0, 0.0]
    torch.testing.assert_close(found[[0, 2, 3]], interval(values[[0, 2, 3]]))
    assert interval_of(values[:, :1], torch.zeros(4, dtype=torch.bool)) is None


def test_all_of_a_persons_error_stays_in_a_mean_over_people_with_the_same_maps():
    assert left_over(5, None) == 1.0


def test_folds_that_share_most_people_take_little_of_it_away():
    # K = M = 5: (4/5 + 1/25) / (1 + 1/5) = 0.7; two halves share nobody: (1/2 + 1/10) / (6/5) = 0.5
    assert left_over(5, 5) == pytest.approx(0.7)
    assert left_over(5, 2) == pytest.approx(0.5)


def test_the_error_of_maps_does_not_average_out():
    assert refit_error(np.array([0.1, 0.3])) == pytest.approx(0.2)
    assert refit_error(np.array([0.1, 0.3]), np.array([3.0, 1.0]), fraction=0.25) == pytest.approx(0.075)
    assert refit_error(np.array([])) == 0.0


def test_the_error_of_a_share_is_half_of_what_it_grows_when_everyone_moves_by_an_error():
    # One error up: 3 of 4 are over 0.5; one down: 1 of 4.
    scores = np.array([0.1, 0.45, 0.55, 0.9])
    assert refit_error_of_share(scores, np.full(4, 0.1), 0.5) == pytest.approx(0.25)


def test_the_error_that_an_interval_stands_for_is_that_it_was_made_from():
    shared = normal(1, 5)
    refits = 0.2 + 0.05 * shared.expand(400, 5) * torch.linspace(0.9, 1.1, 400, dtype=torch.float64)[:, None]
    lower, upper = interval(refits).numpy().T
    middle, error = refits.mean(1).numpy(), standard_errors(refits)[0].numpy()
    for low, high in ((lower, upper), (lower, middle), (middle, upper)):  # also where one end was cut
        assert errors_of_intervals(middle, low, high, 5) == pytest.approx(error, rel=0.05)


def test_without_an_interval_nothing_is_known_of_the_maps():
    nothing = np.full(3, np.nan)
    assert errors_of_intervals(np.zeros(3), nothing, nothing, 1).tolist() == [0.0] * 3


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


@pytest.mark.parametrize("kind", ["sizes", "weighted", "flagged", "few decide"])
def test_means_of_many_people_scatter_as_if_they_were_drawn_anew(kind: str, monkeypatch: pytest.MonkeyPatch):
    generator = np.random.default_rng(0)
    values = generator.exponential(size=3_000)
    if kind == "flagged":
        values = (values > 5).astype(float)  # of 20 people
    elif kind == "few decide":
        values[:3] = 1e4
    weights = generator.integers(1, 4, len(values)).astype(float) if kind == "weighted" else None
    drawn = mean_draws(values, 0.0, weights, seed=0)
    monkeypatch.setattr(intervals, "_MANY", 1_000)
    monkeypatch.setattr(intervals, "_ALIKE", 100)
    found = mean_draws(values, 0.0, weights, seed=0)
    assert (found == drawn).all() == (kind == "few decide")
    assert found.mean() == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 1000**0.5)
    assert np.quantile(found, [0.025, 0.975]) == pytest.approx(
        np.quantile(drawn, [0.025, 0.975]), abs=0.3 * drawn.std()
    )


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0.5, 20))
def test_weights_count_by_their_proportions_only(values, scale):
    values, weights = np.array(values), np.arange(1.0, len(values) + 1)
    assert standard_error(values, 0.0, scale * weights) == pytest.approx(standard_error(values, 0.0, weights))
    one, other = (mean_draws(values, 0.0, w, seed=0) for w in (weights, scale * weights))
    assert one == pytest.approx(other)


# --- where ranks persist in part -----------------------------------------------------------------------------------


def test_draws_that_add_nothing_leave_the_interval_and_the_p_values_as_they_are():
    refits, sampling = normal(20, 5), interval(normal(20, 5))
    torch.testing.assert_close(robust_interval(sampling, torch.zeros(20, 40).double()), sampling)
    # the error is the same, with the degrees of freedom of 5 refits
    torch.testing.assert_close(p_values(refits, 0.1, drawn=torch.zeros(20, 40).double()), p_values(refits, 0.1))


def test_what_draws_add_stands_at_right_angles_to_the_error_of_sampling():
    # 39 draws -19 .. 19: their 5 and 95 % quantiles are those of places 2 and 38, -18 and 18; hypot(18, 7.5) = 19.5
    drawn = torch.arange(-19.0, 20.0)[None]
    found = robust_interval(torch.tensor([[92.5, 107.5]]), drawn)
    torch.testing.assert_close(found, torch.tensor([[80.5, 119.5]]))
    # all draws 4 higher: from 104 as far again, and the interval of sampling is still inside
    found = robust_interval(torch.tensor([[92.5, 107.5]]), drawn * 0 + 4)
    torch.testing.assert_close(found, torch.tensor([[92.5, 111.5]]))


@given(st.integers(0, 200), st.integers(1, 40), st.floats(0.0, 3.0), st.floats(-3.0, 3.0))
@settings(deadline=None, max_examples=60)
def test_draws_widen_intervals_and_make_nothing_surer(seed: int, draws: int, scale: float, off: float):
    refits = normal(30, 4, seed=seed) + 1
    drawn = off + scale * normal(30, draws + 1, seed=seed + 1)
    sampling = interval(refits)
    robust = robust_interval(sampling, drawn)
    assert bool((robust[:, 0] <= sampling[:, 0]).all())
    assert bool((robust[:, 1] >= sampling[:, 1]).all())
    assert bool((p_values(refits, 0.5, drawn=drawn) >= p_values(refits, 0.5)).all())
