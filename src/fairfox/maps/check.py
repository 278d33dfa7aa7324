"""Checks of a map: whose outcome flips, and whether its rows are plausible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairfox.data.contrasts import HIGHER, Contrast, destinations
from fairfox.data.dataset import Dataset, Feature, group_name, resampled_rows
from fairfox.maps.protocol import some_of_each
from fairfox.maps.rank import RankMap

_LEAST, _MOST = 0.6, 1.4  # of the gap that a map should account for
_OFF_DATA = 0.05  # the share of rows that may lie off the data
_DRAWS = 20_000  # rows whose categories are drawn, at least: a share is then known to about 0.3 points
_CHECKED = 20_000  # people of a group, about, whose rows are looked at
_RESAMPLED = 20  # times, for the error of a gap at given values
_CELLS = 2**24  # of pairs that are looked up at once


@dataclass(frozen=True)
class MapCheck:
    """How plausible a map is for the people of one group that it maps to another; people count by weight."""

    variable: int
    group: str  # "sex=Female"; "age" for a number
    towards: str  # "sex=Male"; "higher" or "lower" for a number
    people: int  # who were mapped
    effect: float  # mean of f(T(x)) - f(x)
    gap: float | None  # the other group's mean prediction minus this group's; None for a number
    accounted: float | None  # effect / gap; None for a gap that may be chance or does not matter
    outside: float  # share of people with a number outside the range that the other group shows
    unseen: float  # expected share of people with two categories that nobody in the table has together
    unseen_real: float  # the same for real people, whose pairs are looked for in the other half of the table
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Support:
    """The support of the fitting rows: each group's range of every number, and the pairs of categories people have.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> Support.of(data, 0).outside(torch.tensor([[6.0], [8.0]]), 1)
        tensor([False,  True])
    """

    features: tuple[Feature, ...]
    ranges: dict[int, Tensor]  # (2, D) lowest and highest value in each class; -1: of everyone
    unseen: Tensor  # (L + 1, L + 1) bool, of two levels of different features; the last stands for no level
    real: float  # share of people who have two categories together that nobody in the other half has

    @classmethod
    def of(cls, table: Dataset, variable: int, *, seed: int = 0) -> Support:
        """Return what a table shows about the classes of one protected variable."""
        p, c = table.protected[variable], table.c[:, variable]
        groups = {-1: torch.ones_like(c, dtype=torch.bool)} | {g: c == g for g in range(len(p.levels))}
        ranges = {g: _ranges(table.x[own], table.features) for g, own in groups.items() if bool(own.any())}
        codes = _drawn_codes(table.x, table.features, None)
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed)).to(codes.device)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        strange = torch.zeros(len(table), dtype=torch.bool, device=codes.device)
        for own, other in (halves, halves[::-1]):
            strange[own] = _has_pair(codes[own], _unseen_pairs(codes[other], table.features))
        real = _mean(strange.to(table.x), _weights(table))
        return cls(table.features, ranges, _unseen_pairs(codes, table.features), real)

    def outside(self, rows: Tensor, group: int, before: Tensor | None = None) -> Tensor:
        """Return who (n,) has a number outside the range of a class (-1: of everyone); missing values count as inside.

        A class that the table lacks has no range, and nobody is outside of it. Numbers that did not change from
        `before` do not count.
        """
        if group not in self.ranges:
            return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        low, high = self.ranges[group].to(rows).unbind(0)
        slack = 1e-6 * torch.where(high > low, high - low, high.abs().clamp(min=1e-30))  # means of floats are rounded
        beyond = (rows < low - slack) | (rows > high + slack)
        if before is not None:
            beyond &= rows != before
        for f in self.features:
            if f.has_missing:
                beyond[:, f.start] &= rows[:, f.start + 1] <= 0.5
        return beyond.any(1)

    def unseen_share(self, rows: Tensor, weights: Tensor, *, seed: int = 0) -> float:
        """Return the expected share of rows (n, D) with two categories together that nobody in the table has.

        One-hot blocks are distributions, and categories of different features are drawn independently.
        """
        if not bool(self.unseen.any()) or not len(rows):
            return 0.0
        generator = torch.Generator().manual_seed(seed)
        times = max(1, -(-_DRAWS // len(rows)))
        draws = torch.rand(times, len(_blocks(self.features)), len(rows), generator=generator)
        codes = _drawn_codes(rows, self.features, draws)
        return _mean(_has_pair(codes, self.unseen).to(weights), weights.repeat(times))


def check_map(
    data: Dataset,
    contrast: Contrast,
    here: Tensor,
    effects: Tensor,
    rows: Tensor,
    *,
    support: Support,
    delta: float,
    deltas: Mapping[str, float] | None = None,
    shown: Tensor | None = None,
    points: bool = True,
    total: bool = True,
) -> tuple[MapCheck, ...]:
    """Return a check for each group that a contrast takes somewhere.

    Args:
        data: the people who were mapped.
        contrast: where they went.
        here: their predictions f(x) (N,); NaN for people who are not judged.
        effects: f(T(x)) - f(x) (N,), mean over refits; NaN for people who were not mapped.
        rows: their counterfactual rows (M, N, D), of one or more refits.
        support: what the fitting rows show.
        delta: the effect that matters; a gap of less than half of it is not compared with.
        deltas: those of single groups, by name.
        shown: whose rows (N,) bool are those of this contrast; None: everyone's.
        points: whether predictions are probabilities, so that sentences are in points.
        total: whether the effect should account for the whole gap: nothing is given, and the map is no causal graph.
    """
    p, c = data.protected[contrast.variable], data.c[:, contrast.variable].to(effects.device)
    mapped = ~effects.isnan() & ~destinations(data, contrast).isnan().to(effects.device)
    weights = _weights(data).to(effects)
    out = []
    for group in [-1] if p.is_continuous else range(len(p.levels)):
        own = mapped if p.is_continuous else mapped & (c == group)
        if not bool(own.any()):
            continue
        effect, gap, accounted = _mean(effects[own], weights[own]), None, None
        if p.is_continuous:
            other, names = -1, (p.name, "higher" if contrast.towards == HIGHER else "lower")
        else:
            other = 1 - group if contrast.towards is None else contrast.towards
            names = group_name(p.name, p.levels[group]), group_name(p.name, p.levels[other])
            others = (c == other) & ~here.isnan()
            if bool(others.any()):
                gap, error = gap_between(here, own, others, weights)
                least = (deltas or {}).get(names[0], delta) / 2
                accounted = effect / gap if abs(gap) > max(2 * error, least) else None
        moved = own if shown is None else own & shown.to(own.device)
        who = moved.nonzero()[:, 0].to(rows.device)
        who = who[:: max(1, len(who) // _CHECKED)]
        flat = weights[who.to(weights.device)].to(rows).repeat(len(rows))  # (M n,)
        there, before = rows[:, who].flatten(0, 1), data.x[who].to(rows).repeat(len(rows), 1)  # (M n, D)
        found = MapCheck(
            contrast.variable, *names, int(own.sum()), effect, gap, accounted,
            outside=_mean(support.outside(there, other, before).to(flat), flat),
            unseen=support.unseen_share(there, flat),
            unseen_real=support.real,
        )  # fmt: skip
        out.append(replace(found, warnings=_warnings(found, points=points, total=total, two=len(p.levels) == 2)))
    return tuple(out)


@dataclass(frozen=True)
class FlipSet:
    """The row numbers of one group's people whose outcome depends on their group."""

    people: int  # of the group, who could be mapped
    negative: Tensor  # good outcome only as a member of the other group: their own group costs them
    positive: Tensor  # good outcome only as a member of their own: it helps them

    @property
    def share(self) -> float:
        """The share of the group whose outcome flips in either direction."""
        return (len(self.negative) + len(self.positive)) / max(self.people, 1)


def flip_sets(here: Tensor, there: Tensor, c: Tensor, cut: float) -> dict[int, FlipSet]:
    """Return the flips of each group (its class number) for predictions f(x) (N,) and f(T(x)) (N,).

    A prediction of at least `cut` is the good outcome. People of unknown group (NaN in c), or not mapped (NaN in
    `there`), belong to no set.

    Example:
        >>> flips = flip_sets(torch.tensor([0.4, 0.6]), torch.tensor([0.7, 0.2]), torch.tensor([0.0, 1.0]), 0.5)
        >>> flips[0].negative, flips[1].positive
        (tensor([0]), tensor([1]))
    """
    mapped = ~there.isnan() & ~here.isnan()
    good, good_there = here >= cut, there >= cut
    out = {}
    for group in c[~c.isnan()].unique().tolist():
        own = mapped & (c == group)
        negative, positive = own & ~good & good_there, own & good & ~good_there
        out[int(group)] = FlipSet(int(own.sum()), negative.nonzero()[:, 0], positive.nonzero()[:, 0])
    return out


def _warnings(found: MapCheck, *, points: bool, total: bool, two: bool) -> tuple[str, ...]:
    """Return a sentence for each number that says that effects cannot be believed."""
    whom = found.group if two else f"{found.group} (to {found.towards})"
    out = []
    if total and found.accounted is not None and found.gap is not None and not _LEAST <= found.accounted <= _MOST:
        effect, gap = (f"{100 * v:.1f}" if points else f"{v:.3g}" for v in (found.effect, found.gap))
        out.append(
            f"For {whom} the map accounts for {_percent(found.accounted)} of the gap between the groups "
            f"({effect} of {gap}{' points' if points else ''})"
        )
    if found.outside > _OFF_DATA:
        shown = "that anyone has" if found.towards in ("higher", "lower") else f"of {found.towards}"
        out.append(f"For {whom} the map gives {_percent(found.outside)} of people a number outside the range {shown}")
    if found.unseen - found.unseen_real > _OFF_DATA:
        out.append(
            f"For {whom} the map gives {_percent(found.unseen)} of people a pair of categories that nobody in the "
            f"table has (by chance: {_percent(found.unseen_real)})"
        )
    return tuple(f"{sentence}; effects may be misleading." for sentence in out)


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"


def gap_between(predictions: Tensor, own: Tensor, other: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return how much higher one group's mean prediction is than another's, and the standard error of that."""
    means, variance = [], 0.0
    for group in (own, other):
        values, w = predictions[group].double(), weights[group].double()
        mean = _mean(values, w)
        share = w / w.sum().clamp(min=1e-30)
        variance += float((share.square() * (values - mean).square()).sum())
        means.append(mean)
    return means[1] - means[0], variance**0.5


def gaps_given(
    data: Dataset, predictions: Tensor, variable: int, pair: tuple[int, int], given: tuple[str, ...], *, others: bool
) -> list[tuple[float, float]]:
    """Return how much higher predictions are in the second of two classes, for people of the first with the same given
    values, and the standard error of that; then the same the other way round.

    The prediction is mapped as if it were a feature, to its rank in the other class; the error is that of resampling.
    With `others` the other protected variables are held as well.
    """
    p, own, width = data.protected[variable], data.c[:, variable], data.x.shape[1]
    c = torch.where(own == pair[0], 0.0, torch.where(own == pair[1], 1.0, torch.nan))
    two = replace(p, kind="binary", levels=tuple(p.levels[k] for k in pair), reference=None, second=None, parts=())
    people = replace(
        data,
        x=torch.cat([data.x, predictions.to(data.x)[:, None]], dim=1),
        c=data.c.index_copy(1, torch.tensor([variable], device=data.c.device), c.to(data.c)[:, None]),
        protected=(*data.protected[:variable], two, *data.protected[variable + 1 :]),
        features=(*data.features, Feature("", "continuous", width, width + 1)),
        withheld=torch.cat([data.withheld, data.withheld.new_zeros(1)]),
    )[~c.isnan()]
    generator, found = torch.Generator().manual_seed(0), []
    people = some_of_each(people, variable, generator)
    column = torch.arange(width + 1, device=data.x.device) == width
    for _ in range(_RESAMPLED):
        drawn = replace(people[resampled_rows(people, generator=generator)], weights=None)
        ranks = RankMap(variable=variable, only=column, hold_others=others, given=given).fit(drawn)
        mapped, where = ranks.map(drawn), drawn.c[:, variable]
        higher = torch.where(mapped.abstained, torch.nan, mapped.rows[:, -1] - drawn.x[:, -1]).double()
        found.append([float(higher[where == k].nanmean()) for k in (0, 1)])
    each = torch.tensor(found, dtype=torch.float64)
    return [(float(one.mean()), float(one.std())) for one in each.T]


def _ranges(x: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return the lowest and highest value of every number (2, D); everything is inside for the other columns."""
    out = torch.stack([x.new_full((x.shape[1],), -torch.inf), x.new_full((x.shape[1],), torch.inf)])
    for f in features:
        values = x[x[:, f.start + 1] <= 0.5, f.start] if f.has_missing else x[:, f.start]
        if f.kind == "continuous" and len(values):
            out[:, f.start] = torch.stack(torch.aminmax(values))
    return out


def _blocks(features: Sequence[Feature]) -> list[tuple[Feature, int]]:
    """Return the categorical features, and where the levels of each begin when all levels are counted."""
    out, first = [], 0
    for f in features:
        if f.kind == "categorical":
            out.append((f, first))
            first += len(f.levels)
    return out


def _drawn_codes(x: Tensor, features: Sequence[Feature], draws: Tensor | None) -> Tensor:
    """Return one level of each categorical feature (n, F), the largest of its block.

    With numbers from 0 to 1 (R, F, n) levels are drawn by them, R times (R n, F). Levels count on from feature to
    feature; a block without any level (a category never seen) has the last number.
    """
    blocks = _blocks(features)
    levels = sum(len(f.levels) for f, _ in blocks)
    times = 1 if draws is None else len(draws)
    codes = torch.full((times, len(x), len(blocks)), levels, dtype=torch.long, device=x.device)
    for j, (f, first) in enumerate(blocks):
        upto = x[:, f.columns].clamp(min=0).cumsum(1)
        if draws is None:
            level = x[:, f.columns].argmax(1)
        else:
            draw = draws[:, j].to(x) * upto[:, -1]  # (R, n)
            level = (upto <= draw[..., None]).sum(2).clamp(max=len(f.levels) - 1)
        codes[..., j] = torch.where(upto[:, -1] > 0, first + level, levels)
    return codes.flatten(0, 1)


def _unseen_pairs(codes: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return which levels of different features no row of codes (n, F) has together (L + 1, L + 1) bool."""
    blocks = _blocks(features)
    levels = sum(len(f.levels) for f, _ in blocks)
    together = torch.zeros(levels + 1, levels + 1, device=codes.device)
    for part in codes.split(max(_CELLS // (levels + 1), 1)):
        one_hot = torch.zeros(len(part), levels + 1, device=codes.device).scatter_(1, part, 1.0)
        together += one_hot.T @ one_hot
    unseen = together == 0
    for f, first in blocks:
        unseen[first : first + len(f.levels), first : first + len(f.levels)] = False
    unseen[-1], unseen[:, -1] = False, False
    return unseen


def _has_pair(codes: Tensor, pairs: Tensor) -> Tensor:
    """Return whose levels (n, F) include one of the pairs (L + 1, L + 1) bool."""
    out = torch.zeros(len(codes), dtype=torch.bool, device=codes.device)
    for j in range(codes.shape[1]):
        for k in range(j):
            out |= pairs[codes[:, j], codes[:, k]]
    return out


def _weights(data: Dataset) -> Tensor:
    return torch.ones_like(data.x[:, 0]) if data.weights is None else data.weights


def _mean(values: Tensor, weights: Tensor) -> float:
    w = weights.double()
    return float((values.double() * w).sum() / w.sum().clamp(min=1e-30))
