"""The cards of notebooks: what they say, and that they run nothing and show nobody's row."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from fairfox.comparison import Compared
from fairfox.report.html import MOST_ROWS, result_card
from fairfox.report.view import groups_table
from fairfox.result import AuditResult
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.paired import Pair, Side
from fairfox.statistics.verdict import HEADLINES, Verdict
from tests.report.helpers import Page
from tests.support import example_result, many_result, with_finding, without_sign

EVIL_COLUMN, EVIL_LEVEL = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
TAGS = {"div", "style", "p", "span", "code", "table", "thead", "tbody", "tr", "th", "td"}


def verdict_of(word: str) -> Verdict:
    return Verdict(word, "Because.", 0.05, 38, 20, 25, 0.01, 0.99, variable="sex")


def test_a_result_shows_its_verdict_its_counts_its_groups_and_how_to_get_the_report():
    card = Page(result_card(with_finding(example_result(), verdict=verdict_of("fails"))))
    assert "FAILBecause." in card.words
    assert "Significant: 20 (false discovery rate: 10 %). · Flagged: 23 (|effect| > 5 points)." in card.words
    assert "Mean change of the prediction as members of the other group: sex=Female +8.2 points" in card.words
    assert card.rows[1:] == groups_table(example_result(), example_result().findings)["rows"]
    assert "Warning: The group sex=Male has few people." in card.words
    assert 'result.to_html("report.html")' in card.words


@pytest.mark.parametrize(("word", "tone"), [("fails", "failure"), ("passes", "passed"), ("cannot tell", "skipped")])
def test_the_word_has_the_colour_of_the_verdict(word: str, tone: str):
    html = result_card(with_finding(example_result(), verdict=verdict_of(word)))
    assert f'<span class="fairfox-word fairfox-{tone}">{HEADLINES[word]}</span>' in html


def test_a_test_without_sign_and_interval_shows_what_it_has():
    card = Page(result_card(without_sign()))
    assert "no verdict" in card.words
    assert "Flagged: 23 (score > 0.05)." in card.words
    assert "Confident:" not in card.words
    assert card.rows[1] == ["sex=Female", "19", "0.42", "84.2 %", "-"]


def test_long_tables_are_cut_and_say_by_how_much():
    result = many_result()
    groups = tuple(replace(result.groups[0], level=f"group {n}") for n in range(30))
    card = Page(result_card(with_finding(replace(result, findings=result.findings[:1]), groups=groups)))
    assert len(card.rows) == 1 + MOST_ROWS
    assert "and 18 more" in card.words
    assert "more</p>" not in result_card(example_result())


def test_names_from_the_table_are_text():
    result = example_result(warnings=(f"A column {EVIL_COLUMN} and a category {EVIL_LEVEL}",))
    group = replace(result.groups[0], variable=EVIL_COLUMN, level=EVIL_LEVEL)
    html = result_card(with_finding(result, name=EVIL_COLUMN, groups=(group,)))
    card = Page(html)
    assert set(card.tags) <= TAGS
    assert {name for _, name, _ in card.attributes} == {"class", "scope"}
    assert card.rows[1][0] == f"{EVIL_COLUMN}={EVIL_LEVEL}"
    assert f"A column {EVIL_COLUMN} and a category {EVIL_LEVEL}" in card.words


def test_every_rule_of_the_style_is_about_cards_only():
    style = re.search(r"<style>(.*?)</style>", result_card(example_result()), re.DOTALL)
    assert style
    selectors = [one.strip() for group in re.findall(r"([^{}]+)\{", style[1]) for one in group.split(",")]
    assert len(selectors) > 8
    assert all(selector.startswith(".fairfox-card") for selector in selectors)
    assert not re.search(r"https?:|url\(|@import|src=|<script|<link", result_card(many_result()))


def named(*names: str) -> tuple[Side, ...]:
    fields = {"test": "rank", "variables": [{"name": "sex"}]}
    return tuple(Side(name, fields, torch.ones(1).numpy()) for name in names)


def test_a_comparison_shows_its_word_and_its_sentences():
    pair = Pair(
        (38, 38), (0.06, 0.03), (0.5, 0.25), Estimate(-0.03, 0.005, -0.04, -0.02), None, less=0.8, more=0.2, reason="So"
    )
    compared = Compared(AuditResult(example_result()), AuditResult(example_result()), pair, named("<b>old</b>", "new"))
    card = Page(compared._repr_html_())
    assert f"B is fairer{pair.reason}" in card.words
    assert "A is <b>old</b>, B is new" in card.words
    assert "With B the effect is smaller for 80.0 % of the people" in card.words
    assert "Verdict:" not in card.words  # the word is above already


def test_two_audits_show_their_word_and_their_share():
    pair = Pair((100, 120), (0.02, 0.06), (0.1, 0.4), Estimate(0.04, 0.005, 0.03, 0.05), None, paired=False)
    pair = replace(pair, p_value=0.001, bound=0.05, margin=0.005, reason="It rose.")
    card = Page(Compared(None, None, pair, named("may", "june"))._repr_html_())
    assert "worseIt rose." in card.words
    assert "Flagged: 10.0 % before, 40.0 % now" in card.words
