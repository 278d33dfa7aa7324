"""Derivatives by autograd, in blocks of rows; by hand through plain networks, where autograd would mostly copy."""

import torch
from torch import Tensor

from fairfox.gradients.chain import Chain, block_jacobian, chain_of
from fairfox.models.protocol import Model, row_blocks


def autograd_jacobian(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return the model's Jacobian (N, K, D): one backward pass of the summed output per output and block.

    Where the model starts with a linear layer, that layer is applied and undone by hand: what stands before it
    (a mask, the way back to the model's own units) is part of its weights and costs nothing.
    """
    chain = chain_of(model, x.shape[1])
    if chain is not None:
        return chain_jacobian(chain, x, batch_size=batch_size)
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


def chain_jacobian(chain: Chain, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return the Jacobian (N, K, D) of a plain network, by hand."""
    jac = chain.weight.new_empty(len(x), chain.outputs if len(x) else 1, x.shape[1])
    for rows in row_blocks(len(x), batch_size):
        scale = chain.pull(x[rows].detach(), chain.weight, jac[rows])
        if scale is not None:
            jac[rows] *= scale[:, :, None]
    return jac.to(x)
