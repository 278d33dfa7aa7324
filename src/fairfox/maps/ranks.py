"""Where numbers stand in a group, what stands there in another one, and categories that move as little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Feature

_MOST_CELLS = 2**20  # of a column's grid
_MOST_REMEMBERED = 2**14  # people of a class, whose places are kept for the next class they go to
_STEPS = 2  # from value to value inside a cell, before giving up and searching


@dataclass(frozen=True)
class Ranks:
    """Where numbers stand among a group's values: by look-up, there is no search.

    A grid over the group's distinct values says between which of them a number lies.

    Example:
        >>> ranks = Ranks.of(torch.tensor([3.0, 1.0, 3.0]))
        >>> ranks.twice[ranks.place(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))].tolist()
        [0.0, 1.0, 2.0, 4.0, 6.0]
    """

    ordered: Tensor  # (n,) the group's values in order
    distinct: Tensor  # (U + 1,) the distinct ones, then NaN, which is neither below nor equal to anything
    twice: (
        Tensor  # (2 U + 1,) whole: mid-ranks, twice, of what is below the first, equal to it, between it and the next
    )
    first: Tensor  # (cells,) the first distinct value that is in the cell or above it
    low: Tensor  # where the grid begins
    scale: float  # cells per unit
    asked: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False, compare=False)  # what was asked last

    @classmethod
    def of(cls, values: Tensor) -> Ranks:
        """Return where numbers stand among values (n,), which may not be empty."""
        ordered = values.sort().values
        distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
        before = F.pad(counts.cumsum(0), (1, 0))  # how many values lie below each distinct one, and in all
        below, upto = before[:-1], before[1:]
        twice = torch.cat([torch.stack([2 * below, below + upto], dim=1).flatten(), 2 * before[-1:]])
        low, scale, cells = _grid(distinct)
        first = torch.searchsorted(_cell(distinct, low, scale, cells), torch.arange(cells, device=values.device))
        end = values.new_full((1,), torch.nan)
        return cls(ordered, torch.cat([distinct, end]), twice.double(), first.to(torch.int32), low, scale)

    def place(self, x: Tensor) -> Tensor:
        """Return the place of numbers x (k,) among the 2 U + 1."""
        place = self.first.index_select(0, _cell(x, self.low, self.scale, len(self.first)))
        for _ in range(_STEPS):  # most cells hold one value or none
            place += self.distinct.index_select(0, place) < x
        found = self.distinct.index_select(0, place)  # index_select: twice as fast as [place]
        left = (found < x).nonzero()[:, 0]
        place[left] = torch.searchsorted(self.distinct[:-1], x[left], out_int32=True)
        found[left] = self.distinct[place[left]]
        return place.mul_(2).add_(found == x)

    def place_again(self, x: Tensor) -> Tensor:
        """Return the same as `place`, at once if these are the numbers that were asked for last.

        People of one class go to many others, one after the other, and stand where they stand in their own.
        """
        for numbers, place in self.asked:
            if numbers.shape == x.shape and torch.equal(numbers, x):
                return place
        place = self.place(x)
        self.asked[:] = [(x.clone(), place)] if len(x) <= _MOST_REMEMBERED else []
        return place

    def share(self, x: Tensor) -> Tensor:
        """Return the mid-rank of numbers x (k,), as a share of all, in float64."""
        return self.twice.index_select(0, self.place(x)) / (2 * len(self.ordered))

    def value(self, share: Tensor) -> Tensor:
        """Return the values (k,) that stand at these shares."""
        place = (share * len(self.ordered) + 1e-9).long()  # the product may fall just short of a whole number
        return self.ordered.index_select(0, place.clamp(max=len(self.ordered) - 1))


@dataclass(frozen=True)
class SameRank:
    """From a number in one group to the value at the same mid-rank in another.

    Example:
        >>> same_rank = SameRank.between(torch.tensor([3.0, 1.0, 3.0]), torch.tensor([10.0, 20.0, 30.0]))
        >>> same_rank(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))
        tensor([10., 10., 20., 30., 30.])
    """

    own: Ranks
    other: Ranks
    answers: Tensor | None = None  # (2 U + 1,) what stands in the other group at each place, if known beforehand

    @classmethod
    def between(cls, own: Tensor, other: Tensor) -> SameRank:
        """Return the way from values `own` (n,) to values `other` (m,); neither may be empty."""
        return cls(Ranks.of(own), Ranks.of(other)).tabled()

    def tabled(self) -> SameRank:
        """Return the same way with all answers known beforehand, which is faster and takes more memory."""
        return SameRank(self.own, self.other, self._values(self.own.twice))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the values for numbers x (k,)."""
        if self.answers is not None:
            return self.answers.index_select(0, self.own.place(x))
        return self._values(self.own.twice.index_select(0, self.own.place_again(x)))

    def _values(self, twice: Tensor) -> Tensor:
        values = self.other.ordered
        place = (twice * len(values)).div_(2 * len(self.own.ordered)).long()  # exact: whole numbers below 2**53
        return values.index_select(0, place.clamp_(max=len(values) - 1))


def maximal_coupling(own: Tensor, other: Tensor) -> Tensor:
    """Return P(new category | category) (L, L) that turns shares `own` into `other` and moves as few as possible."""
    stay = torch.where(own > 0, (other / torch.where(own > 0, own, 1.0)).clamp(max=1.0), 1.0)
    gain = (other - own).clamp(min=0)
    total = gain.sum()
    if total <= 0:
        return torch.eye(len(own), dtype=own.dtype, device=own.device)
    return torch.diag(stay) + torch.outer(1 - stay, gain / total)


def couple_rows(block: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Return every row of a block (n, L) after the maximal coupling of its own pair of shares (n, L).

    Shares are first clipped at 0 and renormalised.
    """
    own, other = as_shares(own), as_shares(other)
    stay = torch.where(own > 0, (other / torch.where(own > 0, own, 1.0)).clamp(max=1.0), 1.0)
    gain = (other - own).clamp(min=0)
    total = gain.sum(1, keepdim=True)
    left = (block * (1 - stay)).sum(1, keepdim=True)
    return torch.where(total > 0, block * stay + left * gain / torch.where(total > 0, total, 1.0), block)


def as_shares(values: Tensor) -> Tensor:
    """Return values (n, L) clipped at 0, as shares of each row's sum."""
    clipped = values.clamp(min=0)
    return clipped / clipped.sum(1, keepdim=True).clamp(min=1e-30)


def numbers_among(features: Sequence[Feature]) -> list[Feature]:
    """Return the continuous features."""
    return [f for f in features if f.kind == "continuous"]


def categories_among(features: Sequence[Feature]) -> list[Feature]:
    """Return the categorical features."""
    return [f for f in features if f.kind == "categorical"]


def without_gaps(rows: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return who lacks none of the features (n,) bool."""
    out = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for f in features:
        if f.has_missing:
            out &= rows[:, f.start + 1] < 0.5
    return out


def present(rows: Tensor, feature: Feature) -> Tensor:
    """Return the values of a number that are not missing (k,)."""
    return rows[without_gaps(rows, [feature]), feature.start] if feature.has_missing else rows[:, feature.start]


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


def kept_missing(x: Tensor, before: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return rows x, which are overwritten, with the values that were missing before as they were."""
    for f in features:
        if f.has_missing:
            x[:, f.start] = torch.where(before[:, f.start + 1] > 0.5, before[:, f.start], x[:, f.start])
    return x
