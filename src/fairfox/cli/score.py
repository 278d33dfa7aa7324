"""`fairfox fit TABLE` and `fairfox score test.fox MODEL TABLE...`: fit a fairness test once, score people with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairfox.cli import options as cli
from fairfox.cli.audit import print_written
from fairfox.cli.progress import progress_bar, say
from fairfox.errors import OptionError
from fairfox.options import EVERYONE, NOT_OF_FIT, AuditOptions, ModelOptions

if TYPE_CHECKING:
    from fairfox.findings import AuditRecord

_STREAMED = ("workers", "part_rows", "overwrite", "device")  # options that mean nothing where all people are in memory
_ENGINE = (
    "What does the work: this process with everyone in memory, processes that stream files, Spark or Dask.  "
    "[default: files for Parquet, else memory]"
)
_NOT_OF_FIT = {*(f.name for f in fields(ModelOptions)), *NOT_OF_FIT, "protected_from"}
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=cli.Grouped)
@click.argument("table", type=click.Path(path_type=Path))
@cli.audit_options(*(name for name in cli.DECLARED if name not in _NOT_OF_FIT))
@cli.once("-o --out", _FILE, "FILE", "File to write.", default="test.fox", show_default=True)
def fit(table: Path, *, out: Path, **values: Any) -> None:
    """Fit a fairness test on the people of TABLE and save it to a file, for `fairfox score`.

    The file holds numbers and names, and no code. It has the distinct values of each column of TABLE, but none of its
    rows (except for transport).
    """
    from fairfox.data.files import keep_inputs
    from fairfox.fairtests.storage import save_test
    from fairfox.pipeline import fit_with

    keep_inputs([out], table)
    test = fit_with(table, AuditOptions(**cli.given_options(values)))
    save_test(test, out)
    protected = ", ".join(p.name for p in test.known.protected)
    what = f"{test.options.main} was fitted on {len(test.known):,} people, protected: {protected}."
    say(what, f"Models take the columns {', '.join(test.encoding.columns)}.", err=False)
    say(f"Written: {out}")


@click.command(cls=cli.Grouped)
@click.argument("test", type=click.Path(path_type=Path))
@click.argument("model")
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@cli.audit_options("delta", "max_flagged", "positive", "output", "returns", "kind")
@cli.trust_option
@cli.endpoint_options
@cli.once("--engine", click.Choice(("memory", "files", "spark", "dask")), None, _ENGINE)
@cli.once("--workers", cli.COUNT, "N", "For Parquet: number of processes.  [default: one per core]", common=False)
@cli.once(
    "--part-rows", cli.COUNT, "N", "For Parquet: smallest number of people in a part.  [default: 500,000]", common=False
)
@cli.once("--device", str, "DEVICE", "For Parquet: score on a GPU, such as cuda.  [default: cpu]", common=False)
@cli.switch("--overwrite", "For Parquet: replace other scores.", common=False)
@cli.once("-o --out", cli.FOLDER, "DIR", f"Folder for {cli.AUDIT_FILES}.", default="fairfox-score", show_default=True)
def score(test: Path, model: str, tables: tuple[str, ...], *, out: Path, trust_model: bool, **options: Any) -> None:
    """Score the people in TABLE with TEST, a file that `fairfox fit` wrote.

    MODEL and TABLE are as for `fairfox audit`. Nothing is fitted, so the same three files give the same scores. The
    people in TABLE should not be those that TEST was fitted on. Label, ids and protected columns are those of the fit.

    Parquet is streamed: files, folders, patterns and URLs of any size, in parts, on all cores. The same command resumes
    an interrupted run.

    The exit code is 0 once everyone is scored, whatever the verdict; to gate a release use `fairfox audit`.
    """
    engine = _engine(options.pop("engine"), tables)
    streamed = {name: value for name in _STREAMED if (value := options.pop(name))}
    endpoint = cli.take_endpoint_options(options)
    read_as = cli.given_options(options)
    if engine == "memory":
        if streamed:
            raise OptionError(f"--{next(iter(streamed)).replace('_', '-')} is for Parquet that is streamed; omit it")
        loaded = cli.find_model(model, trust=trust_model, endpoint=endpoint)
        print_written(*_score_table(test, loaded, model, tables[0], out, read_as))
        return
    from fairfox.models.http import is_url
    from fairfox.streaming.files import files_in, score_files
    from fairfox.streaming.sources import ModelSource

    if not is_url(model) or endpoint.get("max_calls"):
        cli.find_model(model, trust=trust_model, endpoint=endpoint)  # refuses options that it is not for
    if endpoint.get("max_calls"):
        if engine != "files":
            raise OptionError("--max-calls counts the calls of one process; omit it, or --engine")
        streamed["workers"] = 1
    source = ModelSource(model, trust_model, endpoint)
    delta = read_as.pop("delta", {EVERYONE: None})
    if set(delta) != {EVERYONE}:
        raise OptionError("A delta by group needs everyone in memory, but Parquet is streamed; give one delta for all")
    streamed |= {"delta": delta[EVERYONE], "max_flagged": read_as.pop("max_flagged", None), "options": read_as}
    streamed |= {"engine": engine, "recorded": {"command": cli.typed_command()}}
    with progress_bar() as progress:
        result = score_files(test, source, tables, out, progress=progress, **streamed)
    print_written(result.record, files_in(out))


def _engine(given: str | None, tables: tuple[str, ...]) -> str:
    """Return what does the work; several tables, and whatever is no single file, are streamed."""
    from fairfox.streaming.sources import is_parquet

    other = [table for table in tables if not is_parquet(table)]
    if given in (None, "memory") and other and len(tables) == 1:
        return "memory"
    if given == "memory" and (len(tables) > 1 or not Path(tables[0]).is_file()):
        raise OptionError("--engine memory takes one file; omit it to stream Parquet")
    if other and given != "memory":
        raise OptionError(f"'{other[0]}' is not Parquet; give one table of another kind at a time, or all as Parquet")
    return given or "files"


def _score_table(
    test: Path, model: object, spec: str, table: str, out: Path, options: dict[str, Any]
) -> tuple[AuditRecord, Sequence[Path]]:
    """Score one table that fits into memory."""
    from fairfox.data.files import keep_inputs
    from fairfox.data.table import load_table
    from fairfox.fairtests.storage import load_test
    from fairfox.pipeline import score as score_people
    from fairfox.report.files import OUTPUTS, write_outputs

    keep_inputs([out / name for name in OUTPUTS], test, spec, table)
    fitted = load_test(test)
    people = load_table(Path(table), needed=fitted.encoding.needed, ids=[fitted.encoding.id_column])
    own = {name: options.pop(name, None) for name in ("delta", "max_flagged")}
    result = score_people(fitted, model, people.to_native(), **own, options=options).record
    result.settings.update({"model_source": getattr(model, "shown", spec), "table": table, "fitted": str(test)})
    return result, write_outputs(result, out, table=people)
