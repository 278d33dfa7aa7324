"""What is told of the scores that targets get from a test: who is above whom, by how much, and how sure that is.

Everything that has an interval comes with replicates: the same number among people drawn with replacement. Those of
several runs are averaged one by one; so an interval is about the people, given the runs, and not about other runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of a box: whiskers, box, median
INTERVAL = (0.025, 0.975)

Resampled = dict[str, Any]  # {"value": a number, "replicates": [numbers]}


def auc_above(left: Values, right: Values) -> float | None:
    """Return how often a value of the left is above one of the right, ties counting half; NaN is left out."""
    left, right = np.sort(left[~np.isnan(left)]), np.sort(right[~np.isnan(right)])
    if not len(left) or not len(right):
        return None
    below = np.searchsorted(right, left, "left") + np.searchsorted(right, left, "right")
    return float(below.mean() / 2 / len(right))


def box(values: Values) -> list[float] | None:
    """Return the quantiles of a box plot; NaN is left out; None where nothing else is there."""
    known = values[~np.isnan(values)]
    return [float(q) for q in np.quantile(known, QUANTILES)] if len(known) else None


def paired_share(difference: Values) -> float:
    """Return for which part of the people a difference is above zero, none counting half."""
    return float((np.sign(difference).mean() + 1) / 2)


def resampled(statistic: Callable[[Values], float], values: Values, *, draws: int, seed: int) -> Resampled:
    """Return a number of the values (N,), NaN left out, and its replicates; null where nobody has a value."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {"value": None, "replicates": []}
    generator = np.random.default_rng(seed)
    drawn = [statistic(known[generator.integers(len(known), size=len(known))]) for _ in range(draws)]
    return {"value": statistic(known), "replicates": drawn}


def with_interval(runs: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Return the mean over runs and the ends of its interval, from the means of their replicates; None without any."""
    known = [run for run in runs if run["value"] is not None]
    if not known:
        return None
    means = np.mean([run["replicates"] for run in known], axis=0)
    ends = np.quantile(means, INTERVAL) if means.size else (np.nan, np.nan)
    return [rounded(float(np.mean([run["value"] for run in known]))), *(rounded(float(end)) for end in ends)]


def rounded(value: float) -> float:
    """Return five digits of a number: more were never measured."""
    return float(f"{value:.5g}")
