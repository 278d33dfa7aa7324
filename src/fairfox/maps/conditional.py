"""Conditional ranks: a value keeps its rank among people of the same group and given values.

T(x) = Q(R(x | c, w) | c', w'), for what is given (w' = w), for parents in a causal graph, which have changed before,
and for a protected number c. Numbers are x = mean + spread z, both regressed on (c, w): z keeps its rank in the group.
Numbers with few values, or with one that many people share, are cut into steps; the shares of these steps, and of the
levels of categories, come from a logistic regression on (c, w). Fits are scikit-learn's, kept as tensors. Values stay
within the range of the other group.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ColumnError, OptionError, did_you_mean
from fairfox.gradients.alignment import eigen
from fairfox.maps.ranks import (
    ColumnDraw,
    Draws,
    Ranks,
    Scale,
    as_shares,
    couple_rows,
    distinct_values,
    nearest_shown,
    present_rows,
)

_KNOTS = 8  # of every number
_BEYOND = 10  # people beyond the outermost knots on either side, but no more than a twentieth
_PENALTY = 0.1  # of the ridge; of the logistic regression ten times as much
_MOST_STEPS, _SPIKE = 30, 0.05  # values of an ordered category; the share of one value that makes a number one
_RARE = 0.002  # the share of people that a step has at least: rarer values are one with the next
_LEAST = 0.1  # of the mean spread
_TURNS = 5  # how often the group may change along a number that tells it
_EXACT = 1 - 1e-6  # correlation of two numbers that say the same
_NEVER = -1e9  # the logit of what nobody has
_MOST_PRODUCTS, _PEOPLE_EACH = 200, 10  # products of given columns, and people for each of them
_SPLINE, _LACKING = -1, -2  # in place of a feature's number: columns of no levels, and who lacks a number
_REPEATED = 2.0  # how much heavier a term weighs than by the BIC, since refits repeat rows
_ROUNDING = 1e-12  # of a variance
_NEWTON = 2e9  # multiplications of a step by Newton's method, which few steps bring to the end; more cost too much


@dataclass(frozen=True)
class Spline:
    """Natural cubic splines of a number, uncorrelated and with unit variance among the people they were made for."""

    scale: Scale
    knots: Tensor  # in standard deviations
    mixing: Tensor  # (k - 1, r) from the plain basis

    @classmethod
    def of(cls, values: Tensor) -> Spline:
        """Return the splines of some values (n,), of which some may be NaN."""
        values = values[~values.isnan()]
        scale = Scale.of(values)
        knots = spline_knots(scale(values))
        basis = natural_spline(scale(values), knots)
        sizes, directions = eigen((basis - basis.mean(0)).T @ (basis - basis.mean(0)) / len(basis))
        kept = sizes > 1e-10 * sizes.max().clamp(min=1e-30)
        return cls(scale, knots, directions[:, kept] / sizes[kept].sqrt())

    def __call__(self, values: Tensor) -> Tensor:
        """Return the splines (n, r) at values (n,)."""
        return natural_spline(self.scale(values), self.knots) @ self.mixing


@dataclass(frozen=True)
class Terms:
    """The terms of a regression: a group and columns of people's rows, with their products.

    The group is a class, or a number where there are no classes.
    """

    classes: int
    own: Spline | None  # of a number
    features: Sequence[Feature]
    splines: Sequence[Spline]  # of each number among them
    pairs: Tensor  # (2, P) columns, numbers as straight lines, whose products are terms
    differences: Sequence[Tensor]  # (C, Q) each, for all groups but the first: what is multiplied with them

    @classmethod
    def of(cls, group: Tensor, classes: int, features: Sequence[Feature], rows: Tensor) -> Terms:
        """Return the terms for groups (n,) and some features of rows (n, D)."""
        numbers = [f for f in features if f.kind == "continuous"]
        own, none = None if classes else Spline.of(group), torch.zeros(2, 0, dtype=torch.long)
        plain = cls(classes, own, list(features), [Spline.of(rows[:, f.start]) for f in numbers], none, [])
        lines, given, levels = plain._columns(rows)
        has = torch.ones(classes or 2, given.shape[1], dtype=torch.bool, device=rows.device)
        for g in range(classes):
            has[g] = ((given[group == g] > 0.5) | (levels == _SPLINE)).any(0)
        # a level that a group has and none before it says what its own column says
        shared = [has[g] & has[:g].any(0) for g in range(1, len(has))]
        differences = [_from_mean(given.nanmean(0), levels, own) for own in shared]
        return replace(plain, pairs=_pairs_shown(lines).to(rows.device), differences=differences)

    def __call__(self, group: Tensor, rows: Tensor) -> Tensor:
        """Return the terms (n, P) of people, without a constant."""
        return torch.cat(self._blocks(group, rows), dim=1)

    @property
    def sizes(self) -> list[int]:
        """How many terms a regression may take: group and columns; products of columns too; those with the group."""
        width = max((f.stop for f in self.features), default=0)
        nobody = torch.zeros(1, width, dtype=torch.float64, device=self.pairs.device)
        widths = torch.tensor([block.shape[1] for block in self._blocks(nobody.new_zeros(1), nobody)])
        return list(dict.fromkeys(widths.cumsum(0)[1:].tolist()))

    def _blocks(self, group: Tensor, rows: Tensor) -> list[Tensor]:
        """Return group, columns, products of two columns (numbers as straight lines), and those with the group."""
        if self.own is None:
            level = tilt = F.one_hot(group.long(), self.classes)[:, 1:].to(rows)
        else:
            level, tilt = self.own(group).to(rows), group[:, None].to(rows)
        lines, given, _ = self._columns(rows)
        straight = torch.cat([rows[:, :0], *lines], dim=1)
        both = straight[:, self.pairs[0]] * straight[:, self.pairs[1]]
        own = [tilt[:, i, None] * (given @ each) for i, each in enumerate(self.differences)]
        return [level, given, both, torch.cat([rows[:, :0], *own], dim=1)]

    def _columns(self, rows: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return each feature as straight lines; all as splines and levels (n, C); and whose levels these are (C,)."""
        splines, columns, lines, levels = iter(self.splines), [rows[:, :0]], [], []
        for i, f in enumerate(self.features):
            if f.kind == "categorical":
                columns.append(rows[:, f.columns])
                lines.append(rows[:, f.columns])
            else:
                spline = next(splines)
                columns += [spline(rows[:, f.start]), rows[:, f.start + 1 : f.stop]]
                lines.append(spline.scale(rows[:, f.start])[:, None])
                levels += [_SPLINE] * columns[-2].shape[1]
            levels += [i if f.kind == "categorical" else _LACKING] * columns[-1].shape[1]
        return lines, torch.cat(columns, dim=1), torch.tensor(levels, dtype=torch.long, device=rows.device)


def _from_mean(mean: Tensor, levels: Tensor, kept: Tensor) -> Tensor:
    """Return what makes splines and levels (n, C) into those that are kept (n, Q), categories less their mean (C,).

    The mean is that of people with a level that is kept: who has another gets 0, and so the mean of the others.
    """
    alike = (levels[:, None] == levels) & (levels >= 0) & kept & kept[:, None]
    share = torch.where(alike, mean, 0.0) / (alike.to(mean) @ mean).clamp(min=1e-30)[:, None]
    return (torch.diag(kept.to(mean)) - share)[:, kept]


def _pairs_shown(lines: Sequence[Tensor]) -> Tensor:
    """Return the pairs (2, P) of columns of two blocks that some of the people have both, small blocks first.

    Blocks that would make more pairs than there are people for are left out.
    """
    starts = [0, *accumulate(block.shape[1] for block in lines)]
    found: list[Tensor] = []
    for i, j in sorted(combinations(range(len(lines)), 2), key=lambda p: lines[p[0]].shape[1] * lines[p[1]].shape[1]):
        shown = ((lines[i] != 0).double().T @ (lines[j] != 0).double()).nonzero().T  # (2, P)
        people = min(_MOST_PRODUCTS, len(lines[i]) // _PEOPLE_EACH)
        if sum(each.shape[1] for each in found) + shown.shape[1] <= people:
            found.append(shown + shown.new_tensor([[starts[i]], [starts[j]]]))
    return torch.cat(found, dim=1) if found else torch.zeros(2, 0, dtype=torch.long)


@dataclass(frozen=True)
class Regressed:
    """How some features depend on the group and on given columns."""

    terms: Terms
    numbers: list[Spread]
    steps: list[Steps]
    categories: list[Levels]

    @property
    def all(self) -> list[Spread | Steps | Levels]:
        """All features."""
        return [*self.numbers, *self.steps, *self.categories]

    @classmethod
    def of(
        cls, rows: Tensor, group: Tensor, classes: int, given: Sequence[Feature], features: Sequence[Feature]
    ) -> Regressed:
        """Return what rows (n, D), float64, of people in groups (n,) show."""
        terms = Terms.of(group, classes, given, rows)
        columns = terms(group, rows)
        sizes, known = terms.sizes, ~columns.isnan().any(1)
        found = cls(terms, [], [], [])
        for f in features:
            there = present_rows(rows, f) & known
            if int(there.sum()) < 2:
                continue
            own, x, values = group[there] if classes else torch.zeros_like(group[there]), columns[there], rows[there]
            if f.kind == "categorical":
                found.categories.append(Levels.of(f, values[:, f.columns], x, sizes, own, max(classes, 1)))
            elif is_stepped(values[:, f.start]):
                found.steps.append(Steps.of(f, values[:, f.start], x, sizes, own, max(classes, 1)))
            else:
                found.numbers.append(Spread.of(f, values[:, f.start], x, sizes, own, max(classes, 1)))
        return found

    def moved(self, rows: Tensor, here: Tensor, after: Tensor, there: Tensor, draws: Draws | None = None) -> Tensor:
        """Return rows (n, D) in the groups `there` (n,), given columns as they are in `after`; groups are `here` now.

        Only the features are set. What is missing stays missing, and so does who is in a group that never shows it.
        """
        own, new = self.terms(here, rows), self.terms(there, after)
        lacking = own.isnan().any(1) | new.isnan().any(1)
        own, new = own.nan_to_num(), new.nan_to_num()
        if not self.terms.classes:
            here = there = torch.zeros_like(here)
        out = rows.clone()
        for each in self.all:
            f = each.feature
            stop = f.stop if f.kind == "categorical" else f.start + 1
            values = each.moved(rows, own, new, here.long(), there.long(), None if draws is None else draws[f.start])
            known = ~lacking & present_rows(rows, f) & each.seen[here.long()] & each.seen[there.long()]
            out[:, f.start : stop] = torch.where(known[:, None], values, rows[:, f.start : stop])
        return out


def single_precision(z: Tensor) -> Tensor:
    """Return numbers in single precision, so that rounding does not depend on who else is in the batch."""
    return z.float().to(z)


@dataclass(frozen=True)
class Spread:
    """A number as mean + spread z; z keeps its rank."""

    feature: Feature
    mean: Tensor  # (P + 1,) coefficients, the constant last
    spread: Tensor
    floor: Tensor  # the least spread
    ranks: list[Ranks | None]  # of z in each group
    shown: list[Tensor]  # the values of each group, in order
    seen: Tensor  # (groups,) bool: which groups show the feature

    @classmethod
    def of(
        cls, feature: Feature, values: Tensor, terms: Tensor, sizes: Sequence[int], group: Tensor, groups: int
    ) -> Spread:
        """Return what values (n,) at terms (n, P) show."""
        mean, spread, floor = location_and_scale(terms, values, sizes)
        z = single_precision((values - at(terms, mean)) / at(terms, spread).maximum(floor))
        each = [group == g for g in range(groups)]
        ranks = [Ranks.of(z[own]) if bool(own.any()) else None for own in each]
        shown = [values[own].unique() for own in each]
        return cls(feature, mean, spread, floor, ranks, shown, torch.stack([own.any() for own in each]))

    def moved(
        self, rows: Tensor, own: Tensor, new: Tensor, here: Tensor, there: Tensor, draw: ColumnDraw | None = None
    ) -> Tensor:
        """Return the values (n, 1) for terms before and after."""
        z = single_precision(
            (rows[:, self.feature.start] - at(own, self.mean)) / at(own, self.spread).maximum(self.floor)
        )
        for g, h in torch.stack([here, there], dim=1).unique(dim=0).tolist():
            mine, theirs = self.ranks[g], self.ranks[h]
            if (g != h or draw is not None) and mine is not None and theirs is not None:
                who = ((here == g) & (there == h)).nonzero()[:, 0]
                z[who] = mine.same_rank(z[who], theirs, draw=None if draw is None else draw.taken(who))
        return nearest_shown(at(new, self.mean) + at(new, self.spread).maximum(self.floor) * z, there, self.shown)


@dataclass(frozen=True)
class Steps:
    """A number cut into steps whose shares are regressed: a value keeps its rank over them."""

    feature: Feature
    cuts: Tensor  # (B - 1,) the highest value of each step but the last
    ordered: Tensor  # (n,) all values in order
    start: Tensor  # (B,) how many values lie below each step
    size: Tensor  # (B,) how many it has
    shares: Tensor  # (P + 1, B) coefficients
    has: Tensor  # (groups, B) bool: the steps that each group shows
    shown: list[Tensor]
    seen: Tensor

    @classmethod
    def of(
        cls, feature: Feature, values: Tensor, terms: Tensor, sizes: Sequence[int], group: Tensor, groups: int
    ) -> Steps:
        """Return what values (n,) at terms (n, P) show: each value a step where they are few."""
        cuts = step_cuts(values)
        step = torch.bucketize(values.contiguous(), cuts)
        size = torch.bincount(step, minlength=len(cuts) + 1)
        has = torch.zeros(groups, len(cuts) + 1, dtype=torch.bool, device=values.device)
        has[group.long(), step] = True
        shown = [values[group == g].unique() for g in range(groups)]
        shares = logistic(terms, step, len(cuts) + 1, sizes)
        return cls(feature, cuts, values.sort().values, size.cumsum(0) - size, size, shares, has, shown, has.any(1))

    def moved(
        self, rows: Tensor, own: Tensor, new: Tensor, here: Tensor, there: Tensor, draw: ColumnDraw | None = None
    ) -> Tensor:
        """Return the values (n, 1) for terms before and after; of equal values the middle one counts."""
        x = rows[:, self.feature.start].contiguous()
        before, after = (
            as_shares(at(terms, self.shares).softmax(1) * self.has[g]) for terms, g in ((own, here), (new, there))
        )
        step = torch.bucketize(x, self.cuts)[:, None]  # (n, 1)
        low, high = (torch.searchsorted(self.ordered, x, right=side) for side in (False, True))
        middle = low + (0.5 if draw is None else draw.uniform) * (high - low)
        inside = ((middle - self.start[step[:, 0]]) / self.size[step[:, 0]]).clamp(0, 1)[:, None]
        rank = (before.cumsum(1) - before).gather(1, step) + inside * before.gather(1, step)
        rank = rank if draw is None else draw.rank(rank[:, 0])[:, None]
        ends = after.cumsum(1)
        last = self.has[there].long().cumsum(1).argmax(1, keepdim=True)  # the highest step that the group shows
        to = (ends <= rank + 1e-9).sum(1, keepdim=True).minimum(last)
        share = after.gather(1, to)
        place = (rank - (ends.gather(1, to) - share)) / torch.where(share > 0, share, 1.0)
        position = (place.clamp(0, 1) * self.size[to] + 1e-9).long().minimum(self.size[to] - 1)
        return nearest_shown(self.ordered[(self.start[to] + position)[:, 0]], there, self.shown)


@dataclass(frozen=True)
class Levels:
    """A category whose shares are regressed: it moves as little as they allow."""

    feature: Feature
    shares: Tensor  # (P + 1, L) coefficients
    has: Tensor  # (groups, L) bool: the levels that each group shows
    seen: Tensor

    @classmethod
    def of(
        cls, feature: Feature, block: Tensor, terms: Tensor, sizes: Sequence[int], group: Tensor, groups: int
    ) -> Levels:
        """Return what a block (n, L) at terms (n, P) shows."""
        level = block.argmax(1)
        has = torch.zeros(groups, block.shape[1], dtype=torch.bool, device=block.device)
        has[group.long(), level] = True
        return cls(feature, logistic(terms, level, block.shape[1], sizes), has, has.any(1))

    def moved(
        self, rows: Tensor, own: Tensor, new: Tensor, here: Tensor, there: Tensor, draw: ColumnDraw | None = None
    ) -> Tensor:
        """Return the block (n, L) for terms before and after."""
        p, q = (at(terms, self.shares).softmax(1) * self.has[g] for terms, g in ((own, here), (new, there)))
        coupled = couple_rows(rows[:, self.feature.columns], p, q)
        return coupled if draw is None else draw.category(coupled, as_shares(q))


# --- Regressions ---------------------------------------------------------------------------------------------------


def location_and_scale(
    terms: Tensor, values: Tensor, sizes: Sequence[int], counts: np.ndarray | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the coefficients of the mean of values (n,) and of their spread, and the least spread."""
    mean = ridge(terms, values, sizes, counts)
    size = (values - at(terms, mean)).abs()
    return mean, ridge(terms, size, sizes, counts), (_LEAST * size.mean()).clamp(min=1e-30)


def ridge(terms: Tensor, values: Tensor, sizes: Sequence[int], counts: np.ndarray | None = None) -> Tensor:
    """Return the coefficients (P + 1,) of values (n,) on terms (n, P), the constant last; people count (n,) each.

    How many terms count, of some sizes, the BIC decides.
    """
    from sklearn.linear_model import Ridge

    x, y = terms.numpy(force=True), values.numpy(force=True)
    found, best = None, math.inf
    for size in sizes:
        fitted = Ridge(alpha=_PENALTY).fit(x[:, :size], y, sample_weight=counts) if size else None
        missed = y - (np.average(y, weights=counts) if fitted is None else fitted.predict(x[:, :size]))
        cost = len(y) * math.log(max(float((missed**2).mean()), _ROUNDING * float(y.var()) + 1e-300))
        cost += _REPEATED * size * math.log(len(y))
        if cost < best:
            best, out = cost, terms.new_zeros(x.shape[1] + 1)
            out[:size] = torch.as_tensor(fitted.coef_).to(out) if fitted is not None else out[:size]
            out[-1] = float(np.average(y, weights=counts) if fitted is None else fitted.intercept_)
            found = out
    assert found is not None
    return found


def logistic(
    terms: Tensor, codes: Tensor, classes: int, sizes: Sequence[int], counts: np.ndarray | None = None
) -> Tensor:
    """Return the coefficients (P + 1, L) of the logits of each class; what nobody has gets no share.

    People count (n,) each, if there is one size.

    How many terms count, of some sizes, the BIC decides.
    """
    seen = codes.unique()
    best, least = _logits_on(terms, codes, classes, seen, sizes[0], counts), math.inf
    if len(sizes) == 1 or len(seen) < 2:
        return best
    for size in sizes:
        price = _REPEATED * size * (len(seen) - 1) * math.log(len(codes))
        if size > sizes[0] and 2 * len(codes) * _least_loss(terms, codes) + price > least:
            continue  # whatever they explain, the products cost more
        found = best if size == sizes[0] else _logits_on(terms, codes, classes, seen, size)
        cost = 2 * len(codes) * float(F.cross_entropy(at(terms, found), codes)) + price
        if cost < least:
            best, least = found, cost
    return best


def _least_loss(terms: Tensor, codes: Tensor) -> float:
    """Return the least cross-entropy that any model can have: that of the shares among people with the same terms."""
    alike = terms.unique(dim=0, return_inverse=True)[1]
    each = torch.stack([alike, codes], dim=1).unique(dim=0, return_inverse=True)[1]
    share = torch.bincount(each)[each].to(terms) / torch.bincount(alike)[alike]
    return -float(share.log().mean())


def _logits_on(
    terms: Tensor, codes: Tensor, classes: int, seen: Tensor, size: int, counts: np.ndarray | None = None
) -> Tensor:
    """Return the coefficients (P + 1, L) of a logistic regression on the first terms."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    out = terms.new_zeros(terms.shape[1] + 1, classes)
    out[-1] = _NEVER
    weights = None if counts is None else torch.as_tensor(counts, device=codes.device)
    out[-1, seen] = torch.bincount(codes, weights, minlength=classes)[seen].to(out).log()
    if size == 0 or len(seen) < 2:
        return out
    exact = len(codes) * (size * len(seen)) ** 2 <= _NEWTON
    solver = "newton-cholesky" if exact else "lbfgs"
    model = LogisticRegression(C=0.1 / _PENALTY, solver=solver, max_iter=100, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough: the penalty is small
        warnings.simplefilter("ignore", UserWarning)  # few people, many classes
        model.fit(terms[:, :size].numpy(force=True), codes.numpy(force=True), sample_weight=counts)
    weights, constant = (torch.as_tensor(part).to(out) for part in (model.coef_, model.intercept_))
    if len(weights) == 1:  # two classes: the logit of the second
        weights, constant = (torch.cat([torch.zeros_like(part), part]) for part in (weights, constant))
    out[:size, seen], out[-1, seen] = weights.T, constant
    return out


def at(terms: Tensor, coefficients: Tensor) -> Tensor:
    """Return terms (n, P) times coefficients (P + 1, ...), the constant last."""
    return terms @ coefficients[:-1] + coefficients[-1]


def is_stepped(values: Tensor) -> bool:
    """Return whether a number (n,) has few values, or one that many people share: no gain, forty hours."""
    counts = distinct_values(values)[1]
    return len(counts) <= _MOST_STEPS or int(counts.max()) > max(_SPIKE * len(values), 2)


def step_cuts(values: Tensor) -> Tensor:
    """Return the highest value of each step but the last: few values are a step each, if people enough have them."""
    ordered = values.sort().values
    ends, counts = ordered.unique_consecutive(return_counts=True)
    if len(ends) > _MOST_STEPS:
        places = (torch.arange(1, _MOST_STEPS, device=values.device) * len(ordered)) // _MOST_STEPS
        several: Tensor = torch.cat([ordered[places], ordered[-1:]]).unique()
        return several[:-1].contiguous()
    cuts: list[float] = []
    size, left = 0, len(values)
    for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
        size, left = size + count, left - count
        if min(size, left) >= _RARE * len(values):
            cuts, size = [*cuts, end], 0
    return values.new_tensor(cuts)


def natural_spline(values: Tensor, knots: Tensor) -> Tensor:
    """Return the basis (n, k - 1) of cubic splines, straight beyond the outermost of k knots, without a constant."""
    if len(knots) < 2:
        return values[:, None]
    first, before, last = knots[0], knots[-2], knots[-1]

    def cube(knot: Tensor) -> Tensor:
        return (values - knot).clamp(min=0) ** 3

    bent = [
        (cube(t) + (cube(last) * (before - t) - cube(before) * (last - t)) / (last - before)) / (last - first) ** 2
        for t in knots[:-2]
    ]
    return torch.stack([values, *bent], dim=1)


def spline_knots(values: Tensor) -> Tensor:
    """Return knots evenly spaced in rank over values (n,): two and more, or none where they are all the same."""
    ordered = values.sort().values
    beyond = min(_BEYOND / len(ordered), 0.05)
    places = (torch.linspace(beyond, 1 - beyond, _KNOTS, dtype=torch.float64) * (len(ordered) - 1)).round().long()
    knots: Tensor = ordered[places.to(ordered.device)].unique()
    return knots if len(knots) > 1 else torch.stack([ordered[0], ordered[-1]]).unique()


# --- What people are compared by ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """The features x, the covariates w and the protected variables c of people side by side, as one table."""

    features: tuple[Feature, ...]  # of x, with the same places
    covariates: tuple[Feature, ...]
    protected: tuple[Feature, ...]
    scales: tuple[Scale | None, ...]  # of protected numbers

    @classmethod
    def of(cls, data: Dataset, names: Sequence[str]) -> Columns:
        """Return the columns of some people, with the covariates where one of the names is among them."""
        start = data.x.shape[1]
        outside = data.covariates if any(f.name in names for f in data.covariates) else ()
        covariates = tuple(replace(f, start=start + f.start, stop=start + f.stop) for f in outside)
        start = covariates[-1].stop if covariates else start
        protected: list[Feature] = []
        for p in data.protected:
            width = max(len(p.levels), 1)
            kind = "continuous" if p.is_continuous else "categorical"
            protected.append(Feature(p.name, kind, start, start + width, p.levels))  # type: ignore[arg-type]
            start += width
        scales = tuple(Scale.of(data.c[:, v]) if p.is_continuous else None for v, p in enumerate(data.protected))
        return cls(data.features, covariates, tuple(protected), scales)

    def rows(self, data: Dataset) -> Tensor:
        """Return everyone's row (N, D + W + ...), in float64; who is in no known class has an empty block."""
        parts = [data.x.double()]
        if self.covariates:
            assert data.w is not None
            parts.append(data.w.double())
        return torch.cat([*parts, self.groups(data.c)], dim=1)

    def groups(self, c: Tensor) -> Tensor:
        """Return the protected values c (N, V) as columns."""
        parts = []
        for f, scale, own in zip(self.protected, self.scales, c.unbind(1), strict=True):
            if scale is not None:
                parts.append(scale(own).nan_to_num()[:, None])
            else:
                parts.append(F.one_hot(own.nan_to_num().long(), f.stop - f.start).double() * ~own.isnan()[:, None])
        return torch.cat(parts, dim=1) if parts else c.double()

    def given(self, data: Dataset, names: Sequence[str]) -> list[Feature]:
        """Return the features of given names, after a look at whether they can be given."""
        named = {f.name: f for f in (*self.covariates, *self.features)}
        return [named[name] for name in check_given_columns(data, names)]


def check_given_columns(data: Dataset, names: Sequence[str]) -> list[str]:
    """Return the given names, each once; refuse those that cannot be given."""
    shown = [f.name for f in data.features if not bool(data.withheld[f.start])]
    known = {*shown, *(f.name for f in data.covariates)}
    read = {text: p.name for p in data.protected for text in (p.name, p.source) if text is not None}
    for name in names:
        if name in read:
            raise OptionError(
                f"'{name}' cannot be given: the protected variable '{read[name]}' is read from it; name other columns"
            )
        if name not in known:
            raise ColumnError(f"The given column '{name}' is not in the table.{did_you_mean(name, sorted(known))}")
    if names and set(shown) <= set(names) and not bool(data.withheld.any()):
        raise OptionError("All columns of the model are given, so nothing is left to compare; name fewer")
    for name in names:
        for v, p in enumerate(data.protected):
            if tells_group(data, name, v):
                raise OptionError(
                    f"'{name}' cannot be given: it reveals everyone's '{p.name}', so nobody is left to compare with; "
                    "name other columns"
                )
    return list(dict.fromkeys(names))


def tells_group(data: Dataset, name: str, variable: int) -> bool:
    """Return whether a column says which group everyone is in."""
    columns = Columns.of(data, [name])
    f = {f.name: f for f in (*columns.covariates, *columns.features)}[name]
    known = ~data.c[:, variable].isnan()
    rows, c = columns.rows(data)[known], data.c[known, variable]
    if data.protected[variable].is_continuous:
        pair = torch.stack([rows[:, f.start], c.double()])
        return f.kind == "continuous" and float(torch.corrcoef(pair)[0, 1].abs().nan_to_num()) > _EXACT
    if len(c.unique()) < 2 or (f.kind == "categorical" and float(rows[:, f.columns].sum()) == 0):
        return False
    if f.kind == "continuous":
        ordered, places = rows[:, f.start].sort()
        turns = c[places][1:] != c[places][:-1]
        mixed = bool((turns & (ordered[1:] == ordered[:-1])).any())  # people of two groups with the same value
        smallest = int(c.unique(return_counts=True)[1].min())
        return not mixed and int(turns.sum()) <= min(_TURNS, smallest // 2)
    code = rows[:, f.columns].argmax(1)
    classes = len(data.protected[variable].levels)
    return len(distinct_values(code * classes + c.long())[0]) == len(distinct_values(code)[0])
