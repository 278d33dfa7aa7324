"""Means and shares over people who may count for more than one."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor


def of_people(weights: Tensor | None, people: int) -> np.ndarray:
    """Return how much each person counts (N,): one without weights."""
    return np.ones(people) if weights is None else weights.numpy(force=True).astype(np.float64)


def mean(values: np.ndarray, weights: np.ndarray, *, nobody: float = math.nan) -> float:
    """Return the weighted mean; that of nobody is what is said."""
    total = float(weights.sum())
    return float((values * weights).sum()) / total if total > 0 else nobody


def share(marked: Tensor, abstained: Tensor, weights: Tensor | None) -> float:
    """Return the share of the judged people who are marked; of nobody it is zero."""
    judged = ~abstained.numpy(force=True)
    return mean(marked.numpy(force=True)[judged], of_people(weights, len(judged))[judged], nobody=0.0)
