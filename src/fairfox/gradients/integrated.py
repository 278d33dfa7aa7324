"""Integrated gradients: the average gradient along a straight path, times the way gone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fairfox.errors import OptionError
from fairfox.gradients.chain import Chain, chain_of
from fairfox.gradients.secant import crossing_times, quadrature_slope, secant_slope
from fairfox.models.protocol import Model, row_blocks

_UNKNOWN = 32  # quadrature points for a model that cannot be looked into
_ERROR, _SMOOTH = 2e-3, 1e-5  # relative, of all but five in a hundred rows: piecewise linear networks, smooth ones
_MOST = 64  # intervals
_ROWS = 128  # made-up rows on which the error is looked at
_BLOCK = 2048  # rows: what an interval needs of them stays in a processor's cache


@dataclass(frozen=True)
class Path:
    """Where on the way from the baseline (0) to x (1) gradients are read.

    With weights these are the points of a quadrature; without, the ends of the intervals over which units of a
    piecewise linear network are taken as straight.
    """

    nodes: tuple[float, ...]
    weights: tuple[float, ...] = ()

    def doubled(self) -> Path:
        """Return the path with twice as many points, or every interval halved."""
        if self.weights:
            return quadrature(2 * len(self.nodes))
        halves = [(a + b) / 2 for a, b in pairwise(self.nodes)]
        return Path(tuple(sorted([*self.nodes, *halves])))


def quadrature(steps: int) -> Path:
    """Return so many Gauss-Legendre points: the rule for smooth models."""
    return Path(*gauss_legendre(steps))


@cache
def gauss_legendre(steps: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the nodes in (0, 1) and weights (summing to 1) of Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return tuple(((nodes + 1) / 2).tolist()), tuple((weights / 2).tolist())


def choose_path(model: Model, baseline: Tensor, *, steps: int | None = None) -> Path:
    """Return where to read gradients on the way from a baseline (D,), or from baselines (N, D), with few `steps`.

    Plain networks of ReLUs: intervals, shorter where units pass zero often; smooth plain networks, and models that
    cannot be looked into: quadrature. Without `steps` as many as an error estimated by doubling asks for. It is
    estimated on made-up rows around the baseline, so that the choice, and with it a person's number, does not depend
    on who else is in the table.
    """
    chain = chain_of(model, baseline.shape[-1])
    if chain is None:
        return quadrature(steps or _UNKNOWN)
    begin, end = _made_up(baseline.to(chain.weight), chain)
    if chain.leaks is None:
        return quadrature(steps) if steps else _smooth_path(chain, begin, end)
    times = crossing_times(begin, end)
    return intervals(steps or _enough(chain, begin, end, times), times)


def intervals(count: int, times: Tensor) -> Path:
    """Return so many intervals: two thirds of the ends spread as the times at which units pass zero, a third evenly."""
    even = np.linspace(0, 1, count + 1)
    if len(times) == 0:
        return Path(tuple(even.tolist()))
    grid = np.linspace(0, 1, 257)
    passed = np.searchsorted(np.sort(times.double().numpy(force=True)), grid) / len(times)
    ends = np.interp(even, (2 * passed + grid) / 3, grid)
    return Path((0.0, *ends[1:-1].tolist(), 1.0))


def integrated_jacobian(
    model: Model,
    x: Tensor,
    *,
    baseline: Tensor,
    steps: int | None = None,
    path: Path | None = None,
    batch_size: int = 4096,
) -> Tensor:
    """Return integrated gradients (N, K, D): (x - baseline) times the mean Jacobian on the way from the baseline.

    They sum over D to f(x) - f(baseline). `baseline` is one row (D,) for everyone or a row each (N, D). Where
    the model starts with a linear layer, that layer is applied once per end of the path, not once per step. `path`
    says where gradients are read; by default `choose_path` does.
    """
    if not model.differentiable:
        raise OptionError("Integrated gradients need a model that autograd sees through; use 'rank', 'move' or 'faux'")
    path = choose_path(model, baseline, steps=steps) if path is None else path
    start, chain = baseline.to(x).expand_as(x), chain_of(model, x.shape[1])
    affine = getattr(model, "first_affine", None)
    parts = []
    for rows in row_blocks(len(x), _block(chain, path, batch_size)):
        begin, end = start[rows], x[rows]
        if chain is not None:
            mean = (_mean_slope(chain, *_first(chain, begin, end), path) @ chain.weight).to(x)
        elif affine is None:
            mean = _mean_gradient(model, begin, end, path)
        else:
            weight, bias, rest = affine  # of the network's own dtype, which may not be x's
            first, last = (ends.to(weight) @ weight.T + bias for ends in (begin, end))
            mean = (_mean_gradient(rest, first, last, path) @ weight).to(x)
        parts.append((end - begin)[:, None] * mean)
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def integrated_error(model: Model, x: Tensor, *, baseline: Tensor, path: Path, batch_size: int = 4096) -> Tensor:
    """Return an estimate (N,) of the relative error of integrated gradients: what doubling the path changes."""
    once, twice = (
        integrated_jacobian(model, x, baseline=baseline, path=each, batch_size=batch_size)
        for each in (path, path.doubled())
    )
    return _change(once, twice)


def _change(once: Tensor, twice: Tensor) -> Tensor:
    size = twice.flatten(1).norm(dim=1)
    changed: Tensor = (once - twice).flatten(1).norm(dim=1) / torch.where(size > 0, size, 1.0)
    return changed


def _block(chain: Chain | None, path: Path, batch_size: int) -> int:
    """Return how many rows to take at once: autograd needs memory for every point of every row."""
    return max(1, batch_size // len(path.nodes)) if chain is None else min(batch_size, _BLOCK)


def _first(chain: Chain, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first layer's outputs (n, H) at both ends."""
    first, last = (torch.addmm(chain.bias, ends.detach().to(chain.weight), chain.weight.T) for ends in (begin, end))
    return first, last


def _mean_slope(chain: Chain, begin: Tensor, end: Tensor, path: Path) -> Tensor:
    """Return the mean slope (n, K, H) by the first layer's outputs, which are given for both ends."""
    with torch.no_grad():
        if path.weights:
            return quadrature_slope(chain, begin, end, path.nodes, path.weights)
        return secant_slope(chain, begin, end, path.nodes)


def _made_up(baseline: Tensor, chain: Chain) -> tuple[Tensor, Tensor]:
    """Return the first layer's outputs at both ends of ways of about the length that ways of people have."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(2, _ROWS, chain.weight.shape[1], generator=generator, dtype=torch.float64).to(chain.weight)
    begin = draws[0] if baseline.ndim > 1 else baseline.expand_as(draws[0])
    end = draws[1] if baseline.ndim > 1 else baseline + draws[1]
    return _first(chain, begin, end)


def _doubling(chain: Chain, begin: Tensor, end: Tensor, path: Path) -> float:
    """Return what doubling the path changes at most for all but five in a hundred made-up rows."""
    once, twice = (_mean_slope(chain, begin, end, each) @ chain.weight for each in (path, path.doubled()))
    return float(_change(once, twice).quantile(0.95))


def _enough(chain: Chain, begin: Tensor, end: Tensor, times: Tensor) -> int:
    """Return how many intervals keep the error: it falls with about the 1.75th power of their number."""
    if _doubling(chain, begin, end, intervals(1, times)) <= _ERROR:
        return 1
    found = _doubling(chain, begin, end, intervals(4, times))
    wanted = math.ceil(4 * math.pow(found / _ERROR, 1 / 1.75))
    return min(_MOST, max(2, wanted))


def _smooth_path(chain: Chain, begin: Tensor, end: Tensor) -> Path:
    for steps in (4, 8, 16):
        if _doubling(chain, begin, end, quadrature(steps)) <= _SMOOTH:
            return quadrature(steps)
    return quadrature(_UNKNOWN)


def _mean_gradient(function: Callable[[Tensor], Tensor], begin: Tensor, end: Tensor, path: Path) -> Tensor:
    """Return the mean Jacobian (n, K, H) over the path from begin to end (n, H)."""
    at = begin.new_tensor(path.nodes)[:, None, None]
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
    share, count = begin.new_tensor(path.weights), len(path.nodes)
    return torch.stack([torch.einsum("t,tnh->nh", share, g.reshape(count, *begin.shape)) for g in grads], dim=1)
