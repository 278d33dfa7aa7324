"""The transport map: everyone is paired with people of the other group, all together as cheaply as possible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, project_blocks
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.columns import features_among, outside, ranks_of, with_ranks
from fairfox.maps.plans import assigned_plan, entropic_plan, evenly, nearest, simplex_plan
from fairfox.maps.protocol import (
    UNKNOWN,
    Mapped,
    Pair,
    check_groups_present,
    check_is_grouped,
    compared_pairs,
    where_to,
    who_counts,
)
from fairfox.maps.rank import RankMap

Solver = Literal["auto", "pot", "scipy"]
_POOR_SPREAD = 0.6


@dataclass
class TransportMap:
    """Everyone as the people of the other group with whom optimal transport pairs them.

    The cost of a pair is the squared L1 distance of their rows, numbers in standard deviations. Who has several
    partners, because groups differ in size or rows are alike, gets their mean; one-hot blocks become distributions.
    Groups of more than `exact_up_to` people are sampled to so many. Where a group has more than `entropic_above`,
    entropic transport between up to `entropic_rows` people of each takes the place of the exact one; its
    `regularisation` is a share of the mean cost. `solver`: the package POT, or SciPy, which pairs people one to one
    after those of the smaller group are repeated as evenly as can be (exact where one size is a multiple of the
    other); auto: POT where it is installed.

    Who is not among the paired ones moves as the nearest of their own group does: x' = x + (T(near) - near). What sets
    them apart from that person stays, so that groups that do not differ leave everyone alone; T(near) itself would
    count the way to the neighbour as an effect of the group. A paired row is its own nearest and becomes its partner.

    Example:
        >>> data = Dataset.from_arrays([[0.0, 1.0], [5.0, 0.0], [6.0, 2.0], [1.0, 3.0]], c=[0, 0, 1, 1])
        >>> TransportMap().fit(data).map(data).rows.tolist()
        [[1.0, 3.0], [6.0, 2.0], [5.0, 0.0], [0.0, 1.0]]
    """

    variable: int = 0  # which protected variable
    exact_up_to: int = 5_000
    entropic_above: int = 50_000
    entropic_rows: int = 10_000
    regularisation: float = 0.005
    standardise: bool = True  # numbers, by their spread in the fitting rows
    solver: Solver = "auto"
    seed: int = 0
    scale: Tensor | None = field(default=None, init=False, repr=False)  # (P,) of the columns that are not withheld
    groups: list[Members] = field(default_factory=list, init=False, repr=False)
    ways: dict[Pair, Way] = field(default_factory=dict, init=False, repr=False)  # from a class to another
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("exact_up_to", "entropic_above", "entropic_rows"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; give a number of people of at least 1")
        if not 0 < self.regularisation < math.inf:
            raise OptionError(f"The regularisation is {self.regularisation}; give a share of the mean cost above 0")
        if self.solver not in ("auto", "pot", "scipy"):
            raise OptionError(f"The solver is '{self.solver}'; expected 'auto', 'pot' or 'scipy'")

    def fit(self, data: Dataset) -> Self:
        """Pair the people of every two groups; with a reference group, of that one and each other."""
        p = data.protected[self.variable]
        check_is_grouped(p, "transport")
        data = who_counts(data, [self.variable])
        check_groups_present(data, self.variable)
        (shown, features), c = _visible(data), data.c[:, self.variable]
        if not features:
            raise OptionError("All columns of the model are protected: nothing is left to pair people by; use rank")
        x = data.x[:, shown]
        counts = torch.ones(len(x), device=x.device) if data.weights is None else data.weights
        self.scale = _spreads(x, features) if self.standardise else torch.ones_like(x[0])
        self.groups = [Members.of(x[c == code], counts[c == code].double()) for code in range(len(p.levels))]
        self.withheld_map = ranks_of(data, self.variable, data.withheld, seed=self.seed)
        self.ways = {}
        for pair in compared_pairs(p):
            self._way(*pair)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone's row in the class that `to` (N,) names; NaN: nowhere; None: in the other of two groups.

        Who goes nowhere or whose group is unknown keeps their row and is abstained.
        """
        if self.scale is None:
            raise NotFittedError("This TransportMap is not fitted; call fit first")
        c, to, (shown, features) = data.c[:, self.variable], where_to(data, self.variable, to), _visible(data)
        stay = c.isnan() | to.isnan() | (to == c)
        moved = data.x[:, shown]
        for own, other in torch.stack([c, to], dim=1)[~stay].unique(dim=0).long().tolist():
            people, way = ((c == own) & (to == other)).nonzero()[:, 0], self._way(own, other)
            x = moved[people]
            near = nearest(x / self.scale, way.rows / self.scale)
            moved[people] = follow(x, way.rows[near], way.images[near], features)
        rows = data.x.clone()
        rows[:, shown] = project_blocks(moved, features)
        rows[stay] = data.x[stay]
        mapped = Mapped(rows, stay, UNKNOWN if bool(stay.any()) else "", outside(moved, features))
        return with_ranks(mapped, self.withheld_map, data, to)

    def checks(self) -> dict[str, float]:
        """Return how good the pairing is, of the worst two groups.

        `mean_cost` of a pair; `people_paired`: the share of people whom neither sampling nor rounding left out;
        `spread_kept`: the variance of the mapped rows over that of the group they go to, which means over partners
        reduce.
        """
        if not self.ways:
            raise NotFittedError("This TransportMap is not fitted; call fit first")
        found = list(self.ways.values())
        return {
            "mean_cost": max(way.cost for way in found),
            "people_paired": min(way.paired for way in found),
            "spread_kept": min(way.spread_kept for way in found),
        }

    def doubts(self, checks: Mapping[str, float]) -> list[str]:
        """Return a warning where mapped people are much more alike than those of the group they go to."""
        kept = checks["spread_kept"]
        if kept >= _POOR_SPREAD:
            return []
        return [
            f"The rows that transport maps into a group have {kept:.0%} of its variance, since people with many "
            "partners get their mean; compare with rank, which keeps the spread."
        ]

    def _way(self, own: int, other: int) -> Way:
        """Return the way from a class to another; both directions come from one plan."""
        if (own, other) not in self.ways:
            low, high = min(own, other), max(own, other)
            self.ways[low, high], self.ways[high, low] = self._solve(self.groups[low], self.groups[high])
        return self.ways[own, other]

    def _solve(self, low: Members, high: Members) -> tuple[Way, Way]:
        assert self.scale is not None
        entropic = max(low.people, high.people) > self.entropic_above
        most = self.entropic_rows if entropic else self.exact_up_to
        start = float(torch.rand((), generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64))
        a, b = low.sampled(most, start), high.sampled(most, start)
        near, far = ((part.rows if entropic else part.rows.double()) / self.scale for part in (a, b))
        cost = torch.cdist(near, far, p=1).square_()  # (n, m)
        if entropic:
            plan = entropic_plan(cost, a.counts, b.counts, regularisation=self.regularisation)
        elif self.solver == "pot" or (self.solver == "auto" and find_spec("ot") is not None):
            plan = simplex_plan(cost, a.counts, b.counts)
        else:
            weighed = round(max(float(part.counts.sum()) for part in (a, b)))  # whole weights are people
            size = max(a.people, b.people, min(weighed, most))
            plan = assigned_plan(cost, a.counts, b.counts, size, start)
        mean_cost = float((plan * cost).sum())
        sampled = (a.people + b.people) / (low.people + high.people)
        return Way.along(plan, a, b, mean_cost, sampled), Way.along(plan.mT, b, a, mean_cost, sampled)


@dataclass(frozen=True)
class Members:
    """The people of one group: their distinct rows in order, so that the order they came in does not matter."""

    rows: Tensor  # (n, P)
    counts: Tensor  # (n,) how many people have each, float64
    people: int

    @classmethod
    def of(cls, rows: Tensor, counts: Tensor) -> Members:
        """Return the group with these rows (people, P), each of which stands for so many people."""
        distinct, place = rows.unique(dim=0, return_inverse=True)
        return cls(distinct, counts.new_zeros(len(distinct)).index_add_(0, place, counts), len(rows))

    def sampled(self, most: int, start: float) -> Members:
        """Return the group, or so many of its people, taken at even steps from their order."""
        if self.people <= most:
            return self
        counts = torch.bincount(evenly(self.counts, most, start), minlength=len(self.rows))
        return Members(self.rows[counts > 0], counts[counts > 0].to(self.counts), most)


@dataclass(frozen=True)
class Way:
    """Where the paired people of one group go: the mean of their partners in another."""

    rows: Tensor  # (n, P)
    images: Tensor  # (n, P)
    cost: float
    paired: float
    spread_kept: float

    @classmethod
    def along(cls, plan: Tensor, own: Members, other: Members, cost: float, paired: float) -> Way:
        """Return the way that a plan (n, m) with the mass of every pair gives.

        Who stands for so little that counts were rounded to none has no partner, and is left out.
        """
        mass = plan.sum(1, keepdim=True)
        kept = mass[:, 0] > 0
        shares = plan[kept] / mass[kept]  # a single partner has exactly 1
        rows, counts = own.rows[kept], own.counts[kept]
        images = (shares @ other.rows.to(plan)).to(rows)
        before, after = _variance(other.rows, other.counts), _variance(images, counts)
        paired *= float(counts.sum() / own.counts.sum())
        return cls(rows, images, cost, paired, after / before if before > 0 else 1.0)


def follow(x: Tensor, near: Tensor, image: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return rows x (n, P) moved as the rows `near` are to their images; exactly the image where they are equal.

    Whether a number is missing moves along. A number that is known before and after moves only as known numbers do.
    """
    moved = torch.where(x == near, image, x + (image - near))
    for f in features:
        if f.has_missing:
            value, flag = f.start, f.start + 1
            missing = moved[:, flag] > 0.5
            known = 1 - image[:, flag]  # the share of partners that lack no value; they alone make the mean
            mean = image[:, value] / torch.where(known > 0, known, 1.0)
            step = torch.where((near[:, flag] > 0.5) | (known == 0), 0.0, mean - near[:, value])
            exact = (x[:, value] == near[:, value]) & (known > 0)
            number = torch.where((x[:, flag] > 0.5) | exact, mean, x[:, value] + step)
            moved[:, value], moved[:, flag] = torch.where(missing, 0.0, number), missing.to(moved)
    return moved


def _visible(data: Dataset) -> tuple[Tensor, tuple[Feature, ...]]:
    """Return which columns are not withheld (D,), and the features among them with their places there (P)."""
    shown = ~data.withheld.to(data.x.device)
    return shown, features_among(data.features, shown)


def _spreads(x: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return the standard deviation of every number (P,); 1 for flags, categories and what never varies."""
    out = torch.ones_like(x[0])
    for f in features:
        if f.kind == "continuous":
            values = x[x[:, f.start + 1] < 0.5, f.start] if f.has_missing else x[:, f.start]
            ordered = values.double().sort().values  # so that no bit of the sum depends on the order of rows
            spread = float(ordered.std(correction=0)) if len(values) else 0.0
            out[f.start] = spread if spread > 1e-12 else 1.0
    return out


def _variance(rows: Tensor, counts: Tensor) -> float:
    """Return the variance of rows (n, P), of which there are so many each, summed over the columns."""
    share = (counts / counts.sum())[:, None]
    mean = (share * rows).sum(0)
    return float((share * (rows - mean).square()).sum())
