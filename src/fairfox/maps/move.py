"""The move map: along the auxiliary's direction, for features that must move together."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal, Self

import torch
from torch import Tensor

from fairfox.alignment import dead_rows, inverse_direction
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel
from fairfox.data.dataset import Dataset, missing_columns, project_blocks
from fairfox.errors import NotFittedError, OptionError
from fairfox.gradients.autograd import autograd_jacobian
from fairfox.maps.protocol import CounterfactualMap, Mapped, check_both_groups
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model
from fairfox.similarity import between_metric, covariance_metric

Metric = Literal["identity", "covariance", "between"]
Persistence = Literal["adaptive"] | float


@dataclass(frozen=True)
class GroupLogits:
    """Mean and spread of the auxiliary's logit in each group, from rows it was not trained on."""

    mean: Tensor  # (2,)
    spread: Tensor  # (2,)
    between: float  # the between-group share of the logit's variance (eta squared)

    @classmethod
    def of(cls, logit: Tensor, c: Tensor) -> GroupLogits:
        """Return the statistics of logits (n,) over the groups c (n,)."""
        groups = [logit[c == g] for g in (0, 1)]
        mean = torch.stack([part.mean() for part in groups])
        spread = torch.stack([part.std(correction=0) for part in groups])
        share = torch.tensor([len(part) for part in groups]).to(mean)
        share = share / share.sum()
        within = (share * spread.square()).sum()
        between = (share * (mean - (share * mean).sum()).square()).sum()
        return cls(mean, spread, float(between / (between + within).clamp(min=1e-30)))

    def where_to(self, logit: Tensor, own: Tensor, persistence: Persistence) -> Tensor:
        """Return the logit each person should reach in the other group: r(x)."""
        p = (1 - self.between) ** 2 if persistence == "adaptive" else persistence
        other = 1 - own
        known = self.spread[own] > 0  # a group of one has no spread to compare with
        ratio = torch.where(known, self.spread[other] / torch.where(known, self.spread[own], 1.0), 1.0)
        return self.mean[other] + p * ratio * (logit - self.mean[own])


@dataclass(kw_only=True)
class MoveMap:
    """Everyone moved along v = S Jᵀ (J S Jᵀ)⁺ until the auxiliary takes them for a member of the other group.

    The metric S says what "smallest" means. `identity`: the smallest edit that changes c (the paper's move: the
    *direct* reading). `covariance`: features that correlate move along. `between`: what really differs between
    the groups. The direction is recomputed at each of `steps` equal steps. `persistence` is how much of a
    person's typicality carries over: 1 keeps the rank of the logit, 0 sends everyone to the other group's mean.
    """

    metric: Metric = "between"
    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)
    steps: int = 8
    persistence: Persistence = "adaptive"
    shrink: float = 0.1
    variable: int = 0
    batch_size: int = 4096
    model: Model | None = field(default=None, init=False, repr=False)
    matrix: Tensor | None = field(default=None, init=False, repr=False)  # S
    logits: GroupLogits | None = field(default=None, init=False, repr=False)
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary and read off the metric and the group statistics; uses the first member."""
        fitted: MoveMap = self.fit_many(data, 1, seed=0)[0]  # type: ignore[assignment]
        self.model, self.matrix, self.logits, self.withheld_map = (
            fitted.model,
            fitted.matrix,
            fitted.logits,
            fitted.withheld_map,
        )
        return self

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[CounterfactualMap]:
        """Return one map per member of the auxiliary, at most `refits`; members are trained together."""
        if data.protected[self.variable].kind != "binary":
            raise OptionError("The move map compares two groups; give a protected variable with two values, or a cut")
        auxiliary = copy.copy(self.auxiliary)
        if isinstance(auxiliary, AuxiliaryModel):
            auxiliary.refits = refits
            auxiliary.seed += seed
        auxiliary.fit(data)
        known = data[~data.c[:, self.variable].isnan()]
        check_both_groups(known, self.variable)
        matrix = self._metric(known)
        rank = None
        if bool(data.withheld.any()):
            rank = RankMap(variable=self.variable, only=data.withheld).fit(known)
        unseen = auxiliary.held_out
        rows = unseen if unseen is not None and _has_both_groups(unseen, self.variable) else known
        return [self._with(member, matrix, rank, rows) for member in list(auxiliary.members)[:refits]]

    def map(self, data: Dataset) -> Mapped:
        """Return everyone moved into the other group; where J vanishes on the way people stay and are abstained."""
        if self.model is None or self.logits is None:
            raise NotFittedError("This MoveMap is not fitted; call fit first")
        c = data.c[:, self.variable]
        unknown = c.isnan()
        own = c.nan_to_num().long()
        x, model = data.x.clone(), self.model
        gaps = missing_columns(data)
        with torch.no_grad():
            reach = self.logits.where_to(self._logit(model, x), own, self.persistence)
        dead = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for step in range(self.steps):
            jac = self._jacobian(model, x)  # (N, 1, D)
            jac[:, :, gaps] = 0.0
            dead |= dead_rows(jac)
            direction = inverse_direction(jac, metric=self.matrix)[:, :, 0]
            with torch.no_grad():
                left = reach - self._logit(model, x)
            x = x + direction * (left / (self.steps - step))[:, None]
        overshoot = _outside(x, data)
        x = project_blocks(x, data.features)
        for f in data.features:
            if f.has_missing:  # what is missing stays missing
                x[:, f.start] = torch.where(data.x[:, f.start + 1] > 0.5, data.x[:, f.start], x[:, f.start])
        if self.withheld_map is not None:
            x[:, data.withheld] = self.withheld_map.map(data).rows[:, data.withheld]
        stay = dead | unknown
        x[stay] = data.x[stay]
        return Mapped(x, stay, "no evidence about the protected variable (the auxiliary is flat here)", overshoot)

    def _jacobian(self, model: Model, x: Tensor) -> Tensor:
        return autograd_jacobian(model, x, batch_size=self.batch_size)[:, self.variable, None]

    def _logit(self, model: Model, x: Tensor) -> Tensor:
        return torch.cat([model(part)[:, self.variable] for part in x.split(self.batch_size)])

    def _with(self, model: Model, matrix: Tensor | None, rank: RankMap | None, held_out: Dataset) -> MoveMap:
        one = copy.copy(self)
        one.model, one.matrix, one.withheld_map = model, matrix, rank
        with torch.no_grad():
            one.logits = GroupLogits.of(self._logit(model, held_out.x), held_out.c[:, self.variable])
        return one

    def _metric(self, data: Dataset) -> Tensor | None:
        if self.metric == "identity":
            return None
        seen = torch.where(data.withheld.to(data.x.device), 0.0, data.x)  # what is withheld does not move along
        if self.metric == "covariance":
            matrix = covariance_metric(seen, shrink=self.shrink)
        elif self.metric == "between":
            matrix = between_metric(seen, data.c[:, self.variable] == 1, shrink=self.shrink)
        else:
            raise OptionError(f"The metric is '{self.metric}'; expected 'identity', 'covariance' or 'between'")
        hidden = (data.withheld | missing_columns(data)).to(matrix.device)
        matrix[hidden] = 0.0
        matrix[:, hidden] = 0.0
        return matrix


def _has_both_groups(data: Dataset, variable: int) -> bool:
    return bool((data.c[:, variable] == 0).any() and (data.c[:, variable] == 1).any())


def _outside(x: Tensor, data: Dataset) -> Tensor:
    """Return the largest distance of anyone's one-hot entries from [0, 1] (N,)."""
    blocks = [x[:, f.columns] for f in data.features if f.kind == "categorical"]
    if not blocks:
        return x.new_zeros(len(x))
    entries = torch.cat(blocks, dim=1)
    return (entries - entries.clamp(0, 1)).abs().amax(1)
