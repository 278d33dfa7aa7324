"""`fairfox fit TABLE --protected COL -o test.fox`: fit a fairness test once, and keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairfox.cli.options import Once, audit_options, given_options
from fairfox.cli.progress import say
from fairfox.options import AuditOptions

_OPTIONS = (  # of an audit, those that concern the fit
    "protected",
    "label",
    "test",
    "settings",
    "given",
    "columns",
    "weights",
    "id",
    "categorical",
    "continuous",
    "drop",
    "intersections",
    "merge_rare",
    "contrasts",
    "reference_group",
    "hold_others",
    "refits",
    "seed",
)


@click.command(short_help="Fit a fairness test on a table and keep it in a file.")
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
    help="The file to write.",
)
def fit(table: Path, *, out: Path, **values: Any) -> None:
    """Fit a fairness test on the people of TABLE and keep it in a file, for `fairfox score`.

    The file holds numbers and names, nothing that runs: no row of TABLE (but for transport),
    though the values of its columns one by one.
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
