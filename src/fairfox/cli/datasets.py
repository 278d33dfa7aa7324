"""`fairfox datasets [NAME]...`: list the public datasets and where each is; fetch those that are named."""

from __future__ import annotations

from inspect import getdoc

import click
from rich.console import Console
from rich.table import Table


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def datasets(names: tuple[str, ...]) -> None:
    """List the public datasets that fairfox can load, or download those with a NAME.

    A file in the folder that FAIRFOX_DATA names is taken as it is. Otherwise it is downloaded from its public source,
    checked by its checksum, and kept in the cache (FAIRFOX_CACHE). The paths of the files go to stdout, what the data
    is for and what is wrong with it to stderr.
    """
    from fairfox.data.catalog import DATASETS, find_dataset  # here: `fairfox datasets --help` must not wait for Arrow
    from fairfox.data.files import fetch_file

    if not names:
        table = Table(caption="Fetch one, and see what is wrong with it: fairfox datasets NAME", caption_justify="left")
        for heading in ("Name", "Where it is", "What it is for"):
            table.add_column(heading)
        for name, dataset in DATASETS.items():
            table.add_row(name, dataset.availability, dataset.purpose)
        Console(highlight=False).print(table)
        return
    from fairfox.data import datasets as loaders

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for name, dataset in [(name, find_dataset(name)) for name in names]:  # before any is fetched
        for file in dataset.files:
            click.echo(fetch_file(file))
        about = getdoc(getattr(loaders, dataset.loader)) or ""
        errors.print(f"{name}: from fairfox.data.datasets import {dataset.loader}")
        errors.print(about.partition("\n\nArgs:")[0])
