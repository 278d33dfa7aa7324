"""How the scores of a protected variable are spread in its groups: bars over equal bins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairfox.data.dataset import group_name
from fairfox.report.text import people
from fairfox.result import AuditResult, Finding

MOST_LETTERS = 60  # of a group's name
_MIDDLE = (5, 25, 50, 75, 95)  # percentiles


def spread_of(result: AuditResult, finding: Finding, *, scale: float, most: int) -> dict[str, Any] | None:
    """Return a panel of bars for each of the largest groups, in percent of the group; None where nobody is judged.

    A panel has the limits of its group, none where no delta flags people.
    """
    signed = finding.signed is not None
    values = scale * (finding.scores if finding.signed is None else finding.signed).numpy(force=True).astype(np.float64)
    shown = ~finding.abstained.numpy(force=True) & np.isfinite(values)
    if not shown.any():
        return None
    own, panels = np.asarray(finding.group, dtype=str), []
    for group in largest_groups(finding, own[shown], most):
        delta = scale * result.delta_of(group_name(finding.name, group))
        limits = [] if result.decision_threshold is not None else [-delta, delta] if signed else [delta]
        members = shown & (own == group)
        weights = None if result.weights is None else result.weights.numpy(force=True)[members]
        edges = bin_edges(values[shown], limits or [0.0])
        heights = bar_heights(values[members], edges, weights)
        panels.append(
            {
                "group": f"{cut(group)} ({people(int(members.sum()))})",
                "people": int(members.sum()),
                "limits": limits,
                "edges": edges.tolist(),
                "heights": heights.tolist(),
                "middle": [float(f"{q:.3g}") for q in np.percentile(values[members], _MIDDLE)],
            }
        )
    return {"signed": signed, "panels": panels}


def cut(name: str) -> str:
    """Return a name that leaves room beside it on a chart."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def largest_groups(finding: Finding, own: np.ndarray, most: int) -> list[str]:
    """Return the most frequent of the people's own groups, in the order of the finding's groups."""
    names, counts = np.unique(own, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")[:most]].tolist()
    order = dict.fromkeys([*(group.level for group in finding.groups), *sorted(largest)])
    return [level for level in order if level in largest]


def bin_edges(values: np.ndarray, limits: list[float]) -> np.ndarray:
    """Return about forty equal bins over the middle 99 % of the values and the limits.

    Where the bins are narrow enough the limits are edges, so that no bar is half flagged.
    """
    low, high = np.percentile(values, [0.5, 99.5])
    low, high = min(low, 0.0, *limits), max(high, 0.0, *limits)
    delta, step = limits[-1], (high - low) / 40 or 1.0
    if delta >= step:
        step = delta / round(delta / step)
    # The small slack keeps a limit that is an edge from opening one more bin through rounding.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return step * np.arange(first, max(last, first + 1) + 1)


def bar_heights(values: np.ndarray, edges: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return how many percent of the values lie in each bin; values beyond the ends count in the last bars."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=weights)
    return 100.0 * counts / (counts.sum() or 1)
