"""The rank map: every feature keeps its rank; and the swap map, which changes the protected column alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, resample
from fairfox.errors import DataError, NotFittedError
from fairfox.maps.given import GivenRanks, given_features
from fairfox.maps.protocol import OFF_RANGE, TOO_FEW, UNKNOWN, UNSHARED, Mapped, check_groups_present, where_to
from fairfox.maps.ranks import (
    ConditionalRanks,
    NumberRanks,
    Ranks,
    SameRank,
    Scale,
    categories_among,
    maximal_coupling,
    numbers_among,
    present,
)

_FIFTHS = (0.2, 0.4, 0.6, 0.8)  # where numbers are cut when they are held
_FEWEST_IN_CLASS, _FEWEST_IN_ALL = 10, 50  # who share the other protected values: of a class, or of all numbers
LACKING = "the protected column itself is missing, so that there is no value to change"


@dataclass
class RankMap:
    """Everyone as a member of another group, with the rank they have in their own, feature by feature.

    Continuous features: the value at the same mid-rank among the other group's values. Categorical: maximal coupling,
    a category stays with probability min(1, p'/p), and what leaves is spread over the categories that gain.
    Missing numbers stay missing; a missing category is a category. No auxiliary, no gradient.

    Where the protected variable is a number, a person keeps their conditional quantile: the rank among people with
    about their own value becomes the rank among people one standard deviation higher or lower. With `hold_others`
    everyone is compared with people who share their other protected values (numbers in fifths).

    Columns named `given` stay as they are, and so does what they explain of the others: the rank is that among people
    of the own group with about the same given values, and becomes one among such people of the other.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> RankMap().fit(data).map(data).rows[:, 0]
        tensor([5., 7., 0., 1.])
    """

    variable: int = 0  # which protected variable
    only: Tensor | None = None  # (D,) bool: columns to map; None: all
    hold_others: bool = False
    given: tuple[str, ...] = ()  # names of features
    strata: Strata | None = field(default=None, init=False, repr=False)
    fitted: dict[int, ConditionalRanks] = field(default_factory=dict, init=False, repr=False)  # by stratum

    def fit(self, data: Dataset) -> Self:
        """Learn each group's values and category shares."""
        check_groups_present(data, self.variable)
        p, c = data.protected[self.variable], data.c[:, self.variable]
        self.strata = Strata.of(data, self.variable if self.hold_others else None)
        held = bool(self.strata.others)
        scale = Scale.of(c) if p.is_continuous else None
        stratum = torch.where(c.isnan(), -1, self.strata.place(data.c))
        self.fitted = {}
        for code in stratum[stratum >= 0].unique().tolist():
            people = data[stratum == code] if code or held else data
            if scale is None or not held or len(people) >= _FEWEST_IN_ALL:
                ranks = self._ranks(people, scale, _FEWEST_IN_CLASS if held else 1)
                if ranks is not None:
                    self.fitted[code] = ranks
        if not held and not self.fitted:
            raise DataError(
                f"{len(data)} people are too few to learn what {len(self.given)} given column(s) explain; "
                "give more rows, or name fewer columns"
            )
        return self

    def _ranks(self, data: Dataset, scale: Scale | None, fewest: int) -> ConditionalRanks | None:
        """Return what people of one stratum show; None where they are too few for the given columns."""
        p, c = data.protected[self.variable], data.c[:, self.variable]
        features = [f for f in data.features if self.only is None or bool(self.only[f.start])]

        def ranked(x: Tensor, c: Tensor, features: list[Feature]) -> ConditionalRanks:
            if scale is None:
                return ClassRanks.of(x, c, len(p.levels), features, fewest)
            return NumberRanks.of(x, c, scale, features)

        if not self.given:
            return ranked(data.x, c, features)
        given = given_features(data, self.given)
        others = [f for f in features if f not in given]
        itself = [f for f in others if bool(data.withheld[f.start])]  # nothing explains the protected variable itself
        return GivenRanks.of(
            data.x,
            c,
            len(p.levels),
            scale,
            given,
            [f for f in others if f not in itself],
            lambda x, c, numbers: ranked(x, c, [*numbers, *itself]),
        )

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone's row where `to` (N,) says: in that class, or so many standard deviations of c higher.

        NaN: nowhere; None: in the other of two groups. Who goes nowhere, whose protected value is unknown, or who has
        nobody there to be compared with, keeps their row and is abstained.
        """
        if self.strata is None:
            raise NotFittedError("This RankMap is not fitted; call fit first")
        to = where_to(data, self.variable, to)
        if not self.strata.others:
            rows, moved = self.fitted[0].map(data.x, data.c[:, self.variable], to)
        else:
            rows, moved = data.x.clone(), torch.zeros_like(to, dtype=torch.bool)
            stratum = self.strata.place(data.c)
            for code, ranks in self.fitted.items():
                people = (stratum == code).nonzero()[:, 0]
                rows[people], moved[people] = ranks.map(data.x[people], data.c[people, self.variable], to[people])
        return Mapped(rows, ~moved, self._reason(data, to, ~moved))

    def _reason(self, data: Dataset, to: Tensor, abstained: Tensor) -> str:
        """Return why those who had somewhere to go did not get there; more than one reason where there are more."""
        if self.strata is None or not bool(abstained.any()):
            return ""
        p, c = data.protected[self.variable], data.c[:, self.variable]
        left = abstained & ~c.isnan() & ~to.isnan() & ((to != c) | p.is_continuous)
        if not bool(left.any()):
            return UNKNOWN
        alone = left & self._unshared(data, to)
        left = left & ~alone
        compared = torch.isin(self.strata.place(data.c), torch.tensor(list(self.fitted), device=c.device))
        if not p.is_continuous:
            compared = torch.zeros_like(compared)
        elif not self.strata.others:
            compared = torch.ones_like(compared)
        found = {OFF_RANGE: left & compared, TOO_FEW: left & ~compared, UNSHARED: alone}
        return " or ".join(reason for reason, people in found.items() if bool(people.any()))

    def _unshared(self, data: Dataset, to: Tensor) -> Tensor:
        """Return who (N,) is alone with their given values, as far as their stratum was learnt from."""
        assert self.strata is not None
        out, stratum = torch.zeros_like(to, dtype=torch.bool), self.strata.place(data.c)
        for code, ranks in self.fitted.items():
            if isinstance(ranks, GivenRanks):
                out |= (stratum == code) & ranks.unshared(data.x, data.c[:, self.variable], to)
        return out


@dataclass(frozen=True)
class Strata:
    """People who share the protected variables that are held: classes as they are, numbers in fifths."""

    others: tuple[int, ...]  # the variables that are held
    sizes: tuple[int, ...]  # how many values each has
    cuts: tuple[Tensor | None, ...]  # (4,) between the fifths of a number

    @classmethod
    def of(cls, data: Dataset, variable: int | None) -> Strata:
        """Return the strata of all variables but this one and the crossings; of none for None or a crossing."""
        if variable is None or data.protected[variable].parts:
            return cls((), (), ())
        others = tuple(v for v, p in enumerate(data.protected) if v != variable and not p.parts)
        cuts: list[Tensor | None] = []
        for v in others:
            ordered = data.c[~data.c[:, v].isnan(), v].sort().values if data.protected[v].is_continuous else None
            places = None if ordered is None else [int(share * (len(ordered) - 1)) for share in _FIFTHS]
            cuts.append(None if ordered is None else ordered[places])
        sizes = tuple(len(data.protected[v].levels) if cut is None else 5 for v, cut in zip(others, cuts, strict=True))
        return cls(others, sizes, tuple(cuts))

    def place(self, c: Tensor) -> Tensor:
        """Return everyone's stratum (N,) from the protected values (N, V); -1 where one that is held is unknown."""
        place = torch.zeros(len(c), dtype=torch.long, device=c.device)
        for v, size, cuts in zip(self.others, self.sizes, self.cuts, strict=True):
            own = c[:, v].contiguous()
            code = own.nan_to_num().long() if cuts is None else torch.bucketize(own, cuts)
            place = torch.where(own.isnan() | (place < 0), -1, place * size + code)
        return place


@dataclass(frozen=True)
class ClassRanks:
    """The same ranks in another class, for people of K classes."""

    groups: list[_Group | None]  # K; None: too few
    pairs: dict[tuple[int, int], _Pair]  # computed beforehand where there are two classes
    features: list[Feature]

    @classmethod
    def of(cls, x: Tensor, c: Tensor, classes: int, features: list[Feature], fewest: int) -> ClassRanks:
        """Return what the rows x (n, D) of classes c (n,) show; classes with fewer people are left out."""
        groups = [_Group.of(rows, features) if len(rows := x[c == g]) >= fewest else None for g in range(classes)]
        first = cls(groups, {}, features)
        if classes > 2:  # so many tables would outgrow the data
            return first
        pairs = {(g, 1 - g): first._pair(g, 1 - g) for g in (0, 1) if groups[0] is not None and groups[1] is not None}
        return cls(groups, {key: pair.tabled() for key, pair in pairs.items() if pair is not None}, features)

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows in the classes `to` and who could be mapped (N,)."""
        classes = len(self.groups)
        out, moved = x.clone(), ~(c.isnan() | to.isnan())
        both = torch.where(moved, c * classes + to, -1).long()
        for key in (torch.bincount(both + 1, minlength=1)[1:] > 0).nonzero()[:, 0].tolist():
            own, other = divmod(key, classes)
            people = (both == key).nonzero()[:, 0]
            pair = self._pair(own, other)
            if pair is None:
                moved.index_fill_(0, people, False)
            else:
                out.index_copy_(0, people, pair.map(x.index_select(0, people), self.features))
        return out, moved

    def _pair(self, own: int, other: int) -> _Pair | None:
        if (own, other) in self.pairs:
            return self.pairs[own, other]
        a, b = self.groups[own], self.groups[other]
        return None if a is None or b is None or own == other else _Pair.between(a, b)


@dataclass(frozen=True)
class _Group:
    """One class: where its numbers stand, and the shares of its categories; None for what it never shows."""

    ranks: list[Ranks | None]  # of each continuous feature
    shares: list[Tensor]  # (L,) of each categorical one

    @classmethod
    def of(cls, rows: Tensor, features: Sequence[Feature]) -> _Group:
        numbers = [present(rows, f) for f in numbers_among(features)]
        ranks = [Ranks.of(values) if len(values) else None for values in numbers]
        return cls(ranks, [rows[:, f.columns].mean(0) for f in categories_among(features)])


@dataclass(frozen=True)
class _Pair:
    """From one class to another, feature by feature."""

    ranks: list[SameRank | None]
    moves: list[Tensor]  # (L, L)

    @classmethod
    def between(cls, own: _Group, other: _Group) -> _Pair:
        ranks = [SameRank(a, b) if a and b else None for a, b in zip(own.ranks, other.ranks, strict=True)]
        return cls(ranks, [maximal_coupling(p, q) for p, q in zip(own.shares, other.shares, strict=True)])

    def tabled(self) -> _Pair:
        return _Pair([ranks and ranks.tabled() for ranks in self.ranks], self.moves)

    def map(self, rows: Tensor, features: Sequence[Feature]) -> Tensor:
        """Return rows, which are overwritten, in the other class."""
        for f, same_rank in zip(numbers_among(features), self.ranks, strict=True):
            if same_rank is not None:
                x = rows[:, f.start].contiguous()
                mapped = same_rank(x)
                rows[:, f.start] = torch.where(rows[:, f.start + 1] > 0.5, x, mapped) if f.has_missing else mapped
        for f, move in zip(categories_among(features), self.moves, strict=True):
            rows[:, f.columns] = rows[:, f.columns] @ move
        return rows


def ranks_of(data: Dataset, variable: int, columns: Tensor, *, seed: int, hold_others: bool = False) -> RankMap | None:
    """Return the map that sets these columns (D,) alone, by their ranks; None where there are none.

    Weighted rows are resampled.
    """
    if not bool(columns.any()):
        return None
    one_each = data if data.weights is None else resample(data, generator=torch.Generator().manual_seed(seed))
    return RankMap(variable=variable, only=columns, hold_others=hold_others).fit(one_each)


def with_ranks(mapped: Mapped, ranks: RankMap | None, data: Dataset, to: Tensor) -> Mapped:
    """Return mapped people with the columns of a rank map set by it; who is abstained by either keeps their row."""
    if ranks is None:
        return mapped
    assert ranks.only is not None
    swapped = ranks.map(data, to)
    rows = torch.where(ranks.only.to(data.x.device), swapped.rows, mapped.rows)
    lost = bool((swapped.abstained & ~mapped.abstained).any())
    stay = mapped.abstained | swapped.abstained
    rows[stay] = data.x[stay]
    return Mapped(rows, stay, swapped.reason if lost else mapped.reason, mapped.overshoot)


@dataclass
class SwapMap:
    """Everyone with another value of the protected variable and all else as it is, as far as the target sees it.

    A class becomes the other class. A number goes one standard deviation up or down. The source column of a cut such
    as age<25 goes to the same rank on the other side; where classes were put together, to their shares. A target
    that does not take the column sees the same row.
    """

    variable: int = 0  # which protected variable
    ranks: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn which values of the column stand for which group."""
        self.ranks = RankMap(variable=self.variable, only=own_columns(data, self.variable)).fit(data)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone's row with the value that `to` (N,) says: that class, or so many standard deviations higher.

        NaN: as they are; None: the other of two groups. Who cannot be changed keeps their row and is abstained; so
        does who lacks the column, though their group is known or inferred: what it now says is of no group.
        """
        if self.ranks is None:
            raise NotFittedError("This SwapMap is not fitted; call fit first")
        missing = lacks_own_column(data, self.variable) & ~data.c[:, self.variable].isnan()
        if not bool(missing.any()):
            return self.ranks.map(data, to)
        mapped = self.ranks.map(data, where_to(data, self.variable, to).masked_fill(missing, torch.nan))
        others = bool((mapped.abstained & ~missing).any())
        return replace(mapped, reason=f"{mapped.reason} or {LACKING}" if others else LACKING)


def own_columns(data: Dataset, variable: int) -> Tensor:
    """Return which columns of x (D,) show the target this protected variable: those that it was read from."""
    p = data.protected[variable]
    read = [q for q in data.protected if q.name in p.parts] if p.parts else [p]
    names = {q.source or q.name for q in read}
    out = torch.zeros_like(data.withheld)
    for f in data.features:
        if f.name in names:
            out[f.columns] = data.withheld[f.columns]
    return out


def lacks_own_column(data: Dataset, variable: int) -> Tensor:
    """Return who (N,) bool lacks a column of x that shows the target this protected variable."""
    own = own_columns(data, variable).tolist()
    out = torch.zeros(len(data), dtype=torch.bool, device=data.x.device)
    for f in data.features:
        if own[f.start]:
            block = data.x[:, f.columns]
            if f.kind == "categorical":
                out |= (block[:, :-1] if f.levels[-1] is None else block).sum(1) < 0.5
            elif f.has_missing:
                out |= block[:, 1] > 0.5
    return out
