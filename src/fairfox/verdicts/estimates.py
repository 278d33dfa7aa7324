"""Means over people with all of their error: people are a sample, and the maps that judge them were learnt from one.

The second part is usually the larger one. What a map gets wrong it gets wrong for everyone in the same way, so it does
not average out over people; the re-fits say how much it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
DRAWS = 1_000  # of the bootstrap
LEVEL = 0.95  # of intervals
_AT_ONCE = 1_000_000  # people drawn


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and an interval around it."""

    value: float
    error: float
    lower: float
    upper: float


def left_over(refits: int, folds: int | None) -> float:
    """Return which part of the variance of one person's error remains in a mean over all people.

    All of it where everyone is judged by the same maps. Of K folds each has maps of its own, but from people most of
    whom they share: a mean has (K - 1) / K of the variance of one fold, and the scatter of M re-fits is 1 / (M K)
    instead of 1 / M; a person's own error has 1 + 1 / M.
    """
    return 1.0 if folds is None else (refits * (folds - 1) + 1) / (folds * (refits + 1))


def errors_of_intervals(lower: Values, upper: Values, refits: int) -> Values:
    """Return the standard errors (N,) that 90 % intervals of people's effects stand for; 0 where there is none.

    An interval reaches as far as t says with the degrees of freedom of its re-fits, about doubled by what people have
    in common.
    """
    from scipy.stats import t

    return np.nan_to_num((upper - lower) / (2 * float(t.ppf(0.95, 2 * max(refits - 1, 1)))))


def refit_error(errors: Values, weights: Values | None = None, *, part: float = 1.0) -> float:
    """Return the standard error that maps leave in a mean over people, from each person's own (N,).

    Everyone's is taken to point in the same direction; `part` is that of `left_over`.
    """
    return float(np.average(errors, weights=weights)) * math.sqrt(part) if len(errors) else 0.0


def refit_error_of_share(scores: Values, errors: Values, delta: float | Values, weights: Values | None = None) -> float:
    """Return the same for the share of scores above delta: half of its growth from one error less to one more."""
    more, less = (np.average(scores + sign * errors > delta, weights=weights) for sign in (1, -1))
    return float(more - less) / 2


def mean_draws(values: Values, refit_error: float, weights: Values | None = None, *, seed: int) -> Values:
    """Return bootstrap draws of a weighted mean: people drawn anew, and a normal error of the maps."""
    generator = np.random.default_rng(seed)
    w = np.ones(len(values)) if weights is None else weights
    counted, out = values * w, np.empty(DRAWS)
    step = max(1, _AT_ONCE // len(values))
    for first in range(0, DRAWS, step):
        rows = generator.integers(len(values), size=(min(step, DRAWS - first), len(values)))
        out[first : first + step] = counted[rows].sum(1) / np.maximum(w[rows].sum(1), np.finfo(np.float64).tiny)
    return out + refit_error * generator.standard_normal(DRAWS)


def estimate(value: float, draws: Values) -> Estimate:
    """Return a number with the spread of its draws."""
    lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(draws.std()), float(lower), float(upper))


def standard_error(values: Values, refit_error: float, weights: Values | None = None) -> float:
    """Return the standard error of a weighted mean, without a bootstrap: that of people and that of maps."""
    if len(values) < 2:
        return math.nan
    w = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    apart = values - (w * values).sum()
    return math.hypot(float(np.sqrt((w**2 * apart**2).sum() * len(values) / (len(values) - 1))), refit_error)
