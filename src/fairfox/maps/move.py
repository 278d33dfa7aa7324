"""The move map: along the auxiliary's direction, for features that must move together."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from numbers import Real
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, combine_outputs
from fairfox.auxiliary.training import centre_and_spread
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset, Protected, missing_columns, project_blocks
from fairfox.errors import NotFittedError, OptionError, ShapeError
from fairfox.gradients.alignment import between_metric, covariance_metric, dead_rows, inverse_direction
from fairfox.gradients.jacobian import autograd_jacobian
from fairfox.gradients.relu import ReluNetwork, relu_network
from fairfox.maps.protocol import (
    FLAT,
    OFF_RANGE,
    UNKNOWN,
    CounterfactualMap,
    Mapped,
    block_overshoot,
    check_groups_present,
    number_reached,
    where_to,
    who_counts,
)
from fairfox.maps.rank import RankMap, ranks_of, with_ranks
from fairfox.maps.ranks import kept_missing, weighted_least_squares
from fairfox.models.protocol import Model, row_blocks

Metric = Literal["identity", "covariance", "between"]
Carry = Literal["adaptive"] | float


@dataclass(kw_only=True)
class MoveMap:
    """Everyone moved along v = S Jᵀ (J S Jᵀ)⁺ until the auxiliary predicts the other group.

    Between two of many classes the difference of their logits moves; a number is moved by its standard deviations.
    The metric S says what "smallest" means. `identity`: the smallest edit that changes c (the paper's move: the
    *direct* reading). `covariance`: features that correlate move along. `between`: what really differs between
    the groups. The direction is recomputed at each of `steps` equal steps. `carry` is how much of a person's
    typicality carries over: 1 keeps the rank of the logit, 0 sends everyone to the other group's mean.
    With `hold_others` the other protected variables are held equal, by linear regression.
    """

    metric: Metric = "between"
    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)
    steps: int = 8
    carry: Carry = "adaptive"
    shrink: float = 0.1
    variable: int = 0
    hold_others: bool = False
    batch_size: int = 4096
    model: Model | None = field(default=None, init=False, repr=False)
    geometry: Geometry | None = field(default=None, init=False, repr=False)
    logits: dict[tuple[int, int], GroupLogits] = field(default_factory=dict, init=False, repr=False)  # of two classes
    line: OutputLine | None = field(default=None, init=False, repr=False)  # of a number
    shifts: dict[tuple[int, int], Tensor] = field(default_factory=dict, init=False, repr=False)  # (H,) by what is held

    def __post_init__(self) -> None:
        if self.metric not in ("identity", "covariance", "between"):
            raise OptionError(f"The metric is '{self.metric}'; expected 'identity', 'covariance' or 'between'")
        Number(1, whole=True).required("steps", self.steps)
        Number(0, 1).required("shrink", self.shrink)
        number = isinstance(self.carry, Real) and not isinstance(self.carry, bool)
        if self.carry != "adaptive" and not (number and 0 <= self.carry <= 1):
            raise OptionError(f"carry is {self.carry!r}; expected 'adaptive' or a number from 0 to 1")

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary and compute the metric and the group statistics; uses the first member."""
        (fitted,) = self._fit_variable(data, self.variable, self._train(data, 1, seed=0), 1, seed=0)
        vars(self).update(vars(fitted))
        return self

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
        """Return for each protected variable one map per member of the auxiliary, at most `refits`.

        The auxiliary is trained once for all variables, its members together.
        """
        auxiliary = self._train(data, refits, seed=seed)
        return [[*self._fit_variable(data, v, auxiliary, refits, seed=seed)] for v in range(len(data.protected))]

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone where `to` (N,) says; people for whom J vanishes stay and are abstained."""
        if self.model is None or self.geometry is None:
            raise NotFittedError("This MoveMap is not fitted; call fit first")
        p, c = data.protected[self.variable], data.c[:, self.variable]
        to = where_to(data, self.variable, to)
        unknown = data.c[:, [self.variable, *self._others(data.protected)]].isnan().any(1)
        going = ~(unknown | to.isnan() | (to == c if not p.is_continuous else to == 0))
        there, geometry = to, self.geometry
        if geometry.values is not None:
            there = number_reached(c.contiguous(), to * geometry.spread, geometry.values)
        off = going & there.isnan()
        x, flat = data.x.clone(), torch.zeros(len(c), dtype=torch.bool, device=c.device)
        still, how = missing_columns(data), {"steps": self.steps, "batch_size": self.batch_size}
        for end in self._destinations(data, there, going & ~off):
            model, metric = self._moving(data.protected, end.pair), geometry.metric(self.metric, end.gap)
            x[end.rows], flat[end.rows] = _moved_rows(end, data.x, model, metric=metric, still=still, **how)
        overshoot = block_overshoot(x, data.features)
        x = kept_missing(project_blocks(x, data.features), data.x, data.features)
        stay = ~going | flat | off
        x[stay] = data.x[stay]
        mapped = Mapped(x, stay, {UNKNOWN: unknown, FLAT: flat, OFF_RANGE: off}, overshoot)
        return with_ranks(mapped, geometry.withheld_map, data, to)

    def _train(self, data: Dataset, refits: int, *, seed: int) -> Auxiliary:
        auxiliary = copy.copy(self.auxiliary)
        if isinstance(auxiliary, AuxiliaryModel):
            auxiliary.refits = refits
            auxiliary.seed += seed
        return auxiliary.fit(data)

    def _fit_variable(
        self, data: Dataset, variable: int, auxiliary: Auxiliary, refits: int, *, seed: int
    ) -> list[MoveMap]:
        others = self._others(data.protected, variable)
        known = who_counts(data, [variable, *others])
        check_groups_present(known, variable)
        geometry = self._geometry(known, variable, others, seed=seed)
        unseen = None if auxiliary.held_out is None else who_counts(auxiliary.held_out, [variable, *others])
        maps = []
        for member in list(auxiliary.members)[:refits]:
            fitted = copy.copy(self)
            fitted.variable, fitted.model, fitted.geometry = variable, member, geometry
            fitted._learn_outputs(known, unseen)
            maps.append(fitted)
        return maps

    def _geometry(self, known: Dataset, variable: int, others: Sequence[int], *, seed: int) -> Geometry:
        """Return what rows whose value is known show: the metric's ingredients, and where withheld columns go."""
        p, c = known.protected[variable], known.c[:, variable]
        withheld = known.withheld.to(known.x.device)
        seen = torch.where(withheld, 0.0, known.x)  # what is withheld does not move along
        ranks = ranks_of(known, variable, known.withheld, seed=seed, hold_others=self.hold_others)
        covariance = None
        if self.metric != "identity":
            covariance = covariance_metric(seen, shrink=self.shrink, weights=known.weights)
        hidden = withheld | missing_columns(known).to(withheld.device)
        held = _held_columns(known, others)
        if not p.is_continuous:
            member = torch.stack([c == code for code in range(len(p.levels))], dim=1).to(seen)
            gaps = _regression(seen, member, held, known.weights)[0]
            return Geometry(gaps, covariance, hidden, ranks)
        mean, spread = centre_and_spread(c, known.weights)
        along = torch.stack([(c - mean) / spread, torch.ones_like(c)], dim=1)
        slope = _regression(seen, along, held, known.weights)[0][:1] / spread
        return Geometry(slope, covariance, hidden, ranks, float(spread), c.unique())

    def _learn_outputs(self, known: Dataset, unseen: Dataset | None) -> None:
        """Learn the outputs of each group: from unseen rows, or from all known ones where these lack a group."""
        p = known.protected[self.variable]
        assert self.model is not None
        found, expected = self.model(known.x[:1]).shape[1], sum(each.outputs for each in known.protected)
        if found != expected:
            raise ShapeError(
                f"The auxiliary has {found} outputs; expected {expected}: one for two groups or a number, one per "
                "class of many, variable after variable"
            )
        self.logits, self.shifts = {}, {}
        if p.is_continuous:
            many = unseen is not None and len(unseen.c[:, self.variable].unique()) > 1
            rows = unseen if unseen is not None and many else known
            output = self._output(rows)
            c = rows.c[:, self.variable]
            along = torch.stack([c, torch.ones_like(c)], dim=1)
            self.shifts[0, 0] = self._shift_of(rows, along, output)
            self.line = OutputLine.of(output - self._shifted(rows, (0, 0)), c, rows.weights)
            return
        for low, high in combinations(range(len(p.levels)), 2):
            rows = _of_two(known if unseen is None else unseen, self.variable, low, high)
            if len(rows.c[:, self.variable].unique()) < 2:
                rows = _of_two(known, self.variable, low, high)
            logit = self._output(rows, (low, high))
            own = (rows.c[:, self.variable] == high).long()
            self.shifts[low, high] = self._shift_of(rows, torch.stack([1 - own, own], dim=1).to(logit), logit)
            self.logits[low, high] = GroupLogits.of(logit - self._shifted(rows, (low, high)), own, rows.weights)

    def _shift_of(self, rows: Dataset, own: Tensor, output: Tensor) -> Tensor:
        """Return how the output goes with the variables that are held (H,), the own group the same."""
        return _regression(output[:, None], own, self._held(rows), rows.weights)[1][:, 0]

    def _shifted(self, rows: Dataset, pair: tuple[int, int]) -> Tensor:
        """Return the part of everyone's output (n,) that goes with the variables that are held."""
        return self._held(rows) @ self.shifts[pair].to(rows.x)

    def _held(self, rows: Dataset) -> Tensor:
        """Return what is the same here and there, as columns (n, H)."""
        return _held_columns(rows, self._others(rows.protected))

    def _destinations(self, data: Dataset, to: Tensor, going: Tensor) -> Iterator[Destination]:
        """Yield everyone who goes: all with a number at once, and those between the same two classes together."""
        assert self.geometry is not None
        p, c, gaps = data.protected[self.variable], data.c[:, self.variable], self.geometry.gaps
        if p.is_continuous:
            rows = going.nonzero()[:, 0]
            if len(rows):
                assert self.line is not None
                shift = self._shifted(data[rows], (0, 0))
                output = self._output(data[rows]) - shift
                reach = self.line.where_to(output, c[rows], to[rows], self.carry)
                yield Destination(rows, (0, 1), reach + shift, gaps[0])
            return
        pair = len(p.levels) * torch.minimum(c, to) + torch.maximum(c, to)
        for code in pair[going].unique().tolist():
            low, high = divmod(int(code), len(p.levels))
            rows = (going & (pair == code)).nonzero()[:, 0]
            shift = self._shifted(data[rows], (low, high))
            logit, own = self._output(data[rows], (low, high)) - shift, (c[rows] == high).long()
            reach = self.logits[low, high].where_to(logit, own, self.carry)
            yield Destination(rows, (low, high), reach + shift, gaps[high] - gaps[low])

    def _others(self, protected: Sequence[Protected], variable: int | None = None) -> list[int]:
        """Return the variables that are held: a crossing changes its parts, and is itself changed with them."""
        own = self.variable if variable is None else variable
        if not self.hold_others or protected[own].parts:
            return []
        return [v for v, p in enumerate(protected) if v != own and not p.parts]

    def _moving(self, protected: Sequence[Protected], pair: tuple[int, int]) -> Model:
        """Return what moves as a model (N, D) -> (N, 1): one output, or the difference of two classes' logits."""
        assert self.model is not None
        start = sum(p.outputs for p in protected[: self.variable])
        row = torch.zeros(1, sum(p.outputs for p in protected), dtype=torch.float64)
        if protected[self.variable].kind == "categorical":
            row[0, start + pair[1]], row[0, start + pair[0]] = 1.0, -1.0
        else:
            row[0, start] = 1.0
        return combine_outputs(self.model, row)

    def _output(self, data: Dataset, pair: tuple[int, int] = (0, 1)) -> Tensor:
        model = self._moving(data.protected, pair)
        with torch.no_grad():
            return torch.cat([model(data.x[rows])[:, 0] for rows in row_blocks(len(data), self.batch_size)])


@dataclass(frozen=True)
class Geometry:
    """The geometry of one protected variable's groups in the fitting rows, for any auxiliary."""

    gaps: Tensor  # (G, D): the mean of x in each class; (1, D): its slope on a number
    covariance: Tensor | None  # (D, D), shrunk; None for the identity metric
    hidden: Tensor  # (D,) bool: columns that do not move along
    withheld_map: RankMap | None
    spread: float = 1.0  # of a number
    values: Tensor | None = None  # of a number, in order

    def metric(self, kind: Metric, gap: Tensor) -> Tensor | None:
        """Return S (D, D) for people who cross a gap (D,); None for the identity."""
        if self.covariance is None:
            return None
        matrix = between_metric(self.covariance, gap) if kind == "between" else self.covariance.clone()
        hidden = self.hidden.to(matrix.device)
        matrix[hidden] = 0.0
        matrix[:, hidden] = 0.0
        return matrix


@dataclass(frozen=True)
class GroupLogits:
    """Mean and spread of the auxiliary's logit in each of two groups, from rows it was not trained on."""

    mean: Tensor  # (2,)
    spread: Tensor  # (2,)
    between: float  # the between-group share of the logit's variance (eta squared)

    @classmethod
    def of(cls, logit: Tensor, c: Tensor, weights: Tensor | None = None) -> GroupLogits:
        """Return the statistics of logits (n,) over the groups c (n,), 0 and 1."""
        groups = [c == 0, c == 1]
        counts = [None if weights is None else weights[own].to(logit) for own in groups]
        moments = [_moments(logit[own], count) for own, count in zip(groups, counts, strict=True)]
        mean, spread = (torch.stack(each) for each in zip(*moments, strict=True))
        size = [own.sum() if count is None else count.sum() for own, count in zip(groups, counts, strict=True)]
        share = torch.stack(size).to(mean)
        share = share / share.sum()
        within = (share * spread.square()).sum()
        between = (share * (mean - (share * mean).sum()).square()).sum()
        return cls(mean, spread, float(between / (between + within).clamp(min=1e-30)))

    def where_to(self, logit: Tensor, own: Tensor, carry: Carry) -> Tensor:
        """Return the logit each person should reach in the other group: r(x)."""
        p = _carried_over(carry, self.between)
        other = 1 - own
        known = self.spread[own] > 0  # a group of one has no spread to compare with
        ratio = torch.where(known, self.spread[other] / torch.where(known, self.spread[own], 1.0), 1.0)
        return self.mean[other] + p * ratio * (logit - self.mean[own])


@dataclass(frozen=True)
class OutputLine:
    """The least-squares line of the auxiliary's output on a number, from rows it was not trained on."""

    slope: Tensor
    level: Tensor  # the output at c = 0
    explained: float  # the share of the output's variance on the line (R squared)

    @classmethod
    def of(cls, output: Tensor, c: Tensor, weights: Tensor | None = None) -> OutputLine:
        """Return the line of outputs (n,) on the numbers c (n,)."""
        count = _counts(weights, output)
        share = count / count.sum()
        out, at = output - (share * output).sum(), c - (share * c).sum()
        variance = (share * at.square()).sum()
        slope = (share * at * out).sum() / variance
        explained = slope.square() * variance / (share * out.square()).sum().clamp(min=1e-30)
        return cls(slope, (share * (output - slope * c)).sum(), float(explained.clamp(max=1.0)))

    def where_to(self, output: Tensor, c: Tensor, to: Tensor, carry: Carry) -> Tensor:
        """Return the output each person should reach at the number `to` (n,) instead of c (n,): r(x)."""
        here, there = (self.level + self.slope * at for at in (c, to))
        return there + _carried_over(carry, self.explained) * (output - here)


class Destination(NamedTuple):
    """Where some people go: their rows, the classes whose logits change, and the output to reach."""

    rows: Tensor  # (n,)
    pair: tuple[int, int]
    reach: Tensor  # (n,)
    gap: Tensor  # (D,)


def _moved_rows(
    end: Destination, rows: Tensor, model: Model, *, metric: Tensor | None, still: Tensor, steps: int, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Return people of some rows (N, D) at their destination (n, D), and who (n,) found no direction to go on.

    The output of `model` (N, 1) is what changes; columns that are `still` (D,) do not.
    """
    moved, stuck = [], []
    network = relu_network(model, rows.shape[1])
    by_hand = network if network is not None and network.finish is None and network.outputs == 1 else None
    for block in row_blocks(len(end.rows), batch_size):
        x = rows[end.rows[block]]
        lost = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for step in range(steps):
            output, jac = _output_and_slope(model, by_hand, x)
            jac[:, :, still] = 0.0
            lost |= dead_rows(jac)
            direction = inverse_direction(jac, metric=metric)[:, :, 0]
            left = end.reach[block] - output
            x = x + direction * (left / (steps - step))[:, None]
        moved.append(x)
        stuck.append(lost)
    return torch.cat(moved), torch.cat(stuck)


def _output_and_slope(model: Model, network: ReluNetwork | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the single output (n,) of a model and its slope by x (n, 1, D): of a plain network in one pass."""
    with torch.no_grad():
        if network is not None:
            output, slope = network.with_slope(x.to(network.first))
            return output.to(x), slope[:, None].to(x)
        output = model(x)[:, 0]
    return output, autograd_jacobian(model, x, batch_size=len(x))


def _held_columns(data: Dataset, others: Sequence[int]) -> Tensor:
    """Return the other protected variables that are held as columns (N, H).

    Classes but the first as 0 and 1, and numbers. What is unknown is 0: such people are neither learnt from nor moved.
    """
    columns = [data.x.new_zeros(len(data), 0)]
    for v in others:
        p, c = data.protected[v], data.c[:, v].to(data.x)
        codes = torch.arange(1, max(len(p.levels), 1), device=c.device)
        columns.append(c.nan_to_num()[:, None] if p.is_continuous else (c[:, None] == codes).to(data.x))
    return torch.cat(columns, dim=1)


def _regression(values: Tensor, own: Tensor, held: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the least-squares coefficients of values (n, D) on own (n, G) and held columns (n, H), both at once."""
    solution = weighted_least_squares(torch.cat([own, held], dim=1), values, _counts(weights, values)).to(values)
    return solution[: own.shape[1]], solution[own.shape[1] :]


def _moments(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of values (n,)."""
    if weights is None:
        return values.mean(), values.std(correction=0)
    share = weights / weights.sum()
    mean = (share * values).sum()
    return mean, (share * (values - mean).square()).sum().sqrt()


def _carried_over(carry: Carry, explained: float) -> float:
    return (1 - explained) ** 2 if carry == "adaptive" else carry


def _counts(weights: Tensor | None, like: Tensor) -> Tensor:
    """Return how many people each row stands for (n,)."""
    return like.new_ones(len(like)) if weights is None else weights.to(like)


def _of_two(data: Dataset, variable: int, low: int, high: int) -> Dataset:
    """Return the members of two classes."""
    c = data.c[:, variable]
    member = (c == low) | (c == high)
    return data if bool(member.all()) else data[member]
