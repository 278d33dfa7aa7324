"""How many people each delta would flag, worked out here for every position of the page's slider."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.report.figures import points_per_unit
from fairfox.report.text import amount
from fairfox.result import AuditResult, Finding
from fairfox.thresholds import flag

POSITIONS = 200  # about, of equal steps
MOST_GROUPS = 24  # of a variable, whose counts move with the slider
_TINY = 1e-290  # scores whose steps no float can tell apart count as 0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def make_slider(result: AuditResult) -> dict[str, Any] | None:
    """Return every position of the slider: its delta, and how many are flagged there, in all and in each group.

    None where one delta does not say who is flagged.
    """
    if why_no_slider(result) is not None:
        return None
    deltas = positions(result.scores[~result.abstained], result.delta)
    weights = np.ones(len(result)) if result.weights is None else result.weights.numpy(force=True).astype(np.float64)
    flagged, shares = _counted(result.scores, result.abstained, deltas, np.zeros(len(result), dtype=np.int64), weights)
    return {
        "deltas": deltas,
        "words": [amount(delta, result.unit) for delta in deltas],
        "start": deltas.index(result.delta),
        "scale": points_per_unit(result.unit),
        "judged": result.judged,
        "flagged": flagged[:, 0].tolist(),
        "shares": [round(share, 6) for share in shares[:, 0].tolist()],
        "groups": [
            {"variable": v, **group}
            for v, finding in enumerate(result.findings)
            for group in _groups(finding, deltas, weights)
        ],
    }


def why_no_slider(result: AuditResult) -> str | None:
    """Return why one delta does not say who is flagged, in a sentence; None where it does."""
    if result.decision_threshold is not None:
        return "People are flagged where their decision would turn, so that there is no delta to move."
    if result.deltas:
        return "Some groups have a delta of their own, so that there is no single delta to move."
    if not result.judged:
        return "Nobody could be judged, so that there is no delta to move."
    known = [(each.scores, each.flags, each.abstained) for each in result.findings]
    known.append((result.scores, result.flags, result.abstained))
    if not all(torch.equal(flag(scores, result.delta, abstained=gone), flags) for scores, flags, gone in known):
        return "More than delta says who is flagged, so that there is no delta to move."
    return None


def positions(scores: Tensor, delta: float) -> list[float]:
    """Return the deltas of a slider, ascending: equal steps from 0 on, the audit's own, and one that flags nobody.

    The steps cover all but the largest scores, so that one outlier does not coarsen them.
    """
    values = scores.numpy(force=True).astype(np.float64)
    values = values[np.isfinite(values)]
    most = float(values.max()) if len(values) else 0.0
    usual = max(float(np.quantile(values, 0.995)) if len(values) else 0.0, 2 * delta)
    usual = usual if usual > _TINY else 1.0
    step = _nice(usual / POSITIONS)
    even = [float(f"{k * step:.12g}") for k in range(math.ceil(usual / step) + 1)]
    last = float(f"{step * math.ceil(most / step + 1e-9):.12g}")
    return sorted({*even, delta, max(even[-1], last)})


def last_positions(scores: Tensor, abstained: Tensor, deltas: list[float]) -> list[int]:
    """Return at how many positions each person is flagged: those before this one, since scores are above delta."""
    return torch.stack([flag(scores, delta, abstained=abstained) for delta in deltas]).sum(0).tolist()


def _nice(step: float) -> float:
    """Return the first of 1, 2, 2.5, 5 times a power of ten that is at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in _STEPS if nice * power >= step * (1 - 1e-9))


def _groups(finding: Finding, deltas: list[float], weights: np.ndarray) -> list[dict[str, Any]]:
    """Return the counts of a variable's largest groups."""
    largest = sorted(finding.groups, key=lambda group: -group.people)[:MOST_GROUPS]
    groups = [group for group in finding.groups if group in largest]
    places = {group.level: place for place, group in enumerate(groups)}
    own = np.array([places.get(level, len(groups)) for level in finding.group], dtype=np.int64)
    flagged, shares = _counted(finding.scores, finding.abstained, deltas, own, weights)
    judged = np.bincount(own[~finding.abstained.numpy(force=True)], minlength=len(groups) + 1)
    return [
        {
            "name": group.name,
            "judged": int(judged[place]),
            "flagged": flagged[:, place].tolist(),
            "shares": [round(share, 6) if math.isfinite(share) else None for share in shares[:, place].tolist()],
        }
        for place, group in enumerate(groups)
    ]


def _counted(
    scores: Tensor, abstained: Tensor, deltas: list[float], own: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many people of each group (positions, G) are flagged, and their share of its judged people."""
    judged, size = ~abstained.numpy(force=True), int(own.max(initial=0)) + 1
    whole = np.bincount(own[judged], weights[judged], minlength=size)
    counts, sums = [], []
    for delta in deltas:
        flags = flag(scores, delta, abstained=abstained).numpy(force=True)
        counts.append(np.bincount(own[flags], minlength=size))
        sums.append(np.bincount(own[flags], weights[flags], minlength=size))
    with np.errstate(invalid="ignore"):
        return np.stack(counts), np.stack(sums) / whole
