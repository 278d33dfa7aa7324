"""`fairfox report RESULT`: the page of a result again."""

from __future__ import annotations

from pathlib import Path

import click

from fairfox.cli.options import Once
from fairfox.cli.progress import say
from fairfox.errors import FileError


@click.command(short_help="Write the page of a result again.")
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for the page; its folder is created if needed.  [default: report.html in the folder RESULT]",
)
def report(result: Path, *, out: Path | None) -> None:
    """Write the page of the folder RESULT again from its report.json, without the model and the table.

    RESULT is a folder that `fairfox audit` or `compare` wrote, or that of one of the demo's models.
    """
    from fairfox.data.files import keep_inputs, write_text
    from fairfox.report.files import OUTPUTS, stored_page

    path = result / "report.html" if out is None else out
    keep_inputs([path], *(result / name for name in OUTPUTS if name != "report.html"))
    page = stored_page(result)
    if path.is_dir():
        raise FileError(f"'{path}' is a folder; give a file name with -o")
    try:
        write_text(page, path)
    except OSError as error:
        raise FileError(f"The page cannot be written to '{path}' ({error.strerror or error})") from error
    say(f"Written: {path}")
