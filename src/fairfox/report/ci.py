"""An audit, or two, as build servers and pull requests show them: junit.xml, and summary.md as a comment.

Names from the table are text in both, never markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from fairfox.findings import AuditRecord, Finding
from fairfox.report.figures import features_table, groups_table
from fairfox.report.sentences import OUTCOMES, CaseOutcome, map_lines, verdict_lines
from fairfox.report.text import Table, amount, people
from fairfox.statistics.verdict import HEADLINES

_CHOSEN: dict[str, CaseOutcome] = {"pass": "passed", "fail": "failure"}  # where nobody can tell
_NO_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # characters XML 1.0 does not have
_MARKUP = re.compile(r"[\\`*_\[\]<>|~#$]|&(?=#?\w+;)|!(?=\[)")
_LINKS = re.compile(r"@(?=\w)|(?<=#)(?=\w)|:(?=//)|www(?=\.)", re.IGNORECASE)  # which sites turn into links
_LIST = re.compile(r"^(\d*)(?=[-+.)](?:\s|$)|[-=]+$)")  # a line that would begin a list or underline a heading
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def junit_xml(result: AuditRecord) -> str:
    """Return an audit as JUnit's XML: a suite with a case per protected variable.

    A case fails where the verdict does, and is skipped where it cannot tell, unless the user chose what then holds.
    That a variable fails by itself is not enough where there are several: the verdict on the model must fail too.
    """
    group = f"fairfox.audit.{result.test}"  # build servers group cases by it
    why = verdict_lines(result)
    cases = [_testcase(group, f.name, *_variable_outcome(result, f), why) for f in result.findings]
    properties = {
        "verdict": "none" if result.verdict is None else result.verdict.word,
        "delta": f"{result.delta:g}",
        "unit": result.unit,
        "judged": people(result.judged),
        "flagged": people(result.tally.flagged),
        **({"config_sha256": digest} if (digest := result.settings.get("config_sha256")) else {}),
    }
    lines = [*why, *map_lines(result), *(f"Warning: {warning}" for warning in result.warnings)]
    seconds = result.settings.get("seconds", 0.0)
    return _document(f"fairfox audit, test {result.test}", cases, properties, lines, seconds)


def pair_junit(case: str, outcome: CaseOutcome, why: str, properties: Mapping[str, str]) -> str:
    """Return a comparison as JUnit's XML: one case, a sentence that holds where it passes, and why it ends so."""
    cases = [_testcase("fairfox.compare", case, outcome, why, [why])]
    return _document("fairfox compare", cases, properties, [why], 0.0)


def _variable_outcome(result: AuditRecord, finding: Finding) -> tuple[CaseOutcome, str]:
    """Return how the case of a variable ends, and why in a sentence."""
    own, whole = finding.verdict, result.verdict
    chosen: CaseOutcome = _CHOSEN.get(result.settings.get("cannot_tell") or "", "skipped")
    if own is None or whole is None:
        return chosen, "This test gives no interval, so there is no verdict."
    if own.word == "fails" and whole.word != "fails":  # by itself only
        return chosen, whole.headline
    return chosen if own.word == "cannot tell" else OUTCOMES[own.word], own.headline


def _testcase(group: str, name: str, outcome: CaseOutcome, why: str, lines: Sequence[str]) -> ET.Element:
    case = _element("testcase", {"classname": group, "name": name, "time": "0.000"})
    if outcome == "failure":
        case.append(_element("failure", {"message": why, "type": "unfair"}, "\n".join(lines)))
    elif outcome == "skipped":
        case.append(_element("skipped", {"message": why}))
    return case


def _document(
    title: str, cases: Sequence[ET.Element], properties: Mapping[str, str], lines: Sequence[str], seconds: float
) -> str:
    """Return a document with one suite."""
    counts = {tag: str(sum(case.find(tag) is not None for case in cases)) for tag in ("failure", "skipped")}
    about = {"name": title, "tests": str(len(cases)), "failures": counts["failure"]}
    about |= {"errors": "0", "skipped": counts["skipped"], "time": f"{seconds:.3f}"}
    root, suite, named = ET.Element("testsuites"), _element("testsuite", about), ET.Element("properties")
    named.extend([_element("property", {"name": name, "value": value}) for name, value in properties.items()])
    suite.extend([named, *cases, _element("system-out", {}, "\n".join(lines))])
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _element(tag: str, attributes: dict[str, str], text: str | None = None) -> ET.Element:
    """Return an element without the characters that XML does not have."""
    out = ET.Element(tag, {name: _NO_XML.sub("", value) for name, value in attributes.items()})
    out.text = None if text is None else _NO_XML.sub("", text)
    return out


def summary_markdown(result: AuditRecord) -> str:
    """Return the audit on half a page: verdict, limits, groups, features, next step, warnings, settings.

    It has the sentences of the other files, and nobody's row.
    """
    word = "no verdict" if result.verdict is None else HEADLINES[result.verdict.word]
    parts = [
        f"## fairfox: {word}",
        *map(as_text, verdict_lines(result)),
        _markdown_table(groups_table(result, result.findings)),
        _markdown_table(features_table(result)),
        _bullets(map_lines(result)),
        _bullets([f"Warning: {warning}" for warning in result.warnings]),
        _settings(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def pair_markdown(view: Mapping[str, Any]) -> str:
    """Return two audits side by side on half a page, from `fairfox.report.pair.pair_view`."""
    features = view["features"]
    parts = [
        f"## fairfox: {as_text(view['heading'])}",
        *map(as_text, view["verdict"]),
        _bullets([f"{side['label']}: {side['name']}" for side in view["sides"]]),
        _markdown_table(view["numbers"]),
        _markdown_table(view["groups"]),
        *([] if features is None else ["Through which features the effect goes:", _markdown_table(features)]),
        _bullets([f"Warning, {side['label']}: {each}" for side in view["sides"] for each in side["warnings"]]),
        as_text(" ".join(view["method"])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_text(words: str) -> str:
    r"""Return words that a Markdown page shows as they are: no markup, no HTML, no link, nobody notified.

    Example:
        >>> print(as_text("<b> a|b `c`"))
        \<b\> a\|b \`c\`
    """
    line = _CONTROL.sub("", " ".join(words.split()))
    line = _LIST.sub(r"\1" + "\\\\", _MARKUP.sub(r"\\\g<0>", line))
    return _LINKS.sub(r"\g<0><!-- -->", line)


def _settings(result: AuditRecord) -> str:
    words = [f"Test {result.test}", f"delta {amount(result.delta, result.unit)}", result.meaning.rstrip(".")]
    recorded = {"seed": "seed", "refits": "refits", "config_sha256": "SHA-256 of the options file"}
    settings, version = result.settings, result.settings.get("versions", {}).get("fairfox")
    words += [f"{name} {settings[key]}" for key, name in recorded.items() if settings.get(key) is not None]
    words += [] if version is None else [f"fairfox {version}"]
    return as_text("; ".join(words) + ".")


def _markdown_table(table: Table) -> str:
    """Return a table of ready words, the first column on the left and the others on the right."""
    headings = [as_text(column["label"]) for column in table["columns"]]
    rows = [[as_text(word) for word in row] for row in table["rows"]]
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {as_text(line)}" for line in lines)
