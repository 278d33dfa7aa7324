"""Rows whose one-hot blocks hold distributions, as weighted rows with one category each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

COMBINATIONS = 32  # of categories: exact up to here, else as many draws


def expand_blocks(x: Tensor, blocks: Sequence[slice], *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows with one category per block (R, D), the weight of each (R,), and whose row each is (R,).

    Blocks of x (N, D) hold shares that sum to 1, or to 0 for a category nobody knows, which stays so. The product
    distribution over the blocks: exact up to 32 combinations, else 32 draws with common random numbers (the same
    for everyone, so that neither order nor batches matter).
    """
    support = torch.stack([(x[:, b] > 1e-9).sum(1).clamp(min=1) for b in blocks], dim=1)  # (N, B)
    combinations = support.double().prod(1)
    exact = combinations <= COMBINATIONS
    repeats = torch.where(exact, combinations, float(COMBINATIONS)).long()
    owner = torch.repeat_interleave(torch.arange(len(x), device=x.device), repeats)
    place = torch.arange(len(owner), device=x.device) - (repeats.cumsum(0) - repeats)[owner]  # 0.. for each individual
    rows = x[owner]
    weights = torch.where(exact, 1.0, 1.0 / COMBINATIONS).double()[owner]
    draws = uniform_draws(len(blocks), seed=seed).to(x)[place.clamp(max=COMBINATIONS - 1)]  # (R, B)
    digits = _digits(place, support[owner])
    for j, block in enumerate(blocks):
        share, order = (part[owner] for part in x[:, block].sort(dim=1, descending=True, stable=True))
        drawn = (share.cumsum(1) < draws[:, j, None]).sum(1).minimum(support[owner, j] - 1)
        chosen = torch.where(exact[owner], digits[:, j], drawn)[:, None]
        empty = share[:, :1] <= 0
        counts = exact[owner] & ~empty[:, 0]
        weights = torch.where(counts, weights * share.gather(1, chosen)[:, 0].double(), weights)
        whole = torch.zeros_like(share).scatter_(1, order.gather(1, chosen), 1.0)
        rows[:, block] = torch.where(empty, 0.0, whole)
    return rows, weights, owner


def uniform_draws(blocks: int, *, seed: int) -> Tensor:
    """Return a Latin hypercube of uniforms (32, B): every block's shares are hit evenly."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.rand(COMBINATIONS, blocks, generator=generator, dtype=torch.float64)
    order = torch.stack([torch.randperm(COMBINATIONS, generator=generator) for _ in range(blocks)], dim=1)
    return (order + offsets) / COMBINATIONS


def _digits(place: Tensor, support: Tensor) -> Tensor:
    """Return which category each block shows in the combination numbered `place`: its digits in the bases `support`."""
    digits = []
    for base in support.unbind(1):
        digits.append(place % base)
        place = place // base
    return torch.stack(digits, dim=1)
