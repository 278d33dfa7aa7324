"""The layers of batched ReLU networks, and derivatives by hand through them.

By hand: in networks this small, autograd's bookkeeping takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.nets.mlp import MLP


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
    seen = [x]
    for layer in layers[:-1]:
        seen.append(torch.baddbmm(layer.bias, seen[-1], layer.weight).relu_())
    return seen


def outputs_of(layers: Sequence[Layer], seen: Sequence[Tensor]) -> Tensor:
    """Return the outputs (M, N, K) for what entered each layer."""
    return torch.baddbmm(layers[-1].bias, seen[-1], layers[-1].weight)


def backward(layers: Sequence[Layer], seen: Sequence[Tensor], slope: Tensor) -> None:
    """Put the gradients where they go, for what entered each layer and the slope (M, N, K) by the outputs."""
    for depth in range(len(layers) - 1, -1, -1):
        torch.bmm(seen[depth].mT, slope, out=layers[depth].weight_grad)
        torch.sum(slope, 1, keepdim=True, out=layers[depth].bias_grad)
        if depth > 0:
            slope = through_relu(torch.bmm(slope, layers[depth].weight.mT), seen[depth])


def slope_by_inputs(layers: Sequence[Layer], seen: Sequence[Tensor], slope: Tensor) -> Tensor:
    """Return the slope by what entered the first layer (M, N, D) for the one by the outputs; gradients stay."""
    for depth in range(len(layers) - 1, 0, -1):
        slope = through_relu(torch.bmm(slope, layers[depth].weight.mT), seen[depth])
    return torch.bmm(slope, layers[0].weight.mT)


def through_relu(slope: Tensor, hidden: Tensor) -> Tensor:
    """Return the slope by what entered a ReLU, for the one by its outputs `hidden`."""
    out: Tensor = torch.ops.aten.threshold_backward(slope, hidden, 0)
    return out


def take(values: Tensor, rows: Tensor) -> Tensor:
    """Return values[rows] (M, B, ...); index_select copies whole rows and is several times faster."""
    taken: Tensor = values.index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
    return taken
