"""The rank map: every feature keeps its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import DataError, NotFittedError
from fairfox.maps.along import NumberRanks, Scale
from fairfox.maps.legitimate import GivenRanks, SameRanks, legitimate_features
from fairfox.maps.protocol import OFF_RANGE, TOO_FEW, UNKNOWN, UNSHARED, Mapped, check_groups_present, where_to
from fairfox.maps.ranks import Ranks, SameRank, categories_among, maximal_coupling, numbers_among, present

_FIFTHS = (0.2, 0.4, 0.6, 0.8)  # where numbers are cut when they are held
_FEWEST_IN_CLASS, _FEWEST_IN_ALL = 10, 50  # who share the other protected values: of a class, or of all numbers


@dataclass
class RankMap:
    """Everyone as a member of another group, with the rank they have in their own, feature by feature.

    Continuous features: the value at the same mid-rank among the other group's values. Categorical: maximal coupling,
    a category stays with probability min(1, p'/p), and what leaves is spread over the categories that gain.
    Missing numbers stay missing; a missing category is a category. No auxiliary, no gradient.

    Where the protected variable is a number, a person keeps their conditional quantile: the rank among people with
    about their own value becomes the rank among people one standard deviation higher or lower. With `hold_others`
    everyone is compared with people who share their other protected values (numbers in fifths).

    Columns named `legitimate` stay as they are, and so does what they explain of the others: the rank is that among
    people of the own group with about the same legitimate values, and becomes one among such people of the other.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> RankMap().fit(data).map(data).rows[:, 0]
        tensor([5., 7., 0., 1.])
    """

    variable: int = 0  # which protected variable
    only: Tensor | None = None  # (D,) bool: columns to map; None: all
    hold_others: bool = False
    legitimate: tuple[str, ...] = ()  # names of features
    strata: Strata | None = field(default=None, init=False, repr=False)
    fitted: dict[int, SameRanks] = field(default_factory=dict, init=False, repr=False)  # by stratum

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
            part = data[stratum == code] if code or held else data
            if scale is None or not held or len(part) >= _FEWEST_IN_ALL:
                found = self._ranks(part, scale, _FEWEST_IN_CLASS if held else 1)
                if found is not None:
                    self.fitted[code] = found
        if not held and not self.fitted:
            raise DataError(
                f"{len(data)} people are too few to learn what {len(self.legitimate)} legitimate column(s) explain; "
                "give more rows, or name fewer columns"
            )
        return self

    def _ranks(self, data: Dataset, scale: Scale | None, fewest: int) -> SameRanks | None:
        """Return what people of one stratum show; None where they are too few for the legitimate columns."""
        p, c = data.protected[self.variable], data.c[:, self.variable]
        features = [f for f in data.features if self.only is None or bool(self.only[f.start])]

        def ranked(x: Tensor, c: Tensor, features: list[Feature]) -> SameRanks:
            if scale is None:
                return ClassRanks.of(x, c, len(p.levels), features, fewest)
            return NumberRanks.of(x, c, scale, features)

        if not self.legitimate:
            return ranked(data.x, c, features)
        legitimate = legitimate_features(data, self.legitimate)
        others = [f for f in features if f not in legitimate]
        itself = [f for f in others if bool(data.withheld[f.start])]  # nothing explains the protected variable itself
        return GivenRanks.of(
            data.x,
            c,
            len(p.levels),
            scale,
            legitimate,
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
        rows, moved = self._displaced(data, to)
        return Mapped(rows, ~moved, self._reason(data, to, ~moved))

    def _displaced(self, data: Dataset, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows (N, D) where people go, and who gets there (N,)."""
        assert self.strata is not None
        if not self.strata.others:
            return self.fitted[0].map(data.x, data.c[:, self.variable], to)
        rows, moved = data.x.clone(), torch.zeros_like(to, dtype=torch.bool)
        stratum = self.strata.place(data.c)
        for code, ranks in self.fitted.items():
            people = (stratum == code).nonzero()[:, 0]
            mapped = ranks.map(data.x[people], data.c[people, self.variable], to[people])
            rows.index_copy_(0, people, mapped[0])
            moved.index_copy_(0, people, mapped[1])
        return rows, moved

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
        """Return who (N,) is alone with their legitimate values, as far as their stratum was learnt from."""
        assert self.strata is not None
        out, stratum = torch.zeros_like(to, dtype=torch.bool), self.strata.place(data.c)
        for code, one in self.fitted.items():
            if isinstance(one, GivenRanks):
                out |= (stratum == code) & one.unshared(data.x, data.c[:, self.variable], to)
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
        cuts = tuple(_fifths(data.c[:, v]) if data.protected[v].is_continuous else None for v in others)
        sizes = tuple(len(data.protected[v].levels) if cut is None else 5 for v, cut in zip(others, cuts, strict=True))
        return cls(others, sizes, cuts)

    def place(self, c: Tensor) -> Tensor:
        """Return everyone's stratum (N,) from the protected values (N, V); -1 where one that is held is unknown."""
        place = torch.zeros(len(c), dtype=torch.long, device=c.device)
        for v, size, cuts in zip(self.others, self.sizes, self.cuts, strict=True):
            own = c[:, v].contiguous()
            part = own.nan_to_num().long() if cuts is None else torch.bucketize(own, cuts)
            place = torch.where(own.isnan() | (place < 0), -1, place * size + part)
        return place


@dataclass(frozen=True)
class ClassRanks:
    """The same ranks in another class, for people of K classes."""

    groups: list[_Group | None]  # K; None: too few
    pairs: dict[tuple[int, int], _Pair]  # known beforehand where there are two classes
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
        values = [present(rows, f) for f in numbers_among(features)]
        ranks = [Ranks.of(part) if len(part) else None for part in values]
        return cls(ranks, [rows[:, f.columns].mean(0) for f in categories_among(features)])


@dataclass(frozen=True)
class _Pair:
    """The way from one class to another, feature by feature."""

    ranks: list[SameRank | None]
    moves: list[Tensor]  # (L, L)

    @classmethod
    def between(cls, own: _Group, other: _Group) -> _Pair:
        ranks = [SameRank(a, b) if a and b else None for a, b in zip(own.ranks, other.ranks, strict=True)]
        return cls(ranks, [maximal_coupling(p, q) for p, q in zip(own.shares, other.shares, strict=True)])

    def tabled(self) -> _Pair:
        return _Pair([one and one.tabled() for one in self.ranks], self.moves)

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


def _fifths(c: Tensor) -> Tensor:
    ordered = c[~c.isnan()].sort().values
    return torch.stack([ordered[int(share * (len(ordered) - 1))] for share in _FIFTHS])
