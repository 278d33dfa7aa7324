"""An audit on the terminal: the verdict, then tables of groups and features."""

from __future__ import annotations

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from fairfox.errors import printable
from fairfox.findings import AuditRecord
from fairfox.report.figures import features_table, groups_table
from fairfox.report.sentences import check_lines, comparison_notes, title_line, verdict_lines
from fairfox.report.text import Table as Shown
from fairfox.report.text import ended, make_table, number


def print_result(result: AuditRecord, console: Console) -> None:
    """Print what a validator needs to decide; names from the table are printed as text, never as markup."""
    console.print(_text(title_line(result), style="bold"))
    _print(verdict_lines(result), console)
    console.print(rich_table(groups_table(result, result.findings)))
    console.print(rich_table(features_table(result)))
    _print(check_lines(result), console)
    if (compared := result.comparison) is not None:
        own = compared.agreement[:, compared.tests.index(result.test)].tolist()
        rows = [[n, number(rho), f"{s:.1f}"] for (n, s), rho in zip(compared.seconds.items(), own, strict=True)]
        console.print(rich_table(make_table(["Test"], [f"Rank correlation with {result.test}", "Seconds"], rows)))
        _print(comparison_notes(result), console)


def rich_table(shown: Shown) -> Table:
    """Return a table of ready words for the terminal."""
    table, longest = Table(), max([len(row[0]) for row in shown["rows"]], default=0)
    for k, column in enumerate(shown["columns"]):
        least = 0 if k else min(longest, 24)  # headings are folded rather than names
        justify: JustifyMethod = "right" if column["numeric"] else "left"
        table.add_column(_text(column["label"]), justify=justify, overflow="fold", min_width=least)
    for row in shown["rows"]:
        table.add_row(*map(_text, row))
    return table


def _print(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(_text(ended(line)))


def _text(words: str, style: str = "") -> Text:
    """Return plain text; what could steer a terminal is escaped."""
    return Text(printable(words), style=style)
