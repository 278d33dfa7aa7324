"""An audit on the terminal: the verdict, then tables of groups and features."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairfox.findings import Finding, TestComparison
from fairfox.report.sentences import (
    alignment_line,
    check_lines,
    flip_lines,
    proxy_lines,
    quality_line,
    reading_lines,
    signed_word,
    skipped_lines,
    training_line,
    variable_lines,
    verdict_lines,
)
from fairfox.report.text import cell, ended, heading_unit, number, people, percent
from fairfox.result import AuditResult

MOST_FEATURES = 8


def print_result(result: AuditResult, console: Console) -> None:
    """Print what a validator needs to decide; names from the table are printed as text, never as markup."""
    what = f"fairfox audit of {people(len(result))}, test {result.test}, protected: {', '.join(result.variables)}"
    console.print(_text(what, style="bold"))
    for sentence in verdict_lines(result):
        console.print(_text(sentence))
    for reason, count in result.abstained_by_reason.items():
        console.print(_text(f"{people(count)} not judged: {reason}"))
    several = len(result.findings) > 1
    for finding in result.findings:
        if several:
            console.print()
        for line in variable_lines(result, finding):
            console.print(_text(f"{line}."))
        console.print(_groups(result, finding))
        if several:
            _print_evidence(result, finding, console)
    if several:
        console.print()
    console.print(_features(result))
    if not several:
        _print_evidence(result, result.findings[0], console)
    for line in check_lines(result):
        console.print(_text(f"{line}."))
    if result.comparison is not None:
        _print_comparison(result, result.comparison, console)


def _print_comparison(result: AuditResult, comparison: TestComparison, console: Console) -> None:
    table = _table("Test", [f"Rank correlation with {result.test}", "Seconds"])
    own = comparison.agreement[:, comparison.tests.index(result.test)].tolist()
    for (name, seconds), rho in zip(comparison.seconds.items(), own, strict=True):
        table.add_row(name, number(rho), f"{seconds:.1f}")
    console.print(table)
    for line in (training_line(result), *skipped_lines(result)):
        console.print(_text(ended(line)))


def _print_evidence(result: AuditResult, finding: Finding, console: Console) -> None:
    shows = proxy_lines(finding) if len(result.findings) > 1 else []  # of one variable the table of features tells it
    read = [*reading_lines(result, finding), *flip_lines(result, finding)]
    for line in [*read, *shows, quality_line(finding.quality), alignment_line(finding)]:
        console.print(_text(f"{line}."))


def _groups(result: AuditResult, finding: Finding) -> Table:
    headings = [
        "People",
        "Mean prediction",
        f"Mean {signed_word(result)}{heading_unit(result.unit)}",
        "Flagged",
        "Confidently",
    ]
    table = _table("Group", headings)
    for group in finding.groups:
        table.add_row(
            _text(group.name),
            f"{group.people:,}",
            number(group.mean_prediction),
            cell(group.mean_signed, result.unit, sign=True),
            percent(group.share_flagged),
            "-" if group.share_confident is None else percent(group.share_confident),
        )
    return table


def _features(result: AuditResult) -> Table:
    """Return one line per feature, those that carry the effect first."""
    effect = {} if result.features.effect is None else result.features.effect.total
    proxy = result.features.proxy
    names = list(dict.fromkeys([*effect, *proxy]))
    given = "Gives the protected away" if len(result.findings) == 1 else "Gives one of them away"
    table = _table("Feature", [f"Carries the effect{heading_unit(result.effect_unit)}", given])
    for name in names[:MOST_FEATURES]:
        table.add_row(_text(name), cell(effect.get(name), result.effect_unit), cell(proxy.get(name), ""))
    if len(names) > MOST_FEATURES:
        table.add_row(_text(f"and {len(names) - MOST_FEATURES} more", style="dim"), "", "")
    return table


def _table(first: str, others: list[str]) -> Table:
    table = Table(title_justify="left")
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _text(words: str, style: str = "") -> Text:
    """Return plain text; what could steer a terminal is shown as a replacement character."""
    return Text(
        "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words), style=style
    )
