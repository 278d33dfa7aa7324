"""Plain networks taken apart: linear layers, what stands between them, and derivatives by hand.

By hand, and with the same memory for block after block: autograd's bookkeeping and fresh memory take as long as the
arithmetic of networks this small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.models.protocol import Model
from fairfox.models.torch_model import Tail

_aten = torch.ops.aten


class Activation(NamedTuple):
    """What stands between two linear layers: in place there, and back by its own outputs."""

    apply: Callable[[Tensor], Tensor]  # overwrites what it is given
    back: Callable[[Tensor, Tensor, Tensor], Tensor]  # slope by its outputs, its outputs, where the slope goes
    leak: float | None = None  # the slope below zero of a piecewise linear one; None: smooth


_KINDS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.Tanh, nn.Sigmoid)
_FREE = (nn.Sigmoid, nn.Softmax, nn.LogSoftmax, nn.Softplus, nn.Identity, nn.Flatten)  # without weights, behind it all


Memory = dict[tuple[str, int, torch.dtype], Tensor]  # by what it is for, its width and its dtype


class Chain:
    """Linear, activation, ..., Linear and what the model makes of the last one's outputs, as weights."""

    def __init__(
        self,
        first: tuple[Tensor, Tensor],
        linears: list[nn.Linear],
        activations: list[Activation],
        finish: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.weight, self.bias = first  # (H, D), (H,)
        self.weights = [linear.weight.detach() for linear in linears]
        self.biases = [None if linear.bias is None else linear.bias.detach() for linear in linears]
        self.activations, self.finish = activations, finish
        self.memory: Memory = {}
        raw = len(self.weights[-1])
        self.outputs = raw if finish is None else finish(self.weight.new_zeros(1, raw)).shape[1]

    @property
    def leaks(self) -> list[float] | None:
        """The slopes below zero of the activations; None where one is smooth."""
        leaks = [a.leak for a in self.activations if a.leak is not None]
        return leaks if len(leaks) == len(self.activations) else None

    def buffer(self, name: str, rows: int, width: int) -> Tensor:
        """Return memory (rows, width) that is the same at every call; what was in it is lost."""
        key = name, width, self.weight.dtype
        kept = self.memory.get(key)
        if kept is None or len(kept) < rows or kept.device != self.weight.device:
            kept = self.memory[key] = self.weight.new_empty(rows, width)
        return kept[:rows]

    def hidden(self, x: Tensor) -> Tensor:
        """Return the first layer's outputs (n, H) for rows of the network's own dtype."""
        return torch.addmm(self.bias, x, self.weight.T, out=self.buffer("hidden 0", len(x), len(self.bias)))

    def forward(self, hidden: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return what enters each later layer, and the network's outputs (n, R); `hidden` is overwritten."""
        seen, last = [], len(self.weights) - 1
        for i, (weight, bias, activation) in enumerate(zip(self.weights, self.biases, self.activations, strict=True)):
            seen.append(activation.apply(hidden))
            out = self.buffer(f"hidden {i + 1}", len(hidden), len(weight)) if i < last else None
            hidden = linear(hidden, weight, bias, out=out)
        return seen, hidden

    def backward(self, start: Tensor, seen: list[Tensor], *, overwrite: bool) -> Tensor:
        """Return the slope (n, H) by the first layer's outputs, given the one by what entered the last layer.

        With `overwrite` what was seen is lost, and less memory is touched.
        """
        slope = start
        for i in range(len(seen) - 1, -1, -1):
            out = seen[i] if overwrite else self.buffer("behind", *seen[i].shape)
            slope = self.activations[i].back(slope, seen[i], out)
            if i > 0:
                slope = torch.mm(slope, self.weights[i - 1], out=self.buffer("before", *seen[i - 1].shape))
        return slope

    def pull(self, x: Tensor, factor: Tensor, out: Tensor) -> Tensor | None:
        """Write the slopes by the first layer's outputs times `factor` (H, E) to `out` (n, K, E).

        The first layer's weights as the factor give the Jacobian. Returns what a single output's slopes (n, 1) still
        have to be multiplied by; None for nothing.
        """
        with torch.no_grad():
            seen, raw = self.forward(self.hidden(x.to(self.weight)))
            starts, scale = self.starts(raw)
            for k, start in enumerate(starts):
                slope = self.backward(start, seen, overwrite=k == len(starts) - 1)
                torch.mm(slope, factor, out=out[:, k])
        return scale

    def starts(self, raw: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Return the slope of each model output by what entered the last layer (n, H), and what `pull` returns."""
        last = self.weights[-1]
        if self.finish is None:
            return [row.expand(len(raw), -1) for row in last], None
        finish = block_jacobian(self.finish, raw)  # (n, K, R)
        if finish.shape[1:] == (1, 1):
            return [last.expand(len(raw), -1)], finish[:, 0]
        return [each @ last for each in finish.unbind(1)], None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor | None = None) -> Tensor:
    """Return x @ weightᵀ + bias, in memory that is given."""
    if out is None:
        return F.linear(x, weight, bias)
    return torch.mm(x, weight.T, out=out) if bias is None else torch.addmm(bias, x, weight.T, out=out)


def chain_of(model: Model, width: int) -> Chain | None:
    """Return a model on `width` columns as a chain; None where something in it is not plain."""
    affine = getattr(model, "first_affine", None)
    if affine is None or affine[0].shape[1] != width or not isinstance(affine[2], Tail):
        return None
    weight, bias, tail = affine
    layers = list(tail.layers)
    if not all(map(_is_plain, layers)):
        return None
    pairs = 0
    while 2 * pairs + 1 < len(layers) and type(layers[2 * pairs]) in _KINDS and _is_linear(layers[2 * pairs + 1]):
        pairs += 1
    rest = layers[2 * pairs :]
    activations = [_activation(layer) for layer in layers[: 2 * pairs : 2]]
    known = [a for a in activations if a is not None]
    if pairs == 0 or len(known) < pairs or any(type(layer) not in _FREE for layer in rest):
        return None
    linears = [layer for layer in layers[1 : 2 * pairs : 2] if isinstance(layer, nn.Linear)]
    finish = tail.finish if not rest else Tail(nn.Sequential(*rest), tail.finish)
    return Chain((weight, bias), linears, known, finish)


def block_jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the Jacobian (n, K, D) of any function of rows by autograd: a backward pass of each summed output."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        out = function(x)  # (n, K)
        sums = out.sum(0)
        last = len(sums) - 1
        if not out.requires_grad:  # a constant
            return x.new_zeros(len(x), len(sums), x.shape[1])
        rows = [
            torch.autograd.grad(total, x, retain_graph=k < last, allow_unused=True, materialize_grads=True)[0]
            for k, total in enumerate(sums)
        ]
    return rows[0][:, None] if last == 0 else torch.stack(rows, dim=1)


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer has no hooks: it does what its kind does."""
    return not (layer._forward_hooks or layer._forward_pre_hooks)


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear  # subclasses may do more


def _activation(layer: nn.Module) -> Activation | None:
    """Return a layer as an activation that its own outputs give the slope of; None where they do not."""
    if type(layer) is nn.ReLU:
        return Activation(torch.relu_, _relu_back, 0.0)
    if type(layer) is nn.LeakyReLU:
        leak = float(layer.negative_slope)
        return Activation(_leaky(leak), _leaky_back(leak), leak) if leak > 0 else None
    if type(layer) is nn.ELU:
        alpha = float(layer.alpha)
        return Activation(_elu(alpha), _elu_back(alpha)) if alpha > 0 else None
    if type(layer) is nn.Tanh:
        return Activation(torch.tanh_, _tanh_back)
    return Activation(torch.sigmoid_, _sigmoid_back) if type(layer) is nn.Sigmoid else None


def _relu_back(slope: Tensor, active: Tensor, out: Tensor) -> Tensor:
    back: Tensor = _aten.threshold_backward.grad_input(slope, active, 0, grad_input=out)
    return back


def _tanh_back(slope: Tensor, active: Tensor, out: Tensor) -> Tensor:
    back: Tensor = _aten.tanh_backward.grad_input(slope, active, grad_input=out)
    return back


def _sigmoid_back(slope: Tensor, active: Tensor, out: Tensor) -> Tensor:
    back: Tensor = _aten.sigmoid_backward.grad_input(slope, active, grad_input=out)
    return back


def _leaky(leak: float) -> Callable[[Tensor], Tensor]:
    return lambda z: F.leaky_relu_(z, leak)


def _leaky_back(leak: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda slope, active, out: _aten.leaky_relu_backward.grad_input(slope, active, leak, True, grad_input=out)


def _elu(alpha: float) -> Callable[[Tensor], Tensor]:
    return lambda z: F.elu_(z, alpha)


def _elu_back(alpha: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda slope, active, out: _aten.elu_backward.grad_input(slope, alpha, 1, 1, True, active, grad_input=out)
