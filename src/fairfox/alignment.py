"""Pure tensors: directions dx/dc, derivatives df/dc, cosines, the alignment share, worst cases.

Shapes: `grad_tar` (N, D), `jac_aux` J (N, K, D), `dx_dc` (N, D, K), metric S (D, D) or None for the identity.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Head(NamedTuple):
    """The auxiliary's outputs for one protected variable: how many, and whether they sum to zero."""

    outputs: int
    centred: bool = False


def inverse_direction(jac_aux: Tensor, *, metric: Tensor | None = None, heads: Sequence[Head] | None = None) -> Tensor:
    """Return dx/dc = S Jᵀ (J S Jᵀ)⁺ (N, D, K): the smallest move, in the metric, that changes each output by one.

    Without a metric this is the pseudo-inverse of J (eq. 8 of the paper, transposes as in its appendix). Dead
    rows, where J is numerically zero, get a zero direction.
    """
    if heads is None:
        heads = [Head(1)] * jac_aux.shape[1]
    moved = jac_aux if metric is None else jac_aux @ metric  # J S, (N, K, D)
    if jac_aux.shape[1] == 1:
        scale = _safe(jac_aux.abs().amax((1, 2), keepdim=True))  # keeps squares of tiny gradients from vanishing
        unit, unit_moved = jac_aux / scale, moved / scale
        gram = (unit * unit_moved).sum(2, keepdim=True)  # (N, 1, 1)
        return (torch.where(gram > 0, unit_moved / _safe(gram), 0.0) / scale).mT
    size = torch.cat(
        [_head_size(part) for part in jac_aux.split([h.outputs for h in heads], dim=1)], dim=1
    )  # (N, K, 1)
    unit, unit_moved = jac_aux / size, moved / size
    inverse = pseudo_solve(unit @ unit_moved.mT, heads)
    lost = torch.isnan(inverse).any(2).any(1)
    direction = unit_moved.mT @ torch.where(lost[:, None, None], 0.0, inverse) / size.mT
    if lost.any():
        direction[lost] = _rank_deficient(jac_aux[lost], moved[lost])
    return direction


def pseudo_solve(gram: Tensor, heads: Sequence[Head]) -> Tensor:
    """Return an inverse that acts as the pseudo-inverse of `gram` on J's range; NaN for rows that lost more rank.

    Centred logits give each such head's block one null vector, 1. Adding (mean diagonal / K_h) 11ᵀ within the
    block makes it invertible and changes nothing that J can see.
    """
    filled = gram.clone()
    start = 0
    for outputs, centred in heads:
        block = slice(start, start + outputs)
        if centred:
            mean = gram[:, block, block].diagonal(dim1=1, dim2=2).mean(1)
            filled[:, block, block] += (mean / outputs)[:, None, None]
        start += outputs
    factor, failed = torch.linalg.cholesky_ex(filled)
    pivots = factor.diagonal(dim1=1, dim2=2).square()
    rank_lost = (failed != 0) | ~(pivots.amin(1) > _rank_cut(gram) * pivots.amax(1))
    eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    inverse = torch.cholesky_inverse(torch.where(rank_lost[:, None, None], eye, factor))
    return torch.where(rank_lost[:, None, None], torch.nan, inverse)


def sensitivity(grad_tar: Tensor, dx_dc: Tensor) -> Tensor:
    """Return df/dc by the chain rule, one column per protected output (eq. 5)."""
    return torch.einsum("nd,ndk->nk", grad_tar, dx_dc)


def cosine(grad_tar: Tensor, jac_aux: Tensor, *, metric: Tensor | None = None) -> Tensor:
    """Return the cosine between the gradients (N, K), in the metric; 0 where either gradient is zero (eq. 10)."""
    grad_tar = grad_tar / _safe(grad_tar.abs().amax(1, keepdim=True))
    jac_aux = jac_aux / _safe(jac_aux.abs().amax(2, keepdim=True))
    moved = grad_tar if metric is None else grad_tar @ metric
    inner = torch.einsum("nd,nkd->nk", moved, jac_aux)
    norm_tar = (moved * grad_tar).sum(1, keepdim=True)
    norm_aux = (jac_aux * (jac_aux if metric is None else jac_aux @ metric)).sum(2)
    return inner / _safe((norm_tar * norm_aux).clamp(min=0).sqrt())


def alignment_parts(
    grad_tar: Tensor, jac_aux: Tensor, metric: Tensor, *, heads: Sequence[Head] | None = None
) -> tuple[Tensor, Tensor]:
    """Return per person g S Jᵀ (J S Jᵀ)⁺ J S g and g S g (N,): variation along the protected direction, and in all."""
    slope = sensitivity(grad_tar, inverse_direction(jac_aux, metric=metric, heads=heads))  # (N, K)
    moved = grad_tar @ metric
    along = (slope * torch.einsum("nkd,nd->nk", jac_aux, moved)).sum(1)
    return along, (moved * grad_tar).sum(1)


def alignment_share(grad_tar: Tensor, jac_aux: Tensor, metric: Tensor, *, heads: Sequence[Head] | None = None) -> float:
    """Return A: the share of the target's local variation that lies along the protected direction."""
    along, whole = alignment_parts(grad_tar, jac_aux, metric, heads=heads)
    return ratio_of_sums(along, whole)


def ratio_of_sums(along: Tensor, whole: Tensor) -> float:
    """Return sum / sum within [0, 1]; 0 when the target does not vary at all."""
    total = float(whole.double().sum())
    return min(max(float(along.double().sum()) / total, 0.0), 1.0) if total > 0 else 0.0


def worst_case(values: Tensor) -> Tensor:
    """Return the largest absolute value over protected outputs (N,)."""
    return values.abs().amax(1)


def dead_rows(jac_aux: Tensor) -> Tensor:
    """Return which rows (N,) have a numerically zero J: no evidence about c there."""
    dead: Tensor = jac_aux.abs().amax((1, 2)) <= torch.finfo(jac_aux.dtype).tiny ** 0.5
    return dead


def _safe(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1.0)


def _head_size(part: Tensor) -> Tensor:
    return _safe(part.abs().amax((1, 2), keepdim=True)).expand(-1, part.shape[1], 1)


def _rank_cut(gram: Tensor) -> float:
    return 100 * gram.shape[1] * torch.finfo(gram.dtype).eps


def _rank_deficient(jac_aux: Tensor, moved: Tensor) -> Tensor:
    """Return S Jᵀ (J S Jᵀ)⁺ by eigen-decomposition with a relative cut."""
    scale = _safe(jac_aux.abs().amax((1, 2), keepdim=True))
    unit, unit_moved = jac_aux / scale, moved / scale
    gram = unit @ unit_moved.mT
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    kept = values > _rank_cut(gram) * values.amax(1, keepdim=True)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    direction: Tensor = unit_moved.mT @ (vectors * inverse[:, None, :]) @ vectors.mT / scale
    return direction
