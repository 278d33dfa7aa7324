"""Corrections for multiple testing: lists of people, or of variables, with few false entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairfox.statistics.intervals import Values


def benjamini_hochberg(p: Tensor, level: float) -> Tensor:
    """Return who is significant (N,), at a false discovery rate of `level` (Benjamini and Hochberg 1995).

    People without a p-value (NaN) do not count and are not on the list.

    Example:
        >>> benjamini_hochberg(torch.tensor([0.01, 0.5, 0.03]), 0.05)
        tensor([ True, False,  True])
    """
    listed = ~p.isnan()
    adjusted = scipy.stats.false_discovery_control(p[listed].double().numpy(force=True))
    listed[listed.clone()] = torch.as_tensor(adjusted <= level, device=p.device)
    return listed


class Threshold(NamedTuple):
    """The p-value up to which people are significant, how many are, and how many exact p-values could give."""

    p: float
    listed: int
    at_most: int


def counted_threshold(edges: Values, counts: NDArray[np.int64], level: float) -> Threshold:
    """Return the threshold of Benjamini and Hochberg from a histogram of p-values.

    Only its ascending edges are tried, so nobody is listed who is not on the exact list.

    Example:
        >>> counted_threshold(np.array([0.01, 0.02, 0.5]), np.array([1, 1, 1]), 0.05)
        Threshold(p=0.02, listed=2, at_most=3)
    """
    reached = counts.cumsum()
    if not len(counts) or not reached[-1]:
        return Threshold(0.0, 0, 0)
    allowed, before = level * reached / reached[-1], np.concatenate([[0.0], edges[:-1]])
    sure, open_ = (np.flatnonzero((counts > 0) & holds) for holds in (edges <= allowed, before < allowed))
    most = int(reached[open_[-1]]) if len(open_) else 0
    return Threshold(float(edges[sure[-1]]), int(reached[sure[-1]]), most) if len(sure) else Threshold(0.0, 0, most)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, which controls the family-wise error rate.

    The k-th smallest of n is multiplied by n - k + 1, and none is smaller than one before it (Holm 1979).

    Example:
        >>> holm([0.03, 0.01])
        [0.03, 0.02]
    """
    out, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        out[i] = largest
    return out
