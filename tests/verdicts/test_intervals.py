"""How sure an effect is."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, polygamma
from scipy.stats import t

from fairfox.errors import OptionError, ShapeError
from fairfox.verdicts.intervals import interval, moderated, p_values, standard_errors


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_of_one_person_the_interval_is_student_s_with_the_scatter_of_one_refit():
    # Mean 2, s² = 2, standard error √(2 · (1 + 1/2)) = √3 = 1.7321, t(.95, 1) = 6.3138.
    found = interval(torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[2 - 10.9357, 2 + 10.9357]]), atol=1e-3, rtol=0)


def test_more_refits_do_not_make_the_interval_shrink_to_nothing():
    widths = [float(standard_errors(normal(400, fits))[0].mean()) for fits in (5, 50, 500)]
    assert widths == pytest.approx([math.sqrt(1 + 1 / fits) for fits in (5, 50, 500)], rel=0.05)


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


def test_moments_by_an_independent_formula():
    variance = torch.tensor([0.01, 0.1, 0.4, 2.0, 90.0], dtype=torch.float64)
    found, freedom = moderated(variance, 4)
    spread = float(variance.log().var()) - float(polygamma(1, 2.0))
    prior = freedom - 4
    assert float(polygamma(1, prior / 2)) == pytest.approx(spread)
    log = float(variance.log().mean()) - digamma(2.0) + math.log(2.0) + digamma(prior / 2) - math.log(prior / 2)
    torch.testing.assert_close(found, (prior * math.exp(log) + 4 * variance) / freedom)


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


def test_a_higher_level_is_wider_and_ninety_per_cent_is_the_usual_one():
    values = normal(50, 5)
    narrow, usual, wide = (interval(values, level=level) for level in (0.5, 0.9, 0.99))
    assert (wide[:, 0] < usual[:, 0]).all()
    assert (usual[:, 0] < narrow[:, 0]).all()
    assert torch.equal(usual, interval(values))


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


def test_everyone_may_have_their_own_delta():
    values = normal(2, 5) + 2.0
    both = p_values(values, torch.tensor([0.0, 5.0]))
    torch.testing.assert_close(both, torch.stack([p_values(values, 0.0)[0], p_values(values, 5.0)[1]]))


def test_without_any_scatter_an_effect_is_over_delta_or_not():
    values = torch.tensor([[0.3, 0.3], [0.1, 0.1], [-0.3, -0.3], [0.25, 0.25]])
    assert p_values(values, 0.25).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_results_have_the_type_of_the_refits():
    values = normal(6, 5, dtype=torch.float32)
    for found in (interval(values), p_values(values, 0.1), standard_errors(values)[0]):
        assert found.dtype == torch.float32


def test_nobody_has_no_interval():
    assert interval(torch.zeros(0, 5)).shape == (0, 2)
    assert p_values(torch.zeros(0, 5), 0.1).shape == (0,)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 0)])
def test_one_refit_says_nothing_about_its_error(shape):
    with pytest.raises(ShapeError, match="at least two re-fits"):
        interval(torch.zeros(shape))


@pytest.mark.parametrize("level", [0.0, 1.0, 90.0, float("nan")])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(OptionError, match="between 0 and 1"):
        interval(normal(3, 5), level=level)


@pytest.mark.parametrize("delta", [-0.1, float("nan")])
def test_a_delta_that_is_no_size_is_refused(delta):
    with pytest.raises(OptionError, match="at least 0"):
        p_values(normal(3, 5), delta)


def test_a_delta_for_other_people_is_refused():
    with pytest.raises(ShapeError, match="2 values of delta for 3 people"):
        p_values(normal(3, 5), torch.tensor([0.1, 0.2]))
