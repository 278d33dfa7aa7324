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
        stratum, alone = self.strata.place(data.c), torch.zeros_like(left)
        for code, ranks in self.fitted.items():
            if isinstance(ranks, GivenRanks):
                alone |= left & (stratum == code) & ranks.unshared(data.x, c, to)
        left = left & ~alone
        compared = torch.isin(stratum, torch.tensor(list(self.fitted), device=c.device))
        if not p.is_continuous:
            compared = torch.zeros_like(compared)
        elif not self.strata.others:
            compared = torch.ones_like(compared)
        found = {OFF_RANGE: left & compared, TOO_FEW: left & ~compared, UNSHARED: alone}
        return " or ".join(reason for reason, people in found.items() if bool(people.any()))


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

    groups: list[ClassValues | None]  # K; None: too few
    features: list[Feature]

    @classmethod
    def of(cls, x: Tensor, c: Tensor, classes: int, features: list[Feature], fewest: int) -> ClassRanks:
        """Return what the rows x (n, D) of classes c (n,) show; classes with fewer people are left out."""
        rows = [x[c == code] for code in range(classes)]
        return cls([ClassValues.of(own, features) if len(own) >= fewest else None for own in rows], features)

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows in the classes `to` and who could be mapped (N,)."""
        classes = len(self.groups)
        out, moved = x.clone(), ~(c.isnan() | to.isnan())
        both = torch.where(moved, c * classes + to, -1).long()
        for key in (torch.bincount(both + 1, minlength=1)[1:] > 0).nonzero()[:, 0].tolist():
            own, other = (self.groups[code] for code in divmod(key, classes))
            people = (both == key).nonzero()[:, 0]
            if own is None or other is None or own is other:
                moved.index_fill_(0, people, False)
            else:
                out.index_copy_(0, people, own.mapped(x.index_select(0, people), other, self.features))
        return out, moved


@dataclass(frozen=True)
class ClassValues:
    """One class: the ranks of its numbers, None for what it never shows, and the shares of its categories."""

    ranks: list[Ranks | None]  # of each continuous feature
    shares: list[Tensor]  # (L,) of each categorical one

    @classmethod
    def of(cls, rows: Tensor, features: Sequence[Feature]) -> ClassValues:
        """Return what the rows (n, D) of a class show."""
        numbers = [present(rows, f) for f in numbers_among(features)]
        ranks = [Ranks.of(values) if len(values) else None for values in numbers]
        return cls(ranks, [rows[:, f.columns].mean(0) for f in categories_among(features)])

    def mapped(self, rows: Tensor, other: ClassValues, features: Sequence[Feature]) -> Tensor:
        """Return rows of this class, which are overwritten, in another one."""
        for f, own, there in zip(numbers_among(features), self.ranks, other.ranks, strict=True):
            if own is not None and there is not None:
                x = rows[:, f.start].contiguous()
                value = own.same_rank(x, there)
                rows[:, f.start] = torch.where(rows[:, f.start + 1] > 0.5, x, value) if f.has_missing else value
        for f, p, q in zip(categories_among(features), self.shares, other.shares, strict=True):
            rows[:, f.columns] = rows[:, f.columns] @ maximal_coupling(p, q)
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
