"""Multilayer perceptrons, several independent ones in one batched network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self, cast

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """`members` independent ReLU networks of one shape, evaluated together.

    `depth` counts hidden layers. Members share no weights, and Adam works weight by weight, so that training
    them together equals training each alone.

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
        sizes = [inputs, *[width] * depth, outputs]
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
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
            # skip_init: initial weights would be drawn from the global generator
            linear = nn.utils.skip_init(
                nn.Linear, weight.shape[1], weight.shape[2], device=weight.device, dtype=weight.dtype
            )
            with torch.no_grad():
                linear.weight.copy_(cast(Tensor, weight)[index].T)
                linear.bias.copy_(cast(Tensor, bias)[index, 0])
            layers += [linear, nn.ReLU()]
        return nn.Sequential(*layers[:-1]).eval()
