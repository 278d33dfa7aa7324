"""Derivatives by autograd, in blocks of rows; by hand through layers where autograd would mostly copy."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.models.protocol import Model, row_blocks
from fairfox.models.torch_model import Tail


def autograd_jacobian(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return the model's Jacobian (N, K, D): one backward pass of the summed output per output and block.

    Where the model starts with a linear layer, that layer is applied and undone by hand: what stands before it
    (a mask, the way back to the model's own units) is part of its weights and costs nothing.
    """
    affine = getattr(model, "first_affine", None)
    if affine is not None and affine[0].shape[1] != x.shape[1]:
        affine = None  # the model itself says best what is wrong
    parts = []
    for rows in row_blocks(len(x), batch_size):
        if affine is None:
            parts.append(_block_jacobian(model, x[rows]))
        else:
            weight, bias, rest = affine  # of the network's own dtype, which may not be x's
            hidden = torch.addmm(bias, x[rows].detach().to(weight), weight.T)
            parts.append((_tail_jacobian(rest, hidden) @ weight).to(x))
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def _tail_jacobian(rest: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """Return the derivative (n, K, H) of the model by its first layer's outputs (n, H), which are overwritten."""
    linears = rest.linears if isinstance(rest, Tail) else None
    if linears is None or not isinstance(rest, Tail):
        return _block_jacobian(rest, hidden)
    active = []  # outputs of each ReLU
    with torch.no_grad():
        for linear in linears:
            active.append(hidden.relu_())
            hidden = F.linear(hidden, linear.weight, linear.bias)
        rows = [_back(linears, active, r) for r in range(hidden.shape[1])]  # by the network's own outputs
    if rest.finish is None:
        return rows[0][:, None] if len(rows) == 1 else torch.stack(rows, dim=1)
    finish = _block_jacobian(rest.finish, hidden)  # (n, K, R)
    if finish.shape[1:] == (1, 1):
        return rows[0][:, None].mul_(finish)
    return finish @ torch.stack(rows, dim=1)


def _back(linears: list[nn.Linear], active: list[Tensor], output: int) -> Tensor:
    """Return the derivative (n, H) of one output of the network by the first layer's outputs."""
    grad = linears[-1].weight[output].expand_as(active[-1])
    for linear, on in zip(linears[-2::-1], active[:0:-1], strict=True):
        grad = _where_active(grad, on) @ linear.weight
    return _where_active(grad, active[0])


def _where_active(grad: Tensor, on: Tensor) -> Tensor:
    passed: Tensor = torch.ops.aten.threshold_backward(grad, on, 0)  # ReLU's own derivative: faster than torch.where
    return passed


def _block_jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        out = function(x)  # (n, K)
        sums = out.sum(0)
        last = len(sums) - 1
        if not out.requires_grad:  # a constant
            return x.new_zeros(len(x), len(sums), x.shape[1])
        rows = [
            torch.autograd.grad(total, x, retain_graph=k < last, allow_unused=True, materialize_grads=True)[0]
            for k, total in enumerate(sums)
        ]
    return rows[0][:, None] if last == 0 else torch.stack(rows, dim=1)
