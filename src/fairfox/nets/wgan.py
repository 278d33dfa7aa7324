"""Wasserstein GANs that take the rows of one group to another one's, many of them in one batched network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.nets.mlp import MLP

Steps = Callable[[int, int], None]  # steps done, and of how many
_DECAY, _EPSILON = 0.9, 1e-7  # of RMSprop, as Black et al. had them
_AHEAD = 50  # steps whose minibatches are drawn at once
_REPORTS = 100  # how often progress is told, about
_IN_CACHE = 2**15  # numbers that the optimiser goes through at once on a CPU
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


def train_generators(
    x: Tensor, passages: Sequence[Passage], settings: GanSettings, *, progress: Steps | None = None
) -> MLP:
    """Return the generators (D -> D), one member for each passage between rows of x (N, D).

    The critic raises mean f(real) and then lowers mean f(G(x)), its weights clipped; the generator lowers the mean of
    -f(G(x)) + weight · (Σ_j |x_j - G(x)_j|)². Nothing of one member depends on another: trained alone it is the same.
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
        seeds = [passage.seed for passage in passages]
        generator = _Trained.of(_networks(columns, columns, settings, seeds).to(x))
        critic = _Trained.of(_networks(columns, 1, settings, [seed + 1 for seed in seeds]).to(x))
        rows = torch.zeros(members, 2 * settings.n_critic + 1, settings.batch, dtype=torch.long, device=x.device)
        return cls(x, generator, critic, settings, rows, x.new_full((members, settings.batch, 1), 1 / settings.batch))

    def step(self) -> None:
        """Take `n_critic` steps of the critics and one of the generators, on the minibatches `rows`.

        The generators stand still while the critics learn, so that all their rows are generated at once. Critics see
        real rows and generated ones one after the other, a step for each as in Black et al.: one step on their
        difference, which RMSprop would blow up when it is small, leaves the generators less steady.
        """
        s, members, up = self.settings, len(self.rows), -self.down
        drawn = self.x.index_select(0, self.rows.flatten()).view(members, -1, self.x.shape[1])
        sources, real = drawn.split([(s.n_critic + 1) * s.batch, s.n_critic * s.batch], dim=1)
        seen = self.generator.hidden(sources)
        *fake, last = self.generator.outputs(seen).split(s.batch, dim=1)
        for both in zip(real.split(s.batch, dim=1), fake, strict=True):
            for rows, slope in zip(both, (up, self.down), strict=True):
                self.critic.backward(self.critic.hidden(rows), slope)
                self.critic.descend(s.rate)
            self.critic.parameters.clamp_(-s.clip, s.clip)
        left = [each[:, s.n_critic * s.batch :] for each in seen]  # what critics have not seen
        gap = last - left[0]
        cost = (2 * s.weight / s.batch) * gap.abs().sum(2, keepdim=True) * gap.sign()
        self.generator.backward(left, self.critic.slope(self.critic.hidden(last), up) + cost)
        self.generator.descend(s.rate)


@dataclass(frozen=True)
class _Trained:
    """Networks whose parameters and gradients lie in one piece each, so that an optimiser takes few calls.

    Derivatives go by hand through the layers: in networks this small autograd takes longer than the arithmetic.
    """

    net: MLP
    layers: list[tuple[Tensor, Tensor]]  # weights (M, I, O) and biases (M, 1, O)
    gradients: list[tuple[Tensor, Tensor]]
    parameters: Tensor  # (P,)
    pieces: list[tuple[Tensor, Tensor, Tensor, Tensor]]  # of parameters, gradients, mean squares, and room to work

    @classmethod
    def of(cls, net: MLP) -> _Trained:
        """Return the networks with their parameters moved into one piece."""
        each = list(net.parameters())
        flat = torch.cat([p.detach().flatten() for p in each])
        gradient = torch.zeros_like(flat)
        views = [_views(whole, each) for whole in (flat, gradient)]
        for parameter, view in zip(each, views[0], strict=True):
            parameter.data = view
        half = len(each) // 2  # weights come first, then biases
        layers, gradients = (list(zip(v[:half], v[half:], strict=True)) for v in views)
        size = len(flat) if flat.is_cuda else _IN_CACHE
        state = (flat, gradient, torch.zeros_like(flat), torch.empty_like(flat))
        pieces = list(zip(*(part.split(size) for part in state), strict=True))
        return cls(net, layers, gradients, flat, pieces)

    def hidden(self, x: Tensor) -> list[Tensor]:
        """Return what enters each layer (M, N, ...)."""
        seen = [x]
        for weight, bias in self.layers[:-1]:
            seen.append(torch.baddbmm(bias, seen[-1], weight).relu_())
        return seen

    def outputs(self, seen: list[Tensor]) -> Tensor:
        """Return the outputs (M, N, O) for what entered each layer."""
        weight, bias = self.layers[-1]
        return torch.baddbmm(bias, seen[-1], weight)

    def backward(self, seen: list[Tensor], slope: Tensor) -> None:
        """Put the gradients where they go, for what entered each layer and the slope (M, N, O) of the outputs."""
        for depth in range(len(self.layers) - 1, -1, -1):
            weight, bias = self.gradients[depth]
            torch.bmm(seen[depth].mT, slope, out=weight)
            torch.sum(slope, 1, keepdim=True, out=bias)
            if depth > 0:
                slope = self._through(depth, seen, slope)

    def slope(self, seen: list[Tensor], slope: Tensor) -> Tensor:
        """Return the slope by the inputs (M, N, I) for the slope (M, N, O) by the outputs."""
        for depth in range(len(self.layers) - 1, 0, -1):
            slope = self._through(depth, seen, slope)
        return torch.bmm(slope, self.layers[0][0].mT)

    def _through(self, depth: int, seen: list[Tensor], slope: Tensor) -> Tensor:
        before = torch.bmm(slope, self.layers[depth][0].mT)
        out: Tensor = torch.ops.aten.threshold_backward(before, seen[depth], 0)  # the ReLU between
        return out

    def descend(self, rate: float) -> None:
        """Take one step of RMSprop, piece by piece: what lies in the cache is not fetched again."""
        for parameter, gradient, square, room in self.pieces:
            square.mul_(_DECAY).addcmul_(gradient, gradient, value=1 - _DECAY)
            torch.sqrt(square, out=room)
            parameter.addcdiv_(gradient, room.add_(_EPSILON), value=-rate)


def _networks(inputs: int, outputs: int, settings: GanSettings, seeds: Sequence[int]) -> MLP:
    """Return one member for each seed, with the weights it would have alone."""
    net = MLP(inputs, outputs, width=settings.width, depth=settings.depth, members=len(seeds))
    alone = [MLP(inputs, outputs, width=settings.width, depth=settings.depth, seed=seed) for seed in seeds]
    for together, *parts in zip(net.parameters(), *(one.parameters() for one in alone), strict=True):
        together.data = torch.cat([part.detach() for part in parts])
    return net


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([one.numel() for one in like])
    return [part.view(one.shape) for part, one in zip(parts, like, strict=True)]


def _minibatches(passages: Sequence[Passage], settings: GanSettings, device: torch.device) -> Iterator[Tensor]:
    """Yield each step's row numbers (M, 2 n_critic + 1, B): of the sources, and of the targets after them."""
    generators = [torch.Generator().manual_seed(passage.seed + 2) for passage in passages]
    for start in range(0, settings.steps, _AHEAD):
        block = [_draw(p, settings, g) for p, g in zip(passages, generators, strict=True)]
        rows = torch.stack(block, dim=1).to(device)  # (_AHEAD, M, 2 n_critic + 1, B)
        yield from rows[: settings.steps - start].unbind(0)


def _draw(passage: Passage, settings: GanSettings, generator: torch.Generator) -> Tensor:
    parts = []
    for pool, times in ((passage.source, settings.n_critic + 1), (passage.target, settings.n_critic)):
        place = torch.randint(len(pool), (_AHEAD, times, settings.batch), generator=generator)
        parts.append(pool.cpu()[place])
    return torch.cat(parts, dim=1)


def _recorded(step: Callable[[], None]) -> Callable[[], None]:
    """Return the step as one CUDA graph: hundreds of small kernels are launched at once."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
