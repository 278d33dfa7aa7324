"""`fairfox compare MODEL_A MODEL_B TABLE --protected COL`: which of two models is fairer to the same people."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fairfox.cli.audit import audit, sampled
from fairfox.cli.options import Once, options_among
from fairfox.cli.progress import progress_bar
from fairfox.errors import OptionError

_SHARED = (  # options of an audit that mean the same here
    "protected",
    "intersections",
    "hold_others",
    "legitimate",
    "reference_group",
    "contrasts",
    "merge_rare",
    "protected_from",
    "on",
    "weights",
    "label",
    "test",
    "deltas",
    "reference",
    "categorical",
    "continuous",
    "drop",
    "columns",
    "id",
    "positive",
    "output",
    "returns",
    "kind",
    "refits",
    "sample",
    "seed",
    "trust_model",
)


@click.command(
    short_help="Find out which of two models treats the same people less unequally.",
    params=options_among(audit, _SHARED),
)
@click.argument("model_a")
@click.argument("model_b")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--columns-b",
    cls=Once,
    metavar="COL,COL,...",
    help="Columns MODEL_B takes, where they are others than those of MODEL_A.",
)
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-compare",
    show_default=True,
    metavar="DIR",
    help="Folder for report.html, report.json, summary.json, summary.md, junit.xml and people.parquet.",
)
def compare(
    model_a: str,
    model_b: str,
    table: Path,
    *,
    protected: tuple[str, ...],
    deltas: dict[str, float],
    legitimate: tuple[str, ...],
    columns: str | None,
    columns_b: str | None,
    sample: int | None,
    trust_model: bool,
    out: Path,
    **options: Any,  # those of `fairfox.audit`, under the same names
) -> None:
    """Audit MODEL_A and MODEL_B on the same people of TABLE and say which of them is fairer.

    Models are files, or your own code as module:function or file.py:function. Both are asked the same question with
    the same seed, so that the same maps judge everyone with both.

    Exit codes: 0 when the comparison was made, whatever it says; 2 after bad input or an error.
    """
    from fairfox.comparing import compare as run
    from fairfox.data.table import load_table

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    people, rows = sampled(load_table(table), sample, seed=options["seed"])
    models = [_loaded(spec, trust=trust_model) for spec in (model_a, model_b)]
    named = csv.reader(legitimate, skipinitialspace=True)
    options["legitimate"] = [name for names in named for name in names or [""]]
    options["delta"], options["deltas"] = deltas.pop("", None), deltas
    options["columns"] = _names(columns)
    with progress_bar(errors) as progress:
        found = run(
            models[0],
            models[1],
            people.to_native(),
            protected=list(protected),
            only_b=None if columns_b is None else {"columns": _names(columns_b)},
            names=(model_a, model_b),
            progress=progress,
            **options,
        )
    if found.a.ids is None and rows is not None:  # the row numbers of TABLE, not of the sample
        found = replace(found, a=replace(found.a, ids=rows), b=replace(found.b, ids=rows))
    paths = found.write(out)
    Console(soft_wrap=True, markup=False, highlight=False).print(found.summary())
    for side, result in (("A", found.a), ("B", found.b)):
        for warning in result.warnings:
            errors.print(f"Warning about {side}: {warning}")
    errors.print("Written: " + ", ".join(str(path) for path in paths))


def _loaded(spec: str, *, trust: bool) -> object:
    from fairfox.models.http_model import is_url
    from fairfox.models.loading import load_model

    if is_url(spec):
        raise OptionError(
            "The command compares model files and your own code; for a model behind a URL use fairfox.compare with a "
            "fairfox.Endpoint, which has its own limit of calls"
        )
    return load_model(spec, trust=trust)


def _names(given: str | None) -> list[str] | None:
    return None if given is None else next(csv.reader([given]))
