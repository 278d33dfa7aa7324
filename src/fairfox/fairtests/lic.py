"""The local independence criterion with the true derivative: the best that gradient tests can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fairfox.data.contrasts import derivatives
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, ShapeError
from fairfox.fairtests.protocol import Measurement, away_from_own, combine
from fairfox.gradients.alignment import sensitivity
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.jacobian import jacobian, slope
from fairfox.models.protocol import Model


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
        contrasts = derivatives(data.protected)
        dx_dc = _true_direction(data, outputs=len(contrasts))
        step = None if model.differentiable else suited_step(model, data.x)
        if model.differentiable or len(getattr(model, "blocks", ())) > 0:
            values = sensitivity(jacobian(model, data.x, batch_size=self.batch_size, step=step)[:, 0], dx_dc)
        else:
            values = torch.stack([slope(model, data.x, along, step=step) for along in dx_dc.unbind(2)], dim=1)
        return combine((values * away_from_own(data, contrasts))[None], data, contrasts=contrasts, signed=True)


def _true_direction(data: Dataset, *, outputs: int) -> Tensor:
    """Return the true dx/dc (N, D, K), or say that it is not known."""
    if data.truth is None or data.truth.dx_dc is None:
        raise DataError(
            "lic needs the true derivative dx/dc, which only generated people have (SyntheticBias.sample with "
            "derivative=True); use rank for real people"
        )
    if data.truth.dx_dc.shape != (*data.x.shape, outputs):
        raise ShapeError(
            f"The true dx/dc has shape {tuple(data.truth.dx_dc.shape)}; expected {(*data.x.shape, outputs)}: "
            "individuals, columns of x, protected outputs"
        )
    return data.truth.dx_dc
