"""How well predictions tell the label: AUC, log-loss or RMSE, with intervals, also of the difference of two models."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairfox.statistics.intervals import Estimate

METRICS = {"auc": "AUC", "log_loss": "Log-loss", "rmse": "RMSE"}  # in words
Z95 = 1.959963984540054  # standard errors on each side of a 95 % interval
_LEAST = 1e-15  # probabilities stay so far from 0 and 1, as in scikit-learn


@dataclass(frozen=True)
class Performance:
    """One metric over labelled people.

    `influence` (N,) is how much each of them pulls the metric up. Its sum of squares is the squared standard error, so
    the difference of two models on the same people has an interval of its own.

    Example:
        >>> auc = performance(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.0, 0.0, 1.0, 1.0]))[0]
        >>> auc.metric, auc.value
        ('auc', 0.75)
    """

    metric: str  # "auc", "log_loss" or "rmse"
    value: float
    lower: float
    upper: float
    influence: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def of(cls, metric: str, value: float, influence: np.ndarray) -> Performance:
        """Return a metric with its 95 % interval."""
        half, top = Z95 * float(np.sqrt((influence**2).sum())), 1.0 if metric == "auc" else math.inf
        return cls(metric, value, max(0.0, value - half), min(top, value + half), influence)

    def minus(self, other: Performance) -> Estimate:
        """Return this metric minus that of another model on the same people."""
        error, apart = float(np.sqrt(((self.influence - other.influence) ** 2).sum())), self.value - other.value
        return Estimate(apart, error, apart - Z95 * error, apart + Z95 * error)

    def as_dict(self) -> dict[str, Any]:
        """Return it without its people."""
        return {name: getattr(self, name) for name in ("metric", "value", "lower", "upper")}


def performance(out: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> tuple[Performance, ...]:
    """Return AUC and log-loss of probabilities (N,) of labels 0 and 1, or the RMSE of other numbers.

    People without a label do not count, nor those without a prediction. Where all labels are equal there is no AUC.
    """
    out, y = np.asarray(out, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = ~(np.isnan(y) | np.isnan(out))
    counts = known.astype(np.float64) if weights is None else np.where(known, weights, 0.0)
    if not counts.sum() > 0:
        return ()
    share, shown = counts / counts.sum(), y[known]
    out, y = np.where(known, out, 0.5), np.where(known, y, 0.0)
    if not (np.isin(shown, (0, 1)).all() and (out >= 0).all() and (out <= 1).all()):
        squared = (out - y) ** 2
        value = math.sqrt(share @ squared)
        return (Performance.of("rmse", value, share * (squared - value**2) / max(2 * value, 1e-300)),)
    clipped = np.clip(out, _LEAST, 1 - _LEAST)
    loss = -np.where(y == 1, np.log(clipped), np.log1p(-clipped))
    found = [Performance.of("log_loss", float(share @ loss), share * (loss - share @ loss))]
    if 0 < shown[counts[known] > 0].mean() < 1:
        found.insert(0, _auc(out, y == 1, share))
    return tuple(found)


def _auc(out: np.ndarray, truth: np.ndarray, share: np.ndarray) -> Performance:
    """Return how often a true one is above a false one, with DeLong's components as influence."""
    own = np.where(truth, share, 0.0) / share[truth].sum()
    other = np.where(truth, 0.0, share) / share[~truth].sum()
    above, below = _share_below(out, other), 1 - _share_below(out, own)  # for everyone, ties count one half
    value = float(own @ above)
    return Performance.of("auc", value, own * (above - value) + other * (below - value))


def _share_below(out: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the share (N,) of some people below everyone, of ties one half."""
    _, place = np.unique(out, return_inverse=True)
    at = np.bincount(place, weights=share)
    return np.asarray((np.cumsum(at) - at / 2)[place])
