"""Wasserstein GANs that map the rows of one group onto another, many in one batched network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.auxiliary.mlp import MLP, Layer, backward, forward, outputs_of, slope_by_inputs, take
from fairfox.auxiliary.training import one_thread

Steps = Callable[[int, int], None]  # steps done, and of how many
_DECAY, _EPSILON = 0.9, 1e-7  # of RMSprop, as Black et al. had them
_AHEAD = 50  # steps whose minibatches are drawn at once
_REPORTS = 100  # how often progress is reported, about
_EAGER = 3  # steps before one is recorded on a GPU


class Passage(NamedTuple):
    """Whom one GAN takes where: rows of x, drawn with replacement, and the seed of its weights and minibatches."""

    source: Tensor  # (n,) row numbers
    target: Tensor  # (m,) row numbers
    seed: int


@dataclass(frozen=True)
class GanSettings:
    """How GANs train; the values are those of Black et al. 2020."""

    steps: int = 20_000  # of the generator
    width: int = 128
    depth: int = 2
    n_critic: int = 5  # steps of the critic for one of the generator
    batch: int = 64
    weight: float = 1e-4  # of the squared L1 distance from x to G(x)
    rate: float = 5e-5
    clip: float = 0.01  # of the critic's weights


@one_thread()
def train_generators(
    x: Tensor, passages: Sequence[Passage], settings: GanSettings, *, progress: Steps | None = None
) -> MLP:
    """Return the generators (D -> D), one member for each passage between rows of x (N, D).

    The critic raises mean f(real) and then lowers mean f(G(x)), its weights clipped; the generator lowers the mean of
    -f(G(x)) + weight · (Σ_j |x_j - G(x)_j|)². Members do not depend on each other: trained alone, each is the same.
    """
    gans = _Gans.of(x, passages, settings)
    every = max(1, settings.steps // _REPORTS)
    step = gans.step
    with torch.no_grad():
        for done, rows in enumerate(_minibatches(passages, settings, x.device), start=1):
            gans.rows.copy_(rows)
            step()
            if done == _EAGER and x.is_cuda:
                step = _recorded(gans.step)
            if progress is not None and (done % every == 0 or done == settings.steps):
                progress(done, settings.steps)
    return gans.generator.net


@dataclass(frozen=True)
class _Gans:
    """All members' networks, and the minibatches of the step at hand."""

    x: Tensor  # (N, D)
    generator: _Trained
    critic: _Trained
    settings: GanSettings
    rows: Tensor  # (M, 2 n_critic + 1, B): of the sources, and of the targets after them
    down: Tensor  # (M, B, 1): the derivative of the mean of a minibatch's outputs

    @classmethod
    def of(cls, x: Tensor, passages: Sequence[Passage], settings: GanSettings) -> _Gans:
        columns, members = x.shape[1], len(passages)
        seeds, shape = [passage.seed for passage in passages], {"width": settings.width, "depth": settings.depth}
        generator = _Trained.of(MLP.of_seeds(columns, columns, **shape, seeds=seeds).to(x))
        critic = _Trained.of(MLP.of_seeds(columns, 1, **shape, seeds=[seed + 1 for seed in seeds]).to(x))
        rows = torch.zeros(members, 2 * settings.n_critic + 1, settings.batch, dtype=torch.long, device=x.device)
        return cls(x, generator, critic, settings, rows, x.new_full((members, settings.batch, 1), 1 / settings.batch))

    def step(self) -> None:
        """Take `n_critic` steps of the critics and one of the generators, on the minibatches `rows`.

        The generators do not change while the critics learn, so all their rows are generated at once. Critics take one
        step for real rows and one for generated rows, as in Black et al.; one step on their difference, which RMSprop
        inflates when it is small, makes training less stable.
        """
        s, up = self.settings, -self.down
        generator, critic = self.generator.layers, self.critic.layers
        drawn = take(self.x, self.rows.flatten(1))  # (M, (2 n_critic + 1) B, D)
        sources, real = drawn.split([(s.n_critic + 1) * s.batch, s.n_critic * s.batch], dim=1)
        entered = forward(generator, sources)
        *fake, last = outputs_of(generator, entered).split(s.batch, dim=1)
        for both in zip(real.split(s.batch, dim=1), fake, strict=True):
            for rows, slope in zip(both, (up, self.down), strict=True):
                backward(critic, forward(critic, rows), slope)
                self.critic.descend(s.rate)
            self.critic.parameters.clamp_(-s.clip, s.clip)
        left = [each[:, s.n_critic * s.batch :] for each in entered]  # of rows that are new to the critics
        gap = last - left[0]
        cost = (2 * s.weight / s.batch) * gap.abs().sum(2, keepdim=True) * gap.sign()
        backward(generator, left, slope_by_inputs(critic, forward(critic, last), up) + cost)
        self.generator.descend(s.rate)


@dataclass(frozen=True)
class _Trained:
    """Networks whose parameters and gradients are one tensor each, so that an optimiser takes few calls.

    torch.optim.RMSprop makes the same steps; training with it takes 1.4 times as long.
    """

    net: MLP
    layers: list[Layer]
    parameters: Tensor  # (P,)
    gradient: Tensor  # (P,)
    square: Tensor  # (P,) its mean square

    @classmethod
    def of(cls, net: MLP) -> _Trained:
        """Return the networks with their parameters moved into one tensor."""
        each = list(net.parameters())
        flat = torch.cat([p.detach().flatten() for p in each])
        gradient = torch.zeros_like(flat)
        values, slopes = _views(flat, each), _views(gradient, each)
        for parameter, view in zip(each, values, strict=True):
            parameter.data = view
        half = len(each) // 2  # weights come first, then biases
        parts = zip(values[:half], values[half:], slopes[:half], slopes[half:], strict=True)
        return cls(net, [Layer(*part) for part in parts], flat, gradient, torch.zeros_like(flat))

    def descend(self, rate: float) -> None:
        """Take one step of RMSprop."""
        self.square.mul_(_DECAY).addcmul_(self.gradient, self.gradient, value=1 - _DECAY)
        self.parameters.addcdiv_(self.gradient, self.square.sqrt().add_(_EPSILON), value=-rate)


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([one.numel() for one in like])
    return [part.view(one.shape) for part, one in zip(parts, like, strict=True)]


def _minibatches(passages: Sequence[Passage], settings: GanSettings, device: torch.device) -> Iterator[Tensor]:
    """Yield each step's row numbers (M, 2 n_critic + 1, B): of the sources, and of the targets after them."""
    generators = [torch.Generator().manual_seed(passage.seed + 2) for passage in passages]
    for start in range(0, settings.steps, _AHEAD):
        block = []
        for passage, generator in zip(passages, generators, strict=True):
            parts = []
            for pool, times in ((passage.source, settings.n_critic + 1), (passage.target, settings.n_critic)):
                drawn = torch.randint(len(pool), (_AHEAD, times, settings.batch), generator=generator)
                parts.append(pool.cpu()[drawn])
            block.append(torch.cat(parts, dim=1))
        rows = torch.stack(block, dim=1).to(device)  # (_AHEAD, M, 2 n_critic + 1, B)
        yield from rows[: settings.steps - start].unbind(0)


def _recorded(step: Callable[[], None]) -> Callable[[], None]:
    """Return the step as one CUDA graph: hundreds of small kernels are launched at once."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
