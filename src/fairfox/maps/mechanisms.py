"""Mechanisms: how a column follows from its parents, learnt from people; the rest is a person's own noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.combinations import expand_blocks
from fairfox.data.dataset import Dataset, Feature
from fairfox.maps.along import Scale
from fairfox.maps.ranks import couple_rows

MechanismKind = Literal["linear", "boosted"]
Mechanism = Callable[
    [Tensor], Tensor
]  # parents (n, P) -> the mean of a number (n, 1), or shares of L categories (n, L)
_FEWEST = 10  # people of a group, to speak of the spread of their noise


@dataclass(frozen=True)
class Cause:
    """A protected variable as a parent: its place in c, and how many classes it has or the scale of its numbers."""

    place: int
    classes: int = 0
    scale: Scale | None = None

    @classmethod
    def of(cls, data: Dataset, place: int) -> Cause:
        """Return a protected variable as the fitting rows show it."""
        p = data.protected[place]
        return cls(place, len(p.levels), Scale.of(data.c[:, place]) if p.is_continuous else None)


@dataclass(frozen=True)
class Node:
    """A column that is acted on: its parents, its mechanism, and what is left of it: the noise."""

    feature: Feature
    parents: Sequence[Feature | Cause]
    mechanism: Mechanism
    explained: float  # the share of the variance that its parents explain
    unevenness: float  # how many times one group's noise spreads as far as another's

    @classmethod
    def of(
        cls,
        feature: Feature,
        parents: Sequence[Feature | Cause],
        data: Dataset,
        variable: int,
        kind: MechanismKind,
        seed: int,
    ) -> Node:
        """Return the node that people show who do not lack its value."""
        data = data[~_lacking(feature, data.x)]
        columns, child = design(parents, data.x, data.c), data.x[:, _value_columns(feature)].double()
        weights = None if data.weights is None else data.weights.double()
        categorical = feature.kind == "categorical"
        mechanism = fit_mechanism(kind, columns, child, categorical=categorical, weights=weights, seed=seed)
        noise = child - mechanism(columns)
        counts = torch.ones_like(noise[:, 0]) if weights is None else weights
        total = _variance(child, counts)
        explained = 1 - _variance(noise, counts) / total if total > 0 else 1.0
        return cls(feature, parents, mechanism, explained, _unevenness(noise, counts, data, variable))

    def expected(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the mean or the shares (n, L) given the parents in rows x (n, D) and c (n, V).

        Parents that are a distribution over categories give the mean over it, as a line does by itself.
        """
        blocks = [p.columns for p in self.parents if isinstance(p, Feature) and p.kind == "categorical"]
        if isinstance(self.mechanism, Linear) or not blocks:
            return self.mechanism(design(self.parents, x, c))
        rows, weights, whose = expand_blocks(x, blocks, seed=0)
        found = self.mechanism(design(self.parents, rows, c[whose]))
        return found.new_zeros(len(x), found.shape[1]).index_add_(0, whose, weights.to(found)[:, None] * found)

    @property
    def columns(self) -> slice:
        """The columns of x that follow."""
        return _value_columns(self.feature)

    def follow(self, x: Tensor, c: Tensor, new_x: Tensor, new_c: Tensor) -> Tensor:
        """Return the values (n, L) of people with rows x and protected values c, once their parents are the new ones.

        The noise stays: x' = x + (mean' - mean). Categories move as little as their shares allow, and what is missing
        stays missing.
        """
        own, new, values = self.expected(x, c), self.expected(new_x, new_c), x[:, self.columns]
        if self.feature.kind == "categorical":
            return couple_rows(values, own, new)
        moved = values + (new - own)
        return (
            torch.where(x[:, self.feature.start + 1, None] > 0.5, values, moved) if self.feature.has_missing else moved
        )


def design(parents: Sequence[Feature | Cause], x: Tensor, c: Tensor) -> Tensor:
    """Return the parents of everyone as float64 columns (n, P), from rows x (n, D) and protected values c (n, V).

    Classes but the first as 0 and 1, numbers in standard deviations, features as they are encoded: a missing number
    is the mean and has its flag, so that what follows from it is what follows for those who lack it.
    """
    columns = []
    for parent in parents:
        if isinstance(parent, Feature):
            columns.append(x[:, parent.columns].double())
        elif parent.scale is not None:
            columns.append(parent.scale(c[:, parent.place])[:, None])
        else:
            columns.append(F.one_hot(c[:, parent.place].long(), parent.classes)[:, 1:].double())
    return torch.cat(columns, dim=1)


def fit_mechanism(
    kind: MechanismKind, parents: Tensor, child: Tensor, *, categorical: bool, weights: Tensor | None, seed: int
) -> Mechanism:
    """Return the mechanism of a child (n, 1), or of a one-hot block (n, L), given its parents (n, P), all float64."""
    if kind == "linear":
        return Linear.of(parents, child, weights)
    return (BoostedShares if categorical else BoostedMean).of(parents, child, weights, seed=seed)


@dataclass(frozen=True)
class Linear:
    """The least-squares line; of a one-hot block, linear probabilities, which sum to one."""

    coefficients: Tensor  # (P, L)
    level: Tensor  # (L,) where all parents are 0

    @classmethod
    def of(cls, parents: Tensor, child: Tensor, weights: Tensor | None) -> Linear:
        """Return the line through people with these parents (n, P) and children (n, L).

        Of the many lines where parents depend on each other, as the columns of a one-hot block do, the flattest.
        """
        root = torch.ones_like(parents[:, :1]) if weights is None else weights.to(parents).sqrt()[:, None]
        design = root * torch.cat([parents, torch.ones_like(parents[:, :1])], dim=1)
        # on the CPU: the solver that knows dependent columns runs nowhere else
        solution = torch.linalg.lstsq(design.cpu(), (root * child).cpu(), driver="gelsd").solution.to(parents)
        return cls(solution[:-1], solution[-1])

    def __call__(self, parents: Tensor) -> Tensor:
        """Return the mean or the shares (n, L) at parents (n, P)."""
        return parents @ self.coefficients.to(parents.device) + self.level.to(parents.device)


@dataclass(frozen=True)
class BoostedMean:
    """The mean of a number by gradient-boosted trees."""

    trees: Any  # HistGradientBoostingRegressor

    @classmethod
    def of(cls, parents: Tensor, child: Tensor, weights: Tensor | None, *, seed: int) -> BoostedMean:
        """Return the trees of people with these parents (n, P) and children (n, 1)."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        return cls(_trained(HistGradientBoostingRegressor(random_state=seed), parents, child[:, 0], weights))

    def __call__(self, parents: Tensor) -> Tensor:
        """Return the mean (n, 1) at parents (n, P)."""
        return torch.as_tensor(self.trees.predict(parents.numpy(force=True))).to(parents)[:, None]


@dataclass(frozen=True)
class BoostedShares:
    """The shares of categories by gradient-boosted trees."""

    trees: Any  # HistGradientBoostingClassifier; None where there is one category only
    seen: Tensor  # which categories there are
    levels: int

    @classmethod
    def of(cls, parents: Tensor, child: Tensor, weights: Tensor | None, *, seed: int) -> BoostedShares:
        """Return the trees of people with these parents (n, P) and one-hot children (n, L)."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        code = child.argmax(1)
        seen = code.unique()
        trees = HistGradientBoostingClassifier(random_state=seed) if len(seen) > 1 else None
        return cls(trees and _trained(trees, parents, code, weights), seen, child.shape[1])

    def __call__(self, parents: Tensor) -> Tensor:
        """Return the shares (n, L) at parents (n, P)."""
        out = parents.new_zeros(len(parents), self.levels)
        found = torch.ones(len(parents), 1)
        if self.trees is not None:
            found = torch.as_tensor(self.trees.predict_proba(parents.numpy(force=True)))
        out[:, self.seen.to(out.device)] = found.to(out)
        return out


def _trained(trees: Any, parents: Tensor, child: Tensor, weights: Tensor | None) -> Any:
    counts = None if weights is None else weights.numpy(force=True)
    return trees.fit(parents.numpy(force=True), child.numpy(force=True), sample_weight=counts)


def _value_columns(feature: Feature) -> slice:
    """Return the columns with a feature's values, without the flag of a missing number."""
    return feature.columns if feature.kind == "categorical" else slice(feature.start, feature.start + 1)


def _lacking(feature: Feature, x: Tensor) -> Tensor:
    """Return who has no value of a feature (n,) bool: a missing number, or a category that the encoding never saw."""
    if feature.kind == "categorical":
        return x[:, feature.columns].sum(1) == 0
    return x[:, feature.start + 1] > 0.5 if feature.has_missing else torch.zeros_like(x[:, 0], dtype=torch.bool)


def _variance(values: Tensor, counts: Tensor) -> float:
    """Return the variance of values (n, L), which stand for so many people each, summed over the columns."""
    share = (counts / counts.sum())[:, None]
    return float((share * (values - (share * values).sum(0)).square()).sum())


def _unevenness(noise: Tensor, counts: Tensor, data: Dataset, variable: int) -> float:
    """Return the largest standard deviation of a group's noise (n, L) over the smallest; of a number: of two halves."""
    c = data.c[:, variable]
    group = (c > c.median()).long() if data.protected[variable].is_continuous else c.long()
    parts = [group == g for g in group.unique()]
    spreads = [_variance(noise[part], counts[part]) ** 0.5 for part in parts if float(counts[part].sum()) >= _FEWEST]
    return max(spreads) / min(spreads) if len(spreads) > 1 and min(spreads) > 0 else 1.0
