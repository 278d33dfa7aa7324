"""`fairfox datasets [NAME]...`: list the public datasets and where each stands; fetch those that are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # imported in the functions: `fairfox datasets --help` must not wait for Arrow
    from fairfox.data.catalog import Known


@click.command(short_help="List the public datasets fairfox knows, and fetch one.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def datasets(names: tuple[str, ...]) -> None:
    """List the public datasets fairfox knows, or fetch those with a NAME.

    A file in the folder that FAIRFOX_DATA names is taken as it is. Otherwise it is downloaded from its public source,
    checked by its checksum, and kept in the cache (FAIRFOX_CACHE). The paths of the files go to stdout, what the data
    is for and what is wrong with it to stderr.
    """
    from fairfox.data.catalog import CATALOG, find_known

    if not names:
        Console(highlight=False).print(_listed(list(CATALOG.values())))
        return
    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for known in [find_known(name) for name in names]:  # before any is fetched
        _fetch(known, errors)


def _listed(known: list[Known]) -> Table:
    table = Table(caption="Fetch one, and see what is wrong with it: fairfox datasets NAME", caption_justify="left")
    for heading in ("Name", "Where it stands", "What it is for"):
        table.add_column(heading)
    for one in known:
        table.add_row(one.name, one.standing, one.purpose)
    return table


def _fetch(known: Known, errors: Console) -> None:
    """Print where the files of a dataset are, after downloading those that are nowhere, and what to know of it."""
    from fairfox.data.catalog import fetch_file

    if known.standing == "with scikit-learn":
        errors.print(f"{known.name}: there is nothing to fetch, scikit-learn has it.")
    else:
        for file in known.files:
            click.echo(fetch_file(file))
    errors.print(f"{known.name}: {known.people}.")
    errors.print(f"For: {known.purpose}.")
    errors.print(f"What is wrong with it: {known.trouble}.")
    errors.print(f"In Python: from {known.module} import {known.loader}")
