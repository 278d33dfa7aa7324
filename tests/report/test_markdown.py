from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html
from markdown_it import MarkdownIt

from fairfox.report.markdown import as_text, lines_markdown, summary_markdown
from fairfox.report.tables import make_table
from fairfox.result import AuditResult
from fairfox.steps import NextSteps, Step
from fairfox.verdicts.model import Verdict
from tests.support import example_result, many_result, with_finding, without_sign

FAILS = Verdict("fails", "19 of 38 people are surely over delta.", 0.05, 38, 19, 25, 0.001, 1.0, variable="sex")


def rendered(text: str) -> html.HtmlElement:
    """Return the page that a reader of GitHub's tables and HTML makes of it."""
    return html.fragment_fromstring(MarkdownIt("commonmark").enable("table").render(text), create_parent="div")


def cells(result: AuditResult, table: int) -> list[list[str]]:
    rows = rendered(summary_markdown(result)).xpath("//table")[table].xpath(".//tbody/tr")
    return [[cell.text_content() for cell in row] for row in rows]


def test_the_verdict_comes_first_and_the_next_step_after_the_tables():
    step = Step("income", "dropped", "re-trained", 0.1, 0.02, 0.8, None, None, 0.03)
    steps = NextSteps(0.1, (step,), step, None, None, 40, 40, 80)
    text = summary_markdown(replace(with_finding(example_result(), verdict=FAILS), steps=steps))
    first, second, *_ = text.split("\n\n")
    assert first == "## fairfox: the model fails"
    assert second.startswith("The model fails. 19 of 38 people are surely treated differently by more than 5 points.")
    assert text.count("Dropping") == 1
    assert text.index("| income |") < text.index("**What to do.** Next: Dropping") < text.index("Warning: ")


def test_groups_and_features_are_tables():
    assert cells(example_result(), 0) == [
        ["sex=Female", "19", "0.42", "+8.2", "84.2 %", "78.9 %"],
        ["sex=Male", "19", "0.58", "-3.7", "36.8 %", "21.1 %"],
    ]
    assert cells(example_result(), 1) == [["income", "4.4"], ["job", "1.9"], ["age", "0.0"]]
    assert [row[0] for row in cells(many_result(), 0)][:3] == ["sex=Female", "sex=Male", "race=Asian"]


def test_large_numbers_are_written_out():
    groups = tuple(replace(each, mean_prediction=5975.4, mean_signed=-1384.0) for each in example_result().groups)
    result = replace(with_finding(example_result(), groups=groups), unit="change of the prediction (value)")
    assert [row[2:4] for row in cells(result, 0)] == [["5,975", "-1,384"]] * 2


def test_a_test_without_sign_has_dashes_and_no_features():
    (table,) = rendered(summary_markdown(without_sign())).xpath("//table")
    assert [row[3].text_content() for row in table.xpath(".//tbody/tr")] == ["-", "-"]


def test_limits_are_held_against_what_was_found():
    assert "- Over the limit: race=Black: 100.0% flagged, at most 50.0% allowed.\n" in summary_markdown(many_result())
    within = example_result(settings={"max_flagged": {"": 0.7}})
    assert "- Within every limit on the share of flagged people.\n" in summary_markdown(within)
    assert "limit" not in summary_markdown(example_result())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "a|b",
            "`code`",
            "*a* _b_ ~~c~~",
            "[x](http://y)",
        ),
        *(
            "![x](y)",
            "# title",
            "1. one",
            "- item",
            "+ item",
            "===",
            "---",
            "&lt;b&gt; &amp; &#60;",
            "<!-- gone",
            "\\|",
            "$x$",
        ),
        *(
            "a\\",
            "trailing`",
            "@team",
            "#12",
            "www.example.org",
            "https://example.org/a_b",
            "Female & Black",
            "<a@b.org>",
        ),
    ],
)
def test_names_are_shown_as_text(name: str):
    groups = tuple(replace(group, variable=name) for group in example_result().groups)
    result = with_finding(example_result(warnings=(name,)), name=name, groups=groups)
    page = rendered(summary_markdown(result))
    assert cells(result, 0)[0][0] == f"{name}=Female"
    assert f"Warning: {name}" in page.text_content()
    assert {element.tag for element in page.iter() if isinstance(element.tag, str)} <= {
        *("div", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "strong"),
    }
    assert rendered(as_text(name)).text_content().strip() == name


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab1 \\`*_[]<>|~#$&;!-+=.():/@\"'{}"))))
def test_any_words_stay_the_same_words(words: str):
    page = rendered(as_text(words))
    assert " ".join(page.text_content().split()) == " ".join(words.split())
    assert {element.tag for element in page.iter() if isinstance(element.tag, str)} <= {"div", "p"}


def test_nobody_is_notified_and_nothing_is_linked():
    text = as_text("@team #12 https://a.b www.a.b")
    assert not re.search(r"@\w|#\w|://|www\.", text)


def test_control_characters_and_lone_surrogates_are_left_out():
    assert as_text("a\x00b\x1b\ud800\nc") == "ab c"


def test_lines_have_their_table_after_the_first_of_them():
    table = make_table(["Model"], ["|effect|"], [["<b>", "1"]])
    text = lines_markdown("two_models", ["First.", "Second."], table=table)
    assert text.split("\n\n")[::3] == ["## two\\_models", "Second.\n"]
    (shown,) = rendered(text).xpath("//table")
    assert [cell.text_content() for cell in shown.xpath(".//th | .//td")] == ["Model", "|effect|", "<b>", "1"]
