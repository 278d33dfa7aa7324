"""junit.xml: an audit as the test results that build servers show, one test per protected variable and per limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from xml.etree import ElementTree as ET

from fairfox.report.text import people, percent, variable_lines, verdict
from fairfox.result import AuditResult, Finding

Outcome = Literal["passed", "failure", "skipped"]
_NO_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # characters XML 1.0 does not have


def junit_xml(result: AuditResult) -> str:
    """Return the audit as JUnit's XML: a suite with a case per protected variable and per limit on flagged people.

    A case fails where the verdict does or a limit is exceeded, and is skipped where one cannot tell. That a variable
    fails by itself is not enough where several are looked at: the verdict on the model must say so too.
    """
    limits = result.settings.get("max_flagged") or {}
    cases = [_of_variable(result, finding) for finding in result.findings]
    cases += [_of_limit(result, name, limit) for name, limit in limits.items()]
    counts = {tag: str(sum(case.find(tag) is not None for case in cases)) for tag in ("failure", "skipped")}
    about = {"name": f"fairfox audit, test {result.test}", "tests": str(len(cases)), "failures": counts["failure"]}
    about |= {"errors": "0", "skipped": counts["skipped"], "time": f"{result.settings.get('seconds', 0.0):.3f}"}
    suite = _element("testsuite", about)
    suite.extend([_properties(result), *cases])
    told = _element("system-out", {}, "\n".join([*verdict(result), *(f"Warning: {each}" for each in result.warnings)]))
    suite.append(told)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_variable(result: AuditResult, finding: Finding) -> ET.Element:
    outcome, why = _outcome(result, finding)
    alone = len(result.findings) == 1
    told = [] if alone else [*variable_lines(result, finding), *([finding.verdict.why] if finding.verdict else [])]
    return _case(result, finding.name, outcome, why, [*told, *verdict(result)])


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


def _of_limit(result: AuditResult, name: str, limit: float) -> ET.Element:
    title = f"at most {percent(limit)} of {name or 'everyone'} flagged"
    if not result.can_check(name):
        return _case(result, title, "skipped", f"Nobody of {name or 'everyone'} could be judged.", [])
    over = result.over_limits({name: limit})
    return _case(result, title, "failure" if over else "passed", " ".join(over), over)


def _case(result: AuditResult, name: str, outcome: Outcome, why: str, told: Sequence[str]) -> ET.Element:
    case = _element("testcase", {"classname": f"fairfox.audit.{result.test}", "name": name, "time": "0.000"})
    if outcome == "failure":
        case.append(_element("failure", {"message": why, "type": "unfair"}, "\n".join(told)))
    elif outcome == "skipped":
        case.append(_element("skipped", {"message": why}))
    return case


def _properties(result: AuditResult) -> ET.Element:
    told = {
        "verdict": "none" if result.verdict is None else result.verdict.word,
        "delta": f"{result.delta:g}",
        "unit": result.unit,
        "judged": people(result.judged),
        "flagged": people(int(result.flags.sum())),
    }
    found = ET.Element("properties")
    found.extend([_element("property", {"name": name, "value": value}) for name, value in told.items()])
    return found


def _element(tag: str, attributes: dict[str, str], text: str | None = None) -> ET.Element:
    """Return an element in which every character is one that XML has."""
    out = ET.Element(tag, {name: _NO_XML.sub("", value) for name, value in attributes.items()})
    out.text = None if text is None else _NO_XML.sub("", text)
    return out
