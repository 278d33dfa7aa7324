"""The readings of an audit in words: each by group, what holding columns equal changes, and the gap taken apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fairfox.findings import AuditRecord, GapParts
from fairfox.report.html import render_report
from fairfox.report.sentences import gap_lines, held_equal_lines, map_lines, summary_lines
from tests.report.helpers import Page, with_map_checks
from tests.support import example_result, many_result, with_finding

pytestmark = pytest.mark.usefixtures("undrawn")

BIASED = "A bias in the label itself does not show there"
PARTS = (GapParts("Female", "Male", 0.3, 0.1, -0.04, -0.16),)


def labelled(same: float | Tensor, total: float = 0.1, **settings: object) -> AuditRecord:
    """Return the example with a label, where everyone has the same total effect and some at the same outcome."""
    result = example_result(settings={"label": "paid", "given": None, **settings})
    like = result.findings[0].total
    same = same if isinstance(same, Tensor) else torch.full_like(like, same)
    return with_finding(result, total=torch.full_like(like, total), same_outcome=same)


@pytest.mark.parametrize(
    ("same", "total", "words"),
    [
        (0.075, 0.1, "7.5 points on average, 25.0 % less than in total (10 points)"),
        (0.12, 0.1, "12 points on average, 20.0 % more than in total (10 points)"),
        (0.0, 0.0, "about as large as in total, 0 points"),
        (1e-9, 0.0, "about as large as in total, 0 points"),
    ],
)
def test_the_effect_at_the_same_outcome_is_compared_with_the_total_one(same: float, total: float, words: str):
    result = labelled(same, total)
    (line,) = held_equal_lines(result, result.findings[0])
    start = "At the same outcome (paid) the effect of sex is"
    assert line == f"{start} {words}. The verdict uses the total effect. {BIASED}"


def test_both_effects_are_those_of_the_people_with_a_label():
    same = torch.where(torch.arange(40) < 20, 0.1, torch.nan)
    result = labelled(same)
    total = torch.where(torch.arange(40) < 20, 0.2, 0.9)  # without a label it is larger
    result = with_finding(result, total=total)
    (line,) = held_equal_lines(result, result.findings[0])
    assert "is 10 points on average, 50.0 % less than in total (20 points for the same 20 people)" in line


def test_the_comparison_says_whose_effect_it_is_where_the_verdict_uses_another_test():
    result = replace(labelled(0.075), test="counterfactual")
    (line,) = held_equal_lines(result, result.findings[0])
    assert "The verdict uses the score of counterfactual." in line


def test_with_given_columns_the_effect_that_the_verdict_uses_is_among_the_readings():
    result = with_finding(labelled(0.075, given=["hours", "job"]), effect=torch.full((40,), 0.08))
    given, outcome = held_equal_lines(result, result.findings[0])
    assert given == (
        "Given hours and job, the effect of sex is 8 points on average, 20.0 % less than in total (10 points). The "
        "verdict uses this"
    )
    assert "The verdict" not in outcome
    assert f"{given}." in summary_lines(result)
    assert given in Page(render_report(result)).words


def test_the_readings_are_explained_and_in_a_table():
    page = Page(render_report(labelled(0.075)))
    assert "Other readings of the effect" in page.headings["h3"]
    assert "Effect at the same outcome: as the total effect, among people with the same paid." in page.words
    assert "Effect at the same outcome" not in Page(render_report(example_result())).words


def test_every_one_of_several_variables_has_its_readings_explained():
    result = many_result(settings={"label": "paid"})
    for place in range(2):
        total = result.findings[place].total
        result = with_finding(result, place, total=0 * total + 0.1, same_outcome=0 * total + 0.075)
    words = Page(render_report(with_finding(result, gap_parts=PARTS))).words
    for name in ("sex", "race"):
        assert f"the effect of {name} is 7.5 points on average, 25.0 % less than in total (10 points)." in words
    assert (
        f"{gap_lines(with_finding(result, gap_parts=PARTS), replace(result.findings[0], gap_parts=PARTS))[0]}." in words
    )


def test_the_spurious_part_of_the_gap_is_told_as_no_effect():
    result = with_finding(example_result(), gap_parts=PARTS)
    assert gap_lines(result, result.findings[0]) == [
        "From sex=Female to Male the mean prediction changes by +30 points: +10 points by sex itself, +4 points "
        "through what it acts on in the graph, and +16 points spurious (the groups differ in other causes)"
    ]


def test_features_that_do_not_move_and_a_gap_that_is_meant_to_stay_are_told_with_what_is_given():
    result = with_map_checks(example_result(settings={"given": ["hours"]}, still=("age", "job")))
    assert map_lines(result) == [
        "sex=Female: the map accounts for 72 % of the gap (13.0 of 18.0 points; given hours, part of the gap is meant "
        "to stay).",
        "The groups do not differ significantly in age and job among people with the same hours: they do not move.",
    ]
    assert map_lines(result)[1] in Page(render_report(result)).words
