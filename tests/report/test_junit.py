"""junit.xml as readers see it that are not ours: libxml2, and a library that reads JUnit's files."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml, Skipped, TestSuite
from lxml import etree

from fairfox.report.junit import Outcome, junit_xml, pair_junit
from fairfox.result import AuditResult
from fairfox.verdicts.model import Verdict, Word
from tests.support import example_result, many_result, with_finding

HOSTILE = '<script>alert(1)</script> & "><img src=x onerror=alert(1)> \x00\x1b\ud800]]>'


def suite_of(result: AuditResult) -> TestSuite:
    """Return the only suite of an audit's file."""
    (suite,) = JUnitXml.fromstring(junit_xml(result).encode())
    return suite


def judged(word: Word, p_fails: float = 1.0, variable: str = "sex") -> Verdict:
    return Verdict(word, f"This is why it {word}.", 0.05, 38, 19, 25, p_fails, 1.0, variable=variable)


def many(*verdicts: Verdict) -> AuditResult:
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
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (1, word == "fails", word == "cannot tell", 0)


def test_a_failure_tells_what_the_report_tells():
    result = with_finding(example_result(), verdict=judged("fails", 0.001))
    (case,) = suite_of(result)
    assert "23 of 38 people (60.5 %) are flagged" in case.result[0].text
    assert case.result[0].message.startswith("The model fails. ")


def test_a_test_without_interval_cannot_tell():
    (case,) = suite_of(example_result())
    assert [type(each) for each in case.result] == [Skipped]
    assert "no interval" in case.result[0].message


def test_every_variable_and_every_limit_is_a_case():
    cases = {case.name: case for case in suite_of(many_result())}
    assert list(cases) == [
        *("sex", "race", "age"),
        "at most 60.0 % of everyone flagged",
        "at most 50.0 % of race=Black flagged",
    ]
    assert cases["at most 60.0 % of everyone flagged"].result == []  # 39.8 % are
    over = cases["at most 50.0 % of race=Black flagged"].result
    assert [type(each) for each in over] == [Failure]
    assert over[0].message == "race=Black: 100.0% flagged, at most 50.0% allowed."


def test_a_limit_that_nobody_can_be_held_to_is_skipped():
    result = many_result()
    race = result.findings[1]
    gone = race.abstained | race.abstained.new_tensor([level == "Black" for level in race.group])
    (case,) = (case for case in suite_of(with_finding(result, 1, abstained=gone)) if "race=Black" in case.name)
    assert [type(each) for each in case.result] == [Skipped]
    assert case.result[0].message == "Nobody of race=Black could be judged."


def test_one_of_three_variables_fails_only_where_their_number_is_allowed_for():
    # Holm: 0.04 times three variables is above 0.05, 0.001 times three is not
    passes = [judged("passes", variable=name) for name in ("race", "age")]
    outcomes = [
        [[type(each) for each in case.result] for case in list(suite_of(many(judged("fails", p), *passes)))[:3]]
        for p in (0.04, 0.001)
    ]
    assert outcomes == [[[Skipped], [], []], [[Failure], [], []]]


def test_two_audits_are_two_suites_whose_cases_do_not_share_a_name():
    fails, passes = (with_finding(example_result(), verdict=judged(word, 0.001)) for word in ("fails", "passes"))
    suites = list(JUnitXml.fromstring(junit_xml(fails, passes, names=["the old model", "the new one"]).encode()))
    assert [suite.name for suite in suites] == [
        "fairfox audit of the old model, test rank",
        "fairfox audit of the new one, test rank",
    ]
    assert [(suite.tests, suite.failures) for suite in suites] == [(1, 1), (1, 0)]
    assert [case.classname for suite in suites for case in suite] == [
        "fairfox.audit.rank.the old model",
        "fairfox.audit.rank.the new one",
    ]


@pytest.mark.parametrize(("outcome", "kind"), [("failure", [Failure]), ("passed", []), ("skipped", [Skipped])])
def test_a_pair_is_one_case_that_ends_as_it_is_told_to(outcome: Outcome, kind: list[type]):
    text = pair_junit("compare", "B is as fair as A", outcome, "This is why.", {"delta": "0.05"})
    (suite,) = JUnitXml.fromstring(text.encode())
    (case,) = suite
    assert (suite.name, case.classname, case.name) == ("fairfox compare", "fairfox.compare", "B is as fair as A")
    assert [(type(each), each.message) for each in case.result] == [(each, "This is why.") for each in kind]
    assert [(each.name, each.value) for each in suite.properties()] == [("delta", "0.05")]


def test_hostile_names_are_text_to_libxml2():
    groups = tuple(replace(group, variable=HOSTILE) for group in example_result().groups)
    result = with_finding(example_result(), name=HOSTILE, groups=groups, verdict=judged("fails", 0.001, HOSTILE))
    root = etree.fromstring(junit_xml(replace(result, warnings=(HOSTILE,))).encode())
    shown = HOSTILE.replace("\x00", "").replace("\x1b", "").replace("\ud800", "")
    assert root.xpath("//testcase/@name") == [shown]
    assert f"Warning: {shown}" in root.xpath("string(//system-out)")
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "system-out"),
    }


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters()))
def test_any_name_is_well_formed(name: str):
    root = etree.fromstring(junit_xml(with_finding(example_result(), name=name)).encode())
    assert len(root.xpath("//testcase")) == 1


def test_numbers_that_are_missing_do_not_spoil_it():
    suite = suite_of(replace(example_result(), delta=math.nan, settings={}))
    assert (suite.tests, suite.time) == (1, 0.0)
