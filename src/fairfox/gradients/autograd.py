"""Derivatives by autograd, in blocks of rows."""

import torch
from torch import Tensor

from fairfox.models.protocol import Model, row_blocks


def autograd_jacobian(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return the model's Jacobian (N, K, D): one backward pass of the summed output per output and block."""
    parts = [_block_jacobian(model, x[rows]) for rows in row_blocks(len(x), batch_size)]
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def _block_jacobian(model: Model, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        out = model(x)  # (n, K)
        sums = out.sum(0)
        last = len(sums) - 1
        if not out.requires_grad:  # a constant
            return x.new_zeros(len(x), len(sums), x.shape[1])
        rows = [
            torch.autograd.grad(total, x, retain_graph=k < last, allow_unused=True, materialize_grads=True)[0]
            for k, total in enumerate(sums)
        ]
    return rows[0][:, None] if last == 0 else torch.stack(rows, dim=1)
