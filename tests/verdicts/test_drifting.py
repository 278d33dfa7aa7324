from dataclasses import replace

import numpy as np
import pytest

from fairfox.verdicts.drifting import Scores, drift_of_others, drift_of_same

DELTA = 0.05


def scores(values, error=0.0, *, refits=5, folds=5):
    values = np.asarray(values, dtype=float)
    return Scores(values, np.full(len(values), error), (values > DELTA).astype(float), DELTA, refits, folds)


@pytest.fixture
def people():
    return np.abs(np.random.default_rng(0).normal(0.08, 0.02, 300))


def test_the_same_audit_twice_is_not_worse(people):
    found = drift_of_same(scores(people, 0.01), scores(people, 0.01), margin=0.005, same_maps=True)
    assert found.word == "not worse"
    assert found.difference.value == found.bound == 0.0
    assert found.p_value == 1.0
    assert found.why.startswith("Of the same 300 people the mean score went from 0.0")


def test_a_rise_for_everyone_is_worse(people):
    found = drift_of_same(scores(people, 0.01), scores(people + 0.05, 0.015), margin=0.005, same_maps=True)
    assert found.word == "worse"
    assert found.difference.value == pytest.approx(0.05)
    assert found.p_value == pytest.approx(1 / 1001)
    assert found.shares[1] == 1.0


def test_a_rise_within_the_margin_does_not_count(people):
    found = drift_of_same(scores(people), scores(people + 0.002), margin=0.005, same_maps=True)
    assert found.p_value < 0.05
    assert found.word == "not worse"


def test_other_maps_scatter_by_what_few_re_fits_leave():
    # Each audit has 1 / (5 · 5) of the variance of one re-fit, 0.6² / 1.2 = 0.3, so √(2 · 0.3 / 25) = 0.155 in all.
    same, other = (
        drift_of_same(scores(np.full(50, 0.5), 0.6), scores(np.full(50, 0.5), 0.6), margin=0.005, same_maps=maps)
        for maps in (True, False)
    )
    assert same.difference.error == 0.0
    assert other.difference.error == pytest.approx(0.155, rel=0.1)
    assert other.word == "cannot tell"


def test_of_two_samples_both_scatter(people):
    # Errors of 0.02 each, of which a mean keeps √0.7: √2 · 0.02 · √0.7, and of people √2 · 0.02 / √300 beside it
    found = drift_of_others(scores(people, 0.02), scores(people[::-1] + 0.01, 0.02), margin=0.005)
    assert not found.paired
    assert found.difference.error == pytest.approx((2 * (0.02**2 * 0.7 + 0.02**2 / 300)) ** 0.5, rel=0.1)
    assert found.word == "cannot tell"
    assert found.why.startswith("Of 300 and 300 people")


def test_a_large_rise_between_two_samples_is_worse(people):
    found = drift_of_others(scores(people, 0.01), scores(people[:200] + 0.1, 0.01), margin=0.005)
    assert found.word == "worse"
    assert found.people == (300, 200)


def test_units_do_not_matter(people):
    one = drift_of_others(scores(people, 0.02), scores(people + 0.02, 0.02), margin=0.005)
    first, second = (
        replace(s, scores=10 * s.scores, errors=10 * s.errors, delta=10 * s.delta)
        for s in (scores(people, 0.02), scores(people + 0.02, 0.02))
    )
    ten = drift_of_others(first, second, margin=0.05)
    assert ten.word == one.word
    assert ten.difference.upper == pytest.approx(10 * one.difference.upper)
    assert ten.share_difference == one.share_difference
