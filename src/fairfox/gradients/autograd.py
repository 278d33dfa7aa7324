"""Derivatives by autograd, in blocks of rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from fairfox.models.protocol import Model, row_blocks


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
            parts.append((_block_jacobian(rest, hidden) @ weight).to(x))
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


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
