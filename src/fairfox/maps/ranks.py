"""Ranks and couplings: where a number stands in a group and what stands there in another, along a protected number
too; categories that move as little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Feature
from fairfox.maps.protocol import number_reached

_MOST_CELLS = 2**20  # of a column's grid
_STEPS = 2  # from value to value inside a cell, before giving up and searching
_MOST_WINDOWS, _FEWEST_IN_WINDOW = 10, 250  # but two windows where there are fewer people
_MEAN_KNOTS, _SPREAD_KNOTS = (2, 3, 4, 6, 8, 11, 15), (0, 2, 3, 4)
_SPIKE, _EXACT = 0.33, 1e-3  # the share of a value that stands out; how near a number is to a function of c
_REPEATED = 2.0  # how much larger chance differences are among rows that were drawn with replacement, and a knot's BIC
_BEYOND = 10  # people beyond the outermost knots on either side, but no more than a twentieth
_ROUNDING = 1e-12  # of a variance


class ConditionalRanks(Protocol):
    """Rows at the same ranks in another group."""

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows where `to` (N,) says, and who could be mapped (N,)."""
        ...


@dataclass(frozen=True)
class Ranks:
    """Where numbers stand among a group's values: by look-up, there is no search.

    A grid over the group's distinct values says between which of them a number lies.

    Example:
        >>> ranks = Ranks.of(torch.tensor([3.0, 1.0, 3.0]))
        >>> ranks.twice[ranks.place(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))].tolist()
        [0.0, 1.0, 2.0, 4.0, 6.0]
        >>> ranks.same_rank(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]), Ranks.of(torch.tensor([10.0, 20.0, 30.0])))
        tensor([10., 10., 20., 30., 30.])
    """

    ordered: Tensor  # (n,) the group's values in order
    distinct: Tensor  # (U + 1,) the distinct ones, then NaN, which is neither below nor equal to anything
    twice: Tensor  # (2 U + 1,) whole: twice the mid-rank of what is below the first, equal to it, and so on
    first: Tensor  # (cells,) the first distinct value that is in the cell or above it
    low: Tensor  # where the grid begins
    scale: float  # cells per unit

    @classmethod
    def of(cls, values: Tensor) -> Ranks:
        """Return where numbers stand among values (n,), which may not be empty."""
        ordered = values.sort().values
        distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
        before = F.pad(counts.cumsum(0), (1, 0))  # how many values lie below each distinct one, and in all
        below, upto = before[:-1], before[1:]
        twice = torch.cat([torch.stack([2 * below, below + upto], dim=1).flatten(), 2 * before[-1:]])
        # the grid covers what lies between the outermost hundredths, which may be far out
        cells, tail = min(2 * len(distinct), _MOST_CELLS), len(distinct) // 100
        low, high = distinct[tail], distinct[-1 - tail]
        scale = cells / float(high - low) if high > low else 0.0
        scale = scale if math.isfinite(scale) else 0.0
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

    def same_rank(self, x: Tensor, other: Ranks) -> Tensor:
        """Return the values (k,) of another group at the mid-rank that numbers x (k,) have in this one."""
        values = other.ordered
        twice = self.twice.index_select(0, self.place(x))
        place = (twice * len(values)).div_(2 * len(self.ordered)).long()  # exact: whole numbers below 2**53
        return values.index_select(0, place.clamp_(max=len(values) - 1))

    def share(self, x: Tensor) -> Tensor:
        """Return the mid-rank of numbers x (k,), as a share of all, in float64."""
        return self.twice.index_select(0, self.place(x)) / (2 * len(self.ordered))

    def value(self, share: Tensor) -> Tensor:
        """Return the values (k,) that stand at these shares."""
        place = (share * len(self.ordered) + 1e-9).long()  # the product may fall just short of a whole number
        return self.ordered.index_select(0, place.clamp(max=len(self.ordered) - 1))


def _cell(x: Tensor, low: Tensor, scale: float, cells: int) -> Tensor:
    """Return each number's cell; it never falls as x grows, so that lower cells hold lower values only."""
    return ((x - low) * scale).long().clamp_(0, cells - 1)


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
class NumberRanks:
    """The same conditional quantiles at another value of a protected number."""

    along: list[Along]  # all features that nobody lacks, then each of the others
    scale: Scale
    values: Tensor  # of c, in order, in standard deviations

    @classmethod
    def of(cls, x: Tensor, c: Tensor, scale: Scale, features: list[Feature]) -> NumberRanks:
        """Return what the rows x (n, D) show about people with values c (n,)."""
        known = ~c.isnan()
        rows, at = x[known].double(), scale(c[known])
        sets = [[f for f in features if not f.has_missing], *([f] for f in features if f.has_missing)]
        seen = [(own, without_gaps(rows, own)) for own in sets if own]
        along = [Along.of(rows[shown], at[shown], own) for own, shown in seen if bool(shown.any())]
        return cls(along, scale, at.unique())

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows at c plus `to` standard deviations, and who could be mapped (N,)."""
        own = self.scale(c)
        there = number_reached(own, to.to(own), self.values)
        moved = ~there.isnan()
        out, people = x.clone(), moved.nonzero()[:, 0]
        rows = x.index_select(0, people)
        for along in self.along:
            shown = without_gaps(rows, along.features).nonzero()[:, 0]
            who = people[shown]
            mapped = along.map(rows.index_select(0, shown).double(), own[who], there[who])
            for f in along.features:
                stop = f.start + 1 if f.kind == "continuous" else f.stop
                out[who, f.start : stop] = mapped[:, f.start : stop].to(x)
        return out, moved


@dataclass(frozen=True)
class Scale:
    """A protected number in standard deviations from its mean, in float64."""

    mean: Tensor
    sd: Tensor

    @classmethod
    def of(cls, c: Tensor) -> Scale:
        """Return the scale of the known ones among numbers c (n,)."""
        known = c[~c.isnan()].double()
        return cls(known.mean(), known.std(correction=0))

    def __call__(self, c: Tensor) -> Tensor:
        """Return numbers c (n,) in standard deviations from the mean."""
        return (c.double() - self.mean) / self.sd


@dataclass(frozen=True)
class Along:
    """How features change along a protected number c: x = mean(c) + spread(c) z, and the ranks of z near each c.

    Mean, spread and category shares are natural splines of c. The ranks of z are those inside windows of c, and between
    the centres of two windows in proportion; one for all where the windows do not differ. A number with a value that
    many people share (no gain, forty hours) has no mean and spread to speak of: there z is x itself.
    """

    features: list[Feature]
    means: Splines  # of all D columns
    spreads: Splines  # of the numbers
    floor: Tensor  # (numbers,) the least spread
    centres: Tensor  # (W,)
    ranks: list[list[Ranks]]  # [number][window]; [] where the windows do not differ

    @classmethod
    def of(cls, x: Tensor, c: Tensor, features: list[Feature]) -> Along:
        """Return what the rows x (n, D) of people with numbers c (n,) show; nobody may lack any of the features."""
        numbers = [f.start for f in numbers_among(features)]
        means = Splines.of(c, x, sizes=_MEAN_KNOTS)
        size = (x - means(c))[:, numbers].abs()
        uneven = [
            has_spike(x[:, d]) and bool(size[:, j].mean() > _EXACT * x[:, d].std()) for j, d in enumerate(numbers)
        ]
        stepped = torch.tensor(uneven, dtype=torch.bool, device=x.device)
        means.weights[:, torch.tensor(numbers, dtype=torch.long, device=x.device)[stepped]] = 0.0
        size[:, stepped] = 1.0
        spreads, floor = Splines.of(c, size, sizes=_SPREAD_KNOTS), (size.mean(0) / 10).clamp(min=1e-30)
        z = (x - means(c))[:, numbers] / spreads(c).maximum(floor)
        window, centres = _windows(c)
        few_values = len(c.unique()) == len(centres)
        ranks = [
            [Ranks.of(column[window == w]) for w in range(len(centres))]
            if few_values or is_stepped or _windows_differ(column, window, len(centres))
            else []
            for column, is_stepped in zip(z.T.contiguous(), uneven, strict=True)
        ]
        return cls(features, means, spreads, floor, centres, ranks)

    def map(self, x: Tensor, own: Tensor, there: Tensor) -> Tensor:
        """Return the rows x (n, D) of people at `own` (n,) as they would be `there` (n,), with the same ranks."""
        numbers = [f.start for f in numbers_among(self.features)]
        mean, new_mean = self.means(own), self.means(there)  # (n, D)
        z = (x - mean)[:, numbers] / self.spreads(own).maximum(self.floor)
        out = x.clone()
        z = z + self._shift(z, own, there)
        out[:, numbers] = new_mean[:, numbers] + self.spreads(there).maximum(self.floor) * z
        for f in categories_among(self.features):
            out[:, f.columns] = couple_rows(x[:, f.columns], mean[:, f.columns], new_mean[:, f.columns])
        return out

    def _shift(self, z: Tensor, own: Tensor, there: Tensor) -> Tensor:
        """Return how far the values at each person's rank lie apart, here and there (n, numbers)."""
        here, goal = _near(own, self.centres), _near(there, self.centres)  # (n, W)
        here_in, moved = ([part[:, w].nonzero()[:, 0] for w in range(part.shape[1])] for part in (here, goal - here))
        shift = torch.zeros_like(z)
        for j, windows in enumerate(self.ranks):
            column = z[:, j].contiguous()
            share = torch.zeros_like(column)
            for w, ranks in enumerate(windows):
                share[here_in[w]] += here[here_in[w], w] * ranks.share(column[here_in[w]])
            for w, ranks in enumerate(windows):
                part = (goal[moved[w], w] - here[moved[w], w]) * ranks.value(share[moved[w]])
                shift[moved[w], j] += part
        return shift


def _windows(c: Tensor) -> tuple[Tensor, Tensor]:
    """Return everyone's window of c (n,) and the mean of c in each (W,); equal values share a window."""
    distinct, counts = c.unique(return_counts=True)
    upto = counts.cumsum(0)
    aim = min(max(len(c) // _MOST_WINDOWS, _FEWEST_IN_WINDOW), len(c) // 2)
    ends, done = [], 0
    while len(c) - done > aim:
        place = int(torch.searchsorted(upto, done + aim))
        done = int(upto[place])
        if 2 * (len(c) - done) >= aim and done < len(c):  # else too few are left
            ends.append(distinct[place])
    window = torch.bucketize(c, torch.stack(ends)) if ends else torch.zeros_like(c, dtype=torch.long)
    sums = torch.zeros(len(ends) + 1, dtype=c.dtype, device=c.device).index_add_(0, window, c)
    return window, sums / torch.bincount(window)


def _windows_differ(values: Tensor, window: Tensor, windows: int) -> bool:
    """Return whether values (n,) are spread differently in the windows: chi squared over tenths of them all, at three
    standard deviations."""
    ordered = values.sort().values
    cuts = ordered[(torch.arange(1, 10, device=values.device) * len(ordered)) // 10].unique()
    counts = torch.bincount(
        window * (len(cuts) + 1) + torch.bucketize(values, cuts), minlength=windows * (len(cuts) + 1)
    )
    table = counts.reshape(windows, -1).double()
    expected = table.sum(1, keepdim=True) * table.sum(0) / len(values)
    distance = float(((table - expected).square() / expected.clamp(min=1e-30)).sum())
    freedom = (windows - 1) * int((expected[0] > 0).sum() - 1)
    return distance > _REPEATED * (freedom + 3 * math.sqrt(2 * freedom))


def _near(c: Tensor, centres: Tensor) -> Tensor:
    """Return how near everyone is to each centre (n, W): the two on both sides share 1 in proportion."""
    if len(centres) == 1:
        return torch.ones_like(c)[:, None]
    right = torch.searchsorted(centres, c).clamp(1, len(centres) - 1)
    low, high = centres[right - 1], centres[right]
    part = ((c - low) / (high - low)).clamp(0, 1)
    out = c.new_zeros(len(c), len(centres)).scatter_(1, right[:, None], part[:, None])
    return out.scatter_(1, right[:, None] - 1, 1 - part[:, None])


def has_spike(values: Tensor) -> bool:
    """Return whether many people share one of the values (n,): no gain, forty hours."""
    counts = values.unique(return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > max(_SPIKE * len(values), 2)


@dataclass(frozen=True)
class Splines:
    """Natural cubic splines of one number, each with as many knots as it needs."""

    knots: list[Tensor]  # candidates, from none (a constant) or two (a straight line) to many
    weights: Tensor  # (all bases together, D): zero but for the chosen candidate

    @classmethod
    def of(cls, c: Tensor, values: Tensor, *, sizes: Sequence[int]) -> Splines:
        """Return the least-squares splines of values (n, D) over c (n,), their knots chosen by the BIC."""
        ordered = c.sort().values
        knots = [spline_knots(ordered, size) for size in sizes if 20 * size <= len(c) or size <= 2]
        weights, criteria = [], []
        for own in knots:
            basis = natural_spline(c, own)
            weights.append(torch.linalg.pinv(basis) @ values)  # (k, D)
            missed = (values - basis @ weights[-1]).square().mean(0)
            least = _ROUNDING * (values - values.mean(0)).square().mean(0) + torch.finfo(values.dtype).tiny
            criteria.append(len(c) * missed.maximum(least).log() + _REPEATED * basis.shape[1] * math.log(len(c)))
        best = torch.stack(criteria).argmin(0)  # (D,)
        return cls(knots, torch.cat([part * (best == k) for k, part in enumerate(weights)]))

    def __call__(self, c: Tensor) -> Tensor:
        """Return the splines at c (n,): (n, D)."""
        return torch.cat([natural_spline(c, own) for own in self.knots], dim=1) @ self.weights


def natural_spline(c: Tensor, knots: Tensor) -> Tensor:
    """Return the basis (n, k) of cubic splines of c that are straight lines beyond the outermost of k knots.

    One, c, and for each but the last two knots the restricted cubic term; one alone where there are no knots.
    """
    if len(knots) == 0:
        return torch.ones_like(c)[:, None]
    first, before, last = knots[0], knots[-2], knots[-1]

    def cube(at: Tensor) -> Tensor:
        return (c - at).clamp(min=0) ** 3

    bent = [
        (cube(t) + (cube(last) * (before - t) - cube(before) * (last - t)) / (last - before)) / (last - first) ** 2
        for t in knots[:-2]
    ]
    return torch.stack([torch.ones_like(c), c, *bent], dim=1)


def spline_knots(ordered: Tensor, most: int) -> Tensor:
    """Return at most so many of some values in order (n,), evenly spaced in rank: none, or two and more."""
    if most < 2:
        return ordered[:0]
    beyond = min(_BEYOND / len(ordered), 0.05)
    places = (torch.linspace(beyond, 1 - beyond, most, dtype=torch.float64) * (len(ordered) - 1)).round().long()
    knots = ordered[places.to(ordered.device)].unique()
    return knots if len(knots) > 1 else torch.stack([ordered[0], ordered[-1]])


def weighted_least_squares(columns: Tensor, values: Tensor, counts: Tensor) -> Tensor:
    """Return the coefficients (P, V) of values (n, V) on columns (n, P), in float64, of rows that count (n,) each.

    Of the many solutions where columns depend on each other, as those of a one-hot block do, the smallest.
    """
    root = counts.double().sqrt()[:, None]
    # on the CPU: the solver that takes dependent columns runs nowhere else
    solved: Tensor = torch.linalg.lstsq((root * columns).cpu(), (root * values).cpu(), driver="gelsd").solution
    return solved.to(values.device)


def two_sample_ks(here: Tensor, there: Tensor) -> Tensor:
    """Return the largest distance between the empirical distributions of numbers (n,) and (m,)."""
    order = torch.cat([here, there]).sort()
    own = (order.indices < len(here)).double()
    gap = (own.cumsum(0) / len(here) - (1 - own).cumsum(0) / len(there)).abs()
    tied = order.values[1:] == order.values[:-1]  # the distance counts after the last of equal values
    gap[:-1][tied] = 0.0
    return gap.max()


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


def kept_missing(x: Tensor, before: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return rows x, which are overwritten, with the values that were missing before as they were."""
    for f in features:
        if f.has_missing:
            x[:, f.start] = torch.where(before[:, f.start + 1] > 0.5, before[:, f.start], x[:, f.start])
    return x
