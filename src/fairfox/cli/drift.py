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
def drift(result_1: Path, result_2: Path, *, margin: float | None) -> None:
    """Say whether the audit in the folder RESULT_2 finds people treated more unequally than the one in RESULT_1.

    Both are folders that `fairfox audit` wrote, of the same question: test, protected columns, unit, delta and so on.
    People who are in both, by --id, are compared each with themselves where most are.

    Exit codes: 0 not worse or cannot tell, 1 worse, 2 after bad input or an error.
    """
    from fairfox.earlier import drift as run
    from fairfox.verdicts.drifting import WORSE

    found = run(result_1, result_2, margin=margin)
    share = found.share_difference
    click.echo(f"Verdict: {found.word}. {found.why}")
    points = f"{100 * (found.shares[1] - found.shares[0]):+.1f} points"
    if share is not None:
        points += f" ({100 * share.lower:+.1f} to {100 * share.upper:+.1f}), p = {found.share_p_value:.2g}"
    click.echo(f"Flagged: {found.shares[0]:.1%} before, {found.shares[1]:.1%} now; a difference of {points}.")
    if found.word == WORSE:
        click.get_current_context().exit(1)
