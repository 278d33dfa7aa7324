"""The rank map: every feature keeps its rank; and the swap map, which changes only the protected column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import ClassVar, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, resample
from fairfox.errors import DataError, NotFittedError
from fairfox.maps.conditional import Columns, Regressed
from fairfox.maps.gate import closed_features
from fairfox.maps.protocol import (
    OFF_RANGE,
    TOO_FEW,
    UNKNOWN,
    UNKNOWN_GIVEN,
    Mapped,
    check_groups_present,
    number_reached,
    some_of_each,
    where_to,
)
from fairfox.maps.ranks import (
    Draws,
    Grid,
    Ranks,
    categories_among,
    distinct_values,
    maximal_coupling,
    nearest_shown,
    numbers_among,
    present,
    present_rows,
)

Places = dict[int, dict[int, tuple[Grid, Tensor]]]  # by pair of classes and column: where people stand on its grid
_FEWEST_IN_CELL = 30  # people of a group with the same given values, to rank among them alone
LACKING = "the protected column itself is missing, so there is no value to change"


@dataclass
class RankMap:
    """Everyone as a member of another group, with the rank they have in their own, feature by feature.

    Continuous features: the value at the same mid-rank among the other group's values. Categorical: maximal coupling,
    a category stays with probability min(1, p'/p), and what leaves is spread over the categories that gain.
    Missing numbers stay missing; a missing category is a category. No auxiliary, no gradient.

    Columns named `given` stay as they are, and so does what they explain of the others: ranks are conditional on the
    given values, in the own group and in the other. With `hold_others` they are also conditional on the other protected
    variables. Where the protected variable is a number, ranks are those among people with about the same number, and
    become ranks one standard deviation higher or lower.

    With `gate` a feature moves only where the groups differ in it beyond chance. This is decided on the people who are
    fitted, or on those who are given as `gate`: folds of a table then move the same features.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> RankMap().fit(data).map(data).rows[:, 0]
        tensor([5., 7., 0., 1.])
    """

    variable: int = 0  # which protected variable
    only: Tensor | None = None  # (D,) bool: columns to map; None: all
    hold_others: bool = False
    given: tuple[str, ...] = ()  # names of columns that the model takes, or of others
    gate: bool | Dataset = False
    persists: ClassVar[bool] = True
    plan: RankPlan | None = field(default=None, init=False, repr=False)
    prepared: bool = field(default=False, init=False, repr=False)  # whether the plan is shared by refits
    ranks: ClassRanks | Stratified | Regressed | None = field(default=None, init=False, repr=False)
    itself: ClassRanks | Regressed | None = field(default=None, init=False, repr=False)  # columns of the protected one
    values: Tensor | None = field(default=None, init=False, repr=False)  # of a protected number, in order
    grids: list[list[Grid | None]] = field(default_factory=list, init=False, repr=False)  # [class][number]
    codes: list[Tensor] = field(default_factory=list, init=False, repr=False)  # (N,) each number on its class's grid

    def prepare(self, data: Dataset) -> None:
        """Decide on all fitting rows what refits share: how given columns are held, what may move, and the grids."""
        self.plan = plan = RankPlan.of(data, self)
        self.prepared = True
        if plan.classes and not plan.given:
            groups = [(data.c[:, self.variable] == code).nonzero()[:, 0] for code in range(plan.classes)]
            self.grids, self.codes = [[] for _ in groups], []
            closed = plan.closed[~torch.eye(plan.classes, dtype=torch.bool, device=data.x.device)].all(0).tolist()
            stays = {f.name for f, still in zip(plan.explained, closed, strict=True) if still}
            for f in numbers_among(plan.explained):
                there, code = present_rows(data.x, f), torch.zeros(len(data), dtype=torch.int32, device=data.x.device)
                for grids, group in zip(self.grids, groups, strict=True):
                    own = group[:0] if f.name in stays else group  # nobody's values are needed of what never moves
                    values, shown = data.x[own, f.start], there[own]
                    grids.append(grid := Grid.thin(values if bool(shown.all()) else values[shown]))
                    if grid is not None:
                        code[own] = torch.where(shown, grid.code(values), len(grid.distinct) - 1).int()
                self.codes.append(code)

    def fit_rows(self, data: Dataset, rows: Tensor) -> Self:
        """Fit on some of the rows that the map was prepared on: values are then counted, and need not be sorted."""
        plan, rows = self.plan, rows.to(data.x.device)
        assert plan is not None
        if not self.grids or plan.itself:
            self.fit(replace(data[rows], weights=None))
        if self.grids:
            self.ranks = ClassRanks([], plan.explained)
            for g, grids in enumerate(self.grids):
                own = rows[data.c[rows, self.variable] == g]
                self.ranks.groups.append(ClassValues.counted(data.x, own, plan.explained, grids, self.codes))
        self.codes = []
        return self

    def fit(self, data: Dataset) -> Self:
        """Learn each group's values and category shares."""
        check_groups_present(data, self.variable)
        if self.plan is None or not self.prepared:
            self.plan = RankPlan.of(data, self)
        plan = self.plan
        data = data[plan.has_given(data) & ~data.c[:, self.variable].isnan()]
        rows, group = plan.columns.rows(data), plan.group(data.c[:, self.variable])
        if plan.number:
            self.values = group.unique()
        if plan.by_regression:
            if len(rows) < 2 * (max(plan.classes, 2) + sum(f.stop - f.start for f in plan.given)):
                raise DataError(
                    f"{len(rows)} people are too few to learn what {len(plan.given)} given column(s) explain; "
                    "give more rows, or name fewer columns"
                )
            self.ranks = Regressed.of(rows, group, plan.classes, plan.given, plan.explained)
        elif plan.given:
            self.ranks = Stratified.of(rows, group, plan)
        else:
            self.ranks = ClassRanks.of(data.x, group, plan.classes, plan.explained)
        if plan.itself and plan.number:
            self.itself = Regressed.of(rows, group, 0, (), plan.itself)
        elif plan.itself:
            self.itself = ClassRanks.of(data.x, group, plan.classes, plan.itself)
        return self

    def map_by_each(
        self, maps: Sequence[RankMap], data: Dataset, to: Tensor | None, draws: Sequence[Draws] | None = None
    ) -> Iterator[Mapped]:
        """Yield what each refit of this map makes of the same people, who are looked up once where they share grids."""
        places: Places = {}
        for fitted, own in zip_longest(maps, draws or ()):
            yield fitted.map(data, to, places=places, draws=own)

    def map(
        self, data: Dataset, to: Tensor | None = None, *, places: Places | None = None, draws: Draws | None = None
    ) -> Mapped:
        """Return everyone's row where `to` (N,) says: in that class, or so many standard deviations of c higher.

        NaN: nowhere; None: in the other of two groups. Who goes nowhere, whose protected or given values are unknown,
        or who has nobody to compare with there, keeps their row and is abstained. `places` caches people's positions on
        grids. With draws, ranks persist in part.
        """
        if self.plan is None or self.ranks is None:
            raise NotFittedError("This RankMap is not fitted; call fit first")
        plan, to = self.plan, where_to(data, self.variable, to)
        if draws is not None and not isinstance(self.ranks, ClassRanks):
            data, to, draws = repeated(data, to, draws)
        here = plan.group(data.c[:, self.variable])
        there = number_reached(here, to.to(here), self.values) if self.values is not None else to.to(here)
        asked = ~(here.isnan() | to.isnan()) & ((here != there) | plan.number)
        known = plan.has_given(data)
        moved = asked & known & ~there.isnan()
        going = moved.nonzero()[:, 0]
        times, borrowed = 1 if draws is None else draws.times, torch.zeros_like(asked)
        if len(going) == len(data) > 0:
            rows, moved, borrowed = self._moved(data, here, there, places, draws)
        else:
            rows = data.x.repeat(times, 1)
        if 0 < len(going) < len(data):
            own = None if draws is None else draws.taken(going)
            out, found, borrowed[going] = self._moved(data[going], here[going], there[going], places, own)
            rows.view(times, len(data), -1)[:, going] = out.view(times, len(going), -1).to(rows)
            moved[going] = found
        left = asked & ~moved
        why = {
            UNKNOWN: here.isnan(),
            OFF_RANGE: left & known & plan.number,
            UNKNOWN_GIVEN: left & ~known,
            TOO_FEW: left & known & (not plan.number),
        }
        return Mapped(rows.to(data.x), ~moved, why, borrowed=borrowed)

    def _moved(
        self, people: Dataset, own: Tensor, goal: Tensor, places: Places | None, draws: Draws | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows (times n, D) of people in other groups, who (n,) could be mapped, others having their own
        row, and who of these is compared with borrowed displacements."""
        plan = self.plan
        assert plan is not None
        found, lent = torch.ones_like(own, dtype=torch.bool), torch.zeros_like(own, dtype=torch.bool)
        if isinstance(self.ranks, ClassRanks):
            out, found = self.ranks.map(people.x, own, goal, plan.closed, places, draws)
        else:
            wide = plan.columns.rows(people)
            if isinstance(self.ranks, Stratified):
                out, found, lent = self.ranks.map(wide, own, goal, draws)
            else:
                assert self.ranks is not None
                out, lent = self.ranks.moved(wide, own, wide, goal, draws), plan.alone(wide, own, goal)
            out = plan.kept(out[:, : people.x.shape[1]], people.x.double(), own, goal)
        times = len(out) // len(people)
        if isinstance(self.itself, ClassRanks):
            out, there = self.itself.map(out, own.repeat(times), goal.repeat(times))
            found = found & there[: len(people)]
        elif self.itself is not None:
            wide = plan.columns.rows(people)
            shown = self.itself.moved(wide, own, wide, goal)
            for f in plan.itself:
                out[:, f.columns] = shown[:, f.columns].to(out).repeat(times, 1)
        if not bool(found.all()):
            out = torch.where(found.repeat(times)[:, None], out, people.x.repeat(times, 1).to(out))
        return out, found, lent & found


def repeated(data: Dataset, to: Tensor, draws: Draws) -> tuple[Dataset, Tensor, Draws]:
    """Return people, where they go, and their draws, with everyone repeated so that each draw has its own row."""
    rows = torch.arange(len(data), device=data.x.device).repeat(draws.times)
    return data if draws.times == 1 else data[rows], to.repeat(draws.times), replace(draws, times=1)


@dataclass(frozen=True)
class RankPlan:
    """What refits of a rank map share: the columns, how given ones are held, and which features may move."""

    variable: int
    classes: int  # 0 for a number
    columns: Columns
    given: list[Feature]
    explained: list[Feature]  # to be mapped, by ranks at the given values
    itself: list[Feature]  # columns of the protected variable: nothing explains them
    by_regression: bool
    closed: Tensor  # (K, K, F) or (1, 1, F) bool: features that do not move, of `explained`
    seen: Tensor  # (K or 1, columns) bool: which given categories each group has

    @classmethod
    def of(cls, data: Dataset, map: RankMap) -> RankPlan:
        """Return what all fitting rows say."""
        p, c = data.protected[map.variable], data.c[:, map.variable]
        columns, classes = Columns.of(data, map.given), len(p.levels)
        given = columns.given(data, map.given)
        if map.hold_others and not p.parts:
            held = (v for v, q in enumerate(data.protected) if v != map.variable and not q.parts)
            given = [*given, *(columns.protected[v] for v in held)]
        moving = torch.ones_like(data.withheld) if map.only is None else map.only.to(data.withheld.device)
        if map.hold_others and not p.parts:
            moving = moving & (~data.withheld | own_columns(data, map.variable))  # the others' own columns stay
        features = [f for f in data.features if bool(moving[f.start]) and f not in given]
        itself = [f for f in features if bool(data.withheld[f.start])] if given or map.gate is not False else []
        explained = [f for f in features if f not in itself]
        plan = cls(map.variable, classes, columns, given, explained, itself, not classes, NOTHING, NOTHING)
        known = plan.has_given(data) & ~c.isnan()
        if data.weights is not None:
            known &= (data.weights > 0).to(known.device)
        rows, group = columns.rows(data[known]), plan.group(c[known])
        codes = plan.codes(group)
        strata = stratum_of(rows, given) if given and all(f.kind == "categorical" for f in given) else None
        by_regression = plan.number or (bool(given) and (strata is None or not _cells_are_full(strata, codes, classes)))
        marks = torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device)
        for f in given:
            marks[f.start + (f.kind == "continuous") : f.stop] = True
        seen = rows.new_zeros(max(classes, 1), rows.shape[1]).index_add_(0, codes, (rows > 0.5).double()) > 0
        closed = torch.zeros(max(classes, 1), max(classes, 1), len(explained), dtype=torch.bool)
        if isinstance(map.gate, Dataset):
            some = some_of_each(map.gate, map.variable, torch.Generator().manual_seed(0))
            closed = cls.of(some, replace(map, gate=True)).closed
        elif map.gate:
            closed = closed_features(
                rows, group, classes, explained,
                strata=None if by_regression else strata,
                given=given if by_regression else (),
                weights=None if data.weights is None else data.weights[known],
            )  # fmt: skip
        return replace(plan, by_regression=by_regression, closed=closed.to(rows.device), seen=seen | ~marks)

    @property
    def number(self) -> bool:
        """Whether the protected variable is a number."""
        return not self.classes

    def group(self, c: Tensor) -> Tensor:
        """Return protected values (N,): classes, or numbers in standard deviations."""
        scale = self.columns.scales[self.variable]
        return c.double() if scale is None else scale(c)

    def codes(self, group: Tensor) -> Tensor:
        """Return the classes (N,) of protected values that `group` returned; 0 for numbers."""
        return group.long() if self.classes else torch.zeros_like(group, dtype=torch.long)

    def has_given(self, data: Dataset) -> Tensor:
        """Return whose given values are known (N,); that a number is missing may be known too."""
        out = torch.ones(len(data), dtype=torch.bool, device=data.x.device)
        rows = self.columns.rows(data) if self.given else data.x
        for f in self.given:
            out &= ~rows[:, f.start].isnan() if f.kind == "continuous" else present_rows(rows, f)
            if f in self.columns.protected:
                out &= ~data.c[:, self.columns.protected.index(f)].isnan()
        return out

    def alone(self, rows: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """Return who (n,) has a given category, or lacks a value, as nobody of the own or the other group does."""
        return ((rows > 0.5) & ~(self.seen[self.codes(here)] & self.seen[self.codes(there)])).any(1)

    def kept(self, rows: Tensor, before: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """Return rows (n, D) with the features that the gate keeps closed as they were before."""
        if not bool(self.closed.any()):
            return rows
        closed = self.closed[self.codes(here), self.codes(there)]  # (n, F)
        for i, f in enumerate(self.explained):
            rows[:, f.columns] = torch.where(closed[:, i, None], before[:, f.columns], rows[:, f.columns])
        return rows


NOTHING = torch.zeros(0, dtype=torch.bool)


def stratum_of(rows: Tensor, given: Sequence[Feature]) -> Tensor:
    """Return everyone's stratum (n,): which combination of given categories they have."""
    place = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    for f in given:
        place = place * (f.stop - f.start) + rows[:, f.columns].argmax(1)
    return place


def _cells_are_full(strata: Tensor, codes: Tensor, classes: int) -> bool:
    """Return whether every group that a stratum has at all has people enough in it, and some stratum has two."""
    cells, counts = distinct_values(strata * classes + codes)
    shared = distinct_values(cells // classes)[1]
    return bool((counts >= _FEWEST_IN_CELL).all()) and bool((shared > 1).any())


@dataclass(frozen=True)
class Stratified:
    """The same ranks in another class, among people with the same given categories."""

    plan: RankPlan
    strata: dict[int, ClassRanks]
    counts: dict[int, Tensor]  # (K,) of each stratum
    everyone: ClassRanks

    @classmethod
    def of(cls, rows: Tensor, group: Tensor, plan: RankPlan) -> Stratified:
        """Return what rows (n, D) of people in classes (n,) show."""
        place, codes = stratum_of(rows, plan.given), group.long()
        found, counts = {}, {}
        for key in place.unique().tolist():
            who = place == key
            found[key] = ClassRanks.of(rows[who], group[who], plan.classes, plan.explained)
            counts[key] = torch.bincount(codes[who], minlength=plan.classes)
        return cls(plan, found, counts, ClassRanks.of(rows, group, plan.classes, plan.explained))

    def map(
        self, rows: Tensor, here: Tensor, there: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows in the classes `there` (n,), who could be mapped, and who borrowed displacements (n,)."""
        out, found = rows.clone(), torch.zeros_like(here, dtype=torch.bool)
        place = stratum_of(rows, self.plan.given)
        for key, ranks in self.strata.items():
            who = (place == key).nonzero()[:, 0]
            if len(who):
                own = None if draws is None else draws.taken(who)
                out[who], found[who] = ranks.map(rows[who], here[who], there[who], draws=own)
        left = (~found).nonzero()[:, 0]
        lent = torch.zeros_like(found)
        if len(left):
            cells = torch.stack([place[left], here[left].long(), there[left].long()], dim=1)
            for key, g, h in cells.unique(dim=0).tolist():
                who = left[(cells == cells.new_tensor([key, g, h])).all(1)]
                out[who], lent[who] = self._borrowed(rows[who], key, g, h, None if draws is None else draws.taken(who))
        return out, found | lent, lent

    def _borrowed(self, rows: Tensor, key: int, g: int, h: int, draws: Draws | None) -> tuple[Tensor, bool]:
        """Return rows (n, D) of one stratum and class displaced to another class as strata that have both displace
        the same ranks on average, and whether there are any."""
        both = [
            (ranks.groups[g], ranks.groups[h], float(self.counts[place][[g, h]].sum()))
            for place, ranks in self.strata.items()
        ]
        lenders = [(a, b, n) for a, b, n in both if a is not None and b is not None]
        mine, anyone, shown = self.strata.get(key, self.everyone).groups[g], *(self.everyone.groups[c] for c in (g, h))
        if not lenders or anyone is None or shown is None:
            return rows, False
        out, there = rows.clone(), torch.zeros_like(rows[:, 0])
        for i, f in enumerate(numbers_among(self.plan.explained)):
            ranks = (mine or anyone).ranks[i] or anyone.ranks[i]
            ends = [(a.ranks[i], b.ranks[i], n) for a, b, n in lenders]
            pairs = [(a, b, n) for a, b, n in ends if a is not None and b is not None]
            values = shown.ranks[i]
            if ranks is None or values is None or not pairs:
                continue
            x, own = rows[:, f.start].contiguous(), None if draws is None else draws[f.start]
            steps = sum(n * (ranks.same_rank(x, b, draw=own) - ranks.same_rank(x, a)) for a, b, n in pairs)
            near = nearest_shown(x + steps / sum(n for _, _, n in pairs), there, [values.ordered])
            out[:, f.start] = torch.where(present_rows(rows, f), near[:, 0], x)
        for i, f in enumerate(categories_among(self.plan.explained)):
            couplings = sum(n * maximal_coupling(a.shares[i], b.shares[i]) for a, b, n in lenders)
            coupled = rows[:, f.columns] @ couplings / sum(n for _, _, n in lenders)
            out[:, f.columns] = coupled if draws is None else draws[f.start].category(coupled, shown.shares[i])
        return out, True


@dataclass(frozen=True)
class ClassRanks:
    """The same ranks in another class, for people of K classes."""

    groups: list[ClassValues | None]  # K; None: too few
    features: list[Feature]

    @classmethod
    def of(cls, x: Tensor, c: Tensor, classes: int, features: list[Feature]) -> ClassRanks:
        """Return what the rows x (n, D) of classes c (n,) show."""
        rows = [x[c == code] for code in range(classes)]
        return cls([ClassValues.of(own, features) if len(own) else None for own in rows], features)

    def map(
        self,
        x: Tensor,
        c: Tensor,
        to: Tensor,
        closed: Tensor | None = None,
        places: Places | None = None,
        draws: Draws | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the rows in the classes `to` and who could be mapped (N,); features closed (K, K, F) stay."""
        classes, times = len(self.groups), 1 if draws is None else draws.times
        columns, moved = x.T.contiguous(), ~(c.isnan() | to.isnan())  # (D, N): one column after the other
        both = torch.where(moved, c * classes + to, -1).long()
        keys = (torch.bincount(both + 1, minlength=1) > 0).nonzero()[:, 0] - 1
        out = columns.new_empty(len(columns), times, len(x))
        for key in keys.tolist():
            g, h = divmod(key, classes)
            own, other = (None, None) if key < 0 else (self.groups[g], self.groups[h])
            people, written = (both == key).nonzero()[:, 0], torch.zeros(len(columns), dtype=torch.bool)
            first, last = int(people[0]), int(people[-1]) + 1
            who = slice(first, last) if len(people) == last - first else people
            here, part = columns[:, who], out[..., who]  # a view of a slice, else a copy
            if own is None or other is None or own is other:
                moved.index_fill_(0, people, False)
            else:
                still = [False] * len(self.features) if closed is None else closed[g, h].tolist()
                known = None if places is None else places.setdefault(key, {})
                draw = None if draws is None else draws.taken(who)
                for where, values in own.mapped(here, other, self.features, still, known, draw):
                    part[where] = values
                    written[where] = True
            for column in (~written).nonzero()[:, 0].tolist():
                part[column] = here[column]
            if who is people:
                out[..., who] = part
        return out.flatten(1).T, moved


@dataclass(frozen=True)
class ClassValues:
    """One class: the ranks of its numbers, None for what it never shows, and the shares of its categories."""

    ranks: list[Ranks | None]  # of each continuous feature
    shares: list[Tensor]  # (L,) of each categorical one

    @classmethod
    def of(cls, rows: Tensor, features: Sequence[Feature]) -> ClassValues:
        """Return what the rows (n, D) of a class show."""
        numbers = [present(rows, f) for f in numbers_among(features)]
        shares = [rows[:, f.columns].mean(0) for f in categories_among(features)]
        return cls([Ranks.of(values) if len(values) else None for values in numbers], shares)

    @classmethod
    def counted(
        cls, x: Tensor, own: Tensor, features: Sequence[Feature], grids: Sequence[Grid | None], codes: Sequence[Tensor]
    ) -> ClassValues | None:
        """Return the same of the rows x[own], whose numbers have codes (N,) on grids; None where there are none."""
        ranks: list[Ranks | None] = []
        for grid, code in zip(grids, codes, strict=True):
            size = 1 if grid is None else len(grid.distinct)  # with one for those who lack a value
            counts = torch.bincount(code[:0] if grid is None else code.index_select(0, own), minlength=size)[:-1]
            ranks.append(Ranks.counted(grid, counts) if grid is not None and bool(counts.any()) else None)
        shares = [x[:, f.columns].index_select(0, own).mean(0) for f in categories_among(features)]
        return cls(ranks, shares) if len(own) else None

    def mapped(
        self,
        columns: Tensor,
        other: ClassValues,
        features: Sequence[Feature],
        still: Sequence[bool],
        places: dict[int, tuple[Grid, Tensor]] | None = None,
        draws: Draws | None = None,
    ) -> Iterator[tuple[int | slice, Tensor]]:
        """Yield some columns of people (D, n) of this class in another one, each with what its draws (times, n), or
        one row each, make of them; some features stay."""
        stays = {f.name for f, closed in zip(features, still, strict=True) if closed}
        for f, own, there in zip(numbers_among(features), self.ranks, other.ranks, strict=True):
            if own is not None and there is not None and f.name not in stays:
                x = columns[f.start]
                grid, place = (None, None) if places is None else places.get(f.start, (None, None))
                if place is None or grid is not own.grid:
                    place = own.grid.position(x)
                    if places is not None:
                        places[f.start] = own.grid, place
                value = own.same_rank(x, there, place) if draws is None else own.drawn(place, there, draws, f.start)
                yield f.start, torch.where(columns[f.start + 1] > 0.5, x, value) if f.has_missing else value
        for f, p, q in zip(categories_among(features), self.shares, other.shares, strict=True):
            if f.name not in stays:
                coupled = columns[f.columns].T @ maximal_coupling(p, q)
                drawn = coupled if draws is None else draws[f.start].category(coupled, q)
                yield f.columns, drawn.T.unflatten(1, (-1, len(coupled)))


def ranks_of(data: Dataset, variable: int, columns: Tensor, *, seed: int, hold_others: bool = False) -> RankMap | None:
    """Return the rank map of only these columns (D,); None where there are none.

    Weighted rows are resampled.
    """
    if not bool(columns.any()):
        return None
    one_each = data if data.weights is None else resample(data, generator=torch.Generator().manual_seed(seed))
    return RankMap(variable=variable, only=columns, hold_others=hold_others).fit(one_each)


def with_ranks(mapped: Mapped, ranks: RankMap | None, data: Dataset, to: Tensor) -> Mapped:
    """Return mapped people with some columns set by a rank map; people abstained by either keep their row."""
    if ranks is None:
        return mapped
    assert ranks.only is not None
    swapped = ranks.map(data, to)
    rows = torch.where(ranks.only.to(data.x.device), swapped.rows, mapped.rows)
    stay = mapped.abstained | swapped.abstained
    rows[stay] = data.x[stay]
    return Mapped(rows, stay, mapped.also(swapped), mapped.overshoot)


@dataclass
class SwapMap:
    """Everyone with another value of the protected variable and everything else unchanged, as the target sees it.

    A class becomes the other class. A number goes one standard deviation up or down. The source column of a cut such
    as age<25 goes to the same rank on the other side; where classes were merged, to their shares. A target
    that does not take the column sees the same row.
    """

    variable: int = 0  # which protected variable
    ranks: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn which values of the column mean which group."""
        self.ranks = RankMap(variable=self.variable, only=own_columns(data, self.variable)).fit(data)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone's row with the value that `to` (N,) says: that class, or so many standard deviations higher.

        NaN: as they are; None: the other of two groups. Who cannot be changed keeps their row and is abstained; so
        does anyone who lacks the column, even if their group is known or inferred.
        """
        if self.ranks is None:
            raise NotFittedError("This SwapMap is not fitted; call fit first")
        missing = lacks_own_column(data, self.variable) & ~data.c[:, self.variable].isnan()
        if not bool(missing.any()):
            return self.ranks.map(data, to)
        mapped = self.ranks.map(data, where_to(data, self.variable, to).masked_fill(missing, torch.nan))
        return replace(mapped, reasons={**mapped.reasons, LACKING: missing})


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
