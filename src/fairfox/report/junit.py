"""junit.xml: audits as the test results that build servers show, one test per protected variable and per limit; and
comparisons of two of them, one test each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree import ElementTree as ET

from fairfox.report.lines import variable_lines
from fairfox.report.text import people, percent
from fairfox.report.verdict import verdict
from fairfox.result import AuditResult, Finding

Outcome = Literal["passed", "failure", "skipped"]
_NO_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # characters XML 1.0 does not have


def junit_xml(*results: AuditResult, names: Sequence[str] = ("",)) -> str:
    """Return audits as JUnit's XML: each a suite with a case per protected variable and per limit on flagged people.

    A case fails where the verdict does or a limit is exceeded, and is skipped where one cannot tell. That a variable
    fails by itself is not enough where several are looked at: the verdict on the model must say so too. With several
    audits `names` says what their models are called.
    """
    return _document([_of_audit(result, name) for result, name in zip(results, names, strict=True)])


def pair_junit(name: str, case: str, outcome: Outcome, why: str, told: Mapping[str, str]) -> str:
    """Return a comparison of two results as JUnit's XML: one suite with one case, and what is told as its properties.

    Args:
        name: what was done, in a word: "compare".
        case: what is asked, as a sentence that holds where the case passes.
        outcome: how it ends.
        why: the reason, a sentence.
        told: properties by name.
    """
    cases = [_case(f"fairfox.{name}", case, outcome, why, [why])]
    return _document([_suite(f"fairfox {name}", cases, told, [why], 0.0)])


def _of_audit(result: AuditResult, name: str) -> ET.Element:
    limits = result.settings.get("max_flagged") or {}
    cases = [_of_variable(result, finding, name) for finding in result.findings]
    cases += [_of_limit(result, who, limit, name) for who, limit in limits.items()]
    told = [*verdict(result), *(f"Warning: {each}" for each in result.warnings)]
    title = f"fairfox audit{f' of {name}' if name else ''}, test {result.test}"
    return _suite(title, cases, _properties(result), told, result.settings.get("seconds", 0.0))


def _suite(
    title: str, cases: Sequence[ET.Element], properties: Mapping[str, str], told: Sequence[str], seconds: float
) -> ET.Element:
    counts = {tag: str(sum(case.find(tag) is not None for case in cases)) for tag in ("failure", "skipped")}
    about = {"name": title, "tests": str(len(cases)), "failures": counts["failure"]}
    about |= {"errors": "0", "skipped": counts["skipped"], "time": f"{seconds:.3f}"}
    suite, named = _element("testsuite", about), ET.Element("properties")
    named.extend([_element("property", {"name": name, "value": value}) for name, value in properties.items()])
    suite.extend([named, *cases, _element("system-out", {}, "\n".join(told))])
    return suite


def _document(suites: Sequence[ET.Element]) -> str:
    root = ET.Element("testsuites")
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_variable(result: AuditResult, finding: Finding, model: str) -> ET.Element:
    outcome, why = _outcome(result, finding)
    alone = len(result.findings) == 1
    told = [] if alone else [*variable_lines(result, finding), *([finding.verdict.why] if finding.verdict else [])]
    return _case(_class(result, model), finding.name, outcome, why, [*told, *verdict(result)])


def _outcome(result: AuditResult, finding: Finding) -> tuple[Outcome, str]:
    """Return how the case of a variable ends, and why in a sentence."""
    own, whole = finding.verdict, result.verdict
    if own is None or whole is None:
        return "skipped", "This test gives no interval, so that there is no verdict."
    why = verdict(result)[0] if len(result.findings) == 1 else f"{finding.name}: {own.why}"
    if own.word == "fails" and whole.word != "fails":  # by itself only
        return "skipped", f"{finding.name}: {whole.why}"
    outcomes: dict[str, Outcome] = {"fails": "failure", "passes": "passed", "cannot tell": "skipped"}
    return outcomes[own.word], why


def _of_limit(result: AuditResult, name: str, limit: float, model: str) -> ET.Element:
    title = f"at most {percent(limit)} of {name or 'everyone'} flagged"
    of = _class(result, model)
    if not result.can_check(name):
        return _case(of, title, "skipped", f"Nobody of {name or 'everyone'} could be judged.", [])
    over = result.over_limits({name: limit})
    return _case(of, title, "failure" if over else "passed", " ".join(over), over)


def _class(result: AuditResult, model: str) -> str:
    """Return what build servers group cases by."""
    return ".".join(["fairfox.audit", result.test, *([model] if model else [])])


def _case(classname: str, name: str, outcome: Outcome, why: str, told: Sequence[str]) -> ET.Element:
    case = _element("testcase", {"classname": classname, "name": name, "time": "0.000"})
    if outcome == "failure":
        case.append(_element("failure", {"message": why, "type": "unfair"}, "\n".join(told)))
    elif outcome == "skipped":
        case.append(_element("skipped", {"message": why}))
    return case


def _properties(result: AuditResult) -> dict[str, str]:
    return {
        "verdict": "none" if result.verdict is None else result.verdict.word,
        "delta": f"{result.delta:g}",
        "unit": result.unit,
        "judged": people(result.judged),
        "flagged": people(int(result.flags.sum())),
    }


def _element(tag: str, attributes: dict[str, str], text: str | None = None) -> ET.Element:
    """Return an element in which every character is one that XML has."""
    out = ET.Element(tag, {name: _NO_XML.sub("", value) for name, value in attributes.items()})
    out.text = None if text is None else _NO_XML.sub("", text)
    return out
