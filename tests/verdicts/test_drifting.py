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
    found = drift_of_same(scores(people), scores(people), margin=0.005)
    assert found.word == "not worse"
    assert found.difference.value == found.bound == 0.0
    assert found.p_value == 1.0
    assert found.why.startswith("Of the same 300 people the mean score went from 0.0")


def test_a_rise_for_everyone_is_worse(people):
    found = drift_of_same(scores(people, 0.01), scores(people + 0.05, 0.015), margin=0.005)
    assert found.word == "worse"
    assert found.difference.value == pytest.approx(0.05)
    assert found.p_value < 0.01
    assert found.shares[1] == 1.0


def test_a_rise_within_the_margin_does_not_count(people):
    found = drift_of_same(scores(people), scores(people + 0.002), margin=0.005)
    assert found.p_value < 0.05
    assert found.word == "not worse"


def test_what_the_maps_of_the_same_people_get_wrong_counts_for_both_audits():
    # Nobody differs from anyone: √(0.6² · 0.7 + 0.3² · 0.7) of maps alone, as for two samples
    values = np.full(50, 0.5)
    first, second = scores(values, 0.6), scores(values, 0.3)
    paired, others = (f(first, second, margin=0.005) for f in (drift_of_same, drift_of_others))
    assert paired.difference.error == pytest.approx((0.7 * (0.6**2 + 0.3**2)) ** 0.5, rel=0.1)
    assert others.difference.error == pytest.approx(paired.difference.error, rel=0.1)
    assert paired.word == "cannot tell"


def test_the_same_people_scatter_less_than_two_samples_of_them(people):
    first, second = scores(people), scores(people + 0.002)
    assert drift_of_same(first, second, margin=0.0).word == "worse"
    assert drift_of_others(first, second, margin=0.0).word == "cannot tell"


@pytest.mark.parametrize("same", [True, False], ids=["the same people", "two samples"])
def test_a_model_that_stays_as_it_is_is_rarely_found_worse(same):
    # What maps get wrong moves everyone of an audit together, by an error of which a mean keeps √0.7
    rng, judge, worse = np.random.default_rng(0), drift_of_same if same else drift_of_others, 0
    for _ in range(100):
        who = rng.normal(0.3, 0.05, (2, 60))
        audits = [scores(who[0 if same else k] + rng.normal(0, 0.02 * 0.7**0.5), 0.02) for k in range(2)]
        worse += judge(*audits, margin=0.0).word == "worse"
    assert worse <= 11  # 5 expected, and three standard deviations more


@pytest.mark.parametrize("judge", [drift_of_same, drift_of_others])
def test_without_the_error_of_the_maps_nothing_can_be_told(people, judge):
    first, second = scores(people), scores(people + 0.05)
    found = judge(first, replace(second, maps_known=False), margin=1.0)
    assert found.word == "cannot tell"
    assert "one re-fit leaves open how sure the maps are" in found.why
    assert found.share_difference is None
    by_cut = judge(first, replace(second, by_delta=False), margin=0.005)
    assert by_cut.word == "worse"
    assert by_cut.share_difference is by_cut.share_p_value is None


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
