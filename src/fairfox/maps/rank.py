"""The rank map: every feature keeps its rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.protocol import Mapped, check_both_groups

_MOST_CELLS = 2**20  # of a column's grid
_STEPS = 2  # from value to value inside a cell, before giving up and searching


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
    ranks: list[list[Ranks]] = field(default_factory=list, init=False, repr=False)  # [group][continuous column]
    moves: list[list[Tensor]] = field(default_factory=list, init=False, repr=False)  # [group][block] (L, L)

    def fit(self, data: Dataset) -> Self:
        """Learn each group's values and category shares."""
        if data.protected[self.variable].kind != "binary":
            raise OptionError("The rank map compares two groups; give a protected variable with two values, or a cut")
        c = data.c[:, self.variable]
        groups = [data.x[c == 0], data.x[c == 1]]
        check_both_groups(data, self.variable)
        self.ranks = [[Ranks.of(_present(rows, f.start, f.has_missing)) for f in _continuous(data)] for rows in groups]
        shares = [[rows[:, f.columns].mean(0) for f in _categorical(data)] for rows in groups]
        self.moves = [
            [maximal_coupling(own, other) for own, other in zip(shares[g], shares[1 - g], strict=True)] for g in (0, 1)
        ]
        return self

    def map(self, data: Dataset) -> Mapped:
        """Return everyone's row in the other group; people whose group is unknown are not mapped."""
        if not self.ranks:
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
        own, other = self.ranks[group][column], self.ranks[1 - group][column].values
        if len(own.values) == 0 or len(other) == 0:
            return x
        # the mid-rank's place among the other group's values, in whole numbers
        place = own.twice_mid_rank(x.contiguous()) * len(other) // (2 * len(own.values))
        return other.index_select(0, place.clamp_(max=len(other) - 1))


@dataclass(frozen=True)
class Ranks:
    """A group's values of one column in order, and a grid over them: finding a rank is a look-up, not a search.

    Example:
        >>> Ranks.of(torch.tensor([3.0, 1.0, 3.0])).twice_mid_rank(torch.tensor([0.0, 1.0, 2.0, 3.0]))
        tensor([0, 1, 2, 4])
    """

    values: Tensor  # (n,) sorted
    distinct: Tensor  # (U + 1,) sorted, then NaN, which is neither below nor equal to anything
    before: Tensor  # (U + 1,) how many values lie below each distinct one, and in all
    first: Tensor  # (cells,) the first distinct value that is in the cell or above it
    low: Tensor  # where the grid begins
    scale: float  # cells per unit

    @classmethod
    def of(cls, values: Tensor) -> Ranks:
        """Return the ranks among values (n,)."""
        values = values.sort().values
        distinct, counts = torch.unique_consecutive(values, return_counts=True)
        before = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        cells = min(max(4 * len(distinct), 1), _MOST_CELLS)
        tail = len(distinct) // 100  # may be far out: the grid covers what lies between
        low, high = (distinct[tail], distinct[-1 - tail]) if len(distinct) else (values.new_zeros(()),) * 2
        scale = cells / float(high - low) if high > low else 0.0
        ranks = cls(values, distinct, before, before, low, scale if math.isfinite(scale) else 0.0)
        first = torch.searchsorted(ranks._cell(distinct, cells), torch.arange(cells, device=values.device))
        end = values.new_full((1,), torch.nan)
        return replace(ranks, distinct=torch.cat([distinct, end]), first=first.to(torch.int32))

    def twice_mid_rank(self, x: Tensor) -> Tensor:
        """Return (n,): how many values are smaller, plus how many are not larger."""
        place = self.first.index_select(0, self._cell(x, len(self.first))).long()
        for _ in range(_STEPS):  # most cells hold one value or none
            place += self.distinct.index_select(0, place) < x
        found = self.distinct.index_select(0, place)  # index_select: twice as fast as [place]
        left = (found < x).nonzero()[:, 0]
        place[left] = torch.searchsorted(self.distinct[:-1], x[left])
        found[left] = self.distinct[place[left]]
        equal = found == x
        if len(self.values) + 1 == len(self.distinct):  # no ties: the place is the rank
            return 2 * place + equal
        return self.before.index_select(0, place) + self.before.index_select(0, place + equal)

    def _cell(self, x: Tensor, cells: int) -> Tensor:
        """Return each number's cell; never falls as x grows, so that lower cells hold lower values only."""
        return ((x - self.low) * self.scale).long().clamp_(0, cells - 1)


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
