"""The transport map: everyone is paired with people of the other group, at the least total cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, project_blocks
from fairfox.errors import NotFittedError, OptionError, require
from fairfox.maps.protocol import (
    UNKNOWN,
    Mapped,
    Pair,
    block_overshoot,
    check_groups_present,
    check_is_grouped,
    compared_pairs,
    features_among,
    total_variance,
    where_to,
    who_counts,
)
from fairfox.maps.rank import RankMap, ranks_of, with_ranks
from fairfox.maps.ranks import present

Solver = Literal["auto", "pot", "scipy"]
_POOR_SPREAD = 0.6
_CELLS = 2**24  # of a distance matrix that are worked on at once
_MOST_PIVOTS = 10**9  # of the network simplex: more than any size needs that is solved exactly


@dataclass
class TransportMap:
    """Everyone as their partners in the other group, paired by optimal transport.

    The cost of a pair is the squared L1 distance of their rows, numbers in standard deviations. People
    with several partners, because groups differ in size or rows are equal, get their mean; one-hot blocks become
    distributions. Groups of more than `exact_up_to` people are sampled to that number. `solver` is POT or SciPy; auto
    means POT where it is installed. SciPy pairs people one to one after those of the smaller group are repeated evenly:
    exact where one size is a multiple of the other.

    People who were not paired move as their nearest neighbour in their own group does: x' = x + (T(near) - near). Their
    difference from that neighbour stays, so that groups that do not differ leave everyone in place; T(near) itself
    would count that difference as an effect of the group. A paired row is its own nearest and becomes its partner.

    Example:
        >>> data = Dataset.from_arrays([[0.0, 1.0], [5.0, 0.0], [6.0, 2.0], [1.0, 3.0]], c=[0, 0, 1, 1])
        >>> TransportMap().fit(data).map(data).rows.tolist()
        [[1.0, 3.0], [6.0, 2.0], [5.0, 0.0], [0.0, 1.0]]
    """

    variable: int = 0  # which protected variable
    exact_up_to: int = 5_000
    standardise: bool = True  # numbers, by their spread in the fitting rows
    solver: Solver = "auto"
    seed: int = 0
    scale: Tensor | None = field(default=None, init=False, repr=False)  # (P,) of the columns that are not withheld
    groups: list[Members] = field(default_factory=list, init=False, repr=False)
    pairings: dict[Pair, Pairs] = field(default_factory=dict, init=False, repr=False)  # from a class to another
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.exact_up_to < 1:
            raise OptionError(f"exact_up_to is {self.exact_up_to}; expected a number of people of at least 1")
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
            raise OptionError("All columns of the model are protected, so nothing is left to match people on; use rank")
        x = data.x[:, shown]
        counts = torch.ones(len(x), device=x.device) if data.weights is None else data.weights
        self.scale = _spreads(x, features) if self.standardise else torch.ones_like(x[0])
        self.groups = [Members.of(x[c == code], counts[c == code].double()) for code in range(len(p.levels))]
        self.withheld_map = ranks_of(data, self.variable, data.withheld, seed=self.seed)
        self.pairings = {}
        for pair in compared_pairs(p):
            self._pairing(*pair)
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
            people, pairing = ((c == own) & (to == other)).nonzero()[:, 0], self._pairing(own, other)
            x = moved[people]
            near = nearest(x / self.scale, pairing.rows / self.scale)
            moved[people] = _displaced(x, pairing.rows[near], pairing.images[near], features)
        rows = data.x.clone()
        rows[:, shown] = project_blocks(moved, features)
        rows[stay] = data.x[stay]
        mapped = Mapped(rows, stay, {UNKNOWN: c.isnan()}, block_overshoot(moved, features))
        return with_ranks(mapped, self.withheld_map, data, to)

    def checks(self) -> dict[str, float]:
        """Return how good the pairing is, of the worst two groups.

        `mean_cost`: of a pair. `people_paired`: the share of people whom neither sampling nor rounding left out.
        `spread_kept`: the variance of the mapped rows over that of the group they go to.
        """
        if not self.pairings:
            raise NotFittedError("This TransportMap is not fitted; call fit first")
        found = list(self.pairings.values())
        return {
            "mean_cost": max(each.cost for each in found),
            "people_paired": min(each.paired for each in found),
            "spread_kept": min(each.spread_kept for each in found),
        }

    def warnings(self, checks: Mapping[str, float]) -> list[str]:
        """Return a warning where mapped people vary much less than the group they go to."""
        kept = checks["spread_kept"]
        if kept >= _POOR_SPREAD:
            return []
        return [
            f"The rows that transport maps into a group have {100 * kept:.0f} % of its variance, because people with "
            "many partners get their mean; compare with rank, which keeps the spread."
        ]

    def _pairing(self, own: int, other: int) -> Pairs:
        """Return who is paired from a class to another; both directions come from one plan."""
        if (own, other) not in self.pairings:
            low, high = min(own, other), max(own, other)
            self.pairings[low, high], self.pairings[high, low] = self._solve(self.groups[low], self.groups[high])
        return self.pairings[own, other]

    def _solve(self, low: Members, high: Members) -> tuple[Pairs, Pairs]:
        assert self.scale is not None
        start = float(torch.rand((), generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64))
        a, b = (group.sampled(self.exact_up_to, start) for group in (low, high))
        cost = torch.cdist(a.rows.double() / self.scale, b.rows.double() / self.scale, p=1).square_()  # (n, m)
        if self.solver == "pot" or (self.solver == "auto" and find_spec("ot") is not None):
            plan = simplex_plan(cost, a.counts, b.counts)
        else:
            weighed = round(max(float(part.counts.sum()) for part in (a, b)))  # whole weights are people
            size = max(a.people, b.people, min(weighed, self.exact_up_to))
            plan = assigned_plan(cost, a.counts, b.counts, size, start)
        mean_cost = float((plan * cost).sum())
        sampled = (a.people + b.people) / (low.people + high.people)
        return Pairs.of(plan, a, b, mean_cost, sampled), Pairs.of(plan.mT, b, a, mean_cost, sampled)


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
        """Return the group, or an evenly spaced sample of it."""
        if self.people <= most:
            return self
        counts = torch.bincount(evenly(self.counts, most, start), minlength=len(self.rows))
        return Members(self.rows[counts > 0], counts[counts > 0].to(self.counts), most)


@dataclass(frozen=True)
class Pairs:
    """Where the paired people of one group go: the mean of their partners in another."""

    rows: Tensor  # (n, P)
    images: Tensor  # (n, P)
    cost: float
    paired: float
    spread_kept: float

    @classmethod
    def of(cls, plan: Tensor, own: Members, other: Members, cost: float, paired: float) -> Pairs:
        """Return where a plan (n, m) with the mass of every pair takes the people of the own group.

        People whose counts were rounded to zero have no partner and are left out.
        """
        mass = plan.sum(1, keepdim=True)
        kept = mass[:, 0] > 0
        shares = plan[kept] / mass[kept]  # a single partner has exactly 1
        rows, counts = own.rows[kept], own.counts[kept]
        images = (shares @ other.rows.to(plan)).to(rows)
        before, after = total_variance(other.rows, other.counts), total_variance(images, counts)
        paired *= float(counts.sum() / own.counts.sum())
        return cls(rows, images, cost, paired, after / before if before > 0 else 1.0)


def _displaced(x: Tensor, near: Tensor, image: Tensor, features: Sequence[Feature]) -> Tensor:
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
            values = present(x, f)
            ordered = values.double().sort().values  # so that no bit of the sum depends on the order of rows
            spread = float(ordered.std(correction=0)) if len(values) else 0.0
            out[f.start] = spread if spread > 1e-12 else 1.0
    return out


def evenly(counts: Tensor, size: int, start: float) -> Tensor:
    """Return `size` seats in proportion to counts (n,), each rounded up or down.

    Steps of equal length over the counts laid end to end, from a random `start` in [0, 1) of the first.
    """
    ends = counts.cumsum(0)
    steps = (torch.arange(size, device=counts.device, dtype=counts.dtype) + start) * (ends[-1] / size)
    return torch.searchsorted(ends, steps, right=True).clamp(max=len(counts) - 1)


def nearest(x: Tensor, among: Tensor) -> Tensor:
    """Return for each row x (n, P) the position of the row (m, P) at the least L1 distance, block by block."""
    blocks = x.split(max(_CELLS // len(among), 1))
    return torch.cat([torch.cdist(block, among, p=1).argmin(1) for block in blocks])


def simplex_plan(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the exact plan (n, m) between counts a (n,) and b (m,), by the network simplex of POT."""
    ot = require("ot", extra="peers", why="for solver='pot'")
    shares = [(part / part.sum()).numpy(force=True) for part in (a, b)]
    plan = ot.emd(*shares, cost.numpy(force=True), numItermax=_MOST_PIVOTS)
    return torch.as_tensor(plan, device=cost.device)


def assigned_plan(cost: Tensor, a: Tensor, b: Tensor, size: int, start: float) -> Tensor:
    """Return the plan (n, m) between counts a (n,) and b (m,): the best assignment of `size` people to as many.

    Exact where counts are whole and `size` is a multiple of the sum of both; else counts are rounded.
    """
    from scipy.optimize import linear_sum_assignment

    left, right = (evenly(part, size, start).cpu() for part in (a, b))
    _, order = linear_sum_assignment(cost.cpu()[left][:, right].numpy())
    pair = left * cost.shape[1] + right[torch.as_tensor(order)]
    times = torch.bincount(pair, minlength=cost.numel()).reshape(cost.shape)
    return times.double().div_(size).to(cost.device)
