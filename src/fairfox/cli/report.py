"""`fairfox report RESULT`: the page of a result again; `fairfox report RESULT_1 RESULT_2`: two audits on one page."""

from __future__ import annotations

from pathlib import Path

import click

from fairfox.cli.options import Once
from fairfox.cli.progress import say
from fairfox.errors import FileError, OptionError


@click.command(short_help="Write the page of a result again, or one page for two audits.")
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("second", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for the page; its folder is created if needed. Required for two audits.  "
    "[default: report.html in the folder RESULT]",
)
def report(result: Path, second: Path | None, *, out: Path | None) -> None:
    """Write the page of the folder RESULT again from its report.json, without the model and the table.

    RESULT is a folder that `fairfox audit` or `compare` wrote, or that of one of the demo's models. With
    SECOND both are folders of audits with the same options, and the page shows them side by side.
    """
    from fairfox.comparison import compare
    from fairfox.data.files import keep_inputs, write_text
    from fairfox.report.files import OUTPUTS, stored_page

    if second is not None and out is None:
        raise OptionError("A page for two audits needs a file name; give it with -o FILE")
    path = result / "report.html" if out is None else out
    read = [folder / name for folder in (result, second or result) for name in OUTPUTS if name != "report.html"]
    keep_inputs([path], *read)
    page = stored_page(result) if second is None else compare(result, second).to_html()
    if path.is_dir():
        raise FileError(f"'{path}' is a folder; give a file name with -o")
    try:
        write_text(page, path)
    except OSError as error:
        raise FileError(f"The page cannot be written to '{path}' ({error.strerror or error})") from error
    say(f"Written: {path}")
