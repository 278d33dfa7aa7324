"""Counterfactual maps that were tried beside the library's, one idea each: small, and measured, so that nobody wonders.

Groups alone: none of them takes a protected variable that is a number. Unlike the library's they take what is withheld
for a column like any other. Who goes nowhere, or whose group is unknown, keeps their row and is abstained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset, Feature, missing_columns, project_blocks
from fairfox.explain import group_distance
from fairfox.maps.columns import outside
from fairfox.maps.protocol import (
    UNKNOWN,
    ManyGroupMap,
    Mapped,
    Pair,
    check_groups_present,
    check_is_grouped,
    compared_pairs,
    where_to,
    who_counts,
)
from fairfox.maps.ranks import couple_rows, kept_missing

_CELLS = 2**24  # of distances or neighbours that are worked on at once


@dataclass
class MeanOf:
    """The mean of several maps' rows: errors of maps that rest on different ideas may cancel."""

    maps: Sequence[ManyGroupMap]
    variable: int = 0

    def fit(self, data: Dataset) -> Self:
        """Fit all maps."""
        for one in self.maps:
            _fit(one, data, self.variable)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return the mean row of everyone whom all maps take to the other group."""
        each = [one.map(data, where_to(data, self.variable, to)) for one in self.maps]
        stay = torch.stack([mapped.abstained for mapped in each]).any(0)
        reasons = dict.fromkeys(mapped.reason for mapped in each if bool(mapped.abstained.any()))
        return _mapped(data, torch.stack([mapped.rows for mapped in each]).mean(0), stay, " or ".join(reasons))


@dataclass
class NearReal:
    """The mean of the real people of the other group who are nearest to a mapped row: nobody leaves the data."""

    of: ManyGroupMap
    k: int = 10
    most: int = 4_000  # fitting people of each group who may be near
    seed: int = 0
    variable: int = 0
    scale: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)  # (D,)
    groups: list[Tensor] = field(default_factory=list, init=False, repr=False)  # (n, D) each

    def fit(self, data: Dataset) -> Self:
        """Fit the map, and keep the people of each group."""
        _fit(self.of, data, self.variable)
        self.scale, self.groups = _scaled_groups(data, self.variable, self.most, self.seed)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return the mean of the k real people nearest to where the map takes everyone."""
        to = where_to(data, self.variable, to)
        mapped = self.of.map(data, to)
        rows = mapped.rows.clone()
        for (_, other), people in _routes(data.c[:, self.variable], to, mapped.abstained):
            there = self.groups[other]
            rows[people] = _mean_of_nearest(rows[people] / self.scale, there, there, self.k) * self.scale
        return _mapped(data, rows, mapped.abstained, mapped.reason)


@dataclass
class Smoothed:
    """Everyone displaced as people of the own group who are like them are on average: like people, like ways."""

    of: ManyGroupMap
    k: int = 20
    most: int = 4_000  # fitting people of each group who may be near
    seed: int = 0
    variable: int = 0
    scale: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)  # (D,)
    ways: dict[Pair, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)  # (n, D): from, by

    def fit(self, data: Dataset) -> Self:
        """Fit the map, and keep how it displaces the fitting people wherever they may go."""
        _fit(self.of, data, self.variable)
        self.scale, self.ways = _scale(data), {}
        data = data[_sampled(data.c[:, self.variable], self.most, self.seed)]
        for contrast in moves(data.protected):
            if contrast.variable == self.variable:
                to = destinations(data, contrast)
                mapped = self.of.map(data, to)
                for pair, people in _routes(data.c[:, self.variable], to, mapped.abstained):
                    self.ways[pair] = data.x[people] / self.scale, (mapped.rows - data.x)[people]
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone after the mean displacement of the k fitting people nearest to them."""
        to = where_to(data, self.variable, to)
        mapped = self.of.map(data, to)  # says who can be mapped
        rows, stay = data.x.clone(), mapped.abstained.clone()
        for pair, people in _routes(data.c[:, self.variable], to, mapped.abstained):
            if pair in self.ways:
                rows[people] += _mean_of_nearest(data.x[people] / self.scale, *self.ways[pair], self.k)
            else:
                stay[people] = True
        return _mapped(data, rows, stay, mapped.reason or UNKNOWN)


Rotations = Callable[[Tensor], Iterable[Tensor]]  # distances from the group's mean (n, D) -> orthogonal (D, D), in turn


def principal_axes(centred: Tensor) -> list[Tensor]:
    """Return the principal axes of the covariance within groups."""
    wide = centred.double()
    return [torch.linalg.eigh(wide.T @ wide).eigenvectors.to(centred)]


def random_axes(rounds: int, seed: int) -> Rotations:
    """Return so many random rotations, whatever the people."""

    def rotations(centred: Tensor) -> Iterator[Tensor]:
        generator, size = torch.Generator().manual_seed(seed), centred.shape[1]
        for _ in range(rounds):
            yield torch.linalg.qr(torch.randn(size, size, generator=generator)).Q.to(centred)

    return rotations


@dataclass
class RotatedRank:
    """The same rank along other axes than the columns, those of one rotation after the other.

    Along the principal axes within groups, what is correlated moves together. After many random rotations the mapped
    people have the joint distribution of the other group (iterative distribution transfer), not each feature's alone.
    """

    rotations: Rotations = principal_axes
    most: int = 4_000  # fitting people of each group
    seed: int = 0
    variable: int = 0
    scale: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)  # (D,)
    groups: list[Tensor] = field(default_factory=list, init=False, repr=False)  # (n, D) each
    axes: list[Tensor] = field(default_factory=list, init=False, repr=False)  # (D, D) each

    def fit(self, data: Dataset) -> Self:
        """Keep the people of each group, and find the axes."""
        self.scale, self.groups = _scaled_groups(data, self.variable, self.most, self.seed)
        self.axes = list(self.rotations(torch.cat([group - group.mean(0) for group in self.groups])))
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone after each rotation's rank coupling, which moves the fitting people along."""
        c, to = data.c[:, self.variable], where_to(data, self.variable, to)
        rows, stay = data.x.clone(), _stays(c, to)
        for (own, other), people in _routes(c, to, stay):
            here, there = self.groups[own], self.groups[other]
            moving = torch.cat([here, data.x[people] / self.scale])
            for left, axes in zip(range(len(self.axes) - 1, -1, -1), self.axes, strict=True):
                turned = moving @ axes
                asked = turned if left else turned[len(here) :]  # the fitting people need not arrive
                moving = same_rank(asked, turned[: len(here)], there @ axes) @ axes.T
            rows[people] = moving * self.scale
        return _mapped(data, rows, stay)


def iterated_rank(rounds: int = 8, seed: int = 0, most: int = 3_000) -> RotatedRank:
    """Return rank coupling along the axes of random rotations, one after the other."""
    return RotatedRank(random_axes(rounds, seed), most, seed)


@dataclass
class SequentialRank:
    """Feature after feature, each with the rank it has given those before it (sequential transport).

    Those come first in which two groups differ most. A feature is a line in the earlier ones and a residual, for each
    group; the residual keeps its rank, and is added to the other group's line where the earlier ones went. Categories
    are coupled from the shares that the one line gives to those that the other gives.
    """

    ridge: float = 0.01  # of a variance, added to each: a feature may be a line in the others, or almost
    most: int = 4_000  # fitting people of each group
    seed: int = 0
    variable: int = 0
    scale: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)  # (D,)
    orders: dict[Pair, Order] = field(default_factory=dict, init=False, repr=False)  # of two classes, lower first

    def fit(self, data: Dataset) -> Self:
        """Find the order of features and both groups' lines, for every two groups that are compared."""
        self.scale, groups = _scaled_groups(data, self.variable, self.most, self.seed)
        pairs = {(min(pair), max(pair)) for pair in compared_pairs(data.protected[self.variable])}
        self.orders = {(a, b): Order.of(groups[a], groups[b], data.features, self.ridge) for a, b in sorted(pairs)}
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone with their residuals' ranks."""
        c, to = data.c[:, self.variable], where_to(data, self.variable, to)
        rows, stay = data.x.clone(), _stays(c, to)
        for (own, other), people in _routes(c, to, stay):
            order = self.orders.get((min(own, other), max(own, other)))
            if order is None:  # not compared
                stay[people] = True
                continue
            lines = order.lines if own < other else order.lines[::-1]
            moved = follow((data.x[people] / self.scale)[:, order.columns].double(), *lines, order.features)
            rows[people[:, None], order.columns] = moved.to(rows) * self.scale[order.columns]
        return _mapped(data, rows, stay)


@dataclass(frozen=True)
class Order:
    """In which order features are mapped between two groups, and both groups' lines in that order."""

    features: list[Feature]  # with their new places
    columns: Tensor  # (D,) which stand there
    lines: tuple[Lines, Lines]

    @classmethod
    def of(cls, low: Tensor, high: Tensor, features: Sequence[Feature], ridge: float) -> Order:
        """Return the order of the features of rows (n, D) and (m, D): those that differ most come first."""
        ordered: list[Feature] = []
        columns: list[int] = []
        for place in group_distance(low, high, features).argsort(descending=True, stable=True).tolist():
            f = features[place]
            ordered.append(replace(f, start=len(columns), stop=len(columns) + f.stop - f.start))
            columns += range(f.start, f.stop)
        at = torch.tensor(columns, device=low.device)
        return cls(ordered, at, (Lines.of(low[:, at].double(), ridge), Lines.of(high[:, at].double(), ridge)))


@dataclass(frozen=True)
class Lines:
    """A group's columns, each a line in the residuals of those before it, and the people's residuals."""

    centre: Tensor  # (D,)
    slopes: Tensor  # (D, D), ones on the diagonal and nothing above: x = centre + slopes residual
    residuals: Tensor  # (n, D)

    @classmethod
    def of(cls, rows: Tensor, ridge: float) -> Lines:
        """Return the least-squares lines of rows (n, D): a Cholesky factor is all of these regressions at once."""
        centre = rows.mean(0)
        covariance = (rows - centre).T @ (rows - centre) / len(rows)
        root = torch.linalg.cholesky(covariance + ridge * torch.eye(len(centre)).to(rows))
        slopes = root / root.diagonal()
        return cls(centre, slopes, _unexplained(slopes, rows - centre))


def follow(x: Tensor, own: Lines, other: Lines, features: Sequence[Feature]) -> Tensor:
    """Return rows x (k, D) of one group in the other, feature after feature."""
    here = _unexplained(own.slopes, x - own.centre)
    there = same_rank(here, own.residuals, other.residuals)
    for f in features:
        if f.kind == "categorical":
            at, before = f.columns, slice(0, f.start)
            shares = own.centre[at] + here[:, before] @ own.slopes[at, before].T
            expected = other.centre[at] + there[:, before] @ other.slopes[at, before].T
            coupled = couple_rows(x[:, at], shares, expected)
            there[:, at] = _unexplained(other.slopes[at, at], coupled - expected)
    return other.centre + there @ other.slopes.T


def same_rank(x: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Return the numbers x (k, D), whose mid-ranks are those among `own` (n, D), as values of `other` (m, D)."""
    at = x.T.contiguous()
    ordered, there = (group.T.contiguous().sort(dim=1).values for group in (own, other))
    twice = torch.searchsorted(ordered, at) + torch.searchsorted(ordered, at, right=True)  # (D, k)
    place = (twice * len(other)).div_(2 * len(own), rounding_mode="floor").clamp_(max=len(other) - 1)
    return there.gather(1, place).T


def _unexplained(slopes: Tensor, centred: Tensor) -> Tensor:
    """Return the residuals (n, D) of rows less their centre."""
    solved: Tensor = torch.linalg.solve_triangular(slopes, centred.T, upper=False, unitriangular=True)
    return solved.T


def _fit(one: ManyGroupMap, data: Dataset, variable: int) -> None:
    check_is_grouped(data.protected[variable], "this map")
    one.variable = variable
    one.fit(data)


def _stays(c: Tensor, to: Tensor) -> Tensor:
    return c.isnan() | to.isnan() | (to == c)


def _routes(c: Tensor, to: Tensor, stay: Tensor) -> list[tuple[Pair, Tensor]]:
    """Return the numbers of the rows that go from a class to another."""
    pairs = torch.stack([c, to], dim=1)[~stay].unique(dim=0).long().tolist()
    return [((own, other), ((c == own) & (to == other) & ~stay).nonzero()[:, 0]) for own, other in pairs]


def _mapped(data: Dataset, rows: Tensor, stay: Tensor, reason: str = UNKNOWN) -> Mapped:
    """Return rows (N, D) with one-hot blocks on the simplex; who is abstained and what is missing stays."""
    left = outside(rows, data.features)
    rows = kept_missing(project_blocks(rows, data.features), data.x, data.features)
    still = stay[:, None] | missing_columns(data).to(stay.device)
    return Mapped(torch.where(still, data.x, rows), stay, reason if bool(stay.any()) else "", left)


def _scale(data: Dataset) -> Tensor:
    """Return the standard deviation of every number (D,); 1 for categories and what never varies."""
    scale = torch.ones_like(data.x[0])
    numbers = [f.start for f in data.features if f.kind == "continuous"]
    spread = data.x[:, numbers].std(dim=0, correction=0)
    scale[numbers] = torch.where(spread > 1e-6, spread, 1.0)
    return scale


def _sampled(c: Tensor, most: int, seed: int) -> Tensor:
    """Return the numbers of so many rows of each class at most, by lot; of none whose class is unknown."""
    order = torch.randperm(len(c), generator=torch.Generator().manual_seed(seed)).to(c.device)
    return torch.cat([order[c[order] == code][:most] for code in c[~c.isnan()].unique()])


def _scaled_groups(data: Dataset, variable: int, most: int, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Return the scale of columns (D,), and some people of each class in that scale."""
    p = data.protected[variable]
    check_is_grouped(p, "this map")
    data = who_counts(data, [variable])
    check_groups_present(data, variable)
    scale, some = _scale(data), data[_sampled(data.c[:, variable], most, seed)]
    return scale, [some.x[some.c[:, variable] == code] / scale for code in range(len(p.levels))]


def _mean_of_nearest(x: Tensor, among: Tensor, values: Tensor, k: int) -> Tensor:
    """Return for each row x (n, D) the mean of the values (m, D) of the k nearest rows among others, by blocks."""
    k = min(k, len(among))
    blocks = x.split(max(_CELLS // max(len(among), k * x.shape[1]), 1))
    places = (torch.cdist(block, among).topk(k, largest=False).indices for block in blocks)  # (block, k)
    return torch.cat([values[place].mean(1) for place in places])
