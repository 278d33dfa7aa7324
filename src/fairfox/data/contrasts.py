"""Contrasts: whom people are compared with, from their own group to another class, or up and down a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Protected

LOWER, HIGHER = -2, -3  # where a number goes: one standard deviation down or up; no class has such a code


class Contrast(NamedTuple):
    """Whom people are compared with: a protected variable, and one of its values.

    `towards` is a class, LOWER or HIGHER for a number, or None: the other one of two groups, or per unit of a number.
    """

    variable: int
    towards: int | None = None


def moves(protected: Sequence[Protected]) -> tuple[Contrast, ...]:
    """Return the contrasts of a map: the other of two groups, every class of many, up and down a number."""
    out = []
    for v, p in enumerate(protected):
        classes = (HIGHER, LOWER) if p.is_continuous else range(len(p.levels))
        out += [Contrast(v)] if p.kind == "binary" else [Contrast(v, k) for k in classes]
    return tuple(out)


def derivatives(protected: Sequence[Protected]) -> tuple[Contrast, ...]:
    """Return the contrasts of a derivative: one per protected output of the auxiliary."""
    out = []
    for v, p in enumerate(protected):
        out += [Contrast(v, k) for k in range(p.outputs)] if p.kind == "categorical" else [Contrast(v)]
    return tuple(out)


def directions(contrasts: Sequence[Contrast]) -> Tensor:
    """Return -1 for contrasts down a number (Q,), since signed values always point up, else +1."""
    return torch.tensor([-1.0 if contrast.towards == LOWER else 1.0 for contrast in contrasts] or [1.0])


def destinations(data: Dataset, contrast: Contrast) -> Tensor:
    """Return where a contrast takes everyone (N,): a class, or +1 and -1 standard deviations of a number.

    NaN for people it does not concern: their group is unknown, is that class itself, or is not compared with it.
    """
    p, c = data.protected[contrast.variable], data.c[:, contrast.variable]
    if p.is_continuous:
        to = torch.full_like(c, 1.0 if contrast.towards == HIGHER else -1.0)
    else:
        to = 1 - c if contrast.towards is None else torch.full_like(c, float(contrast.towards))
    return torch.where(concerned(data, contrast) & (to != c if not p.is_continuous else True), to, torch.nan)


def concerned(data: Dataset, contrast: Contrast) -> Tensor:
    """Return whom a contrast concerns (N,) bool: people whose own value is known.

    Where there is a reference group they go to it, and its own members to every other one, or to the second largest.
    """
    p, c = data.protected[contrast.variable], data.c[:, contrast.variable]
    known = ~c.isnan()
    if p.reference is None or contrast.towards is None:
        return known
    comes = c == p.reference
    if contrast.towards == p.reference:
        return known & ~comes
    return known & comes & (p.second is None or p.second == contrast.towards)
