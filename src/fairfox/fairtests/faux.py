"""fAux: how the prediction moves when the inferred protected variable moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairfox.alignment import SINGLE, Products, cosine, inverse_direction, sensitivity
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, heads_of
from fairfox.data.contrasts import Contrast, derivatives
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.gradient import dead_variables, measure_together, measurement, score_together
from fairfox.fairtests.protocol import Measurement
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.integrated import choose_path, integrated_jacobian
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
    steps: int | None = None  # of the integrated gradients' path; None: as many as their error asks for
    batch_size: int = 4096
    matrix: Tensor | None = field(default=None, init=False, repr=False)  # S
    center: Tensor | None = field(default=None, init=False, repr=False)  # (D,) mean of the fitting rows
    protected: tuple[Protected, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.steps, Integral) and not isinstance(self.steps, bool)
        if self.steps is not None and not (whole and self.steps >= 1):
            raise OptionError(f"steps is {self.steps!r}; expected a whole number of at least 1, or None to choose it")

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary on x and c, never y."""
        self.auxiliary.fit(data)
        self.protected = data.protected
        self.center = data.x.mean(0)
        if self.metric == "covariance":
            self.matrix = covariance_metric(data.x, weights=data.weights)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        if self.integrated or self._by_slopes(model):
            return self.measure(model, data).score
        self._check_fitted()
        return score_together([self], model, data, batch_size=self.batch_size)[0]

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score with its sign and the value of each re-trained auxiliary.

        `step` is that of finite differences of a black box, by default `suited_step` on these people.
        """
        self._check_fitted()
        if self.integrated:
            return self._measure_integrated(model, data)
        if self._by_slopes(model):
            return self._measure_slopes(model, data, step)
        return measure_together([self], model, data, batch_size=self.batch_size, step=step)[0]

    def _check_fitted(self) -> None:
        if not self.auxiliary.members:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        if self.metric == "covariance" and self.matrix is None:
            raise NotFittedError("The covariance metric comes from data; call fit first")

    def _by_slopes(self, model: Model) -> bool:
        """Return whether a black box is asked along dx/dc only."""
        return not model.differentiable and not self.normalise and not getattr(model, "blocks", ())

    @property
    def gradients_of(self) -> Auxiliary:
        """The auxiliary whose Jacobians are wanted."""
        return self.auxiliary

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return one contrast per protected output."""
        return derivatives(protected)

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return df/dc or the cosine (n, K)."""
        return self._values(grad_tar, jac_aux, self.matrix)

    @property
    def by_products(self) -> bool:
        """True: inner products in the metric are all it needs."""
        return True

    def in_coordinates(self, grad_tar: Tensor, jac_aux: Tensor) -> Tensor:
        """Return `values` from coordinates in which the metric is the identity."""
        return self._values(grad_tar, jac_aux, None)

    def of_products(self, found: Products) -> Tensor:
        """Return `values` (n, 1) for a single protected output."""
        return found.cosine() if self.normalise else found.sensitivity()

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

    def _measure_integrated(self, model: Model, data: Dataset) -> Measurement:
        if not model.differentiable:
            raise OptionError(
                "faux+ig needs a model that autograd sees through; use rank, move or faux for a black box"
            )
        start, heads = self._baseline(data.x), heads_of(data.protected)
        target, *members = (
            partial(integrated_jacobian, each, path=choose_path(each, start, steps=self.steps))
            for each in (model, *self.auxiliary.members)
        )
        parts, dead = [], []
        for rows in data.x.split(self.batch_size):
            grad_tar = target(rows, baseline=start, batch_size=self.batch_size)[:, 0]
            jacs = [member(rows, baseline=start, batch_size=self.batch_size) for member in members]
            parts.append(torch.stack([self.values(grad_tar, jac) for jac in jacs]))
            dead.append(torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0))
        return measurement(self, torch.cat(parts, dim=1), torch.cat(dead), data)

    def _measure_slopes(self, model: Model, data: Dataset, step: float | None) -> Measurement:
        """Two predictions per direction: the derivative of a black box along dx/dc."""
        step, heads = suited_step(model, data.x) if step is None else step, heads_of(data.protected)
        fits, dead = [], []
        for member in self.auxiliary.members:
            jac = jacobian(member, data.x, batch_size=self.batch_size)
            directions = self._directions(jac, self.matrix)  # (N, D, K)
            fits.append(torch.stack([slope(model, data.x, v, step=step) for v in directions.unbind(2)], dim=1))
            dead.append(dead_variables(jac, heads))
        return measurement(self, torch.stack(fits), torch.stack(dead).any(0), data)

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
