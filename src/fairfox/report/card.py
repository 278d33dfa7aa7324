"""Cards for notebooks: a result or a comparison as a small piece of HTML that runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairfox.findings import AuditRecord
from fairfox.report.figures import groups_table
from fairfox.report.html import escaping_templates
from fairfox.report.sentences import OUTCOMES, verdict_lines
from fairfox.report.text import Table, people

MOST_ROWS = 12  # of a table on a card


def result_card(result: AuditRecord) -> str:
    """Return the verdict, the counts and the groups of an audit."""
    verdict, lines = result.verdict, verdict_lines(result)
    facts = [people(len(result)), f"{result.judged:,} judged", f"{int(result.flags.sum()):,} flagged"]
    if result.confident_flags is not None:
        facts.append(f"{int(result.confident_flags.sum()):,} confidently")
    return make_card(
        f"fairfox audit for {', '.join(result.variables)}",
        "no verdict" if verdict is None else verdict.word,
        lines[0],
        facts=facts,
        lines=[] if verdict is None else lines[1:2],  # without a verdict that sentence is the first
        table=groups_table(result, result.findings),
        warnings=result.warnings,
        hint='result.to_html("report.html")',
    )


def make_card(
    title: str,
    word: str,
    lead: str,
    *,
    facts: Sequence[str] = (),
    lines: Sequence[str] = (),
    table: Table | None = None,
    warnings: Sequence[str] = (),
    hint: str = "",
) -> str:
    """Return a card of these words, all of which are shown as text."""
    shown: dict[str, Any] = {"title": title, "word": word, "tone": OUTCOMES.get(word, "skipped"), "lead": lead}
    shown |= {"facts": facts, "lines": lines, "table": table, "warnings": warnings, "hint": hint, "most": MOST_ROWS}
    return escaping_templates().get_template("card.html.j2").render(**shown)
