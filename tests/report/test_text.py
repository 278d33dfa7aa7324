import math

import pytest

from fairfox.report.text import amount, cell, heading_unit, joined, number, people, percent


@pytest.mark.parametrize(
    ("value", "unit", "sign", "expected"),
    [
        (0.05, "probability", False, "5 points"),
        (0.01, "probability", True, "+1 point"),
        (0.0823, "probability", True, "+8.2 points"),
        (-0.0823, "probability", True, "-8.2 points"),
        (0.0004, "probability", False, "0.04 points"),  # a small delta does not become zero
        (-0.0, "probability", True, "0 points"),
        (12345.0, "value", False, "12,345"),
        (0.5, "logit", True, "+0.5"),
        (math.nan, "probability", False, "unknown"),
        (None, "value", False, "unknown"),
    ],
)
def test_amounts_read_as_people_say_them(value: float | None, unit: str, sign: bool, expected: str):
    assert amount(value, unit, sign=sign) == expected


def test_cells_leave_the_unit_to_the_heading():
    assert cell(0.0823, "probability", sign=True) + heading_unit("probability") == "+8.2 (points)"
    assert cell(0.0823, "logit") + heading_unit("logit") == "0.0823"
    assert cell(None, "logit") == cell(math.inf, "logit") == "-"
    assert (cell(5975.4, "value"), cell(-1384.0, "value", sign=True)) == ("5,975", "-1,384")
    assert (cell(999.4, "value"), cell(1.5e12, "value")) == ("999", "1.5e+12")


def test_numbers_and_shares_and_counts():
    assert (number(0.12345), number(None)) == ("0.123", "unknown")
    assert (percent(0.1234), percent(None), percent(math.nan)) == ("12.3 %", "unknown", "unknown")
    assert (people(1), people(0), people(12345)) == ("1 person", "0 people", "12,345 people")


def test_lists_are_spoken():
    assert [joined(words, "or") for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]
