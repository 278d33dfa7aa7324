"""Fusion of two tables: blocks of features side by side or as outer products, and labels with a chosen dependence.

A block consists of mode probabilities, so it sums to the number of its original features. Summing an outer product over
the other block therefore gives this block times a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

import torch
from torch import Tensor

from fairfox.errors import OptionError

Fusion = Literal["concat", "outer"]


@dataclass(frozen=True)
class Block:
    """The size of one block: its columns, and the original features that they are the mode probabilities of."""

    columns: int
    features: int  # what the columns of every individual sum to


def fuse(x_c: Tensor, x_y: Tensor, fusion: Fusion) -> Tensor:
    """Return both blocks as one (N, D): x_c (N, D_c) before x_y (N, D_y), or all products, x_y running fastest."""
    if fusion not in get_args(Fusion):
        raise OptionError(f"fusion is '{fusion}'; expected {' or '.join(map(repr, get_args(Fusion)))}")
    if fusion == "concat":
        return torch.cat([x_c, x_y], dim=1)
    return (x_c[:, :, None] * x_y[:, None, :]).flatten(1)


def keep_c(c: Block, y: Block, fusion: Fusion) -> Tensor:
    """Return the matrix (D, D_c) with which x @ matrix is the block of c in fused rows x."""
    if fusion == "concat":
        return torch.eye(c.columns + y.columns, c.columns)
    return torch.kron(torch.eye(c.columns), torch.ones(y.columns, 1)) / y.features


def keep_y(c: Block, y: Block, fusion: Fusion) -> Tensor:
    """Return the matrix (D, D_y) with which x @ matrix is the block of y in fused rows x."""
    if fusion == "concat":
        return torch.eye(c.columns + y.columns)[:, c.columns :]
    return torch.kron(torch.ones(c.columns, 1), torch.eye(y.columns)) / c.features


def fused_names(c: Sequence[str], y: Sequence[str], fusion: Fusion) -> list[str]:
    """Return the name of every fused column: the blocks' own, or "first * second"."""
    return [*c, *y] if fusion == "concat" else [f"{first} * {second}" for first in c for second in y]


# --- two labels ---


def joint_distribution(p_c: Tensor, p_y: Tensor, bias: float) -> Tensor:
    """Return P(c, y) (2, 2) with the given marginals: independent at bias 0, most dependent at bias 1.

    In between it is a mixture of both, so the marginals are kept.

    Example:
        >>> joint_distribution(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), 1.0).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """
    if not isinstance(bias, Real) or not 0.0 <= bias <= 1.0:
        raise OptionError(f"bias is {bias!r}; expected a number from 0 (independent) to 1 (fully dependent)")
    p_c, p_y = p_c.double(), p_y.double()
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
