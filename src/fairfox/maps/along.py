"""The same conditional quantiles at another value of a protected number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.data.dataset import Feature
from fairfox.maps.protocol import number_reached
from fairfox.maps.ranks import Ranks, categories_among, couple_rows, numbers_among, without_gaps
from fairfox.maps.splines import Splines

_MOST_WINDOWS, _FEWEST_IN_WINDOW = 10, 250  # but two windows where there are fewer people
_MEAN_KNOTS, _SPREAD_KNOTS = (2, 3, 4, 6, 8, 11, 15), (0, 2, 3, 4)
_SPIKE, _EXACT = 0.33, 1e-3  # the share of a value that stands out; how near to a function of c is one
_REPEATED = 2.0  # how much larger chance differences are among rows that were drawn with replacement


@dataclass(frozen=True)
class NumberRanks:
    """The same conditional quantiles at another value of a protected number."""

    parts: list[Along]  # all features that nobody lacks, then each of the others
    scale: Scale
    values: Tensor  # of c, in order, in standard deviations

    @classmethod
    def of(cls, x: Tensor, c: Tensor, scale: Scale, features: list[Feature]) -> NumberRanks:
        """Return what the rows x (n, D) show about people with values c (n,)."""
        known = ~c.isnan()
        rows, at = x[known].double(), scale(c[known])
        sets = [[f for f in features if not f.has_missing], *([f] for f in features if f.has_missing)]
        seen = [(part, without_gaps(rows, part)) for part in sets if part]
        parts = [Along.of(rows[shown], at[shown], part) for part, shown in seen if bool(shown.any())]
        return cls(parts, scale, at.unique())

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows at c plus `to` standard deviations, and who could be mapped (N,)."""
        own = self.scale(c)
        there = number_reached(own, to.to(own), self.values)
        moved = ~there.isnan()
        out, people = x.clone(), moved.nonzero()[:, 0]
        rows = x.index_select(0, people)
        for part in self.parts:
            shown = without_gaps(rows, part.features).nonzero()[:, 0]
            who = people[shown]
            mapped = part.map(rows.index_select(0, shown).double(), own[who], there[who])
            for f in part.features:
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
            _has_spike(x[:, d]) and bool(size[:, j].mean() > _EXACT * x[:, d].std()) for j, d in enumerate(numbers)
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


def _has_spike(values: Tensor) -> bool:
    """Return whether one value is that of many people."""
    counts = values.unique(return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > max(_SPIKE * len(values), 2)
