"""How strongly two labels go together: from a bias level to the joint distribution of (c, y)."""

from __future__ import annotations

from functools import cache
from math import log
from numbers import Real

import torch
from torch import Tensor

from fairfox.errors import OptionError, ShapeError

_MOST_CLASSES = 9  # classes of c and y together: with more, the search for the best vertex takes minutes
_NOTHING = 1e-13  # what rounding leaves of a probability that is used up

_Marginal = tuple[float, ...]
_Cells = tuple[tuple[int, int, float], ...]  # (c, y, probability)


def joint_distribution(p_c: Tensor, p_y: Tensor, bias: float) -> Tensor:
    """Return P(c, y) (K_c, K_y) with the given marginals: independent at bias 0, as dependent as can be at bias 1.

    In between it is a mixture of the two ends, so that the marginals are kept.

    Example:
        >>> joint_distribution(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), 1.0).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """
    if not isinstance(bias, Real) or not 0.0 <= bias <= 1.0:
        raise OptionError(f"bias is {bias!r}; expected a number from 0 (independent) to 1 (as dependent as can be)")
    p_c, p_y = _checked(p_c, "p_c"), _checked(p_y, "p_y")
    return (1.0 - bias) * torch.outer(p_c, p_y) + bias * most_dependent(p_c, p_y)


def most_dependent(p_c: Tensor, p_y: Tensor) -> Tensor:
    """Return the joint distribution (K_c, K_y) with these marginals whose mutual information is largest.

    Mutual information is convex in the joint distribution: the largest lies at a vertex of the polytope of all joint
    distributions with these marginals. For two classes each that is an end of the interval that P(1, 1) can lie in.
    """
    p_c, p_y = p_c.double(), p_y.double()
    if len(p_c) == len(p_y) == 2:
        return _best_end(p_c, p_y)
    if len(p_c) + len(p_y) > _MOST_CLASSES:
        raise OptionError(
            f"c has {len(p_c)} classes and y {len(p_y)}; the most dependent joint distribution is searched for up to "
            f"{_MOST_CLASSES} together: merge rare classes"
        )
    return _best_vertex(p_c, p_y)


def mutual_information(joint: Tensor) -> Tensor:
    """Return the mutual information of a joint distribution (K_c, K_y), in nats: 0 where it is independent."""
    independent = torch.outer(joint.sum(1), joint.sum(0))
    ratio = torch.where(joint > 0, joint / independent, 1.0)
    return (joint * ratio.log()).sum()


def _best_end(p_c: Tensor, p_y: Tensor) -> Tensor:
    """Return the better of the two ends: as many people as can be with c = y = 1 (these if equal), or as few."""
    c, y = float(p_c[1]), float(p_y[1])
    most, fewest = min(c, y), max(0.0, c + y - 1.0)
    high, low = (
        torch.tensor([[1.0 - c - y + both, y - both], [c - both, both]], dtype=torch.float64).clamp(min=0.0)
        for both in (most, fewest)
    )
    return high if mutual_information(high) >= mutual_information(low) - 1e-12 else low


def _best_vertex(p_c: Tensor, p_y: Tensor) -> Tensor:
    """Return the best vertex of the polytope of joint distributions with these marginals.

    The cells of a vertex that are above zero form no cycle, so that one of them always holds all that is left of its
    row or column: every vertex is reached by filling one cell after the other as far as it goes. What the rest can add
    depends only on what is left of the marginals, and is worked out once for each.
    """

    @cache
    def best(left_c: _Marginal, left_y: _Marginal) -> tuple[float, _Cells]:
        highest: tuple[float, _Cells] = (0.0, ())
        for i, row in enumerate(left_c):
            for j, column in enumerate(left_y):
                p = min(row, column)
                if p <= _NOTHING:
                    continue
                rest, cells = best(_without(left_c, i, p), _without(left_y, j, p))
                value = p * log(p / float(p_c[i] * p_y[j])) + rest
                if not highest[1] or value > highest[0] + 1e-12:
                    highest = value, ((i, j, p), *cells)
        return highest

    joint = torch.zeros(len(p_c), len(p_y), dtype=torch.float64)
    for i, j, p in best(tuple(p_c.tolist()), tuple(p_y.tolist()))[1]:
        joint[i, j] = p
    return joint


def _without(marginal: _Marginal, index: int, p: float) -> _Marginal:
    left = round(marginal[index] - p, 15)  # equal states must be equal numbers
    return (*marginal[:index], left if left > _NOTHING else 0.0, *marginal[index + 1 :])


def _checked(p: Tensor, name: str) -> Tensor:
    if p.ndim != 1 or len(p) < 2:
        raise ShapeError(f"{name} has shape {tuple(p.shape)}; expected one probability for each of two or more classes")
    p = p.double()
    if not bool((p > 0).all()) or abs(float(p.sum()) - 1.0) > 1e-6:
        raise OptionError(f"{name} is {p.tolist()}; expected probabilities above 0 that sum to 1")
    return p / p.sum()
