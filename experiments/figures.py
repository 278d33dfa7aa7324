"""Pictures beside results files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def save(make: Callable[[], Any], path: Path) -> None:
    """Write a chart as PNG and SVG under a name without its ending, where the packages that draw are installed."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401  # altair writes pictures with it
    except ImportError:
        return
    chart = make()
    for kind in ("png", "svg"):
        chart.save(f"{path}.{kind}", scale_factor=2 if kind == "png" else 1)
