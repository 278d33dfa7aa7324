"""The rank map: every feature keeps its rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.protocol import Mapped, check_both_groups


@dataclass
class RankMap:
    """Everyone as a member of the other group, with the rank they have in their own, feature by feature.

    Continuous: the value at the same mid-rank among the other group's values. Categorical: maximal coupling, a
    category stays with probability min(1, p'/p), and what leaves is spread over the categories that gain.
    Missing numbers stay missing; a missing category is a category. No auxiliary, no gradient, no tuning.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> RankMap().fit(data).map(data).rows[:, 0]
        tensor([5., 7., 0., 1.])
    """

    variable: int = 0  # which protected variable
    only: Tensor | None = None  # (D,) bool: columns to map; None: all
    values: list[list[Tensor]] = field(default_factory=list, init=False, repr=False)  # [group][column] sorted
    moves: list[list[Tensor]] = field(default_factory=list, init=False, repr=False)  # [group][block] (L, L)

    def fit(self, data: Dataset) -> Self:
        """Learn each group's values and category shares."""
        if data.protected[self.variable].kind != "binary":
            raise OptionError("The rank map compares two groups; give a protected variable with two values, or a cut")
        c = data.c[:, self.variable]
        groups = [data.x[c == 0], data.x[c == 1]]
        check_both_groups(data, self.variable)
        self.values = [
            [_present(rows, f.start, f.has_missing).sort().values for f in _continuous(data)] for rows in groups
        ]
        shares = [[rows[:, f.columns].mean(0) for f in _categorical(data)] for rows in groups]
        self.moves = [
            [maximal_coupling(own, other) for own, other in zip(shares[g], shares[1 - g], strict=True)] for g in (0, 1)
        ]
        return self

    def map(self, data: Dataset) -> Mapped:
        """Return everyone's row in the other group; people whose group is unknown are not mapped."""
        if not self.values:
            raise NotFittedError("This RankMap is not fitted; call fit first")
        c = data.c[:, self.variable]
        out = data.x.clone()
        for g in (0, 1):
            people = (c == g).nonzero()[:, 0]
            rows = data.x[people]
            mapped = rows.clone()
            for k, f in enumerate(_continuous(data)):
                if self._maps(f.start):
                    mapped[:, f.start] = self._same_rank(rows[:, f.start], g, k)
                    if f.has_missing:
                        gone = rows[:, f.start + 1] > 0.5
                        mapped[gone, f.start] = rows[gone, f.start]
            for k, f in enumerate(_categorical(data)):
                if self._maps(f.start):
                    mapped[:, f.columns] = rows[:, f.columns] @ self.moves[g][k]
            out[people] = mapped
        unknown = c.isnan()
        return Mapped(out, unknown, "protected value unknown")

    def _maps(self, column: int) -> bool:
        return self.only is None or bool(self.only[column])

    def _same_rank(self, x: Tensor, group: int, column: int) -> Tensor:
        own, other = self.values[group][column], self.values[1 - group][column]
        if len(own) == 0 or len(other) == 0:
            return x
        x = x.contiguous()
        below = torch.searchsorted(own, x)
        upto = torch.searchsorted(own, x, right=True)
        # mid-rank (below + upto) / 2 of len(own); its place among the other group's values, in whole numbers
        place = (below + upto) * len(other) // (2 * len(own))
        return other[place.clamp(max=len(other) - 1)]


def maximal_coupling(own: Tensor, other: Tensor) -> Tensor:
    """Return P(new category | category) (L, L) that turns shares `own` into `other` and moves as few as possible."""
    stay = torch.where(own > 0, (other / torch.where(own > 0, own, 1.0)).clamp(max=1.0), 1.0)
    gain = (other - own).clamp(min=0)
    total = gain.sum()
    if total <= 0:
        return torch.eye(len(own), dtype=own.dtype, device=own.device)
    return torch.diag(stay) + torch.outer(1 - stay, gain / total)


def _continuous(data: Dataset) -> list[Feature]:
    return [f for f in data.features if f.kind == "continuous"]


def _categorical(data: Dataset) -> list[Feature]:
    return [f for f in data.features if f.kind == "categorical"]


def _present(rows: Tensor, column: int, has_missing: bool) -> Tensor:
    return rows[rows[:, column + 1] < 0.5, column] if has_missing else rows[:, column]
