"""Pure tensors: directions dx/dc, derivatives df/dc, cosines, the alignment share, metrics on x.

Shapes: `grad_tar` (N, D), `jac_aux` J (N, K, D), `dx_dc` (N, D, K), metric S (D, D) or None for the identity.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.errors import DataError

SINGLE = torch.finfo(torch.float32).eps ** 0.5  # half of the digits of a network's outputs, whatever the dtype of x


class Head(NamedTuple):
    """The auxiliary's outputs for one protected variable: how many, and whether they sum to zero."""

    outputs: int
    centred: bool = False


class Products(NamedTuple):
    """Inner products (N, 1) of the target's gradient with that of a single protected output, in whatever metric."""

    inner: Tensor  # g S Jᵀ
    tar: Tensor  # g S gᵀ
    aux: Tensor  # J S Jᵀ

    def sensitivity(self) -> Tensor:
        """Return df/dc, as `sensitivity` along `inverse_direction` does."""
        return self.inner / self.aux

    def cosine(self) -> Tensor:
        """Return the cosine between the gradients."""
        return self.inner / (self.tar * self.aux).sqrt()

    def doubtful(self) -> Tensor:
        """Return who (N,) needs the vectors themselves: one is zero, or near the limits of floats."""
        return (_extreme(self.tar) | _extreme(self.aux))[:, 0]


def products(grad_tar: Tensor, grad_aux: Tensor) -> Products:
    """Return the inner products of (N, E) and (N, F), F at least E: coordinates beyond the first E are zero.

    `grad_aux` is overwritten: fresh memory would take longer than the arithmetic.
    """
    square_tar, square_aux = (_squares(each)[:, None] for each in (grad_tar, grad_aux))
    inner = grad_aux[:, : grad_tar.shape[1]].mul_(grad_tar).sum(1, keepdim=True)
    return Products(inner, square_tar, square_aux)


def inverse_direction(
    jac_aux: Tensor, *, metric: Tensor | None = None, heads: Sequence[Head] | None = None, cut: float | None = None
) -> Tensor:
    """Return dx/dc = S Jᵀ (J S Jᵀ)⁺ (N, D, K): the smallest move, in the metric, that changes each output by one.

    Without a metric this is the pseudo-inverse of J (eq. 8 of the paper, transposes as in its appendix). Dead
    rows, where J is numerically zero, get a zero direction. Where J loses rank, singular values below `cut` times
    the largest count as noise: by default half of the digits of J's dtype; SINGLE for networks in single precision.
    """
    if heads is None:
        heads = [Head(1)] * jac_aux.shape[1]
    moved = jac_aux if metric is None else jac_aux @ metric  # J S, (N, K, D)
    if jac_aux.shape[1] == 1:
        return _single_direction(jac_aux, moved)
    largest = torch.stack([_largest(part) for part in jac_aux.split([h.outputs for h in heads], dim=1)], dim=1)
    dead = _numerically_zero(largest.amax(1))
    size = torch.where(_numerically_zero(largest), 1.0, largest)  # (N, heads)
    size = size.repeat_interleave(torch.tensor([h.outputs for h in heads], device=size.device), dim=1)[..., None]
    if bool(_extreme(size.square()).any()):  # squares would leave the range of floats
        direction, lost = _solved(jac_aux / size, moved / size, heads, dead)
        direction /= size.mT
    else:
        direction, lost = _solved(jac_aux, moved, heads, dead, size=size if len(heads) > 1 else None)
    if lost.any():
        direction[lost] = _rank_deficient(jac_aux[lost], metric, _half_precision(jac_aux) if cut is None else cut)
    return direction


def _solved(
    jac_aux: Tensor, moved: Tensor, heads: Sequence[Head], dead: Tensor, *, size: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return S Jᵀ (J S Jᵀ)⁺ (N, D, K), zero for dead rows, and for whom (N,) rank is lost.

    Outputs of the `size` (N, K, 1) are solved as outputs of size one: heads may differ much in size.
    """
    gram = jac_aux @ moved.mT
    scale = None if size is None else size * size.mT  # (N, K, K): far fewer numbers than J has
    inverse = pseudo_solve(gram if scale is None else gram / scale, heads)
    lost = torch.isnan(inverse[:, 0, 0])  # all of it is, or nothing
    if bool((lost | dead).any()):
        inverse = torch.where((lost | dead)[:, None, None], 0.0, inverse)
    direction: Tensor = (inverse if scale is None else inverse / scale) @ moved  # it is symmetric
    return direction.mT, lost & ~dead


def pseudo_solve(gram: Tensor, heads: Sequence[Head]) -> Tensor:
    """Return an inverse that acts as the pseudo-inverse of `gram` on J's range; NaN for rows near losing more rank.

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
    inverse, failed = _swept(filled)
    # Rounding can hide lost rank from every pivot, never from the condition number.
    condition = torch.linalg.matrix_norm(filled) * torch.linalg.matrix_norm(inverse)
    sound = ~failed & (condition * _half_precision(gram) < 1)
    return inverse if bool(sound.all()) else torch.where(sound[:, None, None], inverse, torch.nan)


def _swept(positive: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inverses of positive definite matrices (N, K, K), and for whom (N,) a pivot is not above zero.

    By sweeps of one pivot after the other, all rows at once: LAPACK takes three times as long for matrices this small.
    """
    swept = positive.movedim(0, -1).contiguous()  # (K, K, N)
    failed = torch.zeros_like(positive[:, 0, 0], dtype=torch.bool)
    for p in range(len(swept)):
        failed |= ~(swept[p, p] > 0)
        inverse = 1 / swept[p, p]
        row = swept[p].clone()
        scaled = row * inverse
        swept.addcmul_(row[:, None], scaled, value=-1)
        swept[p], swept[:, p], swept[p, p] = scaled, scaled, -inverse
    return swept.neg_().movedim(-1, 0).contiguous(), failed


def sensitivity(grad_tar: Tensor, dx_dc: Tensor) -> Tensor:
    """Return df/dc by the chain rule, one column per protected output (eq. 5)."""
    return _dots(grad_tar[:, None], dx_dc.mT)


def cosine(grad_tar: Tensor, jac_aux: Tensor, *, metric: Tensor | None = None) -> Tensor:
    """Return the cosine between the gradients (N, K), in the metric; 0 where either gradient is zero (eq. 10)."""
    inner, square_tar, square_aux = _inner_products(grad_tar, jac_aux, metric)
    extreme = (_extreme(square_tar) | _extreme(square_aux)).any(1)
    if extreme.any():
        grads, jacs = grad_tar[extreme], jac_aux[extreme]
        grads, jacs = (part / _safe(part.abs().amax(-1, keepdim=True)) for part in (grads, jacs))
        inner[extreme], square_tar[extreme], square_aux[extreme] = _inner_products(grads, jacs, metric)
    return inner / _safe((square_tar * square_aux).clamp(min=0).sqrt())


def alignment_parts(
    grad_tar: Tensor, jac_aux: Tensor, metric: Tensor, *, heads: Sequence[Head] | None = None
) -> tuple[Tensor, Tensor]:
    """Return per person g S Jᵀ (J S Jᵀ)⁺ J S g and g S g (N,): variation along the protected direction and total."""
    slope = sensitivity(grad_tar, inverse_direction(jac_aux, metric=metric, heads=heads, cut=SINGLE))  # (N, K)
    moved = grad_tar @ metric
    return _dots(slope, _dots(jac_aux, moved[:, None])), _dots(moved, grad_tar)


def ratio_of_sums(along: Tensor, whole: Tensor) -> float:
    """Return sum / sum within [0, 1]; 0 when the target does not vary at all."""
    total = float(whole.double().sum())
    return min(max(float(along.double().sum()) / total, 0.0), 1.0) if total > 0 else 0.0


def dead_rows(jac_aux: Tensor) -> Tensor:
    """Return which rows (N,) have a numerically zero J: no evidence about c there."""
    return _numerically_zero(_largest(jac_aux))


def _single_direction(jac_aux: Tensor, moved: Tensor) -> Tensor:
    """Return S Jᵀ / (J S Jᵀ) (N, D, 1), the direction of a single output."""
    gram = (_squares(jac_aux) if moved is jac_aux else _dots(jac_aux, moved))[..., None]  # (N, 1, 1)
    direction = moved / gram
    extreme = _extreme(gram)[:, 0, 0]
    if extreme.any():
        jacs = jac_aux[extreme]
        scale = _size(jacs)
        jacs, moves = jacs / scale, moved[extreme] / scale
        gram = _dots(jacs, moves)[..., None]
        usable = (gram > 0) & ~dead_rows(jac_aux[extreme])[:, None, None]
        direction[extreme] = moves * torch.where(usable, 1 / _safe(gram) / scale, 0.0)
    return direction.mT


def _inner_products(grad_tar: Tensor, jac_aux: Tensor, metric: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return g S Jᵀ (N, K), g S g (N, 1) and the diagonal of J S Jᵀ (N, K)."""
    if metric is None:
        return _dots(grad_tar[:, None], jac_aux), _squares(grad_tar)[:, None], _squares(jac_aux)
    moved = grad_tar @ metric
    return _dots(moved[:, None], jac_aux), _dots(moved, grad_tar)[:, None], _dots(jac_aux @ metric, jac_aux)


def _dots(first: Tensor, second: Tensor) -> Tensor:
    """Return inner products over the last dimension; three times faster than einsum, which calls bmm for them."""
    return (first * second).sum(-1)


def _squares(vectors: Tensor) -> Tensor:
    """Return inner products with themselves over the last dimension, without writing down the products."""
    size: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return size.square()


def _extreme(square: Tensor) -> Tensor:
    """Return where a sum of squares is so small or large that some of its terms may have left the range of floats."""
    limits = torch.finfo(square.dtype)
    usual: Tensor = (square > limits.tiny**0.5) & (square < limits.max**0.5)
    return ~usual


def _numerically_zero(size: Tensor) -> Tensor:
    """Return where the square of a size would vanish."""
    zero: Tensor = size <= torch.finfo(size.dtype).tiny ** 0.5
    return zero


def _safe(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1.0)


def _largest(jac_aux: Tensor) -> Tensor:
    """Return each row's largest entry (N,), without its sign."""
    return jac_aux.abs().amax((1, 2))  # six times faster than the norm of order inf


def _size(jac_aux: Tensor) -> Tensor:
    """Return each row's largest entry (N, 1, 1); 1 for dead rows."""
    largest = _largest(jac_aux)[:, None, None]
    return torch.where(_numerically_zero(largest), 1.0, largest)


def _half_precision(values: Tensor) -> float:
    """Return the error with half of the digits right: where to stop trusting a solve, and what rank to cut."""
    return float(torch.finfo(values.dtype).eps ** 0.5)


def _rank_deficient(jac_aux: Tensor, metric: Tensor | None, cut: float) -> Tensor:
    """Return S Jᵀ (J S Jᵀ)⁺ = R (J R)⁺, R Rᵀ = S, by singular values with a relative cut.

    Unlike the eigenvalues of J S Jᵀ these keep all their digits.
    """
    scale = _size(jac_aux)
    unit = jac_aux / scale
    root = None if metric is None else square_root(metric)
    left, values, right = torch.linalg.svd(unit if root is None else unit @ root, full_matrices=False)
    kept = values > cut * values.amax(1, keepdim=True)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    direction: Tensor = (right.mT * inverse[:, None, :]) @ left.mT / scale
    return direction if root is None else root @ direction


def square_root(metric: Tensor) -> Tensor:
    """Return R (D, D) with R Rᵀ the metric."""
    values, vectors = eigen(metric)
    return vectors * values.clamp(min=0).sqrt()


def eigen(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (D,) and eigenvectors (D, D); a little is added to the diagonal where needed."""
    sizes = symmetric.diagonal().double().abs()
    for ridge in (0.0, 1e-8 * sizes.mean()):
        with suppress(RuntimeError):  # it has not converged
            more = ridge * torch.eye(len(sizes), dtype=torch.float64, device=sizes.device)
            values, vectors = torch.linalg.eigh(symmetric + more if ridge else symmetric)
            if bool(values.isfinite().all()):
                return values.to(symmetric), vectors.to(symmetric)
    raise DataError(
        f"Encoded column {int(sizes.nan_to_num(torch.inf).argmax())} (counted from 0) is on a scale too far from "
        "the others to compute with; rescale it, or leave it out"
    )


# --- Metrics on x --------------------------------------------------------------------------------------------------


def covariance_metric(x: Tensor, *, shrink: float = 0.1, weights: Tensor | None = None) -> Tensor:
    """Return the covariance of the rows (D, D), weighted, shrunk towards the identity of the same trace."""
    cov = torch.cov(x.T, aweights=weights).reshape(x.shape[1], x.shape[1])
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return (1 - shrink) * cov + shrink * cov.trace() / len(cov) * eye


def between_metric(covariance: Tensor, gap: Tensor, *, weight: float = 0.9) -> Tensor:
    """Return 0.9 ΔΔᵀ/‖Δ‖² + 0.1 S/tr(S) (D, D), Δ the gap (D,): the difference of two means, or x's slope on a number.

    The actual difference between the groups, plus a little of everything so that no direction is impossible.
    """
    size = gap.square().sum()
    spread = covariance / covariance.trace().clamp(min=torch.finfo(gap.dtype).tiny)
    if size == 0:
        return spread
    return weight * torch.outer(gap, gap) / size + (1 - weight) * spread


def gradient_norm(grad_tar: Tensor, *, order: float = 2.0) -> Tensor:
    """Return the l_p norm of each row's gradient (N,)."""
    norm: Tensor = torch.linalg.vector_norm(grad_tar, ord=order, dim=1)
    return norm


def sensitive_subspace(weights: Tensor) -> Tensor:
    """Return an orthonormal basis (D, R) of the span of the rows of `weights` (K, D)."""
    left, sizes, _ = torch.linalg.svd(weights.T, full_matrices=False)
    basis: Tensor = left[:, sizes > sizes.amax() * 1e-6]
    return basis
