"""From a bias level to the joint distribution of two labels (c, y)."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from fairfox.errors import OptionError


def joint_distribution(p_c: Tensor, p_y: Tensor, bias: float) -> Tensor:
    """Return P(c, y) (2, 2) with the given marginals: independent at bias 0, most dependent at bias 1.

    In between it is a mixture of both, so the marginals are kept.

    Example:
        >>> joint_distribution(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), 1.0).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """
    if not isinstance(bias, Real) or not 0.0 <= bias <= 1.0:
        raise OptionError(f"bias is {bias!r}; expected a number from 0 (independent) to 1 (fully dependent)")
    p_c, p_y = _checked(p_c, "p_c"), _checked(p_y, "p_y")
    return (1.0 - bias) * torch.outer(p_c, p_y) + bias * most_dependent(p_c, p_y)


def most_dependent(p_c: Tensor, p_y: Tensor) -> Tensor:
    """Return the joint distribution (2, 2) with these marginals whose mutual information is largest.

    Mutual information is convex in the joint distribution, so its maximum is at an end of the range of P(1, 1).
    That is the largest possible share of people with c = y = 1 (preferred if equal), or the smallest.
    """
    c, y = float(p_c[1]), float(p_y[1])
    most, fewest = min(c, y), max(0.0, c + y - 1.0)
    high, low = (
        torch.tensor([[1.0 - c - y + both, y - both], [c - both, both]], dtype=torch.float64).clamp(min=0.0)
        for both in (most, fewest)
    )
    return high if mutual_information(high) >= mutual_information(low) - 1e-12 else low


def mutual_information(joint: Tensor) -> Tensor:
    """Return the mutual information of a joint distribution (2, 2), in nats: 0 where it is independent."""
    independent = torch.outer(joint.sum(1), joint.sum(0))
    ratio = torch.where(joint > 0, joint / independent, 1.0)
    return (joint * ratio.log()).sum()


def _checked(p: Tensor, name: str) -> Tensor:
    p = p.double()
    if p.shape != (2,) or not bool((p > 0).all()) or abs(float(p.sum()) - 1.0) > 1e-6:
        raise OptionError(f"{name} is {p.tolist()}; expected two probabilities above 0 that sum to 1")
    return p / p.sum()
