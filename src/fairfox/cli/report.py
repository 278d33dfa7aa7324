"""`fairfox report RESULT`: the page of a result again; `fairfox report RESULT_1 RESULT_2`: two audits on one page."""

from __future__ import annotations

from pathlib import Path

import click

from fairfox.cli.options import Once
from fairfox.errors import FileError, OptionError


@click.command(short_help="Make the page of a result again, or one page of two audits.")
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("second", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the page goes, in a folder that is made where there is none; needed for two audits.  "
    "[default: report.html in the folder RESULT]",
)
def report(result: Path, second: Path | None, *, out: Path | None) -> None:
    """Make the page of the folder RESULT again from its report.json, without the model and the table.

    RESULT is a folder that `fairfox audit`, `compare` or `drift` wrote, or that of one of the demo's models. With
    SECOND both are folders of audits of the same question, which the page shows side by side as `fairfox drift` does.
    """
    from fairfox.data.files import written_whole

    if second is not None and out is None:
        raise OptionError("Two audits have no folder in common; say with -o FILE where the page goes")
    page = _page(result, second)
    path = result / "report.html" if out is None else out
    if path.is_dir():
        raise FileError(f"'{path}' is a folder, not a file; give the name of a file with -o")
    try:
        with written_whole(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise FileError(f"The page cannot be written to '{path}' ({error.strerror or error})") from error
    click.echo(f"Written: {path}", err=True)


def _page(result: Path, second: Path | None) -> str:
    if second is None:
        from fairfox.report.again import page_again

        return page_again(result)
    from fairfox.earlier import drift_page

    return drift_page(result, second)
