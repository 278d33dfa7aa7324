import math

import pytest
import torch

from fairfox.report.text import amount, cell, heading_unit, number, people, percent, verdict
from tests.support import PEOPLE, example_result, without_sign


@pytest.mark.parametrize(
    ("value", "unit", "sign", "expected"),
    [
        (0.05, "probability", False, "5 points"),
        (0.0823, "probability", True, "+8.2 points"),
        (-0.0823, "probability", True, "-8.2 points"),
        (0.0004, "probability", False, "0.04 points"),  # a small delta does not become zero
        (-0.0, "probability", True, "0 points"),
        (12345.0, "value", False, "1.23e+04"),
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


def test_numbers_and_shares_and_counts():
    assert (number(0.12345), number(None)) == ("0.123", "unknown")
    assert (percent(0.1234), percent(None), percent(math.nan)) == ("12.3 %", "unknown", "unknown")
    assert (people(1), people(0), people(12345)) == ("1 person", "0 people", "12,345 people")


def test_verdict_of_an_effect_says_what_would_change():
    found, surely = verdict(example_result())
    assert found.startswith("23 of 38 people (60.5 %) are flagged: the prediction would change by more than 5 points")
    assert surely == "19 of them confidently: the whole interval lies beyond 5 points."


def test_verdict_of_another_score_names_its_unit():
    found, surely = verdict(without_sign())
    assert found.endswith("the score is above 0.05, prediction per standard deviation.")
    assert "no interval" in surely


def test_verdict_of_one_person_is_singular():
    flags = torch.arange(PEOPLE) == 0
    assert verdict(example_result(flags=flags))[0].startswith("1 of 38 people (2.6 %) is flagged")
