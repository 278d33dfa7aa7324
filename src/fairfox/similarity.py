"""Pure tensors: metrics on x, norms of gradients, the sensitive subspace."""

import torch
from torch import Tensor


def covariance_metric(x: Tensor, *, shrink: float = 0.1, weights: Tensor | None = None) -> Tensor:
    """Return the covariance of the rows (D, D), weighted, shrunk towards the identity of the same trace."""
    cov = torch.cov(x.T, aweights=weights).reshape(x.shape[1], x.shape[1])
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    shrunk: Tensor = (1 - shrink) * cov + shrink * cov.trace() / len(cov) * eye
    return shrunk


def between_metric(covariance: Tensor, gap: Tensor, *, weight: float = 0.9) -> Tensor:
    """Return 0.9 ΔΔᵀ/‖Δ‖² + 0.1 S/tr(S) (D, D), Δ the gap (D,): the difference of two means, or x's slope on a number.

    What really differs between the groups, and a little of everything so that no direction is impossible.
    """
    size = gap.square().sum()
    spread = covariance / covariance.trace().clamp(min=torch.finfo(gap.dtype).tiny)
    if size == 0:
        return spread
    mixed: Tensor = weight * torch.outer(gap, gap) / size + (1 - weight) * spread
    return mixed


def gradient_norm(grad_tar: Tensor, *, order: float = 2.0) -> Tensor:
    """Return the l_p norm of each row's gradient (N,)."""
    norm: Tensor = torch.linalg.vector_norm(grad_tar, ord=order, dim=1)
    return norm


def sensitive_subspace(weights: Tensor) -> Tensor:
    """Return an orthonormal basis (D, R) of the span of the rows of `weights` (K, D)."""
    left, sizes, _ = torch.linalg.svd(weights.T, full_matrices=False)
    basis: Tensor = left[:, sizes > sizes.amax() * 1e-6]
    return basis
