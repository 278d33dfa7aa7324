"""`fairfox plan [RESULT]`: how many people an audit needs to see an effect of a given size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairfox.cli.options import FiniteRange, Once

_AROUND = (0.25, 0.5, 1.0, 2.0)  # times the people that are needed: what these would show


@click.command(short_help="Say how many people an audit needs to see an effect of a given size.")
@click.argument("result", required=False, type=click.Path(path_type=Path))
@click.option(
    "--effect",
    cls=Once,
    type=FiniteRange(0, min_open=True),
    metavar="E",
    help="The true mean |effect| to be found.  [default: that of RESULT]",
)
@click.option(
    "--limit",
    cls=Once,
    type=FiniteRange(0),
    metavar="L",
    help="What the mean |effect| must lie above.  [default: the delta of RESULT]",
)
@click.option(
    "--share",
    cls=Once,
    type=FiniteRange(0, 1),
    metavar="SHARE",
    help="With --max-flagged: the true share of people over delta to be found.  [default: that of RESULT]",
)
@click.option(
    "--max-flagged",
    cls=Once,
    type=FiniteRange(0, 1),
    metavar="SHARE",
    help="Plan for this limit on the share of people over delta, instead of the mean |effect|.",
)
@click.option(
    "--spread",
    cls=Once,
    type=FiniteRange(0),
    metavar="S",
    help="Without RESULT: the standard error of the mean times the root of the number of people.",
)
@click.option(
    "--power",
    "wanted",
    cls=Once,
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    metavar="P",
    help="How often the effect shall be found.",
)
@click.option("--people", multiple=True, type=click.IntRange(min=1), metavar="N", help="Also say what N show; repeat.")
def plan(result: Path | None, *, people: tuple[int, ...], **options: Any) -> None:
    """Say how many people an audit needs to find an effect of a given size.

    RESULT is the folder of a pilot: an audit of some hundred people of the same kind, with the same model. Its
    people and refits say how far results scatter. To find an effect: the lower 95 % bound of the mean |effect|, or of
    the share of people over delta, lies above the limit.
    """
    from fairfox.comparison import plan as run

    found = run(result, **options)
    click.echo(found.sentence)
    click.echo(f"The spread is {found.spread:.3g}: the standard error of the {found.measure} times the root of people.")
    sizes = people or sorted({max(1, round(share * found.people)) for share in _AROUND})
    for size in sizes:
        click.echo(f"{size:>10,} people find it in {found.power(size):.0%} of audits")
