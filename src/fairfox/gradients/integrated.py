"""Integrated gradients: the average gradient along a straight path, times its length along each feature.

Along an interval of the path a ReLU is replaced by the straight line through its values at both ends. The product of
these slopes maps the step in x exactly to the step of the output. At the same error captum's quadrature takes 39 to 254
times as long (benchmarks/bench_engine.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fairfox.errors import OptionError
from fairfox.gradients.relu import ReluNetwork, block_jacobian, relu_network
from fairfox.models.protocol import Model, row_blocks

_POINTS = 32  # of the quadrature for a model that is no plain network
_ERROR = 2e-3  # relative, of all but five in a hundred rows
_INNER = (0.5 - 3**0.5 / 6, 0.5 + 3**0.5 / 6)  # two Gauss-Legendre points within an interval
_MOST = 64  # intervals
_ROWS = 128  # made-up rows on which the error is looked at
_BLOCK = 2048  # rows: what an interval needs of them stays in a processor's cache


@dataclass(frozen=True)
class Path:
    """The points between the baseline (0) and x (1) at which gradients are computed.

    With weights these are the points of a quadrature; without, the ends of the intervals over which the units of a
    plain ReLU network are taken as straight.
    """

    nodes: tuple[float, ...]
    weights: tuple[float, ...] = ()

    def doubled(self) -> Path:
        """Return the path with every interval halved."""
        halves = [(a + b) / 2 for a, b in pairwise(self.nodes)]
        return Path(tuple(sorted([*self.nodes, *halves])))


@cache
def quadrature(steps: int) -> Path:
    """Return `steps` Gauss-Legendre points with weights that sum to 1: the rule for smooth models."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return Path(tuple(((nodes + 1) / 2).tolist()), tuple((weights / 2).tolist()))


def choose_path(model: Model, baseline: Tensor, *, steps: int | None = None) -> Path:
    """Return where to compute gradients between x and one baseline (D,), or a baseline each (N, D), in `steps` steps.

    Plain ReLU networks: intervals, shorter where many units pass zero; other models: quadrature. Without `steps`,
    an error estimated by doubling decides. It is estimated on simulated rows around the baseline, so that the choice,
    and with it a person's number, does not depend on who else is in the table.
    """
    network = relu_network(model, baseline.shape[-1])
    if network is None:
        return quadrature(steps or _POINTS)
    begin, end = _paths(baseline.to(network.first), network)
    times = -begin / (end - begin)
    times = times[(times > 0) & (times < 1)]  # when units of the first layer pass zero, of all rows together
    return intervals(steps or _enough(network, begin, end, times), times)


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
    """Return integrated gradients (N, K, D): (x - baseline) times the mean Jacobian between both.

    They sum over D to f(x) - f(baseline). `baseline` is one row (D,) for everyone or a row each (N, D). Where
    the model starts with a linear layer, that layer is applied once per end of the path, not once per step. `path`
    says where gradients are computed; by default `choose_path` decides.
    """
    if not model.differentiable:
        raise OptionError("Integrated gradients need a differentiable model; use 'rank', 'move' or 'faux'")
    path = choose_path(model, baseline, steps=steps) if path is None else path
    network = None if path.weights else relu_network(model, x.shape[1])
    affine = getattr(model, "first_affine", None)
    start = baseline.to(x).expand_as(x)
    # autograd needs memory for every point of every row
    block = max(1, batch_size // len(path.nodes)) if network is None else min(batch_size, _BLOCK)
    parts = []
    for rows in row_blocks(len(x), block):
        begin, end = start[rows], x[rows]
        if network is not None:
            slope = secant_slope(network, network.enter(begin), network.enter(end), path.nodes)
            mean = (slope @ network.first).to(x)
        elif affine is None:
            mean = _mean_gradient(model, begin, end, path)
        else:
            weight, bias, rest = affine  # of the network's own dtype, which may not be x's
            first, last = (ends.to(weight) @ weight.T + bias for ends in (begin, end))
            mean = (_mean_gradient(rest, first, last, path) @ weight).to(x)
        parts.append((end - begin)[:, None] * mean)
    return torch.cat(parts) if parts else x.new_zeros(0, 1, x.shape[1])


def _paths(baseline: Tensor, network: ReluNetwork) -> tuple[Tensor, Tensor]:
    """Return the first layer's outputs at both ends of made-up paths, about as long as those of people."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(2, _ROWS, network.first.shape[1], generator=generator, dtype=torch.float64).to(network.first)
    begin = draws[0] if baseline.ndim > 1 else baseline.expand_as(draws[0])
    end = draws[1] if baseline.ndim > 1 else baseline + draws[1]
    return network.enter(begin), network.enter(end)


def _doubling(network: ReluNetwork, begin: Tensor, end: Tensor, path: Path) -> float:
    """Return what doubling the path changes at most for all but five in a hundred made-up rows."""
    once, twice = (secant_slope(network, begin, end, each.nodes) @ network.first for each in (path, path.doubled()))
    size = twice.flatten(1).norm(dim=1)
    change = (once - twice).flatten(1).norm(dim=1) / torch.where(size > 0, size, 1.0)
    return float(change.quantile(0.95))


def _enough(network: ReluNetwork, begin: Tensor, end: Tensor, times: Tensor) -> int:
    """Return how many intervals keep the error: it falls with about the 1.75th power of their number."""
    if _doubling(network, begin, end, intervals(1, times)) <= _ERROR:
        return 1
    error = _doubling(network, begin, end, intervals(4, times))
    return min(_MOST, max(2, math.ceil(4 * math.pow(error / _ERROR, 1 / 1.75))))


def _mean_gradient(function: Callable[[Tensor], Tensor], begin: Tensor, end: Tensor, path: Path) -> Tensor:
    """Return the mean Jacobian (n, K, H) over the path from begin to end (n, H)."""
    at, share = begin.new_tensor(path.nodes)[:, None, None], begin.new_tensor(path.weights)
    points = (begin + at * (end - begin)).flatten(0, 1)  # (T n, H)
    grads = [each.unflatten(0, (len(at), -1)) for each in block_jacobian(function, points).unbind(1)]
    return torch.stack([torch.einsum("t,tnh->nh", share, each) for each in grads], dim=1)


# --- Secants of a plain network ------------------------------------------------------------------------------------


def secant_slope(network: ReluNetwork, begin: Tensor, end: Tensor, nodes: Sequence[float]) -> Tensor:
    """Return the mean slope (n, K, H) by the first layer's outputs between begin and end (n, H).

    `nodes` are the ends of the intervals, from 0 to 1. The first layer's outputs move straight: their units' slopes
    are exact, and with them everything of a network with one hidden layer and nothing behind it.
    """
    with torch.no_grad():
        total = begin.new_zeros(network.outputs, *begin.shape)
        before = _Point(network, begin, parity=0)
        for i, (left, right) in enumerate(pairwise(nodes), start=1):
            at = torch.lerp(begin, end, right, out=network.buffer(f"z 0 {i % 2}", *begin.shape))
            after = _Point(network, at, parity=i % 2)
            slopes = [_unit_slope(network, layer, before, after) for layer in range(len(after.leaves))]
            for k, start in enumerate(_starts(network, before.raw, after.raw)):
                _add_slope(network, start, slopes, right - left, total[k])
            before = after
    return total.transpose(0, 1)


class _Point:
    """The network at a point of the path: what enters and what leaves each ReLU, and the last layer's outputs."""

    def __init__(self, network: ReluNetwork, at: Tensor, *, parity: int) -> None:
        self.enters, self.leaves = [at], []
        last = len(network.weights) - 1
        for i in range(1, last + 1):
            z = self.enters[-1]
            self.leaves.append(torch.clamp(z, min=0, out=network.buffer(f"relu {i} {parity}", *z.shape)))
            if i < last:
                out = network.buffer(f"z {i} {parity}", len(z), len(network.biases[i]))
                self.enters.append(network.layer(i, self.leaves[-1], out=out))
        self.raw = network.layer(last, self.leaves[-1])


def _unit_slope(network: ReluNetwork, i: int, before: _Point, after: _Point) -> Tensor:
    """Return the slopes (n, H) of a ReLU's units between two points; the derivative of a unit that does not move."""
    shape = before.enters[i].shape
    run = torch.sub(after.enters[i], before.enters[i], out=network.buffer("run", *shape))
    rise = torch.sub(after.leaves[i], before.leaves[i], out=network.buffer(f"rise {i}", *shape))
    slope = rise.div_(run)
    if bool(slope.sum().isnan()):  # 0 / 0 somewhere; a sum is the quickest look
        still = run == 0  # all features together do not move it, but each contributes
        slope[still] = (before.enters[i][still] > 0).to(slope)
    return slope


def _add_slope(network: ReluNetwork, start: Tensor, slopes: Sequence[Tensor], weight: float, total: Tensor) -> None:
    """Add to the total (n, H) the slope by the first layer's outputs, given that by what entered the last layer."""
    for i in range(len(slopes) - 1, 0, -1):
        behind = torch.mul(start, slopes[i], out=network.buffer("behind", *slopes[i].shape))
        start = torch.mm(behind, network.weights[i], out=network.buffer("before", *slopes[i - 1].shape))
    total.addcmul_(start, slopes[0], value=weight)


def _starts(network: ReluNetwork, before: Tensor, after: Tensor) -> list[Tensor]:
    """Return of each model output the mean slope (n, H) by what enters the last layer, for its outputs (n, R)."""
    last = network.weights[-1]
    if network.finish is None:
        return [row.expand(len(before), -1) for row in last]
    if len(last) == 1 and network.outputs == 1:
        return [_finish_slope(network.finish, before, after) * last]
    inner = [block_jacobian(network.finish, torch.lerp(before, after, node)) for node in _INNER]
    finish = torch.stack(inner).mean(0)  # (n, K, R)
    return [each @ last for each in finish.unbind(1)]


def _finish_slope(finish: Callable[[Tensor], Tensor], before: Tensor, after: Tensor) -> Tensor:
    """Return the slope (n, 1) of a function of one number between two; its derivative where they are close."""
    run = after - before
    close = run.abs() < torch.finfo(run.dtype).eps ** (1 / 3)
    slope: Tensor = (finish(after) - finish(before)) / torch.where(close, 1.0, run)
    if bool(close.any()):
        slope = torch.where(close, block_jacobian(finish, (before + after) / 2)[:, 0], slope)
    return slope
