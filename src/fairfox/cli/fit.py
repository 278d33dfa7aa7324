"""`fairfox fit TABLE --protected COL -o test.fox`: fit a fairness test once, and save it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from fairfox.cli.options import DECLARED, Grouped, Once, audit_options, given_options
from fairfox.cli.progress import say
from fairfox.options import AuditOptions, ModelOptions, ReportOptions

_NOT_HERE = {  # options of an audit that say nothing about the fit
    *(f.name for group in (ModelOptions, ReportOptions) for f in fields(group)),
    *("delta", "max_flagged", "decision_threshold", "protected_from", "on", "folds", "max_minutes"),
}
_OPTIONS = tuple(name for name in DECLARED if name not in _NOT_HERE)


@click.command(cls=Grouped, short_help="Fit a fairness test on a table and save it to a file.")
@click.argument("table", type=click.Path(path_type=Path))
@audit_options(*_OPTIONS)
@click.option(
    "-o",
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, dir_okay=False),
    default="test.fox",
    show_default=True,
    metavar="FILE",
    help="File to write.",
)
def fit(table: Path, *, out: Path, **values: Any) -> None:
    """Fit a fairness test on the people of TABLE and save it to a file, for `fairfox score`.

    The file holds numbers and names, and no code. It has the distinct values of each column of TABLE, but none of its
    rows (except for transport).
    """
    from fairfox.data.files import keep_inputs
    from fairfox.fairtests.storage import save_test
    from fairfox.pipeline import fit_with

    keep_inputs([out], table)
    test = fit_with(table, AuditOptions(**given_options(values)))
    save_test(test, out)
    protected = ", ".join(p.name for p in test.known.protected)
    what = f"{test.options.main} was fitted on {len(test.known):,} people, protected: {protected}."
    say(what, f"Models take the columns {', '.join(test.encoding.columns)}.", err=False)
    say(f"Written: {out}")
