"""What was not kept: plain ranks changed in other ways and moves with other settings, on one draw of every world.

The worlds, the draw and the jobs are those of `beyond.py`, so that what one of the two has done serves the other.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from beyond import EXPERIMENT as WHOLE
from beyond import FULL, QUICK, Beyond
from beyond_report import show_families
from runner import Experiment

BATCHES = ("maps", "moves", "variants")


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown: the eight settings, and all worlds."""
    return show_families(found["summary"], ("settings", "all"))


EXPERIMENT: Experiment[Beyond] = replace(
    WHOLE,
    name="beyond_variants",
    description="AP, rho and units of maps that were tried and not kept, on one draw of every world of beyond.py.",
    full=replace(FULL, draws=1, batches=BATCHES),
    quick=replace(QUICK, batches=BATCHES),
    show=show,
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
