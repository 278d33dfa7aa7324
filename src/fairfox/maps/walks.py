"""Walking towards another output in small steps: by autograd, or by hand through a plain network."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.alignment import dead_rows, inverse_direction
from fairfox.data.dataset import Dataset, project_blocks
from fairfox.gradients.autograd import autograd_jacobian
from fairfox.maps.columns import outside
from fairfox.maps.destinations import GroupLogits, Persistence
from fairfox.maps.protocol import FLAT, Mapped
from fairfox.models.protocol import Model, row_blocks
from fairfox.models.torch_model import Tail
from fairfox.nets.slopes import ReluNet


class Way(NamedTuple):
    """Where some people go: their rows, the classes whose difference moves, and what output they are to reach."""

    rows: Tensor  # (n,)
    pair: tuple[int, int]
    reach: Tensor  # (n,)
    gap: Tensor  # (D,)


def follow(
    way: Way, rows: Tensor, model: Model, *, metric: Tensor | None, still: Tensor, steps: int, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Return rows (N, D) of people at the end of their way (n, D), and who (n,) found no direction to go on.

    The output of `model` (N, 1) is what changes on the way; columns that are `still` (D,) do not.
    """
    moved, stuck = [], []
    for block in row_blocks(len(way.rows), batch_size):
        x = rows[way.rows[block]]
        lost = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for step in range(steps):
            jac = autograd_jacobian(model, x, batch_size=batch_size)  # (n, 1, D)
            jac[:, :, still] = 0.0
            lost |= dead_rows(jac)
            direction = inverse_direction(jac, metric=metric)[:, :, 0]
            with torch.no_grad():
                left = way.reach[block] - model(x)[:, 0]
            x = x + direction * (left / (steps - step))[:, None]
        moved.append(x)
        stuck.append(lost)
    return torch.cat(moved), torch.cat(stuck)


def map_by_hand(
    net: ReluNet,
    data: Dataset,
    variable: int,
    logits: GroupLogits,
    *,
    persistence: Persistence,
    steps: int,
    batch_size: int,
) -> Mapped:
    """Return everyone of two groups in the other one, one pass of the network there and back for each step."""
    x, own = data.x.clone(), data.c[:, variable].long()
    lost = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for block in row_blocks(len(x), batch_size):
        rows, reach = x[block], torch.empty(0)  # a view: it is moved in place
        for step in range(steps):
            output, slope = net.with_slope(rows)
            if step == 0:
                reach = logits.where_to(output, own[block], persistence)
            lost[block] |= advance(rows, slope, (reach - output) / (steps - step))
    overshoot = outside(x, data.features)
    x = project_blocks(x, data.features)
    if bool(lost.any()):
        x[lost] = data.x[lost]
    return Mapped(x, lost, FLAT, overshoot)


def advance(x: Tensor, slope: Tensor, by: Tensor) -> Tensor:
    """Move rows x (n, D) in place until an output with this slope (n, D) has changed by so much (n,), and return who
    found no direction to go (n,)."""
    square = torch.linalg.vector_norm(slope, dim=1).square_()
    limits = torch.finfo(square.dtype)
    if bool(((square > limits.tiny**0.5) & (square < limits.max**0.5)).all()):
        x.addcmul_(slope, (by / square)[:, None])
        return torch.zeros_like(by, dtype=torch.bool)
    jac = slope[:, None]  # some are too small or too large to be squared
    x.add_(inverse_direction(jac)[:, :, 0] * by[:, None])
    return dead_rows(jac)


def plain_network(model: Model) -> ReluNet | None:
    """Return a model as a plain ReLU network, where it is one and can be looked into; else None."""
    affine = getattr(model, "first_affine", None)
    rest = None if affine is None else affine[2]
    if affine is None or not isinstance(rest, Tail) or rest.finish is not None or rest.linears is None:
        return None
    weights = [affine[0], *(linear.weight.detach() for linear in rest.linears)]
    biases = [affine[1], *(linear.bias.detach() for linear in rest.linears)]
    return ReluNet(weights, biases)
