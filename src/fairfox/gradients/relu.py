"""Plain networks, Linear, ReLU, ..., Linear, as their weights: derivatives by hand, and their inner products.

Blocks share memory: for networks this small, autograd's bookkeeping and fresh memory take as long as the arithmetic
(benchmarks/bench_engine.py: `faux` in less than five forward passes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.gradients.alignment import Products, products, square_root
from fairfox.models.protocol import Model
from fairfox.models.torch import Tail

_FREE = (nn.Sigmoid, nn.Softmax, nn.LogSoftmax, nn.Softplus, nn.Identity, nn.Flatten)  # without weights, at the end


@dataclass(frozen=True)
class ReluNetwork:
    """Linear, ReLU, ..., Linear as weights, and what the model makes of the last layer's outputs.

    Example:
        >>> net = ReluNetwork([torch.tensor([[2.0]]), torch.tensor([[3.0]])], [torch.zeros(1), torch.ones(1)])
        >>> net.with_slope(torch.tensor([[1.0], [-1.0]]))
        (tensor([7., 1.]), tensor([[6.],
                [0.]]))
    """

    weights: Sequence[Tensor]  # (O, I) each
    biases: Sequence[Tensor]  # (O,) each
    finish: Callable[[Tensor], Tensor] | None = None  # from the last layer's outputs (n, R) to the model's (n, K)
    memory: dict[tuple[str, int, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Tensor:
        """The first layer's weights (H, D)."""
        return self.weights[0]

    @cached_property
    def outputs(self) -> int:
        """How many outputs the model has."""
        raw = len(self.weights[-1])
        return raw if self.finish is None else self.finish(self.first.new_zeros(1, raw)).shape[1]

    def buffer(self, name: str, rows: int, width: int) -> Tensor:
        """Return memory (rows, width) that every call reuses."""
        key = name, width, self.first.dtype
        kept = self.memory.get(key)
        if kept is None or len(kept) < rows or kept.device != self.first.device:
            kept = self.memory[key] = self.first.new_empty(rows, width)
        return kept[:rows]

    def layer(self, i: int, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return the outputs (n, O) of the layer number i, in memory that is given or fresh."""
        return torch.addmm(self.biases[i], x, self.weights[i].T, out=out)

    def enter(self, x: Tensor) -> Tensor:
        """Return the first layer's outputs (n, H) for rows x (n, D) of any dtype."""
        return self.layer(0, x.detach().to(self.first))

    def forward(self, hidden: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the outputs of each ReLU and the last layer's (n, R), for the first layer's, which are overwritten."""
        active, last = [], len(self.weights) - 1
        for i in range(1, last + 1):
            active.append(hidden.relu_())
            out = self.buffer(f"hidden {i}", len(hidden), len(self.biases[i])) if i < last else None
            hidden = self.layer(i, hidden, out=out)
        return active, hidden

    def backward(self, start: Tensor, active: Sequence[Tensor], *, overwrite: bool) -> Tensor:
        """Return the slope (n, H) by the first layer's outputs, given the slope by what entered the last layer.

        With `overwrite` the outputs of the ReLUs are lost, and less memory is touched.
        """
        slope = start
        for i in range(len(active) - 1, -1, -1):
            out = active[i] if overwrite else self.buffer("behind", *active[i].shape)
            slope = through_relu(slope, active[i], out=out)
            if i > 0:
                slope = torch.mm(slope, self.weights[i], out=self.buffer("before", *active[i - 1].shape))
        return slope

    def starts(self, raw: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Return the slope of each model output by what entered the last layer (n, H), and what `pull` returns."""
        last = self.weights[-1]
        if self.finish is None:
            return [row.expand(len(raw), -1) for row in last], None
        finish = block_jacobian(self.finish, raw)  # (n, K, R)
        if finish.shape[1:] == (1, 1):
            return [last.expand(len(raw), -1)], finish[:, 0]
        return [each @ last for each in finish.unbind(1)], None

    def pull(self, x: Tensor, factor: Tensor, out: Tensor) -> Tensor | None:
        """Write the slopes by the first layer's outputs times `factor` (H, E) to `out` (n, K, E).

        The first layer's weights as the factor give the Jacobian. Returns what a single output's slopes (n, 1) still
        have to be multiplied by; None for nothing.
        """
        with torch.no_grad():
            hidden = self.layer(0, x.to(self.first), out=self.buffer("hidden 0", len(x), len(self.first)))
            active, raw = self.forward(hidden)
            starts, scale = self.starts(raw)
            for k, start in enumerate(starts):
                slope = self.backward(start, active, overwrite=k == len(starts) - 1)
                torch.mm(slope, factor, out=out[:, k])
        return scale

    def with_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the single output (n,) of the last layer and its slope by x (n, D), in fresh memory."""
        active, hidden = [], x
        for i in range(len(self.weights) - 1):
            hidden = self.layer(i, hidden).relu_()
            active.append(hidden)
        output = torch.addmv(self.biases[-1], hidden, self.weights[-1][0])
        slope = self.weights[-1].expand(len(x), -1)
        for weight, hidden in zip(reversed(self.weights[:-1]), reversed(active), strict=True):
            slope = through_relu(slope, hidden) @ weight
        return output, slope


def relu_network(model: Model, width: int) -> ReluNetwork | None:
    """Return a model on `width` columns as a plain network; None where it is not one."""
    affine = getattr(model, "first_affine", None)
    if affine is None or affine[0].shape[1] != width or not isinstance(affine[2], Tail):
        return None
    weight, bias, tail = affine
    layers = list(tail.layers)
    if any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers):
        return None
    pairs = 0  # by type: subclasses may do more
    while [type(layer) for layer in layers[2 * pairs : 2 * pairs + 2]] == [nn.ReLU, nn.Linear]:
        pairs += 1
    linears, rest = layers[1 : 2 * pairs : 2], layers[2 * pairs :]
    if pairs == 0 or any(type(layer) not in _FREE for layer in rest):
        return None
    finish = tail.finish if not rest else Tail(nn.Sequential(*rest), tail.finish)
    weights = [weight, *(layer.weight.detach() for layer in linears)]
    biases = [layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in linears]
    return ReluNetwork(weights, [bias, *(each.detach() for each in biases)], finish)


def through_relu(slope: Tensor, active: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the slope by what entered a ReLU, for the slope by its outputs `active`."""
    if out is None:
        back: Tensor = torch.ops.aten.threshold_backward(slope, active, 0)
    else:
        back = torch.ops.aten.threshold_backward.grad_input(slope, active, 0, grad_input=out)
    return back


def block_jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the Jacobian (n, K, D) of any function of rows by autograd: a backward pass of each summed output."""
    return value_and_jacobian(function, x)[1]


def value_and_jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values (n, K) of any function of rows, and its Jacobian."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        out = function(x)  # (n, K)
        sums = out.sum(0)
        last = len(sums) - 1
        if not out.requires_grad:  # a constant
            return out, x.new_zeros(len(x), len(sums), x.shape[1])
        rows = [
            torch.autograd.grad(total, x, retain_graph=k < last, allow_unused=True, materialize_grads=True)[0]
            for k, total in enumerate(sums)
        ]
    return out.detach(), rows[0][:, None] if last == 0 else torch.stack(rows, dim=1)


# --- Inner products of two networks' gradients ---------------------------------------------------------------------


class BlockProducts(NamedTuple):
    """The inner products of a block of rows, but for factors (n, 1) of both gradients; None for no factor."""

    bare: Products
    scale: Tensor | None  # of the target's gradient
    factor: Tensor | None  # of the auxiliary's


def whole_products(blocks: Sequence[BlockProducts]) -> Products:
    """Return the inner products (N, 1) of everyone, block after block, with their factors."""
    whole = Products(*map(torch.cat, zip(*(each.bare for each in blocks), strict=True)))
    scales = [each.scale for each in blocks if each.scale is not None]
    factors = [each.factor for each in blocks if each.factor is not None]
    if scales:
        scale = torch.cat(scales)
        whole = Products(whole.inner * scale, whole.tar * scale.square(), whole.aux)
    if factors:
        factor = torch.cat(factors)
        whole = Products(whole.inner * factor, whole.tar, whole.aux * factor.square())
    return whole


class Pairing:
    """Gradients of a target and of its auxiliaries in few common coordinates.

    The gradient of a network is W1ᵀ d, W1 (H, D) its first layer and d (H,) the slope by that layer's outputs. In an
    orthonormal basis that starts with the span of the target's W1ᵀ, the target's gradient has at most H coordinates, an
    auxiliary's at most as many as both first layers have outputs. Inner products do not change, and no vector as long
    as x is formed (benchmarks/bench_engine.py, 400 features: 3.4 forward passes).
    """

    def __init__(self, target: ReluNetwork, members: Sequence[ReluNetwork], *, metric: Tensor | None = None) -> None:
        self.target = target
        # one works after the other: what stays in the cache is used again
        self.members = [ReluNetwork(m.weights, m.biases, m.finish, target.memory) for m in members]
        own, others = short_factors(target.first, [member.first for member in members], metric=metric)
        self.own, self.others = own.to(target.first), [f.to(m.first) for f, m in zip(others, members, strict=True)]

    def gradient(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the target's gradient (n, E) but for a factor (n, 1); the next call overwrites it."""
        grad, scale = _pulled("target", self.target, self.own, x)
        return grad[:, 0], scale

    def jacobian(self, member: int, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return an auxiliary's Jacobian (n, K, E) but for a factor; its first coordinates are the target's."""
        return _pulled("member", self.members[member], self.others[member], x)

    def pieces(self, grad: tuple[Tensor, Tensor | None], jac: tuple[Tensor, Tensor | None]) -> BlockProducts:
        """Return the inner products of what `gradient` and the `jacobian` of a single output returned.

        The latter is overwritten.
        """
        (slope, scale), (row, factor) = grad, jac
        return BlockProducts(products(slope, row[:, 0]), scale, factor)

    def whole(self, grad: tuple[Tensor, Tensor | None], jac: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Return both with their factors, in coordinates of the same number: (n, F) and (n, K, F)."""
        (slope, scale), (rows, factor) = grad, jac
        slope = slope if scale is None else slope * scale
        rows = rows if factor is None else rows * factor[:, :, None]
        return F.pad(slope, (0, rows.shape[2] - slope.shape[1])), rows


def pairing_of(target: Model, members: Sequence[Model], x: Tensor, *, metric: Tensor | None = None) -> Pairing | None:
    """Return the target paired with auxiliaries; None where one of them is not a plain network."""
    read = [relu_network(model, x.shape[1]) for model in (target, *members)]
    networks = [network for network in read if network is not None]
    if len(networks) < len(read) or networks[0].outputs != 1:
        return None
    return Pairing(networks[0], networks[1:], metric=metric)


def short_factors(
    target: Tensor, others: Sequence[Tensor], *, metric: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return for first layers (H, D) what takes slopes to short coordinates (H, E), E at most D.

    With a metric S = R Rᵀ inner products are those in the metric: of Rᵀ times the gradients.
    """
    root = None if metric is None else square_root(metric.double())
    first, *rest = (each.double() if root is None else each.double() @ root for each in (target, *others))
    if len(first) >= first.shape[1]:
        return first, rest
    basis, triangle = torch.linalg.qr(first.T)  # (D, H), (H, H)
    factors = []
    for each in rest:
        along = each @ basis
        apart = torch.linalg.qr((each - along @ basis.T).T, mode="r").R.T  # (H, at most H)
        room = min(apart.shape[1], first.shape[1] - len(first))
        if room < apart.shape[1]:  # what is apart from H of D directions lies in the other D - H
            outside = torch.linalg.qr(first.T, mode="complete").Q[:, len(first) :]
            apart = each @ outside
        factors.append(torch.cat([along, apart], dim=1))
    return triangle.T, factors


def _pulled(name: str, network: ReluNetwork, factor: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
    width = factor.shape[1]
    out = network.buffer(name, len(x), network.outputs * width).view(len(x), network.outputs, width)
    scale = network.pull(x, factor, out)
    return out.to(x), None if scale is None else scale.to(x)
