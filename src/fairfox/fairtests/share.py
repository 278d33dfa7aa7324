"""The alignment share A of a model: how much of its local variation lies along the protected direction."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.alignment import SINGLE, Head, alignment_parts, dead_rows, inverse_direction, ratio_of_sums
from fairfox.auxiliary.model import Auxiliary, heads_of
from fairfox.data.dataset import Dataset
from fairfox.gradients.finite_difference import WIDE_STEP, directional_derivative, finite_difference_jacobian
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import Model

_DIRECTIONS = 8  # random directions for a black box
_ROWS = 4_000  # that a black box is asked for, about


class Share(NamedTuple):
    """An alignment share, and its standard error over the people it was read off."""

    value: float
    error: float


def model_alignment(
    model: Model, data: Dataset, auxiliary: Auxiliary, metric: Tensor, *, seed: int = 0, batch_size: int = 4096
) -> list[Share]:
    """Return A for each protected variable, averaged over the auxiliary's members.

    By gradients where autograd sees through the model. A black box on continuous columns is asked along the
    protected direction and along random directions drawn from the metric; with categories its whole
    Jacobian is estimated; both on a random part of the people.
    """
    heads = heads_of(data.protected)
    by_directions = not model.differentiable and not getattr(model, "blocks", ())
    if not model.differentiable:
        asked = 2 * (_DIRECTIONS + len(auxiliary.members)) if by_directions else 2 * data.x.shape[1]
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        data = data[order[: max(50, _ROWS // asked)].sort().values]
    gradient = None if by_directions else _gradient(model, data.x, batch_size)
    whole = _random_slopes(model, data.x, metric, seed) if gradient is None else None
    shares = []
    for member in auxiliary.members:
        jac = jacobian(member, data.x, batch_size=batch_size)
        row = []
        for part, head in zip(jac.split([h.outputs for h in heads], dim=1), heads, strict=True):
            if gradient is not None:
                along, total = alignment_parts(gradient, part, metric, heads=[head])
            else:
                assert whole is not None
                along, total = _slopes_along(model, data.x, part, metric, head), whole
            counts = (~dead_rows(part)).to(total) if data.weights is None else data.weights * ~dead_rows(part)
            row.append(_share(along * counts, total * counts))
        shares.append(row)
    return [Share(*mean) for mean in torch.tensor(shares, dtype=torch.float64).mean(0).tolist()]


def _share(along: Tensor, total: Tensor) -> Share:
    """Return the ratio of sums with its standard error (delta method)."""
    value = ratio_of_sums(along, total)
    whole = float(total.double().sum())
    missed = (along - value * total).double()
    return Share(value, float(missed.square().sum().sqrt()) / whole if whole > 0 else 0.0)


def _gradient(model: Model, x: Tensor, batch_size: int) -> Tensor:
    if model.differentiable:
        return jacobian(model, x, batch_size=batch_size)[:, 0]
    return finite_difference_jacobian(model, x, step=WIDE_STEP)[:, 0]


def _slopes_along(model: Model, x: Tensor, jac_aux: Tensor, metric: Tensor, head: Head) -> Tensor:
    """Return g S Jᵀ (J S Jᵀ)⁺ J S g (N,) from central differences along the columns of S Jᵀ (J S Jᵀ)⁺."""
    directions = inverse_direction(jac_aux, metric=metric, heads=[head], cut=SINGLE)
    each = [directional_derivative(model, x, v, step=WIDE_STEP) for v in directions.unbind(2)]
    slopes = torch.stack(each, dim=1)  # (N, K)
    gram = jac_aux @ metric @ jac_aux.mT
    return torch.einsum("nk,nkl,nl->n", slopes, gram, slopes)


def _random_slopes(model: Model, x: Tensor, metric: Tensor, seed: int) -> Tensor:
    """Return an estimate of g S g (N,): mean squared slope along directions drawn from N(0, S)."""
    values, vectors = torch.linalg.eigh(metric)
    root = vectors * values.clamp(min=0).sqrt()
    generator = torch.Generator().manual_seed(seed)
    total = x.new_zeros(len(x))
    for _ in range(_DIRECTIONS):
        draw = torch.randn(len(x), len(root), generator=generator, dtype=x.dtype) @ root.T.cpu()
        total += directional_derivative(model, x, draw.to(x), step=WIDE_STEP).square() / _DIRECTIONS
    return total
