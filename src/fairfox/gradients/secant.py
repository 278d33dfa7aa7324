"""The mean slope of a plain network on a straight way, interval by interval or point by point.

Between two points a piecewise linear unit is replaced by the straight line through its values at both: the product of
such slopes takes the step in x to the step of the output exactly, whatever happens between the points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fairfox.gradients.chain import Chain, block_jacobian, linear

_INNER = ((0.5 - 3**0.5 / 6, 0.5), (0.5 + 3**0.5 / 6, 0.5))  # two Gauss-Legendre points within an interval


def secant_slope(chain: Chain, begin: Tensor, end: Tensor, nodes: Sequence[float]) -> Tensor:
    """Return the mean slope (n, K, H) by the first layer's outputs on the way from begin to end (n, H).

    `nodes` are the ends of the intervals, from 0 to 1. The first layer's outputs move straight: their units' slopes
    are exact, and with them everything of a network with one hidden layer and nothing behind it.
    """
    total = begin.new_zeros(chain.outputs, *begin.shape)
    before = _Point(chain, begin, parity=0)
    for i, (left, right) in enumerate(pairwise(nodes)):
        at = torch.lerp(begin, end, right, out=chain.buffer(f"z 0 {(i + 1) % 2}", *begin.shape))
        after = _Point(chain, at, parity=(i + 1) % 2)
        slopes = [_unit_slope(chain, layer, before, after) for layer in range(len(chain.weights))]
        for k, start in enumerate(_starts(chain, before.raw, after.raw)):
            _add_slope(chain, start, slopes, right - left, total[k])
        before = after
    return total.transpose(0, 1)


def quadrature_slope(
    chain: Chain, begin: Tensor, end: Tensor, nodes: Sequence[float], weights: Sequence[float]
) -> Tensor:
    """Return the weighted mean slope (n, K, H) by the first layer's outputs over points of the way."""
    total = begin.new_zeros(chain.outputs, *begin.shape)
    for node, weight in zip(nodes, weights, strict=True):
        seen, raw = chain.forward(torch.lerp(begin, end, node, out=chain.buffer("hidden 0", *begin.shape)))
        starts, scale = chain.starts(raw)
        for k, start in enumerate(starts):
            slope = chain.backward(start, seen, overwrite=k == len(starts) - 1)
            total[k].add_(slope if scale is None else slope * scale, alpha=weight)
    return total.transpose(0, 1)


def crossing_times(begin: Tensor, end: Tensor) -> Tensor:
    """Return when, within 0 and 1, units of the first layer pass zero on the way, of all rows together."""
    times = -begin / (end - begin)
    return times[(times > 0) & (times < 1)]


class _Point:
    """The network at a point of the way: what enters and what leaves each activation, and the outputs."""

    def __init__(self, chain: Chain, at: Tensor, *, parity: int) -> None:
        self.enters, self.leaves = [at], []
        last = len(chain.weights) - 1
        for i, (weight, bias) in enumerate(zip(chain.weights, chain.biases, strict=True)):
            z = self.enters[i]
            self.leaves.append(torch.clamp(z, min=0, out=chain.buffer(f"relu {i} {parity}", *z.shape)))
            leak = chain.activations[i].leak or 0.0
            active = self.leaves[i] if leak == 0 else torch.lerp(self.leaves[i], z, leak)  # (1 - leak) relu + leak z
            if i < last:
                out = chain.buffer(f"z {i + 1} {parity}", len(z), len(weight))
                self.enters.append(linear(active, weight, bias, out=out))
            else:
                self.raw = linear(active, weight, bias)


def _unit_slope(chain: Chain, layer: int, before: _Point, after: _Point) -> Tensor:
    """Return the slopes (n, H) of a layer's units between two points; the derivative of a unit that stands still."""
    shape = before.enters[layer].shape
    run = torch.sub(after.enters[layer], before.enters[layer], out=chain.buffer("run", *shape))
    rise = torch.sub(after.leaves[layer], before.leaves[layer], out=chain.buffer(f"rise {layer}", *shape))
    slope = rise.div_(run)
    if bool(slope.sum().isnan()):  # 0 / 0 somewhere; a sum is the quickest look
        still = run == 0  # all features together do not move it, but each has its part
        slope[still] = (before.enters[layer][still] > 0).to(slope)
    leak = chain.activations[layer].leak or 0.0
    return slope if leak == 0 else slope.mul_(1 - leak).add_(leak)


def _add_slope(chain: Chain, start: Tensor, slopes: Sequence[Tensor], weight: float, total: Tensor) -> None:
    """Add to the total (n, H) the slope by the first layer's outputs, given that by what entered the last layer."""
    for i in range(len(slopes) - 1, 0, -1):
        behind = torch.mul(start, slopes[i], out=chain.buffer("behind", *slopes[i].shape))
        start = torch.mm(behind, chain.weights[i - 1], out=chain.buffer("before", *slopes[i - 1].shape))
    total.addcmul_(start, slopes[0], value=weight)


def _starts(chain: Chain, before: Tensor, after: Tensor) -> list[Tensor]:
    """Return of each model output the mean slope (n, H) by what enters the last layer, for its outputs (n, R)."""
    last = chain.weights[-1]
    if chain.finish is None:
        return [row.expand(len(before), -1) for row in last]
    if len(last) == 1 and chain.outputs == 1:
        return [_finish_slope(chain.finish, before, after) * last]
    finish: Tensor = torch.zeros((), dtype=before.dtype, device=before.device)
    for node, weight in _INNER:
        finish = finish + weight * block_jacobian(chain.finish, torch.lerp(before, after, node))  # (n, K, R)
    return [each @ last for each in finish.unbind(1)]


def _finish_slope(finish: Callable[[Tensor], Tensor], before: Tensor, after: Tensor) -> Tensor:
    """Return the slope (n, 1) of a function of one number between two; its derivative where they are close."""
    run = after - before
    close = run.abs() < torch.finfo(run.dtype).eps ** (1 / 3)
    slope: Tensor = (finish(after) - finish(before)) / torch.where(close, 1.0, run)
    if bool(close.any()):
        slope = torch.where(close, block_jacobian(finish, (before + after) / 2)[:, 0], slope)
    return slope
