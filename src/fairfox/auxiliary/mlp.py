"""Multilayer perceptrons, several independent ones in one batched network, with gradients by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from fairfox.errors import ShapeError
from fairfox.gradients.relu import through_relu


class MLP(nn.Module):
    """`members` independent ReLU networks of one shape, evaluated together.

    `depth` counts hidden layers. Members share no weights, and Adam works weight by weight, so training them
    together equals training each alone.

    Example:
        >>> net = MLP(3, 2, width=8, depth=1, members=5)
        >>> net(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    def __init__(
        self, inputs: int, outputs: int = 1, *, width: int = 64, depth: int = 2, members: int = 1, seed: int = 0
    ) -> None:
        super().__init__()
        self.inputs, self.outputs, self.width, self.depth, self.members = inputs, outputs, width, depth, members
        generator = torch.Generator().manual_seed(seed)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise([inputs, *[width] * depth, outputs]):
            bound = 1 / math.sqrt(fan_in)  # as nn.Linear
            weight = torch.empty(members, fan_in, fan_out).uniform_(-bound, bound, generator=generator)
            bias = torch.empty(members, 1, fan_out).uniform_(-bound, bound, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))

    @classmethod
    def of_seeds(cls, inputs: int, outputs: int = 1, *, width: int = 64, depth: int = 2, seeds: Sequence[int]) -> Self:
        """Return one member for each seed, with the weights it would have alone."""
        net = cls(inputs, outputs, width=width, depth=depth, members=len(seeds))
        alone = [cls(inputs, outputs, width=width, depth=depth, seed=seed) for seed in seeds]
        for together, *parts in zip(net.parameters(), *(one.parameters() for one in alone), strict=True):
            together.data = torch.cat([part.detach() for part in parts])
        return net

    def forward(self, x: Tensor) -> Tensor:
        """Return (M, N, K) for x (N, D), the same for every member, or (M, N, D)."""
        h = x.expand(self.members, -1, -1) if x.ndim == 2 else x
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if layer < self.depth:
                h = torch.relu(h)
        return h

    def member(self, index: int) -> nn.Sequential:
        """Return one member as a plain network of its own: Linear, ReLU, ..., Linear."""
        layers: list[nn.Module] = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            layers += [linear_layer(cast(Tensor, weight)[index].T, cast(Tensor, bias)[index, 0]), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).eval()


def linear_layer(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return the layer with these weights (O, I) and biases (O,)."""
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn from the global generator
        layer = nn.Linear(weight.shape[1], len(weight))
    layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    layer.bias = nn.Parameter(bias.detach().to(weight, copy=True))
    return layer


def project(x: Tensor, projection: Tensor) -> Tensor:
    """Return x @ projection (N, P); raise where the projection (D, P) has another D."""
    if projection.ndim != 2 or len(projection) != x.shape[1]:
        raise ShapeError(
            f"The projection has shape {tuple(projection.shape)}, but x has {x.shape[1]} columns; "
            "give one row per column of x"
        )
    return x @ projection.to(x)


def behind(projection: Tensor, net: nn.Sequential) -> nn.Sequential:
    """Return the network on x (N, D) that equals `net` on x @ projection (D, P): a plain network, Linear first.

    Columns that the projection leaves out have the weight zero.
    """
    first = cast(nn.Linear, net[0])
    weight = first.weight.detach()
    merged = weight.double() @ projection.to(weight.device, torch.float64).T
    return nn.Sequential(linear_layer(merged.to(weight), first.bias), *list(net)[1:]).eval()


# --- Gradients by hand ---------------------------------------------------------------------------------------------
# In networks this small autograd's bookkeeping takes longer than the arithmetic (benchmarks/bench_engine.py: a network
# in a plain loop takes ten times as long as one of ten trained together).


class Layer(NamedTuple):
    """One layer of all members, and where its gradients go."""

    weight: Tensor  # (M, I, O)
    bias: Tensor  # (M, 1, O)
    weight_grad: Tensor
    bias_grad: Tensor


def layers_of(net: MLP) -> list[Layer]:
    """Return the layers of a network; their gradients are those that an optimiser of its parameters reads."""
    out = []
    for weight, bias in zip(net.weights, net.biases, strict=True):
        weight.grad, bias.grad = torch.zeros_like(weight), torch.zeros_like(bias)
        out.append(Layer(weight.detach(), bias.detach(), weight.grad, bias.grad))
    return out


def forward(layers: Sequence[Layer], x: Tensor) -> list[Tensor]:
    """Return what enters each layer (M, N, I): x (M, N, D), and behind every layer but the last a ReLU's outputs."""
    entered = [x]
    for layer in layers[:-1]:
        entered.append(torch.baddbmm(layer.bias, entered[-1], layer.weight).relu_())
    return entered


def outputs_of(layers: Sequence[Layer], entered: Sequence[Tensor]) -> Tensor:
    """Return the outputs (M, N, K) for what entered each layer."""
    return torch.baddbmm(layers[-1].bias, entered[-1], layers[-1].weight)


def backward(layers: Sequence[Layer], entered: Sequence[Tensor], slope: Tensor) -> None:
    """Store the gradients, given each layer's inputs and the slope (M, N, K) by the outputs."""
    for depth in range(len(layers) - 1, -1, -1):
        torch.bmm(entered[depth].mT, slope, out=layers[depth].weight_grad)
        torch.sum(slope, 1, keepdim=True, out=layers[depth].bias_grad)
        if depth > 0:
            slope = through_relu(torch.bmm(slope, layers[depth].weight.mT), entered[depth])


def slope_by_inputs(layers: Sequence[Layer], entered: Sequence[Tensor], slope: Tensor) -> Tensor:
    """Return the slope by what entered the first layer (M, N, D) for the one by the outputs; gradients stay."""
    for depth in range(len(layers) - 1, 0, -1):
        slope = through_relu(torch.bmm(slope, layers[depth].weight.mT), entered[depth])
    return torch.bmm(slope, layers[0].weight.mT)


def take(values: Tensor, rows: Tensor) -> Tensor:
    """Return values[rows] (M, B, ...); index_select copies whole rows and is several times faster."""
    return values.index_select(0, rows.reshape(-1)).view(*rows.shape, *values.shape[1:])
