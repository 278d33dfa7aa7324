"""What everyone would write, which ours is compared with: a forward pass in blocks, a network in a DataLoader loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fairfox.auxiliary.mlp import MLP


def forward_pass(net: nn.Module, x: Tensor, block: int) -> Tensor:
    """Return everyone's prediction by a network of logits."""
    with torch.inference_mode():
        return torch.cat([torch.sigmoid(net(rows)) for rows in x.split(block)])


def trained_alone(x: Tensor, c: Tensor, *, width: int, depth: int, batch: int, epochs: int, seed: int) -> nn.Sequential:
    """Return a network trained to predict c (N,) in a plain DataLoader loop."""
    rows = TensorDataset(x, c)
    net = MLP(x.shape[1], width=width, depth=depth, seed=seed).member(0).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for features, group in DataLoader(rows, batch_size=batch, shuffle=True):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(net(features)[:, 0], group).backward()
            optimizer.step()
    return net
