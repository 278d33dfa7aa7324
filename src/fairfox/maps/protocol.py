"""What a counterfactual map is, and how it is fitted several times over."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, resample
from fairfox.errors import DataError


@dataclass(frozen=True)
class Mapped:
    """People as members of the other group: encoded rows, and who could not be mapped and why."""

    rows: Tensor  # (N, D), one-hot blocks as category distributions
    abstained: Tensor  # (N,) bool
    reason: str = ""
    overshoot: Tensor | None = None  # (N,): how far a one-hot entry lay outside [0, 1] before it was put back


class CounterfactualMap(Protocol):
    """Says how each person would look as a member of the other group."""

    def fit(self, data: Dataset) -> Self:
        """Learn from x and c, never y."""
        ...

    def map(self, data: Dataset) -> Mapped:
        """Return everyone as a member of the other group."""
        ...


@runtime_checkable
class RefittableMap(Protocol):
    """A map that knows a cheaper way to be fitted several times than one after the other."""

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[CounterfactualMap]:
        """Return `refits` independently fitted maps."""
        ...


def check_both_groups(data: Dataset, variable: int) -> None:
    """Raise where one of the two groups has nobody to learn from."""
    p = data.protected[variable]
    for code, level in enumerate(p.levels):
        if not bool((data.c[:, variable] == code).any()):
            raise DataError(f"Nobody in the fitting rows belongs to '{level}' of '{p.name}'; both groups are needed")


def fit_maps(prototype: CounterfactualMap, data: Dataset, refits: int, *, seed: int) -> list[CounterfactualMap]:
    """Return `refits` fitted copies of a map: one on the rows as they are, several on resampled rows."""
    if isinstance(prototype, RefittableMap):
        return prototype.fit_many(data, refits, seed=seed)
    if refits == 1:
        return [copy.copy(prototype).fit(data)]
    generator = torch.Generator().manual_seed(seed)
    samples = [resample(data, generator=generator) for _ in range(refits)]
    return [copy.copy(prototype).fit(sample) for sample in samples]
