"""Derivatives of models, by autograd or estimated from predictions; and moves that follow them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.gradients.relu import block_jacobian, relu_network, value_and_jacobian
from fairfox.models.protocol import Model, predict, row_blocks

_ROWS_A_CALL = 65_536  # rows that a black box is asked for at once
_TRIED = 200  # people on whom the step is tried
WIDE_STEP = 0.1  # standard deviations
ORDERS = (1.0, 2.0, float("inf"))  # of the l_p balls that `largest_change` searches


def jacobian(model: Model, x: Tensor, *, batch_size: int = 4096, step: float | None = None) -> Tensor:
    """Return the derivative of every output by every column of x (N, K, D); `step` is for black boxes."""
    if model.differentiable:
        return autograd_jacobian(model, x, batch_size=batch_size)
    return finite_difference_jacobian(model, x, step=step)


def slope(model: Model, x: Tensor, direction: Tensor, *, batch_size: int = 4096, step: float | None = None) -> Tensor:
    """Return the derivative of the prediction along a direction (N, D) -> (N,).

    Black boxes on continuous columns need two predictions for it; with categories the whole Jacobian is
    estimated, since a one-hot column cannot be moved both up and down.
    """
    if model.differentiable or len(getattr(model, "blocks", ())) > 0:
        return (jacobian(model, x, batch_size=batch_size, step=step)[:, 0] * direction).sum(1)
    return directional_derivative(model, x, direction, step=step)


def autograd_jacobian(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return the model's Jacobian (N, K, D): one backward pass of the summed output per output and block.

    Where the model starts with a linear layer, that layer is applied and undone by hand. What comes before it (a
    mask, the conversion to the model's own units) is part of its weights and costs nothing.
    """
    network = relu_network(model, x.shape[1])
    if network is not None:
        jac = network.first.new_empty(len(x), network.outputs if len(x) else 1, x.shape[1])
        for rows in row_blocks(len(x), batch_size):
            scale = network.pull(x[rows].detach(), network.first, jac[rows])
            if scale is not None:
                jac[rows] *= scale[:, :, None]
        return jac.to(x)
    affine = getattr(model, "first_affine", None)
    if affine is not None and affine[0].shape[1] != x.shape[1]:
        affine = None  # the model itself says best what is wrong
    parts = []
    for rows in row_blocks(len(x), batch_size):
        if affine is None:
            parts.append(block_jacobian(model, x[rows]))
        else:
            weight, bias, rest = affine  # of the network's own dtype, which may not be x's
            hidden = torch.addmm(bias, x[rows].detach().to(weight), weight.T)
            parts.append((block_jacobian(rest, hidden) @ weight).to(x))
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


# --- Estimated from predictions alone -------------------------------------------------------------------------------


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
    swapped: list[Tensor] = []
    inside = torch.zeros(x.shape[1], dtype=torch.bool)
    for block in blocks:
        inside[block] = True
        rows = x.repeat(block.stop - block.start, 1, 1)  # (L, n, D)
        rows[..., block] = torch.eye(len(rows), device=x.device)[:, None]
        swapped += rows
    shifts = step * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[~inside, None]  # (free, 1, D)
    out = predict(model, torch.cat([x, *swapped, *(x + shifts), *(x - shifts)])).reshape(-1, len(x))  # (variants, n)
    jac = x.new_zeros(len(x), 1, x.shape[1])
    jac[:, 0, inside] = (out[1 : 1 + len(swapped)] - out[0]).T
    up, down = out[1 + len(swapped) :].reshape(2, len(shifts), len(x))
    jac[:, 0, ~inside] = ((up - down) / (2 * step)).T
    return jac


# --- Moves that follow a gradient ----------------------------------------------------------------------------------


def project_ball(move: Tensor, *, radius: float, order: float = 2.0) -> Tensor:
    """Return the nearest moves (N, D) whose l_p norm is at most the radius, p = 1, 2 or inf.

    Example:
        >>> project_ball(torch.tensor([[3.0, 4.0], [0.1, 0.2]]), radius=1.0)
        tensor([[0.6000, 0.8000],
                [0.1000, 0.2000]])
    """
    if order == float("inf"):
        return move.clamp(-radius, radius)
    if order == 2:
        length = move.norm(dim=1, keepdim=True)
        return torch.where(length > radius, move * (radius / length.clamp(min=torch.finfo(move.dtype).tiny)), move)
    size = move.abs()
    ordered = size.sort(dim=1, descending=True).values
    # the entries that stay are the k largest, less what they have in excess together
    excess = (ordered.cumsum(1) - radius) / torch.arange(1, move.shape[1] + 1, dtype=move.dtype, device=move.device)
    last = ((ordered > excess).sum(1, keepdim=True) - 1).clamp(min=0)
    shrunk = move.sign() * (size - excess.gather(1, last)).clamp(min=0)
    return torch.where(size.sum(1, keepdim=True) > radius, shrunk, move)


def steepest(gradient: Tensor, *, order: float = 2.0) -> Tensor:
    """Return the move of l_p length one (N, D) along which each gradient rises most; zero where it vanishes."""
    if order == float("inf"):
        return gradient.sign()
    if order == 2:
        length: Tensor = gradient.norm(dim=1, keepdim=True)
        return gradient / length.clamp(min=torch.finfo(gradient.dtype).tiny)
    largest = gradient.abs().argmax(1, keepdim=True)
    return torch.zeros_like(gradient).scatter(1, largest, gradient.gather(1, largest).sign())


def largest_change(
    model: Model,
    x: Tensor,
    *,
    radius: float,
    order: float = 2.0,
    steps: int = 20,
    restarts: int = 2,
    seed: int = 0,
    batch_size: int = 4096,
) -> Tensor:
    """Return the largest |f(x + d) - f(x)| (N,) found by projected gradient search in the l_p ball around x.

    The search goes up and down, from the middle and from `restarts` random points, the same for everyone. The first
    step reaches the ball's edge, so that a linear model's answer is exact; later ones are shorter. The largest change
    of all steps counts.
    """
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(restarts, x.shape[1], generator=generator, dtype=torch.float64).to(x)
    starts = project_ball(radius * torch.cat([x.new_zeros(1, x.shape[1]), random]), radius=radius, order=order)
    found = [_search(model, x[rows], starts, radius, order, steps) for rows in row_blocks(len(x), batch_size)]
    return torch.cat(found) if found else x.new_zeros(0)


def _search(model: Model, x: Tensor, starts: Tensor, radius: float, order: float, steps: int) -> Tensor:
    with torch.no_grad():
        here = model(x)[:, 0]
    best = torch.zeros_like(here)
    for start in starts:
        for sign in (1.0, -1.0):
            move = start.expand_as(x)
            for step in range(steps + 1):
                out, jac = value_and_jacobian(model, x + move)
                best = torch.fmax(best, (out[:, 0] - here).abs())
                further = steepest(sign * jac[:, 0], order=order) * (radius * (1 - step / steps))
                move = project_ball(move + further, radius=radius, order=order)
    return best


def gradient_flow(loss: Model, x: Tensor, free: Tensor, *, weight: float, rate: float, steps: int) -> Tensor:
    """Return x (N, D) after `steps` steps up the loss minus `weight` times the squared distance moved.

    Moves within the span of the columns of `free` (D, R, orthonormal) cost nothing.
    """
    moved = torch.zeros_like(x)
    pull = 2 * weight * rate
    for _ in range(steps):
        uphill = autograd_jacobian(loss, x + moved, batch_size=max(len(x), 1))[:, 0]
        costly = moved - (moved @ free) @ free.T
        moved = moved.sub(costly, alpha=pull).add_(uphill, alpha=rate)
    return x + moved
