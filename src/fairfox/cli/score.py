"""`fairfox score test.fox MODEL TABLE`: score people with a test that was fitted before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairfox.cli.audit import audit
from fairfox.cli.endpoints import endpoint_options, find_model, take_endpoint_options
from fairfox.cli.options import FiniteRange, Once, options_among
from fairfox.errors import FairfoxError, FileError

if TYPE_CHECKING:
    from fairfox.fitted import FittedTest
    from fairfox.result import AuditResult


_SHARED = ("positive", "output", "returns", "kind", "trust_model")  # options of an audit that mean the same here


@click.command(
    short_help="Score the people of a table with a test that `fairfox fit` kept.", params=options_among(audit, _SHARED)
)
@click.argument("test", type=click.Path(path_type=Path))
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--delta",
    cls=Once,
    type=FiniteRange(min=0),
    metavar="D",
    help="Flag people whose score is above D.  [default: the test's own]",
)
@endpoint_options
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
def score(test: Path, model: str, table: Path, *, out: Path, trust_model: bool, **options: Any) -> None:
    """Score every person in TABLE for unfair treatment by MODEL with TEST, a file that `fairfox fit` wrote.

    MODEL and TABLE are what `fairfox audit` takes. Nothing is fitted, so that the same three files give the same
    scores; people of TABLE should be others than TEST was fitted on.
    """
    from fairfox.report.text import people, verdict
    from fairfox.storage import load_test

    fitted = load_test(test)
    target = find_model(model, trust=trust_model, endpoint=take_endpoint_options(options))
    result = _scored(fitted, target, table, str(test), options)
    result.settings.update({"model_source": getattr(target, "shown", model), "table": str(table), "fitted": str(test)})
    scores, summary = _write(result, out)
    click.echo(f"fairfox score of {people(len(result))}, test {result.test}, protected: {', '.join(result.variables)}")
    for sentence in verdict(result):
        click.echo(sentence)
    for warning in result.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"Written: {scores}, {summary}", err=True)


def _scored(fitted: FittedTest, target: object, table: Path, name: str, options: dict[str, Any]) -> AuditResult:
    """Return the scores; a test whose tensors turn out to be of wrong shapes was not written by `fairfox fit`."""
    try:
        return fitted.score(target, table, **options)
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
