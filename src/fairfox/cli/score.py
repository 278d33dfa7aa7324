"""`fairfox score test.fox MODEL TABLE...`: score people with a fitted test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from fairfox.cli.endpoints import endpoint_options, find_model, take_endpoint_options
from fairfox.cli.options import FiniteRange, Once, audit_options, given_options
from fairfox.errors import OptionError

_STREAMED = ("workers", "part_rows", "overwrite", "device")  # options that mean nothing where all people are in memory
_ENGINES = ("memory", "files", "spark", "dask")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(name: str, help: str, **given: Any) -> Callable[[_Command], _Command]:
    return click.option(*name.split(), cls=Once, help=help, **given)


@click.command(short_help="Score the people of tables with a test that `fairfox fit` kept.")
@click.argument("test", type=click.Path(path_type=Path))
@click.argument("model")
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@_option(
    "--delta",
    "Flag people whose score is above D.  [default: the test's own]",
    type=FiniteRange(min=0),
    metavar="D",
)
@audit_options("positive", "output", "returns", "kind")
@click.option("--trust-model", is_flag=True, help="Load model files that can run code, such as pickles.")
@endpoint_options
@_option(
    "--engine",
    "What does the work: this process with everyone in memory, processes that stream files, Spark or Dask.  "
    "[default: files for Parquet, else memory]",
    type=click.Choice(_ENGINES),
)
@_option(
    "--workers",
    "For Parquet: how many processes work at the same time.  [default: one per core]",
    type=click.IntRange(min=1),
    metavar="N",
)
@_option(
    "--part-rows",
    "For Parquet: how many people a part has at least; parts have whole row groups.  [default: 500,000]",
    type=click.IntRange(min=1),
    metavar="N",
)
@_option("--device", "For Parquet: score on a GPU, such as cuda.  [default: the processor]", metavar="DEVICE")
@click.option("--overwrite", is_flag=True, help="For Parquet: begin anew in a folder that holds other scores.")
@_option(
    "-o --out",
    "Folder for summary.json and scores.parquet.",
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-score",
    show_default=True,
    metavar="DIR",
)
def score(test: Path, model: str, tables: tuple[str, ...], *, out: Path, trust_model: bool, **options: Any) -> None:
    """Score every person in TABLE for unfair treatment by MODEL with TEST, a file that `fairfox fit` wrote.

    MODEL and TABLE are what `fairfox audit` takes. Nothing is fitted, so that the same three files give the same
    scores; people of TABLE should be others than TEST was fitted on.

    Parquet is streamed: files, folders, patterns and URLs of any size, in parts, on all cores. A run that was
    interrupted is resumed when the same command is given again.
    """
    engine = _engine(options.pop("engine"), tables)
    streamed = {name: value for name in _STREAMED if (value := options.pop(name))}
    endpoint = take_endpoint_options(options)
    delta, read_as = options.pop("delta"), given_options(options)
    if engine == "memory":
        if streamed:
            raise OptionError(
                f"--{next(iter(streamed)).replace('_', '-')} is for Parquet that is streamed; leave it out"
            )
        loaded = find_model(model, trust=trust_model, endpoint=endpoint)
        _score_table(test, loaded, model, tables[0], out, delta, read_as)
        return
    from fairfox.models.http import is_url
    from fairfox.streaming.sources import ModelSource

    if not is_url(model) or endpoint.get("max_calls"):
        find_model(model, trust=trust_model, endpoint=endpoint)  # refuses options that it is not for
    if endpoint.get("max_calls"):
        if engine != "files":
            raise OptionError("--max-calls counts the calls of one process; leave it out, or --engine")
        streamed["workers"] = 1
    source = ModelSource(model, trust_model, endpoint)
    _score_files(test, source, tables, out, delta=delta, options=read_as, engine=engine, **streamed)


def _engine(given: str | None, tables: tuple[str, ...]) -> str:
    """Return what does the work; several tables, and whatever is no single file, are streamed."""
    from fairfox.streaming.sources import is_parquet

    other = [table for table in tables if not is_parquet(table)]
    if given in (None, "memory") and other and len(tables) == 1:
        return "memory"
    if given == "memory" and (len(tables) > 1 or not Path(tables[0]).is_file()):
        raise OptionError("--engine memory takes one file; leave it out to stream Parquet")
    if other and given != "memory":
        raise OptionError(f"'{other[0]}' is no Parquet; give one table of another kind at a time, or all as Parquet")
    return given or "files"


def _score_files(test: Path, model: Any, tables: tuple[str, ...], out: Path, **given: Any) -> None:
    """Score Parquet in parts, and print the results."""
    from rich.console import Console

    from fairfox.cli.progress import progress_bar
    from fairfox.streaming.files import MANIFEST, SCORES, SUMMARY, score_files

    with progress_bar(Console(stderr=True)) as progress:
        summary = score_files(test, model, tables, out, progress=progress, **given)
    people, protected = summary["counts"]["people"], summary["settings"]["protected"]
    files = [out / name for name in (SCORES, SUMMARY, MANIFEST)]
    _print(people, summary["test"], protected, summary["in_words"], summary["warnings"], files)


def _score_table(
    test: Path, model: object, spec: str, table: str, out: Path, delta: float | None, options: dict[str, Any]
) -> None:
    """Score one table that fits into memory, and print the results."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fairfox.fairtests.storage import load_test
    from fairfox.pipeline import score as score_people
    from fairfox.report.files import write_files
    from fairfox.report.sentences import verdict_lines

    result = score_people(load_test(test), model, Path(table), delta=delta, options=options)
    result.settings.update({"model_source": getattr(model, "shown", spec), "table": table, "fitted": str(test)})
    scores = pa.BufferOutputStream()
    pq.write_table(result.scores_table(), scores)
    contents = {"scores.parquet": bytes(scores.getvalue()), "summary.json": result.to_json().encode()}
    files = write_files(out, contents)
    _print(len(result), result.test, result.variables, verdict_lines(result), result.warnings, files)


def _print(
    count: int,
    test: str,
    protected: Sequence[str],
    sentences: Sequence[str],
    warnings: Sequence[str],
    files: Sequence[Path],
) -> None:
    from fairfox.report.text import people

    click.echo(f"fairfox score of {people(count)}, test {test}, protected: {', '.join(protected)}")
    for sentence in sentences:
        click.echo(sentence)
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"Written: {', '.join(map(str, files))}", err=True)
