"""fAux: how the prediction moves when the inferred protected variable moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairfox.alignment import Head, cosine, dead_rows, inverse_direction, sensitivity
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, heads_of
from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.gradient import FLAT, measure_together
from fairfox.fairtests.protocol import Measurement, combine, own_sign
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.gradients.jacobian import jacobian, slope
from fairfox.models.protocol import Model
from fairfox.similarity import covariance_metric


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
    baseline: Literal["mean", "zero"] | Tensor = "mean"
    steps: int = 32
    batch_size: int = 4096
    matrix: Tensor | None = field(default=None, init=False, repr=False)  # S
    center: Tensor | None = field(default=None, init=False, repr=False)  # (D,) mean of the fitting rows
    heads: tuple[Head, ...] | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary on x and c, never y."""
        self.auxiliary.fit(data)
        self.heads = heads_of(data.protected)
        self.center = data.x.mean(0)
        if self.metric == "covariance":
            self.matrix = covariance_metric(data.x)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset) -> Measurement:
        """Return the score with its sign and the value of each re-trained auxiliary."""
        if not self.auxiliary.members:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        if self.metric == "covariance" and self.matrix is None:
            raise NotFittedError("The covariance metric comes from data; call fit first")
        if self.integrated:
            return self._measure_integrated(model, data)
        if not model.differentiable and not self.normalise and not getattr(model, "blocks", ()):
            return self._measure_slopes(model, data)
        return measure_together([self], model, data, batch_size=self.batch_size)[0]

    @property
    def gradients_of(self) -> Auxiliary:
        """The auxiliary whose Jacobians are wanted."""
        return self.auxiliary

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return df/dc or the cosine (n, K)."""
        assert jac_aux is not None
        if self.normalise:
            return cosine(grad_tar, jac_aux, metric=self.matrix)
        return sensitivity(grad_tar, inverse_direction(jac_aux, metric=self.matrix, heads=self.heads))

    def _measure_integrated(self, model: Model, data: Dataset) -> Measurement:
        if not model.differentiable:
            raise OptionError(
                "faux+ig needs a model that autograd sees through; use rank, move or faux for a black box"
            )
        start = self._baseline(data.x)
        parts, dead = [], []
        for rows in data.x.split(self.batch_size):
            grad_tar = integrated_jacobian(model, rows, baseline=start, steps=self.steps, batch_size=self.batch_size)[
                :, 0
            ]
            jacs = [
                integrated_jacobian(member, rows, baseline=start, steps=self.steps, batch_size=self.batch_size)
                for member in self.auxiliary.members
            ]
            parts.append(torch.stack([self.values(grad_tar, jac) for jac in jacs]))
            dead.append(torch.stack([dead_rows(jac) for jac in jacs]).any(0))
        values = torch.cat(parts, dim=1) * own_sign(data)
        return combine(values, data, signed=True, abstained=torch.cat(dead), reason=FLAT)

    def _measure_slopes(self, model: Model, data: Dataset) -> Measurement:
        """Two predictions per direction: the derivative of a black box along dx/dc."""
        step = suited_step(model, data.x)
        fits, dead = [], []
        for member in self.auxiliary.members:
            jac = jacobian(member, data.x, batch_size=self.batch_size)
            directions = inverse_direction(jac, metric=self.matrix, heads=self.heads)  # (N, D, K)
            fits.append(torch.stack([slope(model, data.x, v, step=step) for v in directions.unbind(2)], dim=1))
            dead.append(dead_rows(jac))
        values = torch.stack(fits) * own_sign(data)
        return combine(values, data, signed=True, abstained=torch.stack(dead).any(0), reason=FLAT)

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
