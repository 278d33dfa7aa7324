"""Given columns: they stay as they are, and with them all that they explain of other columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ColumnError, OptionError, did_you_mean
from fairfox.maps.protocol import number_reached
from fairfox.maps.ranks import (
    ConditionalRanks,
    Scale,
    as_shares,
    categories_among,
    couple_rows,
    has_spike,
    natural_spline,
    numbers_among,
    spline_knots,
    without_gaps,
)

_SIZES = (2, 4, 7, 11)  # knots of every number: a straight line, then more and more bent
_NUMBER_KNOTS = 4  # of the protected number
_PEOPLE_PER_TERM = 20  # for anything beyond the straight lines
_REPEATED = 2.0  # how much heavier a term weighs than by the BIC, since refits repeat rows
_ROUNDING = 1e-10  # of a variance
_MOST_STEPS = 20
RankRows = Callable[[Tensor, Tensor, list[Feature]], ConditionalRanks]  # rows (n, D), c (n,), what to rank -> how


def given_features(data: Dataset, names: Sequence[str]) -> list[Feature]:
    """Return the features of these names, after a look at whether they can be given."""
    shown = {f.name: f for f in data.features if not bool(data.withheld[f.start])}
    read = {text: p.name for p in data.protected for text in (p.name, p.source) if text is not None}
    for name in names:
        if name in read:
            raise OptionError(
                f"'{name}' cannot be given: the protected variable '{read[name]}' is read from it; name other columns"
            )
        if name not in shown:
            raise ColumnError(
                f"The given column '{name}' is none that the model takes.{did_you_mean(name, list(shown))}"
            )
    if names and set(shown) == set(names) and not bool(data.withheld.any()):
        raise OptionError("All columns of the model are given, and nothing is left to be compared; name fewer")
    return [shown[name] for name in dict.fromkeys(names)]


def remaining_metric(covariance: Tensor, given: Tensor) -> Tensor:
    """Return the covariance (D, D) of what some columns (D,) bool leave unexplained (Schur complement), 0 for them."""
    across = covariance[:, given]  # (D, G)
    left: Tensor = covariance - across @ torch.linalg.pinv(covariance[given][:, given], hermitian=True) @ across.T
    left[given] = 0.0
    left[:, given] = 0.0
    return left


@dataclass(frozen=True)
class GivenRanks:
    """The same ranks elsewhere, among people with the same given values.

    A number is x = mean + spread z, both those of the own group at the person's given values: z keeps its rank in
    the group. Numbers whose values many people share, and categories, have shares in place of a mean.
    """

    explained: list[Explained]  # all features that nobody lacks, then each of the others
    ranks: ConditionalRanks  # of z, and of what nothing explains: the columns of the protected variable itself
    scale: Scale | None  # of a protected number
    values: Tensor  # of it, in order
    marks: Tensor  # (D,) bool: given categories, and marks of missing given numbers
    seen: Tensor  # (groups, D) bool: those that anybody has

    @classmethod
    def of(
        cls,
        x: Tensor,
        c: Tensor,
        classes: int,
        scale: Scale | None,
        given: list[Feature],
        features: list[Feature],
        rank: RankRows,
    ) -> GivenRanks | None:
        """Return what the rows x (n, D) of people with protected values c (n,) show; None where they are too few.

        `features` are those to map, without the given ones.
        """
        known = ~c.isnan()
        rows, group = x[known].double(), c[known]
        at = group.double() if scale is None else scale(group)
        terms = bending_terms(GroupTerms.of(at, classes), given, rows)
        if len(rows) < 2 * (max(classes, 2) + sum(f.stop - f.start for f in given)):  # two for each straight line
            return None
        sets = [[f for f in features if not f.has_missing], *([f] for f in features if f.has_missing)]
        shown = [(own, without_gaps(rows, own)) for own in sets if own]
        explained = [Explained.of(rows[who], at[who], terms, own) for own, who in shown if int(who.sum()) > 1]
        ranked = rank(_taken_off(explained, rows, at), group, [f for each in explained for f in each.numbers])
        groups = at.long() if classes else torch.zeros_like(at, dtype=torch.long)
        seen = rows.new_zeros(max(classes, 1), x.shape[1]).index_add_(0, groups, (rows > 0.5).double()) > 0
        return cls(explained, ranked, scale, at.unique(), _marks(x, given), seen)

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows where `to` (N,) says, and who could be mapped (N,)."""
        here, there = self._from_to(c, to)
        going = (~(here.isnan() | there.isnan() | self.unshared(x, c, to))).nonzero()[:, 0]
        out, moved = x.clone(), torch.zeros_like(c, dtype=torch.bool)
        before, here, there = x[going].double(), here[going], there[going]
        ranked, found = self.ranks.map(_taken_off(self.explained, before, here), c[going], to[going])
        for each in self.explained:
            each.put_back(ranked, before, here, there)
        out[going[found]] = ranked[found].to(x)
        moved[going] = found
        return out, moved

    def unshared(self, x: Tensor, c: Tensor, to: Tensor) -> Tensor:
        """Return who (N,) has a given category, or lacks a value, as nobody of the own or the other group does."""
        here, there = (at.nan_to_num().long() if self.scale is None else torch.zeros_like(c).long() for at in (c, to))
        has = (x > 0.5) & self.marks
        return (has & ~(self.seen[here] & self.seen[there])).any(1)

    def _from_to(self, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return where everyone is and goes (N,): classes, or numbers in standard deviations; NaN for nowhere."""
        if self.scale is None:
            return c.double(), torch.where(to == c, torch.nan, to.double())
        own = self.scale(c)
        return own, number_reached(own, to.to(own), self.values)


@dataclass(frozen=True)
class Explained:
    """How some features that go together depend on the given columns, the own group the same."""

    numbers: list[Feature]
    stairs: list[tuple[Feature, Stairs]]
    categories: list[Feature]
    means: Regressions  # of the numbers, then of the shares of stairs and categories
    spreads: Regressions | None  # of the numbers
    floor: Tensor  # (numbers,) the least spread
    blocks: list[int]  # how many columns of the means each feature has
    groups: Tensor | None  # the classes that show the features; None for a protected number

    @classmethod
    def of(cls, x: Tensor, c: Tensor, terms: Sequence[Terms], features: list[Feature]) -> Explained:
        """Return what rows x (n, D), float64, with protected values c (n,) show; nobody may lack a feature."""
        stepped = [f for f in numbers_among(features) if is_stepped(x[:, f.start])]
        numbers = [f for f in numbers_among(features) if f not in stepped]
        stairs, categories = [(f, Stairs.of(x[:, f.start])) for f in stepped], categories_among(features)
        steps = [stair.one_hot(x[:, f.start].contiguous()) for f, stair in stairs]
        shares = [*steps, *(x[:, f.columns] for f in categories)]
        values = torch.cat([x[:, [f.start for f in numbers]], *shares], dim=1)
        blocks = [1] * len(numbers) + [share.shape[1] for share in shares]
        means = Regressions.of(values, x, c, terms, blocks)
        size = (values - means(x, c))[:, : len(numbers)].abs()
        spreads = (
            Regressions.of(size, x, c, [replace(terms[0], flat=True), *terms], [1] * len(numbers)) if numbers else None
        )
        floor = (size.mean(0) / 10).clamp(min=1e-30)
        groups = c.unique() if terms[0].own.classes else None
        return cls(numbers, stairs, categories, means, spreads, floor, blocks, groups)

    def take_off(self, rows: Tensor, x: Tensor, c: Tensor) -> None:
        """Set the numbers in rows (n, D) to z, those of x in spreads from their mean."""
        if self.spreads is not None:
            places = [f.start for f in self.numbers]
            mean = self.means(x, c)[:, : len(places)]
            rows[:, places] = (x[:, places] - mean) / self.spreads(x, c).maximum(self.floor)

    def put_back(self, rows: Tensor, x: Tensor, here: Tensor, there: Tensor) -> None:
        """Set the features in rows (n, D), where numbers are z, to what they are `there` for people with rows x."""
        own, new = (self.means(x, at) for at in (here, there))
        places = [f.start for f in self.numbers]
        if self.spreads is not None:
            rows[:, places] = new[:, : len(places)] + self.spreads(x, there).maximum(self.floor) * rows[:, places]
        shares = [means.split(self.blocks, dim=1)[len(places) :] for means in (own, new)]
        pairs = list(zip(*shares, strict=True))
        for (f, stair), (p, q) in zip(self.stairs, pairs[: len(self.stairs)], strict=True):
            rows[:, f.start] = stair.same_rank(x[:, f.start].contiguous(), as_shares(p), as_shares(q))
        for f, (p, q) in zip(self.categories, pairs[len(self.stairs) :], strict=True):
            rows[:, f.columns] = couple_rows(x[:, f.columns], p, q)
        # who lacks a number, or whose group here or there shows none, keeps what is there
        for f in [*self.numbers, *(f for f, _ in self.stairs)]:
            if f.has_missing:
                stay = x[:, f.start + 1] > 0.5
                if self.groups is not None:
                    stay |= ~(torch.isin(here, self.groups) & torch.isin(there, self.groups))
                rows[:, f.start] = torch.where(stay, x[:, f.start], rows[:, f.start])


def _taken_off(explained: Sequence[Explained], x: Tensor, c: Tensor) -> Tensor:
    """Return rows x (n, D) with what the given columns explain taken off the numbers."""
    rows = x.clone()
    for each in explained:
        each.take_off(rows, x, c)
    return rows


def _marks(x: Tensor, given: Sequence[Feature]) -> Tensor:
    """Return which columns (D,) say that someone has a given category, or lacks a given number."""
    out = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    for f in given:
        out[f.start + (f.kind == "continuous") : f.stop] = True
    return out


def is_stepped(values: Tensor) -> bool:
    """Return whether a number (n,) has few values, or one that many people share: no gain, forty hours."""
    return len(values.unique()) <= _MOST_STEPS or has_spike(values)


@dataclass(frozen=True)
class Stairs:
    """A number cut into steps: where a value stands in its step, and which value stands at a place of another."""

    cuts: Tensor  # (B - 1,) the highest value of each step but the last
    ordered: Tensor  # (n,) all values in order
    start: Tensor  # (B,) how many values lie below each step
    size: Tensor  # (B,) how many it has

    @classmethod
    def of(cls, values: Tensor) -> Stairs:
        """Return the steps of values (n,): each value one where they are few, else with about equally many people."""
        ordered = values.sort().values
        distinct = ordered.unique()
        if len(distinct) > _MOST_STEPS:
            places = (torch.arange(1, _MOST_STEPS, device=values.device) * len(ordered)) // _MOST_STEPS
            distinct = torch.cat([ordered[places], ordered[-1:]]).unique()
        cuts = distinct[:-1].contiguous()
        size = torch.bincount(torch.bucketize(ordered, cuts), minlength=len(cuts) + 1)
        return cls(cuts, ordered, size.cumsum(0) - size, size)

    def one_hot(self, x: Tensor) -> Tensor:
        """Return the step of numbers x (k,) as a block (k, B)."""
        return F.one_hot(torch.bucketize(x, self.cuts), len(self.size)).to(x)

    def same_rank(self, x: Tensor, own: Tensor, other: Tensor) -> Tensor:
        """Return the values (k,) at the rank of numbers x (k,), once the steps have other shares (k, B) than their own.

        Of equal values the middle one counts.
        """
        step = torch.bucketize(x, self.cuts)[:, None]  # (k, 1)
        middle = (torch.searchsorted(self.ordered, x) + torch.searchsorted(self.ordered, x, right=True)) / 2
        inside = ((middle - self.start[step[:, 0]]) / self.size[step[:, 0]]).clamp(0, 1)[:, None]
        rank = (own.cumsum(1) - own).gather(1, step) + inside * own.gather(1, step)
        ends = other.cumsum(1)
        new = (ends <= rank).sum(1, keepdim=True).clamp(max=len(self.size) - 1)
        share = other.gather(1, new)
        place = (rank - (ends.gather(1, new) - share)) / torch.where(share > 0, share, 1.0)
        at = (place.clamp(0, 1) * self.size[new] + 1e-9).long().minimum(self.size[new] - 1)
        return self.ordered[(self.start[new] + at)[:, 0]]


@dataclass(frozen=True)
class GroupTerms:
    """A protected variable as terms of a regression: dummies of its classes, or a spline of its number."""

    classes: int = 0
    knots: Tensor | None = None

    @classmethod
    def of(cls, c: Tensor, classes: int) -> GroupTerms:
        """Return the terms for K classes, or for numbers c (n,) where there are none."""
        return cls(classes) if classes else cls(knots=spline_knots(c.sort().values, _NUMBER_KNOTS))

    def level(self, c: Tensor) -> Tensor:
        """Return what may lift everyone of a group (n, K), a constant first."""
        if self.knots is not None:
            return natural_spline(c, self.knots)
        return torch.cat([torch.ones_like(c)[:, None], self.tilt(c)], dim=1)

    def tilt(self, c: Tensor) -> Tensor:
        """Return what may change how other columns act in a group (n, K - 1)."""
        return c[:, None] if self.knots is not None else F.one_hot(c.long(), self.classes)[:, 1:].to(c)


@dataclass(frozen=True)
class ColumnTerms:
    """Columns as terms of a regression: as they are, and a spline of each number."""

    features: Sequence[Feature]
    knots: Sequence[Tensor]  # of each number among them

    @classmethod
    def of(cls, features: Sequence[Feature], x: Tensor, size: int = _SIZES[1]) -> ColumnTerms:
        """Return the terms for some features of rows x (n, D), with so many knots."""
        return cls(features, [spline_knots(x[:, f.start].sort().values, size) for f in numbers_among(features)])

    def __call__(self, x: Tensor) -> Tensor:
        """Return the terms (n, H) of rows x (n, D)."""
        splines = zip(numbers_among(self.features), self.knots, strict=True)
        bent = [natural_spline(x[:, f.start], knots.to(x))[:, 2:] for f, knots in splines]
        return torch.cat([x.new_zeros(len(x), 0), *(x[:, f.columns] for f in self.features), *bent], dim=1)

    def among(self, columns: int) -> Tensor:
        """Return which of so many columns of x these are (D,) bool."""
        out = torch.zeros(columns, dtype=torch.bool)
        for f in self.features:
            out[f.columns] = True
        return out


@dataclass(frozen=True)
class Terms:
    """The terms of one regression on some columns and the own group."""

    own: GroupTerms
    columns: ColumnTerms
    together: bool = False  # columns act on each other: their products
    apart: bool = False  # they act differently in each group
    flat: bool = False  # they do not act at all

    def __call__(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the terms (n, P) of rows x (n, D) with protected values c (n,), both float64."""
        level = self.own.level(c)
        if self.flat:
            return level
        terms = self.columns(x)
        columns = [level, terms]
        if self.together:
            straight = [x[:, f.columns] for f in self.columns.features]
            columns += [_products(a, b) for a, b in combinations(straight, 2)]
        if self.apart:
            columns.append(_products(self.own.tilt(c), terms))
        return torch.cat(columns, dim=1)


@dataclass(frozen=True)
class Regressions:
    """Values as functions of some columns and the own group, each with the terms that it needs."""

    terms: list[Terms]  # those that any value needs
    weights: list[Tensor]  # (P, V) of each, zero for the values that need others

    @classmethod
    def of(
        cls, values: Tensor, x: Tensor, c: Tensor, candidates: Sequence[Terms], blocks: Sequence[int]
    ) -> Regressions:
        """Return the least-squares regressions of values (n, V), their terms chosen by the BIC.

        Blocks are how many columns of values belong together and have the same terms. The first candidate always
        counts, the others where there are people enough.
        """
        whole = values - values.mean(0)
        least = _ROUNDING * whole.square().mean(0) + torch.finfo(values.dtype).tiny
        kept: list[Terms] = []
        weights, criteria = [], []
        for terms in candidates:
            columns = terms(x, c)
            if kept and _PEOPLE_PER_TERM * columns.shape[1] > len(x):
                continue
            solved = _least_squares(columns, values)
            missed = (values - columns @ solved).square().mean(0).maximum(least)
            cost = _REPEATED * columns.shape[1] * math.log(len(x))
            criteria.append([float(block.sum()) for block in (len(x) * missed.log() + cost).split(list(blocks))])
            kept.append(terms)
            weights.append(solved)
        best = torch.tensor(criteria, dtype=torch.float64).argmin(0)  # (blocks,)
        chosen = best.repeat_interleave(torch.tensor(blocks)).to(values.device)  # (V,)
        used = best.unique().tolist()
        return cls([kept[k] for k in used], [weights[k] * (chosen == k) for k in used])

    def __call__(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the values (n, V) that rows x (n, D) with protected values c (n,) have on average."""
        values = [terms(x, c) @ weights for terms, weights in zip(self.terms, self.weights, strict=True)]
        return torch.stack(values).sum(0)


def bending_terms(own: GroupTerms, features: Sequence[Feature], x: Tensor) -> list[Terms]:
    """Return the terms to choose from for columns of rows x (n, D): straight lines first, then bent ones, products of
    columns, and others in each group."""
    columns = [ColumnTerms.of(features, x, size) for size in (_SIZES if numbers_among(features) else _SIZES[:1])]
    several = [False, True] if len(features) > 1 else [False]
    return [Terms(own, *how) for how in product(columns, several, [False, True])]


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Return all products of a column of a (n, A) and one of b (n, B): (n, A B)."""
    return (a[:, :, None] * b[:, None, :]).flatten(1)


def _least_squares(columns: Tensor, values: Tensor) -> Tensor:
    """Return the coefficients (P, V); of the many where columns depend on each other, the smallest."""
    scale = columns.square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    unit = columns / scale
    gram = unit.T @ unit / len(unit)
    inverse = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10)
    solved: Tensor = inverse @ (unit.T @ values) / len(unit) / scale[:, None]
    return solved
