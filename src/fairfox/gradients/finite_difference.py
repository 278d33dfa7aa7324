"""Derivatives estimated from predictions alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.models.protocol import Model, predict


def default_step(x: Tensor) -> float:
    """Return the step of a central difference: 1e-2 in float32, 1e-4 in float64."""
    return 1e-4 if x.dtype == torch.float64 else 1e-2


def directional_derivative(model: Model, x: Tensor, direction: Tensor, *, step: float | None = None) -> Tensor:
    """Return df/dt of f(x + t v) at 0 (N,) by a central difference; v (N, D) is walked in unit length.

    The derivative is homogeneous in v, so that the step is always the same distance in x. One-hot blocks are
    the caller's concern: a central difference cannot leave a corner of the simplex both ways.
    """
    step = default_step(x) if step is None else step
    largest = direction.abs().amax(1, keepdim=True)
    scaled = direction / torch.where(largest > 0, largest, 1.0)  # squares of very long directions overflow
    unit = scaled / scaled.norm(dim=1, keepdim=True).clamp(min=1.0)
    length = largest[:, 0] * scaled.norm(dim=1)
    ahead, behind = predict(model, x + step * unit), predict(model, x - step * unit)
    derivative: Tensor = (ahead - behind) / (2 * step) * length
    return derivative


def finite_difference_jacobian(model: Model, x: Tensor, *, step: float | None = None) -> Tensor:
    """Return the Jacobian (N, 1, D) from predictions: 2 per continuous column, 1 per category.

    Along a one-hot column the derivative is the change of the prediction when that category is put in the
    place of the person's own: the slope of the expectation over categories.
    """
    step = default_step(x) if step is None else step
    blocks: Sequence[slice] = getattr(model, "blocks", ())
    jac = x.new_zeros(len(x), 1, x.shape[1])
    inside = torch.zeros(x.shape[1], dtype=torch.bool)
    here = predict(model, x) if blocks else x.new_zeros(len(x))
    for block in blocks:
        inside[block] = True
        for j in range(block.start, block.stop):
            swapped = x.clone()
            swapped[:, block] = 0.0
            swapped[:, j] = 1.0
            jac[:, 0, j] = predict(model, swapped) - here
    for j in (~inside).nonzero()[:, 0].tolist():
        ahead, behind = x.clone(), x.clone()
        ahead[:, j] += step
        behind[:, j] -= step
        jac[:, 0, j] = (predict(model, ahead) - predict(model, behind)) / (2 * step)
    return jac
