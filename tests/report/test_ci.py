"""junit.xml and summary.md as readers see them that are not ours."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml, Skipped, TestSuite
from lxml import etree, html
from markdown_it import MarkdownIt

from fairfox.findings import AuditRecord
from fairfox.report.ci import as_text, junit_xml, summary_markdown
from fairfox.report.view import groups_table
from fairfox.statistics.verdict import Verdict, Word
from tests.support import example_result, many_result, with_finding

HOSTILE = '<script>alert(1)</script> & "><img src=x onerror=alert(1)> \x00\x1b\ud800]]>'
NAMES = r"""<script>alert(1)</script>
"><img src=x onerror=alert(1)>
a|b
`code`
*a* _b_ ~~c~~
[x](http://y)
![x](y)
# title
1. one
- item
===
&lt;b&gt; &amp; &#60;
<!-- gone
\|
$x$
a\
@team
#12
https://example.org/a_b
Female & Black
<a@b.org>""".splitlines()
FAILS = Verdict("fails", "19 of 38 people are significantly affected.", 0.05, 38, 19, 25, 0.001, 1.0, variable="sex")


def suite_of(result: AuditRecord) -> TestSuite:
    """Return the only suite of an audit's file."""
    (suite,) = JUnitXml.fromstring(junit_xml(result).encode())
    return suite


def judged(word: Word, p_fails: float = 1.0, variable: str = "sex") -> Verdict:
    return Verdict(word, f"This is why it {word}.", 0.05, 38, 19, 25, p_fails, 1.0, variable=variable)


def many(*verdicts: Verdict) -> AuditRecord:
    result = many_result()
    for place, one in enumerate(verdicts):
        result = with_finding(result, place, verdict=one)
    return result


@pytest.mark.parametrize(("word", "kind"), [("fails", [Failure]), ("passes", []), ("cannot tell", [Skipped])])
def test_the_case_of_a_variable_ends_as_the_verdict_says(word: Word, kind: list[type]):
    suite = suite_of(with_finding(example_result(), verdict=judged(word, 0.001 if word == "fails" else 1.0)))
    (case,) = suite
    assert case.name == "sex"
    assert [type(each) for each in case.result] == kind
    assert all(f"This is why it {word}." in each.message for each in case.result)
    assert word != "fails" or "Flagged: 23 (|effect| > 5 points)." in case.result[0].text
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (1, word == "fails", word == "cannot tell", 0)


def test_a_test_without_interval_cannot_tell():
    (case,) = suite_of(example_result())
    assert [type(each) for each in case.result] == [Skipped]
    assert "no interval" in case.result[0].message


def test_one_of_three_variables_fails_only_where_their_number_is_allowed_for():
    # Holm: 0.04 times three variables is above 0.05, 0.001 times three is not
    passes = [judged("passes", variable=name) for name in ("race", "age")]
    outcomes = [
        [[type(each) for each in case.result] for case in suite_of(many(judged("fails", p), *passes))]
        for p in (0.04, 0.001)
    ]
    assert outcomes == [[[Skipped], [], []], [[Failure], [], []]]


def test_hostile_names_are_text_to_libxml2():
    groups = tuple(replace(group, variable=HOSTILE) for group in example_result().groups)
    result = with_finding(example_result(), name=HOSTILE, groups=groups, verdict=judged("fails", 0.001, HOSTILE))
    root = etree.fromstring(junit_xml(replace(result, warnings=(HOSTILE,))).encode())
    shown = HOSTILE.replace("\x00", "").replace("\x1b", "").replace("\ud800", "")
    assert root.xpath("//testcase/@name") == [shown]
    assert f"Warning: {shown}" in root.xpath("string(//system-out)")
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "system-out")
    }


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters()))
def test_any_name_is_well_formed(name: str):
    root = etree.fromstring(junit_xml(with_finding(example_result(), name=name)).encode())
    assert len(root.xpath("//testcase")) == 1


def rendered(text: str) -> html.HtmlElement:
    """Return the page that a reader of GitHub's tables and HTML makes of it."""
    return html.fragment_fromstring(MarkdownIt("commonmark").enable("table").render(text), create_parent="div")


def cells(result: AuditRecord, table: int) -> list[list[str]]:
    rows = rendered(summary_markdown(result)).xpath("//table")[table].xpath(".//tbody/tr")
    return [[cell.text_content() for cell in row] for row in rows]


def test_the_verdict_and_the_next_step_come_before_the_tables():
    text = summary_markdown(with_finding(example_result(), verdict=FAILS))
    first, second, *_ = text.split("\n\n")
    assert first == "## fairfox: FAIL"
    assert second == "FAIL: 19 of 38 people are significantly affected."
    assert text.count("fairfox repair") == 1
    assert text.index("Next: ") < text.index("| income |") < text.index("Warning: ")


def test_groups_and_features_are_tables():
    for result in (example_result(), many_result()):
        assert cells(result, 0) == groups_table(result, result.findings)["rows"]
    assert cells(example_result(), 1) == [["income", "4.4", "0.9"], ["job", "1.9", "0.35"], ["age", "0.0", "0.02"]]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_text(name: str):
    groups = tuple(replace(group, variable=name) for group in example_result().groups)
    result = with_finding(example_result(warnings=(name,)), name=name, groups=groups)
    page = rendered(summary_markdown(result))
    assert cells(result, 0)[0][0] == f"{name}=Female"
    assert f"Warning: {name}" in page.text_content()
    assert {element.tag for element in page.iter() if isinstance(element.tag, str)} <= {
        *("div", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "strong")
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
    assert as_text("a\x00b\x1b\ud800\nc") == "ab c"
