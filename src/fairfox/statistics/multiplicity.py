"""Lists of people, or of variables, with few false entries: corrections of many p-values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairfox.errors import DataError, OptionError
from fairfox.statistics.intervals import Values


def benjamini_hochberg(p: Tensor, level: float) -> Tensor:
    """Return who is on the list (N,): of all on it, no more than the share `level` should be there wrongly.

    Who has no p-value (NaN) does not count and is not on it (Benjamini and Hochberg 1995).

    Example:
        >>> benjamini_hochberg(torch.tensor([0.01, 0.5, 0.03]), 0.05)
        tensor([ True, False,  True])
    """
    if not 0 < level < 1:
        raise OptionError(f"The level of false discoveries is {level}; give a number between 0 and 1, such as 0.1")
    known = ~p.isnan()
    _check(p[known])
    adjusted = scipy.stats.false_discovery_control(p[known].double().numpy(force=True))
    adjusted = torch.as_tensor(adjusted, device=p.device)
    listed = torch.zeros_like(known)
    listed[known] = adjusted <= level
    return listed


class Threshold(NamedTuple):
    """The p-value up to which people are on the list, how many are, and how many at most would be by exact p-values."""

    p: float
    listed: int
    at_most: int


def counted_threshold(edges: Values, counts: NDArray[np.int64], level: float) -> Threshold:
    """Return the list of Benjamini and Hochberg from how many p-values are up to each edge, and above the one before.

    Only edges are tried, in ascending order, so that nobody is on it who is not on the exact one.

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
    """Return p-values corrected for their number: those below a level are all right but with that probability.

    The k-th smallest of n is multiplied by n - k + 1, and none is smaller than one before it (Holm 1979).

    Example:
        >>> holm([0.03, 0.01])
        [0.03, 0.02]
    """
    _check(torch.tensor(list(p), dtype=torch.float64))
    out, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        out[i] = largest
    return out


def _check(p: Tensor) -> None:
    wrong = p[~((p >= 0) & (p <= 1))]
    if len(wrong):
        raise DataError(f"A p-value is {float(wrong[0])}; give numbers from 0 to 1")
