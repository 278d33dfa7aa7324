"""Integrated gradients: the average gradient along a straight path, times the way gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fairfox.errors import OptionError
from fairfox.models.protocol import Model, row_blocks


@cache
def gauss_legendre(steps: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the nodes in (0, 1) and weights (summing to 1) of Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return tuple(((nodes + 1) / 2).tolist()), tuple((weights / 2).tolist())


def integrated_jacobian(
    model: Model, x: Tensor, *, baseline: Tensor, steps: int = 32, batch_size: int = 4096
) -> Tensor:
    """Return integrated gradients (N, K, D): (x - baseline) times the mean Jacobian on the way from the baseline.

    They sum over D to f(x) - f(baseline). `baseline` is one row (D,) for everyone or a row each (N, D). Where
    the model starts with a linear layer, that layer is applied once per end of the path, not once per step.
    """
    if not model.differentiable:
        raise OptionError("Integrated gradients need a model that autograd sees through; use 'rank', 'move' or 'faux'")
    start = baseline.to(x).expand_as(x)
    affine = getattr(model, "first_affine", None)
    parts = []
    for rows in row_blocks(len(x), max(1, batch_size // steps)):
        begin, end = start[rows], x[rows]
        if affine is None:
            mean = _mean_gradient(model, begin, end, steps)
        else:
            weight, bias, rest = affine  # of the network's own dtype, which may not be x's
            first, last = (ends.to(weight) @ weight.T + bias for ends in (begin, end))
            mean = (_mean_gradient(rest, first, last, steps) @ weight).to(x)
        parts.append((end - begin)[:, None] * mean)
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def _mean_gradient(function: Callable[[Tensor], Tensor], begin: Tensor, end: Tensor, steps: int) -> Tensor:
    """Return the mean Jacobian (n, K, H) over the path from begin to end (n, H)."""
    nodes, weights = gauss_legendre(steps)
    at = begin.new_tensor(nodes)[:, None, None]
    points = (begin + at * (end - begin)).reshape(-1, begin.shape[1]).detach().requires_grad_()  # (T n, H)
    with torch.enable_grad():
        out = function(points)
        sums = out.sum(0)
        if not out.requires_grad:
            return begin.new_zeros(len(begin), len(sums), begin.shape[1])
        grads = [
            torch.autograd.grad(
                total, points, retain_graph=k < len(sums) - 1, materialize_grads=True, allow_unused=True
            )[0]
            for k, total in enumerate(sums)
        ]
    share = begin.new_tensor(weights)
    return torch.stack([torch.einsum("t,tnh->nh", share, g.reshape(steps, *begin.shape)) for g in grads], dim=1)
