"""fAux, how the prediction moves when the inferred protected variable moves; LIC, along its true derivative; and what
all gradient tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, heads_of
from fairfox.choices.kinds import Number
from fairfox.data.contrasts import Contrast, derivatives
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError, NotFittedError, OptionError, ShapeError
from fairfox.fairtests.protocol import Measurement, away_from_own, combine
from fairfox.gradients.alignment import (
    SINGLE,
    Head,
    cosine,
    covariance_metric,
    dead_rows,
    inverse_direction,
    sensitivity,
)
from fairfox.gradients.integrated import choose_path, integrated_jacobian
from fairfox.gradients.jacobian import jacobian, slope, suited_step
from fairfox.gradients.relu import BlockProducts, Pairing, pairing_of, whole_products
from fairfox.maps.protocol import FLAT
from fairfox.models.protocol import Model

_BLOCK_ON_GPU = 1 << 19  # rows: with fewer a GPU is idle most of the time


@dataclass(kw_only=True)
class FAux:
    """How far the target's prediction moves when the inferred protected variable moves.

    `normalise` compares directions only (fAux+NG), `integrated` replaces both gradients by integrated ones
    (fAux+IG), the metric "covariance" measures moves in the data's own spread (the names with /s).

    Example:
        >>> from fairfox.auxiliary.model import FixedAuxiliary
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> member = LinearMember(torch.tensor([[3.0, 4.0]]), torch.zeros(1))
        >>> target = LinearMember(torch.tensor([[2.0, 1.0]]), torch.zeros(1))
        >>> test = FAux(auxiliary=FixedAuxiliary([member]))
        >>> test.score(target, Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1]))  # (2, 1) . (3, 4) / 25
        tensor([0.4000, 0.4000])
    """

    has_sign: ClassVar[bool] = True

    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)
    normalise: bool = False
    integrated: bool = False
    metric: Literal["identity", "covariance"] = "identity"
    baseline: Literal["mean", "zero"] | Tensor = "mean"  # where integrated gradients start
    steps: int | None = None  # of the integrated gradients' path; None: as many as their error asks for
    batch_size: int = 4096
    matrix: Tensor | None = field(default=None, init=False, repr=False)  # S
    center: Tensor | None = field(default=None, init=False, repr=False)  # (D,) mean of the fitting rows
    protected: tuple[Protected, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        Number(1, whole=True).check("steps", self.steps)

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary on x and c, never y."""
        self.auxiliary.fit(data)
        self.protected = data.protected
        self.center = data.x.mean(0)
        if self.metric == "covariance":
            self.matrix = covariance_metric(data.x, weights=data.weights)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair. Nothing leaves the device of the data."""
        size = counted(self, *self._all_values(model, data, None), data).mean(0).abs()
        return torch.where(size.isnan(), 0.0, size).amax(1)

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score with its sign and the value of each retrained auxiliary.

        `step` is for finite differences of a black box, by default `suited_step` on these people.
        """
        return measurement(self, *self._all_values(model, data, step), data)

    def _all_values(self, model: Model, data: Dataset, step: float | None) -> tuple[Tensor, Tensor]:
        """Return values (M, N, Q), and for which protected variables an auxiliary is dead (N, V)."""
        self._check_fitted()
        if self.integrated:
            return self._integrated_values(model, data)
        if not model.differentiable and not self.normalise and not getattr(model, "blocks", ()):
            return self._slope_values(model, data, step)
        pairing = pairing_of(model, self.auxiliary.members, data.x, metric=self.matrix)
        if pairing is None:
            return gradient_values(self, model, data, batch_size=self.batch_size, step=step)
        return self._network_values(model, pairing, data)

    def _check_fitted(self) -> None:
        if not self.auxiliary.members:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        if self.metric == "covariance" and self.matrix is None:
            raise NotFittedError("The covariance metric comes from data; call fit first")

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return one contrast per protected output."""
        return derivatives(protected)

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return df/dc or the cosine (n, K)."""
        return self._values(grad_tar, jac_aux, self.matrix)

    def _values(self, grad_tar: Tensor, jac_aux: Tensor | None, metric: Tensor | None) -> Tensor:
        assert jac_aux is not None
        if self.normalise:
            return cosine(grad_tar, jac_aux, metric=metric)
        return sensitivity(grad_tar, self._directions(jac_aux, metric))

    def _directions(self, jac_aux: Tensor, metric: Tensor | None) -> Tensor:
        """Return dx/dc (n, D, K): the outputs of all variables are solved together.

        A crossing is solved alone: its outputs cannot change while the variables it crosses stay.
        """
        if not any(p.parts for p in self.protected):
            heads = heads_of(self.protected) if self.protected else None
            return inverse_direction(jac_aux, metric=metric, heads=heads, cut=SINGLE)
        out = torch.empty_like(jac_aux.mT)
        variable = torch.tensor([c.variable for c in derivatives(self.protected)])
        crossings = [[v] for v, p in enumerate(self.protected) if p.parts]
        for family in [[v for v, p in enumerate(self.protected) if not p.parts], *crossings]:
            own = torch.isin(variable, torch.tensor(family)).nonzero()[:, 0].to(jac_aux.device)
            heads = heads_of([self.protected[v] for v in family])
            out[:, :, own] = inverse_direction(jac_aux[:, own], metric=metric, heads=heads, cut=SINGLE)
        return out

    def _network_values(self, model: Model, pairing: Pairing, data: Dataset) -> tuple[Tensor, Tensor]:
        """Plain networks: gradients in a few common coordinates, of a single output as inner products alone.

        Blocks of rows are as small as a processor's cache; what takes a few numbers a person is made of all at once.
        """
        heads, members = heads_of(data.protected), range(len(pairing.members))
        blocks = data.x.split(self.batch_size if data.x.device.type == "cpu" else max(self.batch_size, _BLOCK_ON_GPU))
        if all(member.outputs == 1 for member in pairing.members):
            pieces: list[list[BlockProducts]] = [[] for _ in members]
            for block in blocks:
                grad = pairing.gradient(block)
                for m in members:
                    pieces[m].append(pairing.pieces(grad, pairing.jacobian(m, block)))
            products = [whole_products(each) for each in pieces]
            whole = torch.stack([each.cosine() if self.normalise else each.sensitivity() for each in products])
            flat = torch.zeros(len(data), len(heads), dtype=torch.bool, device=data.x.device)
            inexact = torch.stack([each.doubtful() for each in products]).any(0).nonzero()[:, 0]
            for rows in inexact.split(self.batch_size) if len(inexact) else ():
                whole[:, rows], flat[rows] = _block_values(self, model, data.x[rows], heads, None)
            return whole, flat
        found = []
        for block in blocks:
            grad = pairing.gradient(block)
            values, dead = [], []
            for m in members:  # the next one overwrites what it returns
                slope, jac = pairing.whole(grad, pairing.jacobian(m, block))
                values.append(self._values(slope, jac, None))
                dead.append(dead_variables(jac, heads))
            found.append((torch.stack(values), torch.stack(dead).any(0)))
        return _joined(found)

    def _integrated_values(self, model: Model, data: Dataset) -> tuple[Tensor, Tensor]:
        if not model.differentiable:
            raise OptionError("faux+ig needs a differentiable model; use rank, move or faux for a black box")
        start, heads = self._baseline(data.x), heads_of(data.protected)
        target, *members = (
            partial(integrated_jacobian, each, path=choose_path(each, start, steps=self.steps))
            for each in (model, *self.auxiliary.members)
        )
        found = []
        for rows in data.x.split(self.batch_size):
            grad_tar = target(rows, baseline=start, batch_size=self.batch_size)[:, 0]
            jacs = [member(rows, baseline=start, batch_size=self.batch_size) for member in members]
            flat = torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0)
            found.append((torch.stack([self.values(grad_tar, jac) for jac in jacs]), flat))
        return _joined(found)

    def _baseline(self, x: Tensor) -> Tensor:
        if isinstance(self.baseline, Tensor):
            return self.baseline.to(x)
        if self.baseline == "zero":
            return torch.zeros_like(x[0])
        if self.baseline != "mean":
            raise OptionError(f"The baseline is '{self.baseline}'; expected 'mean', 'zero' or a row")
        if self.center is None:
            raise NotFittedError("The mean baseline comes from data; call fit first")
        return self.center.to(x)

    def _slope_values(self, model: Model, data: Dataset, step: float | None) -> tuple[Tensor, Tensor]:
        """Two predictions per direction: the derivative of a black box along dx/dc."""
        step, heads = suited_step(model, data.x) if step is None else step, heads_of(data.protected)
        fits, dead = [], []
        for member in self.auxiliary.members:
            jac = jacobian(member, data.x, batch_size=self.batch_size)
            directions = self._directions(jac, self.matrix)  # (N, D, K)
            fits.append(torch.stack([slope(model, data.x, v, step=step) for v in directions.unbind(2)], dim=1))
            dead.append(dead_variables(jac, heads))
        return torch.stack(fits), torch.stack(dead).any(0)


@dataclass(kw_only=True)
class LIC:
    """How fast the prediction changes along the true dx/dc: |grad_tar . dx/dc|, for generated data only.

    Example:
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> from fairfox.data.dataset import Truth
        >>> from dataclasses import replace
        >>> data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
        >>> truth = Truth(counterfactual=data.x, dx_dc=torch.tensor([[[0.5], [0.0]], [[1.0], [3.0]]]))
        >>> target = LinearMember(torch.tensor([[2.0, -1.0]]), torch.zeros(1))
        >>> LIC().score(target, replace(data, truth=truth))  # |2 * 0.5|, |2 * 1 - 1 * 3|
        tensor([1., 1.])
    """

    batch_size: int = 4096

    def fit(self, data: Dataset) -> Self:
        """Return self: there is nothing to learn."""
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset) -> Measurement:
        """Return the score with its sign; there are no refits."""
        if data.truth is None or data.truth.dx_dc is None:
            raise DataError(
                "lic needs the true derivative dx/dc, which only generated people have (SyntheticBias.sample with "
                "derivative=True); use rank for real people"
            )
        contrasts, dx_dc = derivatives(data.protected), data.truth.dx_dc  # (N, D, K)
        if dx_dc.shape != (*data.x.shape, len(contrasts)):
            raise ShapeError(
                f"The true dx/dc has shape {tuple(dx_dc.shape)}; expected {(*data.x.shape, len(contrasts))}: "
                "individuals, columns of x, protected outputs"
            )
        step = None if model.differentiable else suited_step(model, data.x)
        slopes = [slope(model, data.x, v, batch_size=self.batch_size, step=step) for v in dx_dc.unbind(2)]
        values = torch.stack(slopes, dim=1) * away_from_own(data, contrasts)
        return combine(values[None], data, contrasts=contrasts, signed=True)


@runtime_checkable
class GradientTest(Protocol):
    """A test whose values follow from the target's gradient and the auxiliary's Jacobians."""

    has_sign: ClassVar[bool]

    @property
    def auxiliary(self) -> Auxiliary | None:
        """The auxiliary whose Jacobians are needed; None for none."""
        ...

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return the contrast of each column of `values`; () for a test without a protected variable."""
        ...

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return (n, Q) for one block of rows and one member of the auxiliary."""
        ...

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score and its refits; `step` is for finite differences, by default one that suits the people."""
        ...


def gradient_values(
    test: GradientTest, model: Model, data: Dataset, *, batch_size: int, step: float | None
) -> tuple[Tensor, Tensor]:
    """Return values (M, N, Q), and for which protected variables an auxiliary is dead (N, V), block by block.

    `step` is for finite differences of a black box, by default `suited_step` on these people.
    """
    if step is None and not model.differentiable:
        step = suited_step(model, data.x)
    heads = heads_of(data.protected)
    return _joined([_block_values(test, model, x, heads, step) for x in data.x.split(batch_size)])


def measurement(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Measurement:
    """Return the Measurement of values (M, N, Q), given for which protected variables an auxiliary is dead (N, V)."""
    turned = counted(test, values, dead, data)
    return combine(turned, data, contrasts=test.contrasts(data.protected), signed=test.has_sign, reasons=FLAT)


def counted(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Tensor:
    """Return the values (M, N, Q) turned away from the own group, NaN where a variable is dead (N, V)."""
    contrasts = test.contrasts(data.protected)
    if test.has_sign:
        values = values * away_from_own(data, contrasts)
    if contrasts and bool(dead.any()):
        values = torch.where(dead[:, [contrast.variable for contrast in contrasts]], torch.nan, values)
    return values


def dead_variables(jac_aux: Tensor, heads: Sequence[Head]) -> Tensor:
    """Return for which protected variables (N, V) J is numerically zero: no evidence about them there."""
    blocks = jac_aux.split([h.outputs for h in heads], dim=1)
    return torch.stack([dead_rows(block) for block in blocks], dim=1)


def _block_values(
    test: GradientTest, model: Model, x: Tensor, heads: Sequence[Head], step: float | None
) -> tuple[Tensor, Tensor]:
    """Return values (M, n, Q) of one block of rows, and for which variables an auxiliary is dead (n, V)."""
    grad_tar = jacobian(model, x, batch_size=len(x), step=step)[:, 0]  # (n, D)
    if test.auxiliary is None:
        dead = torch.zeros(len(x), len(heads), dtype=torch.bool, device=x.device)
        return test.values(grad_tar, None)[None], dead
    jacs = [jacobian(member, x, batch_size=len(x)) for member in test.auxiliary.members]
    dead = torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0)
    return torch.stack([test.values(grad_tar, jac) for jac in jacs]), dead


def _joined(blocks: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the values and dead variables of all blocks of rows."""
    return torch.cat([values for values, _ in blocks], dim=1), torch.cat([dead for _, dead in blocks])
