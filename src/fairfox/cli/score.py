"""`fairfox score test.fox MODEL TABLE...`: score people with a test that was fitted before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairfox.cli.audit import audit
from fairfox.cli.endpoints import endpoint_options, find_model, take_endpoint_options
from fairfox.cli.options import FiniteRange, Once, options_among
from fairfox.errors import FairfoxError, FileError, OptionError

if TYPE_CHECKING:
    from fairfox.fitted import FittedTest
    from fairfox.result import AuditResult


_SHARED = ("positive", "output", "returns", "kind", "trust_model")  # options of an audit that mean the same here
_STREAMED = ("workers", "part_rows", "overwrite", "device")  # options that mean nothing where all people are in memory
_ENGINES = ("memory", "files", "spark", "dask")


@click.command(
    short_help="Score the people of tables with a test that `fairfox fit` kept.", params=options_among(audit, _SHARED)
)
@click.argument("test", type=click.Path(path_type=Path))
@click.argument("model")
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option(
    "--delta",
    cls=Once,
    type=FiniteRange(min=0),
    metavar="D",
    help="Flag people whose score is above D.  [default: the test's own]",
)
@endpoint_options
@click.option(
    "--engine",
    cls=Once,
    type=click.Choice(_ENGINES),
    help="Who does the work: this process with everyone in memory, processes that stream files, Spark or Dask.  "
    "[default: files for Parquet, else memory]",
)
@click.option(
    "--workers",
    cls=Once,
    type=click.IntRange(min=1),
    metavar="N",
    help="For Parquet: how many processes work at the same time.  [default: one per core]",
)
@click.option(
    "--part-rows",
    cls=Once,
    type=click.IntRange(min=1),
    metavar="N",
    help="For Parquet: how many people a part has at least; parts have whole row groups.  [default: 500,000]",
)
@click.option(
    "--device", cls=Once, metavar="DEVICE", help="For Parquet: score on a GPU, such as cuda.  [default: the processor]"
)
@click.option("--overwrite", is_flag=True, help="For Parquet: begin anew in a folder that holds other scores.")
@click.option(
    "-o",
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-score",
    show_default=True,
    metavar="DIR",
    help="Folder for summary.json and scores.parquet.",
)
def score(test: Path, model: str, tables: tuple[str, ...], *, out: Path, trust_model: bool, **options: Any) -> None:
    """Score every person in TABLE for unfair treatment by MODEL with TEST, a file that `fairfox fit` wrote.

    MODEL and TABLE are what `fairfox audit` takes. Nothing is fitted, so that the same three files give the same
    scores; people of TABLE should be others than TEST was fitted on.

    Parquet is streamed: files, folders, patterns and URLs of any size, in parts, on all cores. A run that was
    interrupted goes on where it stopped when the same command is given again.
    """
    engine = _engine(options.pop("engine"), tables)
    streamed = {name: options.pop(name) for name in _STREAMED}
    endpoint = take_endpoint_options(options)
    if engine == "memory":
        given = next((name for name, value in streamed.items() if value), None)
        if given is not None:
            raise OptionError(f"--{given.replace('_', '-')} is for Parquet that is streamed; leave it out")
        _score_table(test, model, tables[0], out, trust=trust_model, endpoint=endpoint, options=options)
    else:
        _score_files(test, model, tables, out, engine, streamed, trust=trust_model, endpoint=endpoint, options=options)


def _engine(given: str | None, tables: tuple[str, ...]) -> str:
    """Return who does the work; several tables, and whatever is no single file, are streamed."""
    from fairfox.scale.places import is_parquet

    other = [table for table in tables if not is_parquet(table)]
    if given in (None, "memory") and other and len(tables) == 1:
        return "memory"
    if given == "memory" and (len(tables) > 1 or not Path(tables[0]).is_file()):
        raise OptionError("--engine memory takes one file; leave it out to stream Parquet")
    if given == "memory":
        return given
    if other:
        raise OptionError(f"'{other[0]}' is no Parquet; give one table of another kind at a time, or all as Parquet")
    return given or "files"


def _score_files(
    test: Path,
    model: str,
    tables: tuple[str, ...],
    out: Path,
    engine: Any,
    streamed: dict[str, Any],
    *,
    trust: bool,
    endpoint: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Score Parquet in parts, and say what was found."""
    from rich.console import Console

    from fairfox.cli.progress import progress_bar
    from fairfox.models.http_model import is_url
    from fairfox.report.text import people
    from fairfox.scale.files import score_files
    from fairfox.scale.job import ModelSource

    if not is_url(model) or endpoint.get("max_calls"):
        find_model(model, trust=trust, endpoint=endpoint)  # refuses what it is not for
    if endpoint.get("max_calls"):
        if engine != "files":
            raise OptionError("--max-calls counts the calls of one process; leave it out, or --engine")
        streamed["workers"] = 1
    delta = options.pop("delta")
    kept = {name: value for name, value in streamed.items() if value is not None}
    with progress_bar(Console(stderr=True)) as progress:
        source = ModelSource(model, trust, endpoint)
        summary = score_files(
            test, source, tables, out, delta=delta, options=options, engine=engine, progress=progress, **kept
        )
    protected = ", ".join(summary["settings"]["protected"])
    click.echo(
        f"fairfox score of {people(summary['counts']['people'])}, test {summary['test']}, protected: {protected}"
    )
    for sentence in summary["in_words"]:
        click.echo(sentence)
    for warning in summary["warnings"]:
        click.echo(f"Warning: {warning}", err=True)
    files = ", ".join(str(out / name) for name in ("scores.parquet", "summary.json", "manifest.json"))
    click.echo(f"Written: {files}", err=True)


def _score_table(
    test: Path, model: str, table: str, out: Path, *, trust: bool, endpoint: dict[str, Any], options: dict[str, Any]
) -> None:
    """Score one table that fits into memory, and say what was found."""
    from fairfox.report.text import people
    from fairfox.report.verdict import verdict
    from fairfox.storage import load_test

    fitted = load_test(test)
    target = find_model(model, trust=trust, endpoint=endpoint)
    result = _scored(fitted, target, table, str(test), options)
    result.settings.update({"model_source": getattr(target, "shown", model), "table": table, "fitted": str(test)})
    scores, summary = _write(result, out)
    click.echo(f"fairfox score of {people(len(result))}, test {result.test}, protected: {', '.join(result.variables)}")
    for sentence in verdict(result):
        click.echo(sentence)
    for warning in result.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"Written: {scores}, {summary}", err=True)


def _scored(fitted: FittedTest, target: object, table: str, name: str, options: dict[str, Any]) -> AuditResult:
    """Return the scores; a test whose tensors turn out to be of wrong shapes was not written by `fairfox fit`."""
    try:
        return fitted.score(target, Path(table), **options)
    except (RuntimeError, IndexError) as error:
        if isinstance(error, FairfoxError):
            raise
        raise FileError(
            f"The test '{name}' does not fit together ({type(error).__name__}); write it again with fairfox fit"
        ) from error


def _write(result: AuditResult, folder: Path) -> tuple[Path, Path]:
    """Write scores.parquet and summary.json, both or none, and return their paths."""
    import pyarrow.parquet as pq

    from fairfox.data.files import written_whole

    paths = folder / "scores.parquet", folder / "summary.json"
    taken = next((path for path in paths if path.is_dir()), None)
    if taken is not None:  # found out before the first rename
        raise FileError(f"'{taken}' is a folder, not a file; move it away or choose another folder")
    table, text = result.scores_table(), result.to_json()
    try:
        with ExitStack() as stack:  # both are complete under temporary names before the first is renamed
            first, second = (stack.enter_context(written_whole(path)) for path in paths)
            pq.write_table(table, first)
            second.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"The results cannot be written to '{folder}' ({reason}); choose another folder") from error
    return paths
