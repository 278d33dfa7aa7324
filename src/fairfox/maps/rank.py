"""The rank map: every feature keeps its rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

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
    ranks: list[list[SameRank | None]] = field(default_factory=list, init=False, repr=False)  # [group][number column]
    moves: list[list[Tensor]] = field(default_factory=list, init=False, repr=False)  # [group][block] (L, L)

    def fit(self, data: Dataset) -> Self:
        """Learn each group's values and category shares."""
        if data.protected[self.variable].kind != "binary":
            raise OptionError("The rank map compares two groups; give a protected variable with two values, or a cut")
        c = data.c[:, self.variable]
        groups = [data.x[c == 0], data.x[c == 1]]
        check_both_groups(data, self.variable)
        values = [[_present(rows, f.start, f.has_missing) for f in _continuous(data)] for rows in groups]
        self.ranks = [
            [
                SameRank.between(own, other) if len(own) and len(other) else None
                for own, other in zip(values[g], values[1 - g], strict=True)
            ]
            for g in (0, 1)
        ]
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
            rows = data.x.index_select(0, people)
            for k, f in enumerate(_continuous(data)):
                same_rank = self.ranks[g][k]
                if same_rank is not None and self._maps(f.start):
                    x = rows[:, f.start].contiguous()
                    mapped = same_rank(x)
                    rows[:, f.start] = torch.where(rows[:, f.start + 1] > 0.5, x, mapped) if f.has_missing else mapped
            for k, f in enumerate(_categorical(data)):
                if self._maps(f.start):
                    rows[:, f.columns] = rows[:, f.columns] @ self.moves[g][k]
            out.index_copy_(0, people, rows)
        unknown = c.isnan()
        return Mapped(out, unknown, "protected value unknown")

    def _maps(self, column: int) -> bool:
        return self.only is None or bool(self.only[column])


@dataclass(frozen=True)
class SameRank:
    """From a number in one group to the value at the same mid-rank in another: by look-up, there is no search.

    A grid over the group's distinct values says where a number stands among them; what stands there in the other
    group is known beforehand.

    Example:
        >>> same_rank = SameRank.between(torch.tensor([3.0, 1.0, 3.0]), torch.tensor([10.0, 20.0, 30.0]))
        >>> same_rank(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))
        tensor([10., 10., 20., 30., 30.])
    """

    distinct: Tensor  # (U + 1,) the group's values in order, then NaN, which is neither below nor equal to anything
    answers: Tensor  # (2 U + 1,) for what is below the first of them, equal to it, between it and the next, ...
    first: Tensor  # (cells,) the first distinct value that is in the cell or above it
    low: Tensor  # where the grid begins
    scale: float  # cells per unit

    @classmethod
    def between(cls, own: Tensor, other: Tensor) -> SameRank:
        """Return the way from values `own` (n,) to values `other` (m,); neither may be empty."""
        distinct, counts = torch.unique_consecutive(own.sort().values, return_counts=True)
        before = F.pad(counts.cumsum(0), (1, 0))  # how many values lie below each distinct one, and in all
        below, upto = before[:-1], before[1:]
        twice = torch.cat([torch.stack([2 * below, below + upto], dim=1).flatten(), 2 * before[-1:]])  # mid-ranks
        place = twice * len(other) // (2 * len(own))  # in whole numbers
        answers = other.sort().values[place.clamp(max=len(other) - 1)]
        low, scale, cells = _grid(distinct)
        first = torch.searchsorted(_cell(distinct, low, scale, cells), torch.arange(cells, device=own.device))
        end = own.new_full((1,), torch.nan)
        return cls(torch.cat([distinct, end]), answers, first.to(torch.int32), low, scale)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the values for numbers x (k,)."""
        place = self.first.index_select(0, _cell(x, self.low, self.scale, len(self.first))).long()
        for _ in range(_STEPS):  # most cells hold one value or none
            place += self.distinct.index_select(0, place) < x
        found = self.distinct.index_select(0, place)  # index_select: twice as fast as [place]
        left = (found < x).nonzero()[:, 0]
        place[left] = torch.searchsorted(self.distinct[:-1], x[left])
        found[left] = self.distinct[place[left]]
        return self.answers.index_select(0, place.mul_(2).add_(found == x))


def maximal_coupling(own: Tensor, other: Tensor) -> Tensor:
    """Return P(new category | category) (L, L) that turns shares `own` into `other` and moves as few as possible."""
    stay = torch.where(own > 0, (other / torch.where(own > 0, own, 1.0)).clamp(max=1.0), 1.0)
    gain = (other - own).clamp(min=0)
    total = gain.sum()
    if total <= 0:
        return torch.eye(len(own), dtype=own.dtype, device=own.device)
    return torch.diag(stay) + torch.outer(1 - stay, gain / total)


def _grid(distinct: Tensor) -> tuple[Tensor, float, int]:
    """Return where a grid over sorted values begins, its cells per unit, and how many it has.

    It covers what lies between the outermost hundredths, which may be far out.
    """
    cells, tail = min(2 * len(distinct), _MOST_CELLS), len(distinct) // 100
    low, high = distinct[tail], distinct[-1 - tail]
    scale = cells / float(high - low) if high > low else 0.0
    return low, scale if math.isfinite(scale) else 0.0, cells


def _cell(x: Tensor, low: Tensor, scale: float, cells: int) -> Tensor:
    """Return each number's cell; it never falls as x grows, so that lower cells hold lower values only."""
    return ((x - low) * scale).long().clamp_(0, cells - 1)


def _continuous(data: Dataset) -> list[Feature]:
    return [f for f in data.features if f.kind == "continuous"]


def _categorical(data: Dataset) -> list[Feature]:
    return [f for f in data.features if f.kind == "categorical"]


def _present(rows: Tensor, column: int, has_missing: bool) -> Tensor:
    return rows[rows[:, column + 1] < 0.5, column] if has_missing else rows[:, column]
