"""`fairfox plan [RESULT]`: how many people an audit needs to see an effect of a given size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairfox.cli.options import FiniteRange, Once

_AROUND = (0.25, 0.5, 1.0, 2.0)  # times the people that are needed: what these would show


@click.command(short_help="Say how many people an audit needs to detect an effect of a given size.")
@click.argument("result", required=False, type=click.Path(path_type=Path))
@click.option(
    "--effect",
    cls=Once,
    type=FiniteRange(0, min_open=True),
    metavar="E",
    help="True mean |effect| to detect.  [default: that of RESULT]",
)
@click.option(
    "--limit",
    cls=Once,
    type=FiniteRange(0),
    metavar="L",
    help="Value that the mean |effect| must exceed.  [default: the delta of RESULT]",
)
@click.option(
    "--share",
    cls=Once,
    type=FiniteRange(0, 1, share=True),
    metavar="SHARE",
    help="With --max-flagged: true share of people over delta to detect.  [default: that of RESULT]",
)
@click.option(
    "--max-flagged",
    cls=Once,
    type=FiniteRange(0, 1, share=True),
    metavar="SHARE",
    help="Plan for this limit on the share of people over delta, instead of the mean |effect|.",
)
@click.option(
    "--spread",
    cls=Once,
    type=FiniteRange(0),
    metavar="S",
    help="Without RESULT: standard error of the mean times the square root of the number of people.",
)
@click.option(
    "--power",
    cls=Once,
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    metavar="P",
    help="Probability of detecting the effect.",
)
@click.option("--people", multiple=True, type=click.IntRange(min=1), metavar="N", help="Also for N people; repeat.")
def plan(result: Path | None, *, people: tuple[int, ...], **options: Any) -> None:
    """Say how many people an audit needs to detect an effect of a given size.

    RESULT is the folder of a pilot: an audit of a few hundred people from the same population, with the same model. Its
    people and refits say how much results vary. An effect is detected if the lower 95 % bound of the mean |effect|, or
    of the share of people over delta, is above the limit.
    """
    from fairfox.comparison import plan as run

    found = run(result, **options)
    click.echo(found.sentence)
    click.echo(
        f"The spread is {found.spread:.3g}: the standard error of the {found.measure} times the square root of the "
        "number of people."
    )
    sizes = people or sorted({max(1, round(share * found.people)) for share in _AROUND})
    for size in sizes:
        click.echo(f"{size:>10,} people detect it in {found.power(size):.0%} of audits")
