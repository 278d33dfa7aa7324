"""Networks that learn a task while they hide a secret from an adversary, many of them in one batched network.

Adel et al. 2019: an adversary reads the secret off the network's last hidden layer, and the network learns its task
and the adversary's failure at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.nets.mlp import MLP
from fairfox.nets.training import Loss

_TINY = 1e-12  # gradients without length stay as they are


class Task(NamedTuple):
    """Something to be predicted from x: what it is in every row, and the loss of a network's outputs."""

    targets: Tensor  # (N, ...)
    loss: Loss
    outputs: int = 1


@dataclass(frozen=True)
class HidingSettings:
    """How networks train: `alpha` starts high and falls to a floor, which decides how much of the secret is left."""

    width: int = 64
    depth: int = 2
    batch_size: int = 256
    epochs: int = 26
    rate: float = 1e-3
    adversary_steps: int = 3  # for every step of the network, each on rows of its own
    start: float = 100.0  # alpha in the first epoch
    decay: float = 0.8  # of alpha, every epoch
    clip: float = 1.0  # the longest gradient of the network


def train_hiding(
    x: Tensor,
    task: Task,
    secret: Task,
    *,
    floors: Sequence[float | None] = (3.0,),
    seeds: Sequence[int] = (0,),
    settings: HidingSettings | None = None,
) -> MLP:
    """Return networks from x (N, D) to the task, one member for each floor and its seed, as the last epoch left them.

    A member lowers (task loss - alpha · secret loss) / (1 + alpha), with alpha = max(floor, start · decay^epoch); its
    adversary, one more hidden layer on its last one, lowers the secret loss. A member whose floor is None hides
    nothing: alpha is 0. Nothing of one member depends on another: trained alone it is the same.
    """
    s = settings or HidingSettings()
    members = _Members.of(x, task, secret, seeds, s)
    hides = any(floor is not None for floor in floors)
    with torch.no_grad():
        for epoch, batches in enumerate(_epochs(len(x), seeds, s)):
            alpha = x.new_tensor([_alpha(floor, epoch, s) for floor in floors])[:, None, None]  # (M, 1, 1)
            for rows in batches:
                members.step(rows.to(x.device), alpha, hides=hides)
    return members.net


def _alpha(floor: float | None, epoch: int, s: HidingSettings) -> float:
    return 0.0 if floor is None else max(floor, s.start * s.decay**epoch)


@dataclass(frozen=True)
class _Members:
    """All members' networks and adversaries, and what they learn from.

    Derivatives go by hand through the layers: in networks this small autograd takes longer than the arithmetic.
    """

    x: Tensor  # (N, D)
    task: Task
    secret: Task
    net: MLP
    body: list[_Layer]
    head: list[_Layer]
    adversary: list[_Layer]
    settings: HidingSettings
    learn: torch.optim.Adam
    learn_secret: torch.optim.Adam

    @classmethod
    def of(cls, x: Tensor, task: Task, secret: Task, seeds: Sequence[int], s: HidingSettings) -> _Members:
        net = _networks(x.shape[1], task.outputs, s.width, s.depth, seeds).to(x)
        adversary = _networks(s.width, secret.outputs, s.width, 1, [seed + 1 for seed in seeds]).to(x)
        layers = _layers(net)
        adam = [torch.optim.Adam(each.parameters(), lr=s.rate, fused=True) for each in (net, adversary)]
        return cls(x, task, secret, net, layers[:-1], layers[-1:], _layers(adversary), s, *adam)

    def step(self, rows: Tensor, alpha: Tensor, *, hides: bool) -> None:
        """Take the adversaries' steps and one of the networks, on their rows (M, steps + 1, B): theirs are the last.

        The body stands still while the adversaries learn, so that it is asked about all rows at once.
        """
        *others, own = rows.unbind(1)
        taken = rows.flatten(1) if hides else own
        seen = _forward(self.body, _take(self.x, taken), ends=False)
        size = rows.shape[2]
        if hides:
            for number, part in enumerate(others):
                here = seen[-1][:, number * size : (number + 1) * size]
                self._teach_adversary(here, part)
        self._teach([each[:, -size:] for each in seen], own, alpha, hides=hides)

    def _teach_adversary(self, hidden: Tensor, rows: Tensor) -> None:
        seen = _forward(self.adversary, hidden)
        _backward(self.adversary, seen, _slope(self.secret, seen[-1], rows))
        self.learn_secret.step()

    def _teach(self, seen: list[Tensor], rows: Tensor, alpha: Tensor, *, hides: bool) -> None:
        told = _forward(self.head, seen[-1])
        slope = _backward(self.head, told, _slope(self.task, told[-1], rows) / (1 + alpha))
        if hides:
            guessed = _forward(self.adversary, seen[-1])
            found = _backward(self.adversary, guessed, _slope(self.secret, guessed[-1], rows), keep=False)
            slope = slope - alpha / (1 + alpha) * found
        _backward(self.body, seen, _through(slope, seen[-1]))
        _clip(
            [grad for layer in (*self.body, *self.head) for grad in (layer.weight_grad, layer.bias_grad)],
            self.settings.clip,
        )
        self.learn.step()


class _Layer(NamedTuple):
    """One layer of all members, and where its gradients go."""

    weight: Tensor  # (M, I, O)
    bias: Tensor  # (M, 1, O)
    weight_grad: Tensor
    bias_grad: Tensor


def _layers(net: MLP) -> list[_Layer]:
    out = []
    for weight, bias in zip(net.weights, net.biases, strict=True):
        weight.grad, bias.grad = torch.zeros_like(weight), torch.zeros_like(bias)
        out.append(_Layer(weight.detach(), bias.detach(), weight.grad, bias.grad))
    return out


def _forward(layers: list[_Layer], x: Tensor, *, ends: bool = True) -> list[Tensor]:
    """Return what enters each layer (M, N, I), and the outputs after it; without ReLU where the network ends."""
    seen = [x]
    for place, layer in enumerate(layers, start=1):
        out = torch.baddbmm(layer.bias, seen[-1], layer.weight)
        seen.append(out if ends and place == len(layers) else out.relu_())
    return seen


def _backward(layers: list[_Layer], seen: list[Tensor], slope: Tensor, *, keep: bool = True) -> Tensor:
    """Return the slope by what entered the first layer, and put the layers' gradients where they go (`keep`)."""
    for depth in range(len(layers) - 1, -1, -1):
        layer = layers[depth]
        if keep:
            torch.bmm(seen[depth].mT, slope, out=layer.weight_grad)
            torch.sum(slope, 1, keepdim=True, out=layer.bias_grad)
        slope = torch.bmm(slope, layer.weight.mT)
        slope = _through(slope, seen[depth]) if depth > 0 else slope
    return slope


def _through(slope: Tensor, hidden: Tensor) -> Tensor:
    out: Tensor = torch.ops.aten.threshold_backward(slope, hidden, 0)  # the ReLU
    return out


def _slope(task: Task, outputs: Tensor, rows: Tensor) -> Tensor:
    """Return the derivative of each member's loss by its outputs (M, B, K)."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        (slope,) = torch.autograd.grad(task.loss(leaf, _take(task.targets, rows)).sum(), leaf)
    return slope


def _clip(gradients: list[Tensor], longest: float) -> None:
    """Shorten each member's gradient to at most this length."""
    length = torch.stack([grad.flatten(1).square().sum(1) for grad in gradients]).sum(0).sqrt()  # (M,)
    factor = (longest / length.clamp(min=_TINY)).clamp(max=1.0)[:, None, None]
    for grad in gradients:
        grad.mul_(factor)


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """Return values[rows] (M, B, ...); index_select copies whole rows and is several times faster."""
    taken: Tensor = values.index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
    return taken


def _networks(inputs: int, outputs: int, width: int, depth: int, seeds: Sequence[int]) -> MLP:
    """Return one member for each seed, with the weights it would have alone."""
    net = MLP(inputs, outputs, width=width, depth=depth, members=len(seeds))
    alone = [MLP(inputs, outputs, width=width, depth=depth, seed=seed) for seed in seeds]
    for together, *parts in zip(net.parameters(), *(one.parameters() for one in alone), strict=True):
        together.data = torch.cat([part.detach() for part in parts])
    return net


def _epochs(count: int, seeds: Sequence[int], s: HidingSettings) -> Iterator[Iterator[Tensor]]:
    """Yield each epoch's minibatches: row numbers (M, adversary steps + 1, B), every row once in each place."""
    generators = [torch.Generator().manual_seed(seed + 2) for seed in seeds]
    for _ in range(s.epochs):
        orders = [[torch.randperm(count, generator=g) for _ in range(s.adversary_steps + 1)] for g in generators]
        together = torch.stack([torch.stack(each) for each in orders])
        yield iter(together.split(s.batch_size, dim=2))
