import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import OptionError
from fairfox.verdicts.power import FEWEST, p_above, people_needed, power


def test_at_the_limit_itself_an_effect_is_found_as_often_as_the_level_says():
    assert power(0.05, 0.05, 0.4, 300) == pytest.approx(0.05)
    assert power(0.05, 0.05, 0.4, 300, level=0.2) == pytest.approx(0.2)


def test_an_effect_of_exactly_the_critical_size_is_found_half_of_the_time():
    # z = 1.645 standard errors above the limit, of 0.4 / 20 each
    assert power(0.05 + 1.6448536 * 0.02, 0.05, 0.4, 400) == pytest.approx(0.5)


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
    assert p_above(0.2, 0.0, 0.1) == 0.0
    assert p_above(0.1, 0.0, 0.1) == 1.0


def test_the_p_value_is_that_of_a_normal_mean():
    assert p_above(0.1 + 1.6448536 * 0.01, 0.01, 0.1) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0.04, 0.05, 0.3), {}, "An effect of 0.04 is not above the limit of 0.05"),
        ((0.08, 0.05, math.nan), {}, "The spread is nan"),
        ((0.08, 0.05, 0.3), {"wanted": 1.0}, "The wanted power is 1.0"),
        ((0.08, 0.05, 0.3), {"level": 0.0}, "The level is 0.0"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, options, message):
    with pytest.raises(OptionError, match=message):
        people_needed(*arguments, **options)


def test_nobody_finds_nothing():
    with pytest.raises(OptionError, match="at least 1"):
        power(0.08, 0.05, 0.3, 0)
