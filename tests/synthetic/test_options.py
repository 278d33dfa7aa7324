"""Numbers given as options."""

import numpy as np
import pytest

from fairfox.errors import OptionError
from fairfox.synthetic.options import check_number, check_whole


@pytest.mark.parametrize("value", [3, np.int64(3)])
def test_whole_numbers_of_any_kind_come_back_as_python_has_them(value):
    assert type(check_whole("n", value)) is int
    assert check_whole("n", value) == 3


@pytest.mark.parametrize("value", [0, -1, 3.0, True, "3", None, float("nan")])
def test_anything_else_is_no_whole_number_from_one_upwards(value):
    with pytest.raises(OptionError, match=r"^n is .*; expected a whole number of at least 1$"):
        check_whole("n", value)


def test_numbers_may_be_zero_unless_they_must_be_above():
    assert check_number("rate", np.float32(0.5), above_zero=True) == 0.5
    assert check_number("decay", 0, above_zero=False) == 0.0
    with pytest.raises(OptionError, match="rate is 0; expected a number above 0"):
        check_number("rate", 0, above_zero=True)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.5", None, True])
def test_anything_else_is_no_number_from_zero_upwards(value):
    with pytest.raises(OptionError, match=r"^decay is .*; expected a number from 0 upwards$"):
        check_number("decay", value, above_zero=False)
