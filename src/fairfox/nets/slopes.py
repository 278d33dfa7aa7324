"""The output of a plain ReLU network together with its slope by the inputs: one pass there and back, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.nets.layers import through_relu


@dataclass(frozen=True)
class ReluNet:
    """Linear, ReLU, ..., Linear with a single output, as its weights.

    Example:
        >>> net = ReluNet([torch.tensor([[2.0]]), torch.tensor([[3.0]])], [torch.zeros(1), torch.ones(1)])
        >>> net.with_slope(torch.tensor([[1.0], [-1.0]]))
        (tensor([7., 1.]), tensor([[6.],
                [0.]]))
    """

    weights: Sequence[Tensor]  # (O, I) each, the last (1, I)
    biases: Sequence[Tensor]  # (O,) each

    def with_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output (n,) and its slope by x (n, D); what the forward pass saw is used on the way back."""
        seen, enters = [], x
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            enters = torch.addmm(bias, enters, weight.T).relu_()
            seen.append(enters)
        last = self.weights[-1]
        output = torch.addmv(self.biases[-1], enters, last[0])
        slope = last.expand(len(x), -1)
        for weight, hidden in zip(reversed(self.weights[:-1]), reversed(seen), strict=True):
            slope = through_relu(slope, hidden) @ weight
        return output, slope
