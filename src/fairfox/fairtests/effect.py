"""One test for every counterfactual map, the effect f(T(x)) - f(x); and the alignment share of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, heads_of
from fairfox.auxiliary.training import within_label
from fairfox.data.contrasts import LOWER, Contrast, destinations, moves
from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import NotFittedError
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.gradients.alignment import (
    SINGLE,
    Head,
    alignment_parts,
    covariance_metric,
    dead_rows,
    inverse_direction,
    ratio_of_sums,
    square_root,
)
from fairfox.gradients.jacobian import WIDE_STEP, directional_derivative, finite_difference_jacobian, jacobian
from fairfox.maps.conditional import is_stepped
from fairfox.maps.protocol import CheckedMap, CounterfactualMap, Mapped, fit_maps, map_by_each
from fairfox.maps.rank import RankMap
from fairfox.maps.ranks import DrawTable, distinct_values, present
from fairfox.models.protocol import Model, predict, predict_once

_AT_ONCE, _CELLS = 160_000, 8_000_000  # rows that are drawn and predicted in one go, and their cells
_MANY, _FEW = 8, 5  # draws of categories and of ranks among ties: of the first refit, of each other
_JUDGED = 50_000  # people, about, who show whether a number has ties
_LEAST = 0.1  # share of the scatter of refits that is taken to be theirs, not the draws'
_DIRECTIONS = 8  # random directions for a black box
ROWS = 4_000  # that a black box is asked for an alignment share, about


@dataclass(kw_only=True)
class Effect:
    """How the prediction would change if the person were a member of another group, by a counterfactual map.

    It takes one extra prediction per person, refit and contrast, so any model will do. A contrast is the other of two
    groups, each other class of many, or a number one standard deviation up and down. Where a category or a tied rank is
    a distribution, the effect is its mean. The largest effect counts. With `aligned` the effect is multiplied by the
    model's alignment share (the names with /a), which compares people across models.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> half = LinearMember(torch.tensor([[0.5]]), torch.zeros(1))
        >>> Effect(map=RankMap(), refits=1).fit(data).measure(half, data).effect
        tensor([ 2.5000,  3.0000, -2.5000, -3.0000])
    """

    map: CounterfactualMap = field(default_factory=RankMap)
    refits: int = 5
    aligned: bool = False
    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)  # for the alignment share only
    seed: int = 0
    batch_size: int = 4096
    fitted: list[list[CounterfactualMap]] = field(default_factory=list, init=False, repr=False)  # [variable][refit]
    several: bool = field(default=False, init=False, repr=False)  # whether a person may have one of several rows there
    metric: Tensor | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Fit the map `refits` times on x and c, never y."""
        self.fitted = fit_maps(self.map, data, self.refits, seed=self.seed)
        self.several = self.persists and any(_is_shared_out(data.x, f) for f in data.features)
        if self.aligned:
            self.auxiliary.fit(data)
            self.metric = alignment_metric(data, self.auxiliary)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data, rows=False).score

    def measure(
        self, model: Model, data: Dataset, *, predictions: Tensor | None = None, rows: bool = True
    ) -> Measurement:
        """Return the signed effect with the value of each refit and, with `rows`, its counterfactual rows.

        `predictions` are f(x) where they are known already.
        """
        if not self.fitted:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        here = predict(model, data.x, batch_size=self.batch_size) if predictions is None else predictions
        contrasts = moves(data.protected)
        values = here.new_full((len(self.fitted[0]), len(data), len(contrasts)), torch.nan)
        overshoot = here.new_full((len(data),), torch.nan)
        borrowed = torch.zeros(len(data), dtype=torch.bool)
        reasons: list[str | None] = [None] * len(data)
        plan = self._plan(data)
        for q, contrast in enumerate(contrasts):
            for going, effects, maps in self._effects(model, data, contrast, here, plan):
                found = plan.values(effects)
                for m, mapped in enumerate(maps):
                    own = slice(len(going))  # the first of several draws
                    gone = mapped.abstained[own].to(here.device)
                    values[m, going, q] = torch.where(gone, torch.nan, found[m])
                    for words, who in mapped.reasons.items():
                        for row in going[who[own].to(going.device)].tolist():
                            reasons[row] = words
                    if mapped.borrowed is not None:
                        borrowed[going.cpu()] |= mapped.borrowed[own].cpu()
                    if mapped.overshoot is not None:
                        overshoot[going] = torch.fmax(overshoot[going], mapped.overshoot[own])
        beyond = None if bool(overshoot.isnan().all()) else overshoot.nan_to_num()
        measured = combine(values, data, contrasts=contrasts, signed=True, reasons=reasons, overshoot=beyond)
        measured = replace(measured, borrowed=borrowed)
        if self.aligned:
            assert self.metric is not None
            how = {"seed": self.seed, "batch_size": self.batch_size}
            shares = model_alignment(model, data, self.auxiliary, self.metric, **how)
            measured = measured.scaled([share.value for share in shares], data)
        if not rows:
            return measured
        judged = torch.where(measured.abstained.to(measured.worst.device), -1, measured.worst)
        return replace(measured, counterfactuals=self.counterfactuals(data, judged))

    def _plan(self, data: Dataset) -> DrawPlan:
        """Return which draws each refit takes where ranks persist: none where everyone's row is one row there."""
        refits = len(self.fitted[0])
        if not self.several:
            return DrawPlan(None, [[0]] * refits)
        few = [[(_FEW * (m - 1) + k) % _MANY for k in range(_FEW)] for m in range(1, refits)]
        return DrawPlan(self._table(data, _MANY), [list(range(_MANY)), *few])

    def _table(self, data: Dataset, count: int) -> DrawTable:
        columns = data.x.shape[1] + (0 if data.w is None else data.w.shape[1])
        return DrawTable.of(count, columns, seed=self.seed).to(data.x.device)

    def _effects(
        self, model: Model, data: Dataset, contrast: Contrast, here: Tensor, plan: DrawPlan
    ) -> Iterator[tuple[Tensor, list[Tensor], list[Mapped]]]:
        """Yield some people at a time whom a contrast concerns (n,), f(T(x)) - f(x) of each refit (draws, n), and who
        was mapped."""
        to, own = destinations(data, contrast), data.c[:, contrast.variable]
        going = (~to.isnan()).nonzero()[:, 0]
        if self.persists:  # a group's people together: ranks map columns whole
            going = going[own[going].argsort(stable=True)]
        falls = contrast.towards == LOWER
        # a black box is called seldom; rows that are equal, as those of people with categories may be, count once
        together = not model.differentiable and (self.several or sum(plan.times) * len(going) <= _AT_ONCE)
        ask = partial(predict_once if self.several and together else predict, model, batch_size=self.batch_size)
        at_once = min(_AT_ONCE, _CELLS // max(data.x.shape[1], 1))
        most = at_once // (sum(plan.times) if together else max(plan.times))
        for part in going.split(max(1, most)) if len(going) else ():
            found: list[Tensor] = []
            maps: list[Mapped] = []
            for mapped in self._mapped(data, part, to, contrast.variable, plan):
                maps.append(mapped)
                if not together:
                    found.append(ask(mapped.rows))
                    maps[-1] = replace(mapped, rows=here.new_empty(0, 0))  # they take much room
            if together:
                rows = torch.cat([mapped.rows.T for mapped in maps], dim=1).T  # columns stay in one piece
                found = list(ask(rows).split([times * len(part) for times in plan.times]))
            each = [own.view(times, len(part)) - here[part] for own, times in zip(found, plan.times, strict=True)]
            yield part, [-effect for effect in each] if falls else each, maps

    def _mapped(self, data: Dataset, part: Tensor, to: Tensor, variable: int, plan: DrawPlan) -> Iterator[Mapped]:
        """Yield what each refit makes of some people (n,), one draw of everyone after the other."""
        people, draws = data[part], None
        if plan.table is not None:
            sets = plan.table.sets(people.x)
            draws = [plan.table.draws(people.x, chosen, plan.persistence, sets) for chosen in plan.chosen]
        return map_by_each(self.fitted[variable][: len(plan.chosen)], people, to[part], draws)

    def counterfactuals(self, data: Dataset, worst: Tensor, *, refits: int | None = None) -> Tensor:
        """Return the rows x' of the first refits (M, N, D), or of all: everyone where contrast `worst` takes them.

        Numbers count the contrasts of the protected variables; people with -1 keep their row.
        """
        return self._rows(data, worst, DrawPlan(None, [[0]] * len(self.fitted[0][:refits])))

    def _rows(self, data: Dataset, worst: Tensor, plan: DrawPlan) -> Tensor:
        """Return the rows of a plan (R, N, D): everyone where their contrast `worst` takes them."""
        out = data.x.expand(sum(plan.times), -1, -1).clone()
        for q, contrast in enumerate(moves(data.protected)):
            part = (worst == q).nonzero()[:, 0].to(data.x.device)
            if len(part):
                maps = self._mapped(data, part, destinations(data, contrast), contrast.variable, plan)
                rows = [mapped.rows.view(-1, len(part), data.x.shape[1]) for mapped in maps]
                out[:, part] = torch.cat(rows).to(out)
        return out

    @property
    def persists(self) -> bool:
        """Whether ranks can persist in part: not where the map has none."""
        return getattr(self.map, "persists", False)

    def deviations(
        self, model: Model, data: Dataset, measured: Measurement, here: Tensor, persistence: Sequence[float], draws: int
    ) -> list[Tensor]:
        """Return what draws add to each contrast (K, N, Q) where ranks persist with these correlations.

        The draws are divided among the refits; `measured` is of these people, `here` is f(x).
        """
        refits = len(self.fitted[0])
        each = -(-draws // refits)
        chosen = [list(range(m, each * refits, refits)) for m in range(refits)]
        plan = DrawPlan(self._table(data, each * refits), chosen, tuple(persistence))
        out = measured.each.new_full((len(persistence), each * refits, *measured.each.shape[1:]), torch.nan)
        for q, contrast in enumerate(measured.contrasts):
            for part, effects, _ in self._effects(model, data, contrast, here, plan):
                for m, own in enumerate(effects):
                    added = own - measured.each[m, part, q]
                    out[:, m::refits, part, q] = added.view(len(persistence), each, -1)
        return list(out)

    def rows_of_draws(self, data: Dataset, worst: Tensor) -> Tensor:
        """Return the rows (R, N, D) that effects are averaged over, with whole categories where these are shared out.

        Everyone goes where their contrast `worst` takes them; people with -1 keep their row.
        """
        return self._rows(data, worst, self._plan(data))

    def checks(self) -> dict[str, float]:
        """Return the checks of the maps, averaged; empty where they have none."""
        found = [fitted.checks() for maps in self.fitted for fitted in maps if isinstance(fitted, CheckedMap)]
        return {name: fmean(each[name] for each in found) for name in (found[0] if found else ())}

    def warnings(self, checks: Mapping[str, float]) -> list[str]:
        """Return a sentence for each check that is poor."""
        return self.map.warnings(checks) if isinstance(self.map, CheckedMap) else []


class DrawPlan(NamedTuple):
    """Which draws of a table each refit uses; without a table, each person has one row.

    Where ranks persist in part, the first refit uses all draws. Each other refit uses some, to show how it differs from
    the first: refits differ less for the same draw than draws do.
    """

    table: DrawTable | None
    chosen: list[list[int]]  # of the table's draws, for each refit
    persistence: tuple[float, ...] = (1.0,)

    @property
    def times(self) -> list[int]:
        """How many rows each refit makes per person."""
        return [len(own) * len(self.persistence) for own in self.chosen]

    def values(self, effects: Sequence[Tensor]) -> Tensor:
        """Return the effect (M, n) in each refit, of the effects (draws, n) in each."""
        if self.table is None or len(effects) == 1:
            return torch.stack([own.mean(0) for own in effects])
        first = effects[0]
        gaps = torch.stack([own - first[chosen] for own, chosen in zip(effects[1:], self.chosen[1:], strict=True)])
        apart, noise = gaps.mean(1), gaps.var(1).mean(0) / gaps.shape[1]  # (M - 1, n), (n,)
        if len(apart) > 1:  # the scatter of a few draws is no scatter of refits
            middle, scatter = apart.mean(0), apart.var(0)
            real = torch.where(scatter > 0, 1 - noise / torch.where(scatter > 0, scatter, 1.0), 1.0).clamp(min=_LEAST)
            apart = middle + real.sqrt() * (apart - middle)
        return first.mean(0) + torch.cat([torch.zeros_like(apart[:1]), apart])


class Share(NamedTuple):
    """An alignment share, and its standard error over people and auxiliaries."""

    value: float
    error: float


def _is_shared_out(x: Tensor, feature: Feature) -> bool:
    """Return whether equal people may have different values of a feature there: a category, or a number with ties."""
    if feature.kind == "categorical":
        return True
    values = present(x[:: max(1, len(x) // _JUDGED)], feature)
    return 2 * len(distinct_values(values)[0]) <= len(values) and is_stepped(values)


def alignment_metric(data: Dataset, auxiliary: Auxiliary) -> Tensor:
    """Return the covariance (D, D) in which an alignment share is measured: within labels for balanced auxiliaries."""
    within = getattr(auxiliary, "balance", False) and data.y is not None
    return covariance_metric(within_label(data) if within else data.x, weights=data.weights)


def model_alignment(
    model: Model,
    data: Dataset,
    auxiliary: Auxiliary,
    metric: Tensor,
    *,
    seed: int = 0,
    batch_size: int = 4096,
    rows: int = ROWS,
) -> list[Share]:
    """Return A for each protected variable, averaged over the auxiliary's members, whose scatter is in its error.

    It uses gradients where the model is differentiable. A black box on continuous columns is evaluated along the
    protected direction and along random directions from the metric; with categories its whole Jacobian is estimated.
    Both use a random sample of the people.
    """
    heads = heads_of(data.protected)
    by_directions = not model.differentiable and not getattr(model, "blocks", ())
    if not model.differentiable:
        asked = 2 * (_DIRECTIONS + len(auxiliary.members)) if by_directions else 2 * data.x.shape[1]
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        data = data[order[: max(50, rows // asked)].sort().values]
    if by_directions:
        whole = _random_slopes(model, data.x, metric, seed)
    elif model.differentiable:
        gradient = jacobian(model, data.x, batch_size=batch_size)[:, 0]
    else:
        gradient = finite_difference_jacobian(model, data.x, step=WIDE_STEP)[:, 0]
    shares = []
    for member in auxiliary.members:
        jac = jacobian(member, data.x, batch_size=batch_size)
        row = []
        for own, head in zip(jac.split([h.outputs for h in heads], dim=1), heads, strict=True):
            if by_directions:
                along, total = _slopes_along(model, data.x, own, metric, head), whole
            else:
                along, total = alignment_parts(gradient, own, metric, heads=[head])
            counts = (~dead_rows(own)).to(total) if data.weights is None else data.weights * ~dead_rows(own)
            row.append(_share(along * counts, total * counts))
        shares.append(row)
    values, errors = torch.tensor(shares, dtype=torch.float64).unbind(2)  # (M, V)
    scatter = values.var(0) / len(values) if len(values) > 1 else torch.zeros_like(values[0])
    both = (errors.mean(0).square() + scatter).sqrt()
    return [Share(*each) for each in zip(values.mean(0).tolist(), both.tolist(), strict=True)]


def _slopes_along(model: Model, x: Tensor, jac_aux: Tensor, metric: Tensor, head: Head) -> Tensor:
    """Return g S Jᵀ (J S Jᵀ)⁺ J S g (N,) from central differences along the columns of S Jᵀ (J S Jᵀ)⁺."""
    directions = inverse_direction(jac_aux, metric=metric, heads=[head], cut=SINGLE)
    each = [directional_derivative(model, x, v, step=WIDE_STEP) for v in directions.unbind(2)]
    slopes = torch.stack(each, dim=1)  # (N, K)
    gram = jac_aux @ metric @ jac_aux.mT
    return torch.einsum("nk,nkl,nl->n", slopes, gram, slopes)


def _random_slopes(model: Model, x: Tensor, metric: Tensor, seed: int) -> Tensor:
    """Return an estimate of g S g (N,): mean squared slope along directions drawn from N(0, S)."""
    root = square_root(metric)
    generator = torch.Generator().manual_seed(seed)
    total = x.new_zeros(len(x))
    for _ in range(_DIRECTIONS):
        draw = torch.randn(len(x), len(root), generator=generator, dtype=x.dtype) @ root.T.cpu()
        total += directional_derivative(model, x, draw.to(x), step=WIDE_STEP).square() / _DIRECTIONS
    return total


def _share(along: Tensor, total: Tensor) -> Share:
    """Return the ratio of sums with its standard error (delta method)."""
    value = ratio_of_sums(along, total)
    whole = float(total.double().sum())
    missed = (along - value * total).double()
    return Share(value, float(missed.square().sum().sqrt()) / whole if whole > 0 else 0.0)
