"""How values depend on some columns, the group the same: by least squares, as bent as it needs to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Feature
from fairfox.maps.ranks import numbers_among
from fairfox.maps.splines import natural_spline, spline_knots

_SIZES = (2, 4, 7, 11)  # knots of every number: a straight line, then more and more bent
_NUMBER_KNOTS = 4  # of the protected number
_PEOPLE_PER_TERM = 20  # for anything beyond the straight lines
_REPEATED = 2.0  # how much heavier a term weighs than by the BIC, since re-fits repeat rows
_ROUNDING = 1e-10  # of a variance


@dataclass(frozen=True)
class Own:
    """A protected variable as terms of a regression: dummies of its classes, or a spline of its number."""

    classes: int = 0
    knots: Tensor | None = None

    @classmethod
    def of(cls, c: Tensor, classes: int) -> Own:
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
class Bent:
    """Columns as terms of a regression that bend a little: as they are, and a spline of each number."""

    features: Sequence[Feature]
    knots: Sequence[Tensor]  # of each number among them

    @classmethod
    def of(cls, features: Sequence[Feature], x: Tensor, size: int = _SIZES[1]) -> Bent:
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

    own: Own
    columns: Bent
    together: bool = False  # columns act on each other: their products
    apart: bool = False  # they act differently in each group
    flat: bool = False  # they do not act at all

    def __call__(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the terms (n, P) of rows x (n, D) with protected values c (n,), both float64."""
        level = self.own.level(c)
        if self.flat:
            return level
        terms = self.columns(x)
        parts = [level, terms]
        if self.together:
            straight = [x[:, f.columns] for f in self.columns.features]
            parts += [_products(a, b) for a, b in combinations(straight, 2)]
        if self.apart:
            parts.append(_products(self.own.tilt(c), terms))
        return torch.cat(parts, dim=1)

    def flattened(self) -> Terms:
        """Return the terms of the own group alone."""
        return replace(self, flat=True)


@dataclass(frozen=True)
class Surfaces:
    """Values as functions of some columns and the own group, each with the terms that it needs."""

    terms: list[Terms]  # those that any value needs
    weights: list[Tensor]  # (P, V) of each, zero for the values that need others

    @classmethod
    def of(cls, values: Tensor, x: Tensor, c: Tensor, candidates: Sequence[Terms], blocks: Sequence[int]) -> Surfaces:
        """Return the least-squares surfaces of values (n, V), their terms chosen by the BIC.

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
            criteria.append([float(part.sum()) for part in (len(x) * missed.log() + cost).split(list(blocks))])
            kept.append(terms)
            weights.append(solved)
        best = torch.tensor(criteria, dtype=torch.float64).argmin(0)  # (blocks,)
        chosen = best.repeat_interleave(torch.tensor(blocks)).to(values.device)  # (V,)
        used = best.unique().tolist()
        return cls([kept[k] for k in used], [weights[k] * (chosen == k) for k in used])

    def __call__(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the values (n, V) that rows x (n, D) with protected values c (n,) have on average."""
        parts = [terms(x, c) @ weights for terms, weights in zip(self.terms, self.weights, strict=True)]
        return torch.stack(parts).sum(0)


def bending_terms(own: Own, features: Sequence[Feature], x: Tensor) -> list[Terms]:
    """Return the terms to choose from for columns of rows x (n, D): straight lines first, then bent ones, products of
    columns, and others in each group."""
    columns = [Bent.of(features, x, size) for size in (_SIZES if numbers_among(features) else _SIZES[:1])]
    several = [False, True] if len(features) > 1 else [False]
    return [Terms(own, *how) for how in product(columns, several, [False, True])]


def fewest_people(terms: Terms) -> int:
    """Return how many people these terms need, as straight lines: two for each."""
    return 2 * (max(terms.own.classes, 2) + sum(f.stop - f.start for f in terms.columns.features))


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
