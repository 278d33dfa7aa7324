"""The move map: along the auxiliary's direction, for features that must move together."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from numbers import Real
from typing import Self

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel
from fairfox.data.dataset import Dataset, Protected, missing_columns, project_blocks
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.columns import outside
from fairfox.maps.destinations import GroupLogits, OutputLine, Persistence
from fairfox.maps.held import held_columns, regression
from fairfox.maps.outputs import check_outputs, moving
from fairfox.maps.protocol import FLAT, OFF_RANGE, CounterfactualMap, Mapped, check_groups_present, where_to, who_counts
from fairfox.maps.ranks import kept_missing
from fairfox.maps.surroundings import Metric, Surroundings, look_around
from fairfox.maps.walks import Way, follow, map_by_hand, plain_network
from fairfox.models.protocol import Model, row_blocks
from fairfox.nets.slopes import ReluNet


@dataclass(kw_only=True)
class MoveMap:
    """Everyone moved along v = S Jᵀ (J S Jᵀ)⁺ until the auxiliary takes them for a member of the other group.

    Between two of many classes the difference of their logits moves; a number is moved by its standard deviations.
    The metric S says what "smallest" means. `identity`: the smallest edit that changes c (the paper's move: the
    *direct* reading). `covariance`: features that correlate move along. `between`: what really differs between
    the groups. The direction is recomputed at each of `steps` equal steps. `persistence` is how much of a
    person's typicality carries over: 1 keeps the rank of the logit, 0 sends everyone to the other group's mean.
    With `hold_others` groups are compared that are alike in the other protected variables: by linear regression.
    Columns named `legitimate` do not move; the metric is that of what they leave unexplained, and by regression groups
    are compared that are alike in them.

    `by_hand` takes the shortest way through a plain ReLU network where nothing is held: the same rows but for rounding.
    """

    metric: Metric = "between"
    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)
    steps: int = 8
    persistence: Persistence = "adaptive"
    shrink: float = 0.1
    variable: int = 0
    hold_others: bool = False
    legitimate: tuple[str, ...] = ()  # names of features
    batch_size: int = 4096
    by_hand: bool = field(default=False, init=False, repr=False)
    model: Model | None = field(default=None, init=False, repr=False)
    surroundings: Surroundings | None = field(default=None, init=False, repr=False)
    logits: dict[tuple[int, int], GroupLogits] = field(default_factory=dict, init=False, repr=False)  # of two classes
    line: OutputLine | None = field(default=None, init=False, repr=False)  # of a number
    shifts: dict[tuple[int, int], Tensor] = field(default_factory=dict, init=False, repr=False)  # (H,) by what is held

    def __post_init__(self) -> None:
        if self.metric not in ("identity", "covariance", "between"):
            raise OptionError(f"The metric is '{self.metric}'; expected 'identity', 'covariance' or 'between'")
        if self.steps < 1:
            raise OptionError(f"steps is {self.steps!r}; expected a whole number of at least 1")
        number = isinstance(self.persistence, Real) and not isinstance(self.persistence, bool)
        if self.persistence != "adaptive" and not (number and 0 <= self.persistence <= 1):
            raise OptionError(f"persistence is {self.persistence!r}; expected 'adaptive' or a number from 0 to 1")
        if not 0 <= self.shrink <= 1:
            raise OptionError(f"shrink is {self.shrink!r}; expected a number from 0 to 1")

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary and read off the metric and the group statistics; uses the first member."""
        fitted = self._fit_variable(data, self.variable, self._train(data, 1, seed=0), 1, seed=0)[0]
        self.model, self.surroundings = fitted.model, fitted.surroundings
        self.logits, self.line, self.shifts = fitted.logits, fitted.line, fitted.shifts
        return self

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
        """Return for each protected variable one map per member of the auxiliary, at most `refits`.

        The auxiliary is trained once for all variables, its members together.
        """
        auxiliary = self._train(data, refits, seed=seed)
        return [[*self._fit_variable(data, v, auxiliary, refits, seed=seed)] for v in range(len(data.protected))]

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone where `to` (N,) says; where J vanishes on the way people stay and are abstained."""
        if self.model is None or self.surroundings is None:
            raise NotFittedError("This MoveMap is not fitted; call fit first")
        p, c = data.protected[self.variable], data.c[:, self.variable]
        to = where_to(data, self.variable, to)
        if self.by_hand and (net := self._plain_network(data, to)) is not None:
            return map_by_hand(
                net,
                data,
                self.variable,
                self.logits[0, 1],
                persistence=self.persistence,
                steps=self.steps,
                batch_size=self.batch_size,
            )
        unknown = data.c[:, [self.variable, *self._others(data.protected)]].isnan().any(1)
        going = ~(unknown | to.isnan() | (to == c if not p.is_continuous else to == 0))
        there = self.surroundings.reached(c, to)
        off = going & there.isnan()
        kept = self.surroundings.legitimate.among(data.x.shape[1])
        x, flat = data.x.clone(), torch.zeros(len(c), dtype=torch.bool, device=c.device)
        for way in self._ways(data, there, going & ~off):
            x[way.rows], flat[way.rows] = self._follow(way, data)
        overshoot = outside(x, data.features)
        x = kept_missing(project_blocks(x, data.features), data.x, data.features)
        x[:, kept] = data.x[:, kept]
        reasons = [(flat, FLAT), (off, OFF_RANGE)]
        if self.surroundings.withheld_map is not None:
            swapped = self.surroundings.withheld_map.map(data, to)
            x[:, data.withheld] = swapped.rows[:, data.withheld]
            reasons.append((swapped.abstained & going & ~off, swapped.reason))
        stay = ~going | torch.stack([gone for gone, _ in reasons]).any(0)
        x[stay] = data.x[stay]
        _, reason = max(reasons, key=lambda one: int(one[0].sum()))  # most people's
        return Mapped(x, stay, reason, overshoot)

    def _plain_network(self, data: Dataset, to: Tensor) -> ReluNet | None:
        """Return the auxiliary as a plain network where all of two groups change sides and every column moves freely;
        else None."""
        assert self.surroundings is not None
        here = self.surroundings
        p, c = data.protected[self.variable], data.c[:, self.variable]
        held = self._others(data.protected) or self.legitimate or here.withheld_map is not None
        if self.metric != "identity" or p.kind != "binary" or held or bool(missing_columns(data).any()):
            return None
        if not bool((to == 1 - c).all()):  # false too where a value is unknown
            return None
        net = plain_network(self._moving(data.protected, (0, 1)))
        return net if net is not None and net.weights[0].dtype == data.x.dtype else None

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
        surroundings = look_around(
            known,
            variable,
            metric=self.metric,
            shrink=self.shrink,
            others=others,
            hold_others=self.hold_others,
            legitimate=self.legitimate,
            seed=seed,
        )
        unseen = None if auxiliary.held_out is None else who_counts(auxiliary.held_out, [variable, *others])
        maps = []
        for member in list(auxiliary.members)[:refits]:
            one = copy.copy(self)
            one.variable, one.model, one.surroundings = variable, member, surroundings
            one._learn_where(known, unseen)
            maps.append(one)
        return maps

    def _learn_where(self, known: Dataset, unseen: Dataset | None) -> None:
        """Read off where people stand: from unseen rows, or from all known ones where these lack a group."""
        p = known.protected[self.variable]
        assert self.model is not None
        check_outputs(self.model, known)
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
        return regression(output[:, None], own, self._held(rows), rows.weights)[1][:, 0]

    def _shifted(self, rows: Dataset, pair: tuple[int, int]) -> Tensor:
        """Return the part of everyone's output (n,) that goes with the variables that are held."""
        return self._held(rows) @ self.shifts[pair].to(rows.x)

    def _held(self, rows: Dataset) -> Tensor:
        """Return what is the same here and there, as columns (n, H)."""
        assert self.surroundings is not None
        return held_columns(rows, self._others(rows.protected), self.surroundings.legitimate)

    def _ways(self, data: Dataset, to: Tensor, going: Tensor) -> Iterator[Way]:
        """Yield everyone who goes: all with a number at once, and those between the same two classes together."""
        assert self.surroundings is not None
        p, c, gaps = data.protected[self.variable], data.c[:, self.variable], self.surroundings.gaps
        if p.is_continuous:
            rows = going.nonzero()[:, 0]
            if len(rows):
                assert self.line is not None
                shift = self._shifted(data[rows], (0, 0))
                output = self._output(data[rows]) - shift
                reach = self.line.where_to(output, c[rows], to[rows], self.persistence)
                yield Way(rows, (0, 1), reach + shift, gaps[0])
            return
        pair = len(p.levels) * torch.minimum(c, to) + torch.maximum(c, to)
        for code in pair[going].unique().tolist():
            low, high = divmod(int(code), len(p.levels))
            rows = (going & (pair == code)).nonzero()[:, 0]
            shift = self._shifted(data[rows], (low, high))
            logit, own = self._output(data[rows], (low, high)) - shift, (c[rows] == high).long()
            reach = self.logits[low, high].where_to(logit, own, self.persistence)
            yield Way(rows, (low, high), reach + shift, gaps[high] - gaps[low])

    def _follow(self, way: Way, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return the rows (n, D) of people at the end of their way, and who (n,) found no direction to go on."""
        assert self.surroundings is not None
        return follow(
            way,
            data.x,
            self._moving(data.protected, way.pair),
            metric=self.surroundings.metric(self.metric, way.gap),
            still=missing_columns(data) | self.surroundings.legitimate.among(data.x.shape[1]),
            steps=self.steps,
            batch_size=self.batch_size,
        )

    def _others(self, protected: Sequence[Protected], variable: int | None = None) -> list[int]:
        """Return the variables that are held: a crossing changes its parts, and is itself changed with them."""
        own = self.variable if variable is None else variable
        if not self.hold_others or protected[own].parts:
            return []
        return [v for v, p in enumerate(protected) if v != own and not p.parts]

    def _moving(self, protected: Sequence[Protected], pair: tuple[int, int]) -> Model:
        """Return what moves as a model (N, D) -> (N, 1)."""
        assert self.model is not None
        return moving(self.model, protected, self.variable, pair)

    def _output(self, data: Dataset, pair: tuple[int, int] = (0, 1)) -> Tensor:
        model = self._moving(data.protected, pair)
        with torch.no_grad():
            return torch.cat([model(data.x[rows])[:, 0] for rows in row_blocks(len(data), self.batch_size)])


def _of_two(data: Dataset, variable: int, low: int, high: int) -> Dataset:
    """Return the members of two classes."""
    c = data.c[:, variable]
    member = (c == low) | (c == high)
    return data if bool(member.all()) else data[member]
