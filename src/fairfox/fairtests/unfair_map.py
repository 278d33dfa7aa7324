"""Unfair Map (Maity et al. 2021): how much a person's loss grows when only their inferred group is attacked."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.auxiliary.linear import LinearAuxiliary, LinearMember
from fairfox.auxiliary.model import Auxiliary
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, NotFittedError, OptionError
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.gradients.alignment import sensitive_subspace
from fairfox.gradients.jacobian import gradient_flow, jacobian
from fairfox.models.protocol import Model, Output, predict
from fairfox.models.torch import TorchModel

NOT_FINITE = "the loss is 0 or infinite here, so its growth is undefined"
UNLABELLED = "label unknown"
_ONE_SIDED = 1.645  # standard errors: 95 % of a normal distribution lie above the bound


@dataclass(kw_only=True)
class UnfairMap:
    """Each person's loss after an attack along the protected directions, divided by their loss before it.

    Linear models of the protected variables span the directions in which people count as alike. An attack climbs the
    cross-entropy of the person's own label and pays `weight` times the squared distance in any other direction. 1 is
    fair. All protected variables are attacked at once, so there is no sign and no group to compare with.

    Example:
        >>> from fairfox.auxiliary.model import FixedAuxiliary
        >>> data = Dataset.from_arrays([[0.0, 1.0], [1.0, -1.0]], c=[0, 1], y=[0, 1])
        >>> test = UnfairMap(auxiliary=FixedAuxiliary([LinearMember(torch.tensor([[1.0, 0.0]]), torch.zeros(1))]))
        >>> from fairfox.models.torch import TorchModel
        >>> rule = TorchModel(lambda x: torch.sigmoid(x[:, :1]))
        >>> test.fit(data).score(rule, data)  # x0 is the protected direction, and all that the rule looks at
        tensor([2.1969, 1.7295])
    """

    auxiliary: Auxiliary = field(default_factory=lambda: LinearAuxiliary(refits=5))
    weight: float = 50.0  # of the squared distance outside the protected directions
    rate: float = 0.01
    steps: int = 200
    tolerated: float = 1.25  # the mean growth that the p-value speaks against
    batch_size: int = 4096
    bases: list[Tensor] = field(default_factory=list, init=False, repr=False)  # (D, R) orthonormal, of each refit

    def __post_init__(self) -> None:
        for name in ("weight", "rate", "tolerated"):
            Number(0, low_open=True).required(name, getattr(self, name))
        Number(1, whole=True).required("steps", self.steps)
        if self.weight * self.rate > 1:  # each step would overshoot the person it is to be pulled back to
            raise OptionError(
                f"weight x rate is {self.weight * self.rate:g}, but the attack diverges above 1; give a smaller rate"
            )

    def fit(self, data: Dataset) -> Self:
        """Fit the protected directions on x and c, never y."""
        self.auxiliary.fit(data)
        self.bases = [_directions(member, data) for member in self.auxiliary.members]
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair, 1 is fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset) -> Measurement:
        """Return the growth of the loss and its value for each refit of the protected directions."""
        if not self.bases:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        if not model.differentiable:
            raise OptionError("unfair_map needs a differentiable model; use rank or move for a black box")
        y = labels(model, data).to(data.x)
        target = _on_logits(model)
        _check_output(target, data.x, self.batch_size)
        blocks = zip(data.x.split(self.batch_size), y.split(self.batch_size), strict=True)
        growth = torch.cat([self._growth(Loss(target, own), x) for x, own in blocks], dim=1)
        reasons = [UNLABELLED if gone else NOT_FINITE for gone in y.isnan().tolist()]
        finite = torch.where(growth.isfinite(), growth, torch.nan)
        return combine(finite[..., None], data, contrasts=(), signed=False, reasons=reasons)

    def verdict(self, measured: Measurement, data: Dataset) -> dict[str, float]:
        """Return a lower bound of the mean growth, and the p-value of a tolerated one.

        `bound` is mean - 1.645 sd/√n; the p-value is one-sided. `non_finite` people are left out of both.
        """
        judged = ~measured.abstained
        gone = measured.abstained if data.y is None else measured.abstained & ~data.y.cpu().isnan()
        weights = torch.ones(len(judged)) if data.weights is None else data.weights.cpu()
        mean, error = _mean_and_error(measured.score.cpu()[judged].double(), weights[judged].double())
        above = mean - self.tolerated
        chance = 0.5 * math.erfc(above / error / math.sqrt(2)) if error != 0 else float(above <= 0)
        return {"bound": mean - _ONE_SIDED * error, "p_value": chance, "mean": mean, "non_finite": float(gone.sum())}

    def _growth(self, loss: Loss, x: Tensor) -> Tensor:
        """Return the attacked loss over the own one (M, n)."""
        settings = {"weight": self.weight, "rate": self.rate}
        with torch.no_grad():
            here = loss(x)[:, 0]
        attacked = [gradient_flow(loss, x, basis.to(x), steps=self.steps, **settings) for basis in self.bases]
        with torch.no_grad():
            return torch.stack([loss(rows)[:, 0] for rows in attacked]) / here


class Loss:
    """The cross-entropy of each person's own label, as a Model."""

    differentiable = True

    def __init__(self, model: Model, y: Tensor) -> None:
        self.model = model  # a probability or, where it has an output that says so, a logit
        self.y = y  # (n,) 0 and 1, NaN where it is unknown

    def __call__(self, x: Tensor) -> Tensor:
        """Return (n, 1)."""
        out = self.model(x)
        return cross_entropy(out[:, 0], self.y.to(out), logits=_unit_of(self.model) == "logit")[:, None]


def cross_entropy(out: Tensor, y: Tensor, *, logits: bool = False) -> Tensor:
    """Return -log of the probability (N,) that each person's label y has, from probabilities or logits of class 1."""
    if logits:
        return F.softplus((1 - 2 * y) * out)
    own = torch.where(y == 0, 1.0, out)  # each logarithm sees only those whom it concerns: 0 x inf would be NaN
    other = torch.where(y == 0, out, 0.0)
    loss: Tensor = torch.where(y.isnan(), torch.nan, -own.log() - torch.log1p(-other))
    return loss


def labels(model: Model, data: Dataset) -> Tensor:
    """Return whether each person is of the audited class (N,): 0, 1, or NaN where the label is unknown."""
    if data.y is None:
        raise DataError(
            "unfair_map compares predictions with true outcomes, but these people have none; name the column "
            "(label, --label)"
        )
    y = data.y.double()
    column = getattr(getattr(model, "output", None), "column", None)
    most = 1 if column is None else math.inf
    odd = ~(y.isnan() | ((y >= 0) & (y <= most) & (y == y.round())))
    if bool(odd.any()):
        raise DataError(
            f"unfair_map needs labels 0 and 1, but one of them is {float(y[odd][0]):g}; give a column of 0 and 1"
        )
    return y if column is None else torch.where(y.isnan(), y, (y == column).to(y))


def _directions(member: Model, data: Dataset) -> Tensor:
    """Return a basis (D, R) of what a linear auxiliary takes for the protected variables, and of withheld columns."""
    weights = member.weights if isinstance(member, LinearMember) else jacobian(member, data.x[:1])[0]  # (K, D)
    weights = weights.to(data.x)
    weights = weights / weights.norm(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    withheld = torch.eye(data.x.shape[1]).to(data.x)[data.withheld.to(data.x.device)]
    return sensitive_subspace(torch.cat([weights, withheld]))


def _unit_of(model: Model) -> str:
    unit: str = getattr(getattr(model, "output", None), "unit", "value")
    return unit


def _on_logits(model: Model) -> Model:
    """Return the model with its own logits where it turns them into probabilities: these round to 0 and 1."""
    if not isinstance(model, TorchModel):
        return model
    target, module = copy.copy(model), model.module
    layers = list(module) if type(module) is nn.Sequential else []
    if model.output.returns == "logit":
        target.output = replace(model.output, wanted="logit")
    elif layers and type(layers[-1]) is nn.Sigmoid and model.output.column is None:
        target.module, target.output = nn.Sequential(*layers[:-1]), Output("logit", "logit")
    return target


def _check_output(model: Model, x: Tensor, batch_size: int) -> None:
    out = predict(model, x, batch_size=batch_size)
    if _unit_of(model) != "logit" and bool(((out < 0) | (out > 1)).any()):
        raise OptionError(
            f"unfair_map needs probabilities, but the model returned {float(out.min()):.3g} to {float(out.max()):.3g}; "
            "if these are log-odds, pass returns='logit' (--returns logit), else use rank or move"
        )


def _mean_and_error(values: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return the weighted mean of values (n,) and its standard error; NaN where there is nobody."""
    share = weights / weights.sum()
    mean = (share * values).sum() if len(values) else torch.tensor(math.nan)
    spread = (share * (values - mean).square()).sum().sqrt()
    return float(mean), float(spread * share.square().sum().sqrt())
