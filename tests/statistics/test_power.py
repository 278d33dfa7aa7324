"""How many people it takes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import OptionError
from fairfox.statistics.paired import FEWEST, Scores, people_needed, power


def test_at_the_limit_itself_an_effect_is_found_as_often_as_the_level_says():
    assert power(0.05, 0.05, 0.4, 300) == pytest.approx(0.05)
    assert power(0.05, 0.05, 0.4, 300, level=0.2) == pytest.approx(0.2)


def test_power_is_the_share_of_simulated_means_whose_lower_bound_is_above_the_limit():
    means = np.random.default_rng(0).normal(0.08, 0.3 / 20, 20_000)
    assert power(0.08, 0.05, 0.3, 400) == pytest.approx((means - 1.645 * 0.015 > 0.05).mean(), abs=0.01)


@given(st.floats(0.01, 0.5), st.floats(0.01, 2.0), st.floats(0.3, 0.99))
def test_the_people_needed_are_the_fewest_that_suffice(apart, spread, wanted):
    needed = people_needed(0.1 + apart, 0.1, spread, wanted=wanted)
    assert power(0.1 + apart, 0.1, spread, needed) >= wanted - 1e-9
    if needed > FEWEST:
        assert power(0.1 + apart, 0.1, spread, needed - 1) < wanted


@given(st.floats(1e-3, 1e3))
def test_units_do_not_matter(scale):
    assert people_needed(0.08 * scale, 0.05 * scale, 0.3 * scale) == pytest.approx(
        people_needed(0.08, 0.05, 0.3), abs=1
    )


def test_where_nothing_scatters_the_answer_is_certain():
    assert power(0.2, 0.1, 0.0, 10) == 1.0
    assert power(0.1, 0.1, 0.0, 10) == 0.0


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0.04, 0.05, 0.3), {}, "An effect of 0.04 is not above 0.05, so"),
        ((0.08, 0.05, math.nan), {}, "The spread is nan"),
        ((0.08, 0.05, 0.3), {"wanted": 1.0}, "power is 1.0"),
        ((0.08, 0.05, 0.3), {"level": 0.0}, "level 0.0; expected"),
        ((0.5, 0.0, 1e300), {}, r"An effect of 0.5 is too close to 0, with a spread of 1e\+300, for any"),
        ((5e-324, 0.0, 0.3), {}, "with a spread of 0.3, for any number of people to show that it is above"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, options, message):
    with pytest.raises(OptionError, match=message):
        people_needed(*arguments, **options)


def test_the_spread_of_a_mean_has_what_people_and_what_maps_scatter():
    # 100 people at 0.1 and 0.3: sd 0.1 · √(100/99); errors 0.02 with √0.7 of them left in the mean, times √100
    scores = np.array([0.1, 0.3] * 50)
    people = Scores(scores, np.full(100, 0.02), np.ones(100), 0.05, 5, 5)
    expected = 10 * np.hypot(0.1 / 99**0.5, 0.02 * 0.7**0.5)
    assert people.spread(by_share=False) == pytest.approx(expected)


def test_the_spread_of_a_share_grows_where_many_people_are_near_delta():
    far, near = (
        Scores(np.array([0.01, high] * 50), np.full(100, 0.02), np.array([0.0, 1.0] * 50), 0.05, 5, 5)
        for high in (0.5, 0.06)
    )
    assert far.spread(by_share=True) == pytest.approx(10 * 0.5 / 99**0.5)
    # With one error less, √0.7 · 0.02 = 0.0167, nobody is over 0.05 any more: half of 0.5
    assert near.spread(by_share=True) == pytest.approx(10 * np.hypot(0.5 / 99**0.5, 0.25))
