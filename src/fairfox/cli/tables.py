"""An audit on the terminal: the verdict, then tables of groups and features."""

from __future__ import annotations

import textwrap

from rich.console import Console
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
    groups, features = map(rich_table, (groups_table(result, result.findings), features_table(result)))
    console.print("", groups, "", features, "")
    _print(check_lines(result), console)
    if (compared := result.comparison) is not None:
        own = compared.agreement[:, compared.tests.index(result.test)].tolist()
        rows = [[n, number(rho), f"{s:.1f}"] for (n, s), rho in zip(compared.seconds.items(), own, strict=True)]
        console.print(rich_table(make_table(["Test"], [f"Rank correlation with {result.test}", "Seconds"], rows)))
        _print(comparison_notes(result), console)


def rich_table(shown: Shown) -> Table:
    """Return a table of ready words for the terminal, without what the lines above it say of variables."""
    table, labels = Table(show_edge=False, pad_edge=False), [column["label"] for column in shown["columns"]]
    kept = [k for k, label in enumerate(labels) if label.partition(" (")[0] not in ("Inferred", "Delta")]
    width = 10 if len(kept) > 3 else 28  # of headings: with many columns these are folded rather than names
    for k in kept:
        label = Text(textwrap.fill(printable(labels[k]), width, break_long_words=False))
        table.add_column(label, justify="right" if shown["columns"][k]["numeric"] else "left", overflow="fold")
    for row in shown["rows"]:
        table.add_row(*(_text(row[k]) for k in kept))
    return table


def _print(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(_text(ended(line)))


def _text(words: str, style: str = "") -> Text:
    """Return plain text; what could steer a terminal is escaped."""
    return Text(printable(words), style=style)
