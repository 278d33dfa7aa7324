"""Fairness through awareness, locally: how steep the target is, everywhere or towards the protected variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import Auxiliary, heads_of
from fairfox.choices.kinds import Number
from fairfox.data.contrasts import Contrast, derivatives
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.faux import gradient_values, measurement
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.gradients.alignment import Head, gradient_norm, sensitive_subspace
from fairfox.gradients.jacobian import ORDERS, largest_change
from fairfox.models.protocol import Model


@dataclass(kw_only=True)
class FTA:
    """The l_p norm of the target's gradient: the largest change a small move in any direction can make.

    With `epsilon` moves are larger: the score is the largest change of the prediction within an l_p distance of
    epsilon, found by projected gradient search. The search takes `steps` steps up and down, from the person's own row
    and from `restarts` random points. It knows no protected variable and has no sign.

    Example:
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> target = LinearMember(torch.tensor([[3.0, -4.0]]), torch.zeros(1))
        >>> data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
        >>> FTA().score(target, data), FTA(epsilon=0.5).score(target, data)
        (tensor([5., 5.]), tensor([2.5000, 2.5000]))
    """

    has_sign: ClassVar[bool] = False
    auxiliary: ClassVar[None] = None

    order: float = 2.0
    epsilon: float | None = None
    steps: int = 20
    restarts: int = 2
    seed: int = 0
    batch_size: int = 4096

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise OptionError(f"order is {self.order!r}; expected 1, 2 or inf")
        Number(0, low_open=True).check("epsilon", self.epsilon)
        Number(1, whole=True).required("steps", self.steps)
        Number(0, whole=True).required("restarts", self.restarts)

    def fit(self, data: Dataset) -> Self:
        """Return self: there is nothing to learn."""
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score; there are no refits. `step` is for finite differences of a black box."""
        if self.epsilon is None:
            return measurement(self, *gradient_values(self, model, data, batch_size=self.batch_size, step=step), data)
        if not model.differentiable:
            raise OptionError("fta with epsilon needs a differentiable model; leave epsilon out for a black box")
        how = {name: getattr(self, name) for name in ("order", "steps", "restarts", "seed", "batch_size")}
        change = largest_change(model, data.x, radius=self.epsilon, **how)
        return combine(change[None, :, None], data, contrasts=(), signed=False)

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return none: it knows no protected variable."""
        return ()

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return the norm (n, 1)."""
        return gradient_norm(grad_tar, order=self.order)[:, None]


@dataclass(kw_only=True)
class FTALinear:
    """The part of the target's gradient that a linear auxiliary attributes to the protected variable.

    `projection`: the length of the gradient inside the span of a variable's coefficients. `weighted`: the gradient
    weighted by |coefficient|, feature by feature, for each class. The largest counts. No sign.
    """

    has_sign: ClassVar[bool] = False

    auxiliary: Auxiliary = field(default_factory=lambda: LinearAuxiliary(refits=5))
    form: Literal["projection", "weighted"] = "projection"
    batch_size: int = 4096
    heads: tuple[Head, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.form not in ("projection", "weighted"):
            raise OptionError(f"The form is '{self.form}'; expected 'projection' or 'weighted'")

    def fit(self, data: Dataset) -> Self:
        """Fit the linear auxiliary on x and c, never y."""
        self.auxiliary.fit(data)
        self.heads = heads_of(data.protected)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score and the value of each refitted auxiliary; `step` as for FTA."""
        if not self.auxiliary.members:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        return measurement(self, *gradient_values(self, model, data, batch_size=self.batch_size, step=step), data)

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return one contrast per protected variable for `projection`, one per protected output for `weighted`."""
        if self.form == "weighted":
            return derivatives(protected)
        return tuple(Contrast(v) for v in range(len(protected)))

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return the length of the sensitive part of the gradient (n, Q)."""
        assert jac_aux is not None
        weights = jac_aux[0]  # (K, D), the same for everyone
        weights = weights / weights.norm(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        if self.form == "weighted":
            return torch.stack([gradient_norm(grad_tar * each.abs()) for each in weights], dim=1)
        heads = weights.split([h.outputs for h in self.heads] if self.heads else len(weights))
        return torch.stack([gradient_norm(grad_tar @ sensitive_subspace(own)) for own in heads], dim=1)
