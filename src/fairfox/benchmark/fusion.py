"""Fusion of two blocks of features, side by side or as outer products, and the matrices that undo it.

A block consists of mode probabilities, so it sums to the number of its original features. Summing an outer product over
the other block therefore gives this block times a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fairfox.errors import OptionError, ShapeError

Fusion = Literal["concat", "outer"]


@dataclass(frozen=True)
class Block:
    """The size of one block: its columns, and the original features that they are the mode probabilities of."""

    columns: int
    features: int  # what the columns of every individual sum to


def fuse(x_c: Tensor, x_y: Tensor, fusion: Fusion) -> Tensor:
    """Return both blocks as one (N, D): x_c (N, D_c) before x_y (N, D_y), or all products, x_y running fastest."""
    _check(fusion)
    if len(x_c) != len(x_y):
        raise ShapeError(f"{len(x_c)} rows to fuse with {len(x_y)}; both blocks need one row per individual")
    if fusion == "concat":
        return torch.cat([x_c, x_y], dim=1)
    return (x_c[:, :, None] * x_y[:, None, :]).flatten(1)


def keep_c(c: Block, y: Block, fusion: Fusion) -> Tensor:
    """Return the matrix (D, D_c) with which x @ matrix is the block of c in fused rows x."""
    _check(fusion)
    if fusion == "concat":
        return torch.eye(c.columns + y.columns, c.columns)
    return torch.kron(torch.eye(c.columns), torch.ones(y.columns, 1)) / y.features


def keep_y(c: Block, y: Block, fusion: Fusion) -> Tensor:
    """Return the matrix (D, D_y) with which x @ matrix is the block of y in fused rows x."""
    _check(fusion)
    if fusion == "concat":
        return torch.eye(c.columns + y.columns)[:, c.columns :]
    return torch.kron(torch.ones(c.columns, 1), torch.eye(y.columns)) / c.features


def fused_names(c: Sequence[str], y: Sequence[str], fusion: Fusion) -> list[str]:
    """Return the name of every fused column: the blocks' own, or "first * second"."""
    _check(fusion)
    return [*c, *y] if fusion == "concat" else [f"{first} * {second}" for first in c for second in y]


def _check(fusion: str) -> None:
    if fusion not in get_args(Fusion):
        raise OptionError(f"fusion is '{fusion}'; expected {' or '.join(map(repr, get_args(Fusion)))}")
