"""The one minibatch loop: Adam, early stopping on validation loss, best weights restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fairfox.nets.mlp import MLP

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (M, N, K), targets (M, N, ...) -> (M,) mean loss per member


@dataclass(frozen=True)
class History:
    """How training went: epochs run, and each member's best validation loss and epoch."""

    epochs: int
    best_loss: Tensor  # (M,)
    best_epoch: Tensor  # (M,)


def train(
    net: MLP,
    x: Tensor,
    targets: Tensor,
    *,
    loss: Loss,
    valid_x: Tensor,
    valid_targets: Tensor,
    batch_size: int = 64,
    rate: float = 1e-3,
    max_epochs: int = 60,
    patience: int = 5,
    seed: int = 0,
) -> History:
    """Train every member of `net` in place on its own minibatches and return how it went.

    Each member keeps the weights of its best epoch, and stops counting `patience` epochs after it; the loop
    ends when all have stopped.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = list(net.parameters())
    optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
    best = [p.detach().clone() for p in parameters]
    best_loss = torch.full((net.members,), torch.inf)
    best_epoch = torch.zeros(net.members, dtype=torch.long)
    epoch = 0
    for epoch in range(1, max_epochs + 1):
        orders = torch.stack([torch.randperm(len(x), generator=generator) for _ in range(net.members)])
        for start in range(0, len(x), batch_size):
            rows = orders[:, start : start + batch_size].to(x.device)  # (M, B)
            _backpropagate(net, _take(x, rows), _take(targets, rows), loss)
            optimizer.step()
        with torch.no_grad():
            held_out = valid_targets.expand(net.members, *valid_targets.shape)
            current = loss(net(valid_x), held_out).cpu()
        active = epoch - best_epoch <= patience
        better = active & (current < best_loss)
        best_loss = torch.where(better, current, best_loss)
        best_epoch[better] = epoch
        for kept, now in zip(best, parameters, strict=True):
            kept[better] = now.detach()[better]
        if bool((epoch - best_epoch >= patience).all()):
            break
    with torch.no_grad():
        for kept, now in zip(best, parameters, strict=True):
            now.copy_(kept)
    return History(epoch, best_loss, best_epoch)


def _backpropagate(net: MLP, x: Tensor, targets: Tensor, loss: Loss) -> None:
    """Put the gradient of the members' losses into every parameter.

    By hand through the layers: in networks this small, autograd's bookkeeping takes longer than the arithmetic.
    """
    weights, biases = cast(list[Tensor], list(net.weights)), cast(list[Tensor], list(net.biases))
    with torch.no_grad():
        inputs = [x]  # of every layer
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(torch.baddbmm(bias, inputs[-1], weight).relu_())
        outputs = torch.baddbmm(biases[-1], inputs[-1], weights[-1])
    with torch.enable_grad():
        (grad,) = torch.autograd.grad(loss(outputs.requires_grad_(), targets).sum(), outputs)
    with torch.no_grad():
        for layer in range(net.depth, -1, -1):
            weights[layer].grad, biases[layer].grad = inputs[layer].mT @ grad, grad.sum(1, keepdim=True)
            if layer > 0:
                grad = torch.ops.aten.threshold_backward(grad @ weights[layer].mT, inputs[layer], 0)  # of the ReLU


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """Return values[rows] (M, B, ...); index_select copies whole rows and is several times faster."""
    taken: Tensor = values.index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
    return taken


def binary_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each member's log-loss of one logit (M, N, 1) against 0/1 targets (M, N)."""
    losses = torch.nn.functional.binary_cross_entropy_with_logits(outputs[..., 0], targets, reduction="none")
    return losses.mean(1)


def squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each member's mean squared error of one output (M, N, 1) against targets (M, N)."""
    return (outputs[..., 0] - targets).square().mean(1)
