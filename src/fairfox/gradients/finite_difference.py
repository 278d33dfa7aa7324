"""Derivatives estimated from predictions alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.models.protocol import Model, predict, row_blocks

_ROWS_A_CALL = 65_536  # rows that a black box is asked for at once
_TRIED = 200  # people on whom the step is tried
WIDE_STEP = 0.1  # standard deviations


def default_step(x: Tensor) -> float:
    """Return the step of a central difference: 1e-2 in float32, 1e-4 in float64."""
    return 1e-4 if x.dtype == torch.float64 else 1e-2


def suited_step(model: Model, x: Tensor) -> float:
    """Return the default step, or 0.1 for a model that does not change over it for most people.

    Tree ensembles are constant between bin edges, so a small step only tells whether an edge happens to be near.
    """
    few = x[:_TRIED]
    generator = torch.Generator().manual_seed(0)
    unit = torch.randn(x.shape[1], generator=generator, dtype=torch.float64).to(x)
    for block in getattr(model, "blocks", ()):
        unit[block] = 0.0
    if not unit.any() or len(few) == 0:
        return default_step(x)
    unit = unit / unit.norm()
    shares = []
    for step in (default_step(x), WIDE_STEP):
        moved = predict(model, torch.cat([few + step * unit, few - step * unit])).reshape(2, -1)
        shares.append(float((moved[0] != moved[1]).double().mean()))
    narrow, wide = shares
    return WIDE_STEP if narrow < 0.5 and wide > narrow else default_step(x)


def directional_derivative(model: Model, x: Tensor, direction: Tensor, *, step: float | None = None) -> Tensor:
    """Return df/dt of f(x + t v) at 0 (N,) by a central difference; v (N, D) is followed in unit length.

    The derivative is homogeneous in v, so the step is always the same distance in x. One-hot blocks are the
    caller's concern: a central difference cannot leave a corner of the simplex in both directions.
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

    Along a one-hot column the derivative is the change of the prediction when that category replaces
    the person's own: the slope of the expectation over categories.
    """
    step = default_step(x) if step is None else step
    blocks: Sequence[slice] = getattr(model, "blocks", ())
    people = max(1, _ROWS_A_CALL // (2 * x.shape[1] + 1))
    parts = [_block_jacobian(model, x[rows], blocks, step) for rows in row_blocks(len(x), people)]
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def _block_jacobian(model: Model, x: Tensor, blocks: Sequence[slice], step: float) -> Tensor:
    """Return the Jacobian of a few people, all their variants predicted in one call."""
    swapped, ahead, behind = [], [], []
    inside = torch.zeros(x.shape[1], dtype=torch.bool)
    for block in blocks:
        inside[block] = True
        for j in range(block.start, block.stop):
            row = x.clone()
            row[:, block] = 0.0
            row[:, j] = 1.0
            swapped.append(row)
    free = (~inside).nonzero()[:, 0].tolist()
    for j in free:
        shift = torch.zeros_like(x[:1])
        shift[0, j] = step
        ahead.append(x + shift)
        behind.append(x - shift)
    out = predict(model, torch.cat([x, *swapped, *ahead, *behind])).reshape(-1, len(x))  # (variants, n)
    jac = x.new_zeros(len(x), 1, x.shape[1])
    jac[:, 0, inside] = (out[1 : 1 + len(swapped)] - out[0]).T
    up, down = out[1 + len(swapped) :].chunk(2) if free else (out[:0], out[:0])
    jac[:, 0, ~inside] = ((up - down) / (2 * step)).T
    return jac
