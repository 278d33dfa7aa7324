"""What the charts of two audits show: their scores over each other, and their features side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fairfox.earlier import Side
from fairfox.report.figures import points_per_unit
from fairfox.report.tables import make_table
from fairfox.report.text import cell, heading_unit, percent, unit_words
from fairfox.verdicts.estimates import Values

MOST_FEATURES, BINS = 12, 30


def scores_figure(sides: tuple[Side, Side], labels: tuple[str, str]) -> dict[str, Any]:
    """Return how the scores are spread in both audits, over the same bins, the last of which is open."""
    unit, delta = sides[0].summary["unit"], sides[0].summary["delta"]
    edges, shares = shared_bins(*((side.scores, side.weights) for side in sides), delta=delta)
    ends = [f"{cell(low, unit)} to {cell(high, unit)}" for low, high in pairwise(edges[:-1])]
    ends.append(f"{cell(edges[-2], unit)} and above")
    title = f"Score{heading_unit(unit)}"
    rows = [[end, *map(percent, both)] for end, *both in zip(ends, *shares, strict=True)]
    return {
        "alt": f"How the scores of people are spread, {labels[0]} and {labels[1]}",
        "caption": f"Share of people by score: {unit_words(unit)}. Further right is less fair; the line is delta.",
        "table": make_table([title], labels, rows),
        "axis": title,
        "delta": points_per_unit(unit) * delta,
        "edges": [points_per_unit(unit) * edge for edge in edges],
        "shares": shares,
    }


def shared_bins(*sides: tuple[Values, Values | None], delta: float) -> tuple[list[float], list[list[float]]]:
    """Return the edges of bins for scores of several audits, and the share of each audit's people in each bin.

    What is beyond the last edge is in the last bin, so that one extreme score does not squeeze all the others.
    """
    top = max(float(np.quantile(np.concatenate([scores for scores, _ in sides]), 0.995)), 1.5 * delta) or 1.0
    edges = np.linspace(0.0, top, BINS + 1)
    counts = [np.histogram(np.minimum(scores, top), edges, weights=weights)[0] for scores, weights in sides]
    return edges.tolist(), [(each / each.sum()).tolist() for each in counts]


def feature_figure(sides: tuple[Side, Side], labels: tuple[str, str]) -> dict[str, Any] | None:
    """Return through which features the effect goes in both audits, the largest first; None where neither knows."""
    unit = sides[0].summary["unit"].partition(" (")[2].removesuffix(")")
    known = [(side.summary["features"]["effect"] or {}).get("mean_absolute", {}) for side in sides]
    largest = {name: max(each.get(name) or 0.0 for each in known) for name in [*known[0], *known[1]]}
    names = sorted(largest, key=lambda name: -largest[name])[:MOST_FEATURES]
    if not names:
        return None
    scale = points_per_unit(unit)
    title = f"Mean size of the contribution{heading_unit(unit)}"
    rows = [[name, *(cell(each.get(name), unit) for each in known)] for name in names]
    return {
        "alt": f"Through which features the effect goes, {labels[0]} and {labels[1]}",
        "caption": f"{title} per person, largest first.",
        "table": make_table(["Feature"], labels, rows),
        "axis": title,
        "names": names,
        "values": [[None if each.get(name) is None else scale * each[name] for name in names] for each in known],
    }
