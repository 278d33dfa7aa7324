"""`fairfox fit TABLE --protected COL -o test.fox`: fit a fairness test once, and keep it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click

from fairfox.cli.options import FiniteRange, Once, settings


@click.command(short_help="Fit a fairness test on a table and keep it in a file.")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--protected",
    multiple=True,
    required=True,
    metavar="COL",
    help="Protected column (groups, classes or a number), or a cut such as 'age<25'; repeat.",
)
@click.option("--intersections", is_flag=True, help="Also compare crossings of the protected classes: Female & Black.")
@click.option("--hold-others", is_flag=True, help="Compare with people who are alike in the other protected variables.")
@click.option(
    "--legitimate", multiple=True, metavar="COL,COL,...", help="Columns that may rightly tell the groups apart; repeat."
)
@click.option(
    "--reference-group",
    multiple=True,
    metavar="GROUP",
    help="Compare all others with this group only: White, or race=White; repeat for other variables.",
)
@click.option(
    "--merge-rare",
    cls=Once,
    type=FiniteRange(0, 0.5, min_open=True, max_open=True),
    metavar="SHARE",
    help="Put together classes with a smaller share of the people.",
)
@click.option("--weights", cls=Once, metavar="COL", help="Column that says how many people a row stands for.")
@click.option("--label", cls=Once, metavar="COL", help="Column with the true outcome; it is not an input of models.")
@click.option("--id", cls=Once, metavar="COL", help="Column that names people; it is not an input of models.")
@click.option(
    "--test", cls=Once, default="rank", show_default=True, metavar="T", help="Fairness test, such as rank, move, faux."
)
@click.option(
    "--set",
    "options",
    multiple=True,
    callback=settings,
    metavar="NAME=VALUE",
    help="A setting of the test, such as steps=4 for move; repeat.",
)
@click.option("--categorical", multiple=True, metavar="COL", help="Take this column as categories; repeat.")
@click.option("--continuous", multiple=True, metavar="COL", help="Take this column as numbers; repeat.")
@click.option("--drop", multiple=True, metavar="COL", help="Leave this column out; repeat.")
@click.option(
    "--columns",
    cls=Once,
    metavar="COL,COL,...",
    help="Columns that models take, in their order.  [default: all but the other roles]",
)
@click.option(
    "--refits",
    cls=Once,
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="How often the fit is repeated, for the intervals.",
)
@click.option(
    "--seed",
    cls=Once,
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all randomness.",
)
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
    test = fit_test(table, **options)
    save_test(test, out)
    protected = ", ".join(p.name for p in test.known.protected)
    click.echo(f"{test.name} was fitted on {len(test.known):,} people, protected: {protected}.")
    click.echo(f"Models take the columns {', '.join(test.encoding.columns)}.")
    click.echo(f"Written: {out}", err=True)
