"""What is held while people move, as columns; least squares that keep it the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.maps.surfaces import Bent


def held_columns(data: Dataset, others: Sequence[int], legitimate: Bent) -> Tensor:
    """Return what is held as columns (N, H): other protected variables, and legitimate features.

    Classes but the first as 0 and 1, and numbers. What is unknown is 0: such people are neither learnt from nor moved.
    """
    columns = [data.x.new_zeros(len(data), 0)]
    for v in others:
        p, c = data.protected[v], data.c[:, v].to(data.x)
        codes = torch.arange(1, max(len(p.levels), 1), device=c.device)
        columns.append(c.nan_to_num()[:, None] if p.is_continuous else (c[:, None] == codes).to(data.x))
    return torch.cat([*columns, legitimate(data.x)], dim=1)


def regression(values: Tensor, own: Tensor, held: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the least-squares coefficients of values (n, D) on own (n, G) and held columns (n, H), both at once."""
    root = counts(weights, values).sqrt()[:, None].double()
    design = torch.cat([own, held], dim=1).to(root)
    solution = torch.linalg.lstsq(root * design, root * values.to(root), driver="gelsd").solution.to(values)
    return solution[: own.shape[1]], solution[own.shape[1] :]


def counts(weights: Tensor | None, like: Tensor) -> Tensor:
    """Return how many people each row stands for (n,)."""
    return like.new_ones(len(like)) if weights is None else weights.to(like)
