"""Ranks and couplings: a number's rank in a group and the value at that rank in another; categories that move as
little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Feature, row_marks
from fairfox.gradients.alignment import eigen

_MOST_CELLS = 2**20  # of a column's grid
_TAIL = 1e-9  # ranks stay so far from 0 and 1
_SETS = 64  # of draws
_STEPS = 2  # from value to value inside a cell, before giving up and searching
_FINE, _REACH = 256, 9  # places of a normal score's table for each standard deviation, of which there are so many
_SCORES = 2**16  # ranks whose normal scores are tabulated
_MANY_VALUES, _KEPT_VALUES = 2**14, 2**12  # of a group in one column: from more on, so many are kept
_TIED = 1e-3  # the share of people with one value from whom on draws part them


@dataclass(frozen=True)
class ColumnDraw:
    """What draws make of people's ranks, or categories, in one column."""

    persistence: Tensor  # (n,) the correlation of ranks, from 0 to 1; (1,) where it is the same for all
    normal: Tensor  # (n,)
    uniform: Tensor  # (n,) above 0 and below 1

    def taken(self, rows: Tensor) -> ColumnDraw:
        """Return the draws of some people (k,)."""
        kept = self.persistence if len(self.persistence) == 1 else self.persistence[rows]
        return ColumnDraw(kept, self.normal[rows], self.uniform[rows])

    def rank(self, u: Tensor) -> Tensor:
        """Return ranks (n,) between 0 and 1 after the draw: a Gaussian copula has this correlation."""
        if bool((self.persistence == 1).all()):
            return u.double()
        z = torch.special.ndtri(u.double().clamp(_TAIL, 1 - _TAIL))
        found: Tensor = torch.special.ndtr(self.persistence * z + (1 - self.persistence**2).sqrt() * self.normal)
        return found

    def category(self, shares: Tensor, other: Tensor) -> Tensor:
        """Return one category for each draw of people (K n, L): shares (n, L) persist in part, else are the group's.

        Persistence is (K n,) or (1,), `uniform` (K n,).
        """
        kept, drawn = self.persistence.view(-1, 1, 1), self.uniform.view(-1, len(shares))  # (K, n)
        kept = kept if len(kept) == 1 else kept.view(*drawn.shape, 1)
        total = shares.sum(1)
        mixed = kept * shares + (1 - kept) * total[:, None] * other  # (1, n, L) or (K, n, L)
        ends, bar, level = mixed.cumsum(2), drawn * mixed.sum(2), torch.zeros_like(drawn, dtype=torch.int16)
        for end in ends[..., :-1].unbind(2):
            level += end <= bar
        one = torch.stack([level == k for k in range(shares.shape[1])]).to(shares)  # (L, K, n)
        if not bool((total.round() == 1).all()):  # who lacks a category goes on lacking it
            one = torch.where(total > 0, one * total.round(), shares.T[:, None])
        return one.flatten(1).T


@dataclass(frozen=True)
class Draws:
    """Draws of what people's ranks become where they persist only in part, and which of them each row takes.

    A draw is the same for everyone: for each column of the rows a normal and a uniform number.
    """

    persistence: Tensor  # (K,)
    normal: Tensor  # (K, D)
    uniform: Tensor  # (K, D)
    which: Tensor  # (times n,) of the K
    times: int = 1  # rows that each of the n people has, one after the other's

    def __getitem__(self, column: int) -> ColumnDraw:
        """Return what they make of one column."""
        return ColumnDraw(
            self.kept.flatten(), *(self.of(each[:, column]).flatten() for each in (self.normal, self.uniform))
        )

    @cached_property
    def kept(self) -> Tensor:
        """How far everyone's ranks persist (times, n); (1, 1) where it is the same for all."""
        return self.persistence[:1, None] if self.is_single else self.persistence[self.which].view(self.times, -1)

    @cached_property
    def is_single(self) -> bool:
        """Whether ranks persist as far in all draws."""
        return bool((self.persistence == self.persistence[0]).all())

    def of(self, numbers: Tensor) -> Tensor:
        """Return what everyone's draws (times, n) take of the numbers (K,) of a column."""
        return numbers.contiguous().index_select(0, self.which).view(self.times, -1)

    @cached_property
    def shifts(self) -> list[Tensor]:
        """By how much draws shift places in `Ranks.by_score`: (K,) for each column."""
        spread = (1 - self.persistence**2).sqrt()[:, None]
        return list(((spread * self.normal + _REACH) * _FINE + 0.5).float().T.contiguous())

    def taken(self, rows: Tensor | slice) -> Draws:
        """Return the draws of some people (k,)."""
        if isinstance(rows, Tensor):
            rows = rows.to(self.which.device)
        return replace(self, which=self.which.view(self.times, -1)[:, rows].flatten())


@dataclass(frozen=True)
class DrawTable:
    """Sets of draws; a person's row says which set is theirs, so that neither order nor batches matter."""

    normal: Tensor  # (count, sets, columns)
    uniform: Tensor

    @classmethod
    def of(cls, count: int, columns: int, *, seed: int) -> DrawTable:
        """Return so many draws in each set, spread evenly in each column (Latin hypercube)."""
        generator = torch.Generator().manual_seed(seed)

        def spread() -> Tensor:
            order = torch.rand(count, _SETS, columns, generator=generator).argsort(0)
            jitter = torch.rand(count, _SETS, columns, generator=generator, dtype=torch.float64)
            return ((order + jitter) / count).clamp(_TAIL, 1 - _TAIL)

        return cls(torch.special.ndtri(spread()), spread())

    def to(self, device: torch.device) -> DrawTable:
        """Return the same draws on a device."""
        return DrawTable(self.normal.to(device), self.uniform.to(device))

    def sets(self, x: Tensor) -> Tensor:
        """Return which set of draws is that of the people (n,) of rows x (n, D)."""
        return (row_marks(x.float()) >> 7) % _SETS  # in single precision: the same in every door

    def draws(
        self, x: Tensor, chosen: Sequence[int], persistence: Sequence[float], sets: Tensor | None = None
    ) -> Draws:
        """Return some of the draws for the people of rows x (n, D), draw after draw, at each persistence in turn.

        `sets` are those of these people, where they are known already.
        """
        count = len(chosen) * len(persistence)
        kept = self.normal.new_tensor(persistence).repeat_interleave(len(chosen) * _SETS)
        normal, uniform = (
            part[list(chosen)].flatten(0, 1).repeat(len(persistence), 1) for part in (self.normal, self.uniform)
        )
        own = self.sets(x) if sets is None else sets
        which = (torch.arange(count, device=x.device)[:, None] * _SETS + own).flatten()
        return Draws(kept, normal, uniform, which, count)


@dataclass(frozen=True)
class Grid:
    """A look-up table for the position of a number among distinct values."""

    distinct: Tensor  # (U + 1,) the values in order, then NaN, which is neither below nor equal to anything
    first: Tensor  # (cells,) the first value that is in the cell or above it
    low: Tensor  # where the grid begins
    scale: float  # cells per unit

    @classmethod
    def of(cls, distinct: Tensor) -> Grid:
        """Return the grid over some distinct values (U,) in order."""
        # the grid covers what lies between the outermost hundredths, which may be far out
        cells, tail = min(2 * len(distinct), _MOST_CELLS), len(distinct) // 100
        low, high = distinct[tail], distinct[-1 - tail]
        scale = cells / float(high - low) if high > low else 0.0
        scale = scale if math.isfinite(scale) else 0.0
        counts = torch.bincount(_cell(distinct, low, scale, cells), minlength=cells)
        first = (counts.cumsum(0) - counts).int()
        return cls(torch.cat([distinct, distinct.new_full((1,), torch.nan)]), first, low, scale)

    @classmethod
    def thin(cls, values: Tensor) -> Grid | None:
        """Return the grid over the distinct ones of values (n,), or over as many of them as are kept; None of none."""
        distinct, counts = distinct_values(values)
        return cls.of(distinct[thinned(counts) > 0]) if len(distinct) else None

    def code(self, x: Tensor) -> Tensor:
        """Return which value of the grid numbers x (k,) count as: their own, or the next lower one."""
        return ((self.position(x) + 1) // 2 - 1).clamp_(min=0)

    def position(self, x: Tensor) -> Tensor:
        """Return the position of numbers x (k,) among the 2 U + 1: below the first value, equal to it, and so on."""
        place = self.first.index_select(0, _cell(x, self.low, self.scale, len(self.first)))
        for _ in range(_STEPS):  # most cells hold one value or none
            place += self.distinct.index_select(0, place) < x
        found = self.distinct.index_select(0, place)  # index_select: twice as fast as [place]
        left = (found < x).nonzero()[:, 0]
        place[left] = torch.searchsorted(self.distinct[:-1], x[left], out_int32=True)
        found[left] = self.distinct[place[left]]
        return place.mul_(2).add_(found == x)


@dataclass(frozen=True)
class Ranks:
    """Where numbers stand among a group's values.

    Example:
        >>> ranks = Ranks.of(torch.tensor([3.0, 1.0, 3.0]))
        >>> ranks.twice[ranks.grid.position(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))].tolist()
        [0, 1, 2, 4, 6]
        >>> ranks.same_rank(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]), Ranks.of(torch.tensor([10.0, 20.0, 30.0])))
        tensor([10., 10., 20., 30., 30.])
    """

    ordered: Tensor  # (n,) the group's values in order
    grid: Grid  # over these values and, where refits share it, more
    twice: Tensor  # (2 U + 1,) twice the mid-rank at each place of the grid

    @classmethod
    def of(cls, values: Tensor) -> Ranks:
        """Return where numbers stand among values (n,), which may not be empty."""
        distinct, counts = distinct_values(values)
        return cls.counted(Grid.of(distinct), counts)

    @classmethod
    def counted(cls, grid: Grid, counts: Tensor) -> Ranks:
        """Return where numbers stand among the values of a grid, of which there are so many (U,) each."""
        counts = thinned(counts)
        before = F.pad(counts.cumsum(0), (1, 0))  # how many values lie below each distinct one, and in all
        below, upto = before[:-1], before[1:]
        twice = torch.cat([torch.stack([2 * below, below + upto], dim=1).flatten(), 2 * before[-1:]])
        return cls(grid.distinct[:-1].repeat_interleave(counts), grid, twice.int())

    def same_rank(self, x: Tensor, other: Ranks, place: Tensor | None = None, draw: ColumnDraw | None = None) -> Tensor:
        """Return the values (k,) of another group at the mid-rank that numbers x (k,) have in this one.

        `place` is that of the numbers on the grid, where it is known already. With a draw ranks persist in part, and
        equal values have a rank drawn among theirs.
        """
        values = other.ordered
        place = self.grid.position(x) if place is None else place
        if draw is None:
            twice = self.twice.index_select(0, place).double()
            at = twice.mul_(len(values)).div_(2 * len(self.ordered)).int()  # exact: whole numbers below 2**53
        else:
            at = (draw.rank(self._ranks(place, draw.uniform)) * len(values)).int()
        return values.index_select(0, at.clamp_(max=len(values) - 1))

    def drawn(self, place: Tensor, other: Ranks, draws: Draws, column: int) -> Tensor:
        """Return what draws (times, n) make of numbers at some places (n,): see `same_rank`, from tables.

        Normal scores are rounded to a small part of what draws add to them, and ranks that persist are exact.
        """
        values, whole = other.ordered, draws.is_single and float(draws.persistence[0]) == 1
        if whole or self.is_tied:
            u = self._ranks(place, draws.of(draws.uniform[:, column]))
        if whole:
            at = (u * len(values)).int().clamp_(max=len(values) - 1)
        else:
            z = _normal_scores(u) if self.is_tied else self.scores.index_select(0, place)
            kept, shift = draws.kept.float(), draws.of(draws.shifts[column])
            values, at = other.by_score, torch.addcmul(shift, z, kept, value=_FINE).int()
        return values.index_select(0, at.flatten()).view(at.shape)

    def _ranks(self, place: Tensor, inside: Tensor) -> Tensor:
        """Return the ranks, between 0 and 1, at places: of equal values those that lie so far inside theirs."""
        tied = place % 2
        low, high = (self.twice.index_select(0, end).double() for end in (place - tied, place + tied))
        return (low + inside * (high - low)) / (2 * len(self.ordered))

    @cached_property
    def is_tied(self) -> bool:
        """Whether many have the same value."""
        counts = self.twice[2::2] - self.twice[:-1:2]
        return int(counts.max()) > 2 * _TIED * len(self.ordered)

    @cached_property
    def scores(self) -> Tensor:
        """The normal score of the mid-rank at each place of the grid (2 U + 1,)."""
        return _normal_scores(self.twice.double().div_(2 * len(self.ordered)))

    @cached_property
    def by_score(self) -> Tensor:
        """The value at each normal score from -_REACH standard deviations up."""
        score = torch.arange(2 * _REACH * _FINE, dtype=torch.float64, device=self.ordered.device) / _FINE - _REACH
        at = (torch.special.ndtr(score) * len(self.ordered)).long().clamp_(max=len(self.ordered) - 1)
        return self.ordered[at]


def _normal_scores(ranks: Tensor) -> Tensor:
    """Return the normal scores of ranks between 0 and 1, of any shape, from a table."""
    at = (ranks * _SCORES).int().clamp_(max=_SCORES - 1)
    return _scores().to(ranks.device).index_select(0, at.flatten()).view(at.shape)


@cache
def _scores() -> Tensor:
    """Return the normal scores of evenly spaced ranks."""
    found: Tensor = torch.special.ndtri((torch.arange(_SCORES, dtype=torch.float64) + 0.5) / _SCORES).float()
    return found


def _cell(x: Tensor, low: Tensor, scale: float, cells: int) -> Tensor:
    """Return each number's cell; it never falls as x grows, so that lower cells hold lower values only."""
    return ((x - low) * scale).clamp_(0, cells - 1).int().clamp_(min=0)  # NaN is in the first


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


@dataclass(frozen=True)
class Scale:
    """A number in standard deviations from its mean, in float64."""

    mean: Tensor
    sd: Tensor

    @classmethod
    def of(cls, c: Tensor) -> Scale:
        """Return the scale of the known ones among numbers c (n,)."""
        known = c[~c.isnan()].double()
        sd = known.std(correction=0)
        return cls(known.mean(), torch.where(sd > 0, sd, 1.0))

    def __call__(self, c: Tensor) -> Tensor:
        """Return numbers c (n,) in standard deviations from the mean."""
        return (c.double() - self.mean) / self.sd


def weighted_least_squares(columns: Tensor, values: Tensor, counts: Tensor) -> Tensor:
    """Return the coefficients (P, V) of values (n, V) on columns (n, P), in float64, of rows that count (n,) each.

    Of the many solutions where columns depend on each other, as those of a one-hot block do, the smallest.
    """
    root = counts.double().sqrt()[:, None]
    left, right = (root * columns).cpu(), (root * values).cpu()  # what takes dependent columns runs nowhere else
    try:
        solved: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution
    except RuntimeError:  # it has not converged
        sizes, directions = eigen(left.T @ left)
        kept = sizes > 1e-12 * sizes.max()
        solved = directions[:, kept] @ (directions[:, kept].T @ (left.T @ right) / sizes[kept, None])
    return solved.to(values.device)


def thinned(counts: Tensor) -> Tensor:
    """Return how often values that occur so often (U,) are kept, in order: all, or evenly spaced ones of too many.

    The lowest and the highest stay. The error in ranks is far below their sampling error.
    """
    people = int(counts.sum())
    if people <= _MANY_VALUES:
        return counts
    kept = torch.linspace(0, people - 1, _KEPT_VALUES, dtype=torch.float64, device=counts.device).round().long()
    return torch.bincount(torch.searchsorted(counts.cumsum(0), kept, right=True), minlength=len(counts))


def distinct_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ones of some numbers (n,) in order, and how many there are of each."""
    if values.device.type == "cpu":
        values = torch.from_numpy(np.sort(values.numpy(force=True)))  # ten times as fast as torch's
    else:
        values = values.sort().values
    distinct, counts = values.unique_consecutive(return_counts=True)
    return distinct, counts


def numbers_among(features: Sequence[Feature]) -> list[Feature]:
    """Return the continuous features."""
    return [f for f in features if f.kind == "continuous"]


def categories_among(features: Sequence[Feature]) -> list[Feature]:
    """Return the categorical features."""
    return [f for f in features if f.kind == "categorical"]


def present_rows(rows: Tensor, feature: Feature) -> Tensor:
    """Return who has a value of a feature (n,) bool: a number that is not missing, a category that is known."""
    if feature.kind == "categorical":
        return rows[:, feature.columns].sum(1) > 0
    return rows[:, feature.start + 1] < 0.5 if feature.has_missing else ~rows[:, feature.start].isnan()


def nearest_shown(values: Tensor, group: Tensor, shown: Sequence[Tensor]) -> Tensor:
    """Return for values (n,) the nearest ones (n, 1) that each person's group (n,) shows; some in order for each."""
    out = values.clone()
    for g, known in enumerate(shown):
        who = (group == g).nonzero()[:, 0]
        if len(known) and len(who):
            near = values[who].contiguous()
            right = torch.searchsorted(known, near).clamp(max=len(known) - 1)
            left = (right - 1).clamp(min=0)
            gap = known[right] - known[left]
            lower = near - known[left] < known[right] - near + 1e-6 * gap  # of two that are as near, the lower one
            out[who] = torch.where(lower, known[left], known[right])
    return out[:, None]


def present(rows: Tensor, feature: Feature) -> Tensor:
    """Return the values of a number that are not missing (k,)."""
    return rows[present_rows(rows, feature), feature.start] if feature.has_missing else rows[:, feature.start]


def kept_missing(x: Tensor, before: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return rows x, which are overwritten, with the values that were missing before as they were."""
    for f in features:
        if f.has_missing:
            x[:, f.start] = torch.where(before[:, f.start + 1] > 0.5, before[:, f.start], x[:, f.start])
    return x
