"""`fairfox drift RESULT_1 RESULT_2`: is the second audit worse than the first?"""

from __future__ import annotations

from pathlib import Path

import click

from fairfox.cli.options import FiniteRange, Once


@click.command(short_help="Say whether an audit is worse than an earlier one.")
@click.argument("result_1", type=click.Path(path_type=Path))
@click.argument("result_2", type=click.Path(path_type=Path))
@click.option(
    "--margin",
    cls=Once,
    type=FiniteRange(0),
    metavar="M",
    help="A rise of the mean score that does not count.  [default: a tenth of delta]",
)
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for report.html, report.json, summary.json, summary.md and junit.xml.  [default: nothing is written]",
)
def drift(result_1: Path, result_2: Path, *, margin: float | None, out: Path | None) -> None:
    """Say whether the audit in the folder RESULT_2 finds people treated more unequally than the one in RESULT_1.

    Both are folders that `fairfox audit` wrote, of the same question: test, protected columns, unit, delta and so on.
    People who are in both, by --id, are compared each with themselves where most are.

    Exit codes: 0 not worse or cannot tell, 1 worse, 2 after bad input or an error.
    """
    from fairfox.earlier import drift as run
    from fairfox.report.pair import share_sentence
    from fairfox.verdicts.drifting import WORSE

    found = run(result_1, result_2, margin=margin, out=out)
    click.echo(f"Verdict: {found.word}. {found.why}")
    click.echo(share_sentence(found))
    if out is not None:
        click.echo(f"Written: {out}", err=True)
    if found.word == WORSE:
        click.get_current_context().exit(1)
