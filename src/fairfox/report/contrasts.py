"""Contrasts in words: who is compared with whom, and what would have to be otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from fairfox.report.text import listed
from fairfox.result import AuditResult, Finding


def because(finding: Finding, towards: str | None) -> str:
    """Return one contrast of a variable in words: "race (towards White)", "age + 13.6"."""
    if towards is None or towards == finding.name:
        return finding.name
    return towards if finding.kind == "continuous" else f"{finding.name} ({direction(finding, towards)})"


def direction(finding: Finding, towards: str) -> str:
    """Return the direction of a contrast; derivatives also go away from the own class, and say so themselves."""
    return f"towards {towards}" if towards in finding.levels else towards


def compared(finding: Finding) -> str:
    """Return in a few words who is compared with whom."""
    if finding.kind == "continuous":
        step = _step_in_brackets(finding)
        return f"one standard deviation{step} up and down" if step else "higher with lower"
    if finding.reference is not None:
        return f"{len(finding.levels)} groups with {finding.reference}"
    return "two groups" if len(finding.levels) == 2 else f"{len(finding.levels)} groups with each other"


def if_they(findings: Sequence[Finding]) -> str:
    """Return under what the prediction would change."""
    parts = [f"if they belonged to {group}" for group in _other_group(findings)]
    parts += [
        f"if their {finding.name} were one standard deviation{_step_in_brackets(finding)} higher or lower"
        for finding in findings
        if finding.kind == "continuous"
    ]
    return listed(parts, "or")


def destination(findings: Sequence[Finding]) -> str:
    """Return where the way goes."""
    numbers = [f"a higher or lower {finding.name}" for finding in findings if finding.kind == "continuous"]
    return listed([*_other_group(findings), *numbers], "or")


def _other_group(findings: Sequence[Finding]) -> list[str]:
    """Return which group people are compared with, where any variable has groups."""
    classes = [finding for finding in findings if finding.kind != "continuous"]
    several = len(classes) > 1 or any(len(finding.levels) > 2 for finding in classes)
    return [f"{'another' if several else 'the other'} group"] if classes else []


def _step_in_brackets(finding: Finding) -> str:
    """Return " (13.6)" where the contrasts of a number say how far they go."""
    up = f"{finding.name} + "
    return next((f" ({words.removeprefix(up)})" for words in finding.contrasts if words.startswith(up)), "")


def reading_words(result: AuditResult) -> dict[str, str]:
    """Return what happens to a person in the direct and in the total reading."""
    kinds = {finding.kind for finding in result.findings}
    step = "going one standard deviation up or down"
    if kinds == {"continuous"}:
        total = f"{step} with the same ranks there"
    else:
        total = f"becoming a member of {'the other' if result.two_groups else 'another'} group"
        total += f" (of a number: {step})" if "continuous" in kinds else ""
        total += " with the same ranks in it"
    return {"direct": "the smallest edit of a person that changes the protected variable", "total": total}
