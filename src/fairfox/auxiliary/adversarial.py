"""Networks that learn a task while hiding a secret from an adversary, many in one batched network.

Adel et al. 2019: an adversary reads the secret off the network's last hidden layer, and the network learns its task
and the adversary's failure at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP, backward, forward, layers_of, outputs_of, slope_by_inputs, take
from fairfox.auxiliary.training import LearningTask, label_task, loss_slope, one_thread, protected_task, usable_columns
from fairfox.data.dataset import Dataset
from fairfox.gradients.relu import through_relu

_log = logging.getLogger("fairfox")
FEWEST_STEPS = 32  # an epoch has, if the table is not too small for it
SMALLEST_BATCH = 16
TRIES = 4  # at a network that is not dead
DEAD = 1e-3  # log-odds that spread less over the training rows are one and the same
OTHER_SEED = 10_007  # from a seed to the next one to try; a training uses two above its own
_TINY = 1e-12  # gradients without length stay as they are


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


@one_thread()
def train_hiding(
    x: Tensor,
    task: LearningTask,
    secret: LearningTask,
    *,
    floors: Sequence[float | None] = (3.0,),
    seeds: Sequence[int] = (0,),
    settings: HidingSettings | None = None,
) -> MLP:
    """Return networks from x (N, D) to the task, one member for each floor and its seed, as the last epoch left them.

    A member lowers (task loss - alpha · secret loss) / (1 + alpha), with alpha = max(floor, start · decay^epoch); its
    adversary, one more hidden layer on its last one, lowers the secret loss. A member whose floor is None hides
    nothing: alpha is 0. Members do not depend on each other: trained alone, each is the same.
    """
    s = settings or HidingSettings()
    members = _Members(x, task, secret, seeds, s)
    generators = [torch.Generator().manual_seed(seed + 2) for seed in seeds]
    hides = any(floor is not None for floor in floors)
    with torch.no_grad():
        for epoch in range(s.epochs):
            alphas = [0.0 if floor is None else max(floor, s.start * s.decay**epoch) for floor in floors]
            alpha = x.new_tensor(alphas)[:, None, None]  # (M, 1, 1)
            # (M, adversary steps + 1, N): every row once for each step
            orders = [[torch.randperm(len(x), generator=g) for _ in range(s.adversary_steps + 1)] for g in generators]
            for rows in torch.stack([torch.stack(each) for each in orders]).split(s.batch_size, dim=2):
                members.step(rows.to(x.device), alpha, hides=hides)
    return members.net


def train_networks(
    data: Dataset,
    *,
    floors: Sequence[float | None] = (3.0,),
    seeds: Sequence[int] = (0,),
    settings: HidingSettings | None = None,
) -> list[nn.Sequential]:
    """Return one network (encoded x -> logit) for each floor and its seed, all trained at once on all rows.

    None hides nothing. Columns that a protected variable was read from, and constant ones, are left out. Hiding counts
    so much at first that a network may lose all its hidden units: it is then trained again from another seed.
    """
    used = usable_columns(data)
    x = torch.where(used, data.x, 0.0).float()
    tasks, how = (label_task(data), protected_task(data)), settings or settings_for(len(data))
    nets: dict[int, nn.Sequential] = {}
    wanted = list(range(len(floors)))
    for attempt in range(TRIES):
        now = [seeds[m] + attempt * OTHER_SEED for m in wanted]
        net = train_hiding(x, *tasks, floors=[floors[m] for m in wanted], seeds=now, settings=how)
        nets |= {m: net.member(number).requires_grad_(False) for number, m in enumerate(wanted)}
        wanted = [m for m in wanted if float(nets[m](x).std()) < DEAD]
        if not wanted:
            break
        _log.info("%d of %d networks predict the same for everyone (try %d)", len(wanted), len(floors), attempt + 1)
    for each in nets.values():
        cast(nn.Linear, each[0]).weight *= used
    return [nets[m] for m in range(len(floors))]


def settings_for(rows: int) -> HidingSettings:
    """Return the training settings for a number of rows: smaller minibatches for small tables.

    With few steps per epoch the adversary does not keep up, and how much of the secret is left is a matter of luck.
    """
    usual = HidingSettings()
    return replace(usual, batch_size=min(usual.batch_size, max(SMALLEST_BATCH, rows // FEWEST_STEPS)))


class _Members:
    """All members' networks and adversaries, and what they learn from: rows x (N, D)."""

    def __init__(
        self, x: Tensor, task: LearningTask, secret: LearningTask, seeds: Sequence[int], s: HidingSettings
    ) -> None:
        self.x, self.task, self.secret, self.clip = x, task, secret, s.clip
        self.net = MLP.of_seeds(x.shape[1], task.outputs, width=s.width, depth=s.depth, seeds=seeds).to(x)
        others = [seed + 1 for seed in seeds]
        adversary = MLP.of_seeds(s.width, secret.outputs, width=s.width, depth=1, seeds=others).to(x)
        # the last layer of the network is its head, the others are its body
        self.layers, self.adversary = layers_of(self.net), layers_of(adversary)
        self.learn, self.learn_secret = (
            torch.optim.Adam(each.parameters(), lr=s.rate, fused=True) for each in (self.net, adversary)
        )

    def step(self, rows: Tensor, alpha: Tensor, *, hides: bool) -> None:
        """Take the adversaries' steps and one of the networks, on rows (M, steps + 1, B); the networks use the last.

        The body does not change while the adversaries learn, so all rows pass it at once.
        """
        *others, own = rows.unbind(1)
        entered = forward(self.layers, take(self.x, rows.flatten(1) if hides else own))
        size = rows.shape[2]
        if hides:
            for hidden, batch in zip(entered[-1].split(size, dim=1), others, strict=False):
                heard = forward(self.adversary, hidden)
                backward(self.adversary, heard, _slope(self.secret, outputs_of(self.adversary, heard), batch))
                self.learn_secret.step()
        entered = [each[:, -size:] for each in entered]
        head, last = self.layers[-1:], entered[-1:]
        slope = _slope(self.task, outputs_of(head, last), own) / (1 + alpha)
        backward(head, last, slope)
        slope = slope_by_inputs(head, last, slope)
        if hides:
            heard = forward(self.adversary, entered[-1])
            secret = _slope(self.secret, outputs_of(self.adversary, heard), own)
            slope = slope - alpha / (1 + alpha) * slope_by_inputs(self.adversary, heard, secret)
        backward(self.layers[:-1], entered[:-1], through_relu(slope, entered[-1]))
        _clip([grad for layer in self.layers for grad in (layer.weight_grad, layer.bias_grad)], self.clip)
        self.learn.step()


def _slope(task: LearningTask, outputs: Tensor, rows: Tensor) -> Tensor:
    return loss_slope(task.loss, outputs, take(task.targets, rows))


def _clip(gradients: list[Tensor], longest: float) -> None:
    """Shorten each member's gradient to at most this length."""
    length = torch.stack([grad.flatten(1).square().sum(1) for grad in gradients]).sum(0).sqrt()  # (M,)
    factor = (longest / length.clamp(min=_TINY)).clamp(max=1.0)[:, None, None]
    for grad in gradients:
        grad.mul_(factor)
