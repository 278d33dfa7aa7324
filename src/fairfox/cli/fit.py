"""`fairfox fit TABLE --protected COL -o test.fox`: fit a fairness test once, and keep it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click

from fairfox.cli.audit import audit
from fairfox.cli.options import Once, options_among

_SHARED = (  # options of an audit that mean the same here
    "protected",
    "intersections",
    "hold_others",
    "legitimate",
    "reference_group",
    "contrasts",
    "merge_rare",
    "weights",
    "label",
    "id",
    "test",
    "settings_of_test",
    "categorical",
    "continuous",
    "drop",
    "columns",
    "refits",
    "seed",
)


@click.command(short_help="Fit a fairness test on a table and keep it in a file.", params=options_among(audit, _SHARED))
@click.argument("table", type=click.Path(path_type=Path))
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
def fit(table: Path, *, out: Path, **options: Any) -> None:
    """Fit a fairness test on the people of TABLE and keep it in a file, for `fairfox score`.

    The file holds numbers and names, nothing that runs: no row of TABLE (but for transport),
    though the values of its columns one by one.
    """
    from fairfox.fitting import fit_test
    from fairfox.storage import save_test

    columns, named = options["columns"], csv.reader(options["legitimate"], skipinitialspace=True)
    options["legitimate"] = [name for names in named for name in names or [""]]
    options["columns"] = None if columns is None else next(csv.reader([columns], skipinitialspace=True))
    test = fit_test(table, options=options.pop("settings_of_test"), **options)
    save_test(test, out)
    protected = ", ".join(p.name for p in test.known.protected)
    click.echo(f"{test.name} was fitted on {len(test.known):,} people, protected: {protected}.")
    click.echo(f"Models take the columns {', '.join(test.encoding.columns)}.")
    click.echo(f"Written: {out}", err=True)
