"""Transport plans: who of one group is paired with whom of another, and how much of them."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from fairfox.extras import require

_LOG = logging.getLogger("fairfox")
_CELLS = 2**24  # of a distance matrix that are worked on at once
_MOST_PIVOTS = 10**9  # of the network simplex: more than any size needs that is solved exactly
_MOST_ROUNDS, _CLOSE = 500, 1e-2  # of Sinkhorn's iteration; how much of the mass may lie where it should not
_STEP = 1.6  # of its updates: longer than one, they arrive sooner


def evenly(counts: Tensor, size: int, start: float) -> Tensor:
    """Return `size` places in proportion to counts (n,), no place with one more or less than its part, rounded.

    Steps of equal length over the counts laid end to end, from a random `start` in [0, 1) of the first.
    """
    ends = counts.cumsum(0)
    steps = (torch.arange(size, device=counts.device, dtype=counts.dtype) + start) * (ends[-1] / size)
    return torch.searchsorted(ends, steps, right=True).clamp(max=len(counts) - 1)


def nearest(x: Tensor, among: Tensor) -> Tensor:
    """Return for each row x (n, P) the place of the one (m, P) at the least L1 distance, block by block."""
    blocks = x.split(max(_CELLS // len(among), 1))
    return torch.cat([torch.cdist(block, among, p=1).argmin(1) for block in blocks])


def simplex_plan(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the exact plan (n, m) between counts a (n,) and b (m,), by the network simplex of POT."""
    ot = require("ot", extra="peers", why="for solver='pot'")
    shares = [(part / part.sum()).numpy(force=True) for part in (a, b)]
    plan = ot.emd(*shares, cost.numpy(force=True), numItermax=_MOST_PIVOTS)
    return torch.as_tensor(plan, device=cost.device)


def assigned_plan(cost: Tensor, a: Tensor, b: Tensor, size: int, start: float) -> Tensor:
    """Return the plan (n, m) between counts a (n,) and b (m,): the best assignment of `size` people to as many.

    Exact where counts are whole and `size` is a multiple of the sum of both; else counts are rounded.
    """
    from scipy.optimize import linear_sum_assignment

    left, right = (evenly(part, size, start).cpu() for part in (a, b))
    _, order = linear_sum_assignment(cost.cpu()[left][:, right].numpy())
    pair = left * cost.shape[1] + right[torch.as_tensor(order)]
    times = torch.bincount(pair, minlength=cost.numel()).reshape(cost.shape)
    return times.double().div_(size).to(cost.device)


def entropic_plan(cost: Tensor, a: Tensor, b: Tensor, *, regularisation: float) -> Tensor:
    """Return the entropic plan (n, m) between counts a (n,) and b (m,): Sinkhorn's iteration on logarithms.

    The entropy's weight is `regularisation` times the mean cost, reached by halving it from the mean cost itself.
    """
    log_a, log_b = ((part / part.sum()).log().to(cost) for part in (a, b))
    weight = max(float(cost.mean()), torch.finfo(cost.dtype).tiny)
    goal = regularisation * weight
    f, g = torch.zeros_like(log_a), torch.zeros_like(log_b)
    for _ in range(_MOST_ROUNDS):
        step = _STEP if weight == goal else 1.0
        f = f.lerp(-weight * _log_sums(cost, g / weight + log_b, weight), step)
        weight = max(weight / 2, goal)
        sums = _log_sums(cost.mT, f / weight + log_a, weight)
        off = float(((sums + g / weight + log_b).exp() - log_b.exp()).abs().sum())
        g = g.lerp(-weight * sums, step)
        if weight == goal and off < _CLOSE:
            break
    else:
        _LOG.warning("Entropic transport stopped with %.1f %% of its mass in the wrong place", 100 * off)
    g = -weight * _log_sums(cost.mT, f / weight + log_a, weight)
    return cost.neg().add_(f[:, None]).add_(g).div_(weight).add_(log_a[:, None]).add_(log_b).exp_()


def _log_sums(cost: Tensor, add: Tensor, weight: float) -> Tensor:
    """Return log Σ_j exp(add_j - cost_ij / weight) of every row (n,), block by block."""
    out = []
    for block in cost.split(max(_CELLS // cost.shape[1], 1)):
        terms = add - block / weight
        largest = terms.amax(1, keepdim=True)
        # what is below e^-80 counts for nothing, and numbers near the least a float can hold are slow
        out.append(terms.sub_(largest).clamp_(min=-80.0).exp_().sum(1).log_().add_(largest[:, 0]))
    return torch.cat(out)
