"""The one minibatch loop: Adam, early stopping on validation loss, best weights restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.nets.layers import Layer, backward, forward, layers_of, outputs_of, take
from fairfox.nets.mlp import MLP

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (M, N, K), targets (M, N, ...) -> (M,) mean loss per member


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread within: on matrices this small several threads mostly wait for each other.

    Beside another busy process that takes up to ten times as long, and rounding would depend on their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class History:
    """How training went: epochs run, and each member's best validation loss and epoch."""

    epochs: int
    best_loss: Tensor  # (M,)
    best_epoch: Tensor  # (M,)


@one_thread()
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
    decay: float = 0.0,
    seed: int = 0,
) -> History:
    """Train every member of `net` in place on its own minibatches and return how it went.

    Each member keeps the weights of its best epoch, and stops counting `patience` epochs after it; the loop
    ends when all have stopped. Weights shrink by `decay` times the rate at each step.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters, layers = list(net.parameters()), layers_of(net)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)  # without decay it is Adam
    best = [p.detach().clone() for p in parameters]
    best_loss = torch.full((net.members,), torch.inf)
    best_epoch = torch.zeros(net.members, dtype=torch.long)
    epoch = 0
    for epoch in range(1, max_epochs + 1):
        orders = torch.stack([torch.randperm(len(x), generator=generator) for _ in range(net.members)])
        for start in range(0, len(x), batch_size):
            rows = orders[:, start : start + batch_size].to(x.device)  # (M, B)
            _backpropagate(layers, take(x, rows), take(targets, rows), loss)
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


def _backpropagate(layers: list[Layer], x: Tensor, targets: Tensor, loss: Loss) -> None:
    """Put the gradients of the members' losses where they go."""
    seen = forward(layers, x)
    backward(layers, seen, loss_slope(loss, outputs_of(layers, seen), targets))


def loss_slope(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the derivative of each member's loss by its outputs (M, N, K)."""
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(loss(leaf, targets).sum(), leaf)
    return slope


def binary_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each member's log-loss of one logit (M, N, 1) against 0/1 targets (M, N)."""
    losses = torch.nn.functional.binary_cross_entropy_with_logits(outputs[..., 0], targets, reduction="none")
    return losses.mean(1)


def squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each member's mean squared error of one output (M, N, 1) against targets (M, N)."""
    return (outputs[..., 0] - targets).square().mean(1)
