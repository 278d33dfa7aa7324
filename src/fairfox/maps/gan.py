"""The map of FlipTest (Black et al. 2020): a generator maps the people of one group onto another."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

import scipy  # its statistics load when they are used
import torch
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP, Layer, backward, forward, outputs_of, slope_by_inputs, take
from fairfox.auxiliary.training import one_thread
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset, Feature, project_blocks, resampled_rows
from fairfox.errors import DataError, NotFittedError, OptionError
from fairfox.maps.protocol import (
    UNKNOWN,
    CounterfactualMap,
    Mapped,
    Pair,
    block_overshoot,
    check_groups_present,
    check_is_grouped,
    compared_pairs,
    where_to,
)
from fairfox.maps.rank import RankMap, ranks_of, with_ranks
from fairfox.maps.ranks import kept_missing, present
from fairfox.models.protocol import row_blocks

Steps = Callable[[int, int], None]  # steps done, and of how many

NOT_FINITE = "the generator returned a row that is not finite"
_LOG = logging.getLogger("fairfox")
_DECAY, _EPSILON = 0.9, 1e-7  # of RMSprop, as Black et al. had them
_AHEAD = 50  # steps whose minibatches are drawn at once
_REPORTS = 100  # how often progress is reported, about
_TOGETHER = {"cpu": 8, "cuda": 512}  # GANs in one network; more outgrow the cache of a CPU
_BLOCK = 4096  # people who are mapped at once
_MOST_CHECKED = 5000  # people of a group
_RIDGE = 1e-6  # of the mean variance: one-hot columns add up to one
_CHANCE = 0.8687  # mean of the Kolmogorov distribution: what KS is by chance, times sqrt(1/n + 1/m)
_POOR_KS, _POOR_WORST, _POOR_MSE = 0.1, 0.2, 2.0  # above chance, twice, and times that of real people


@dataclass(kw_only=True, unsafe_hash=True)
class GanSettings:
    """How GANs train; the values are those of Black et al. 2020."""

    steps: int = 20_000  # of the generator
    width: int = 128
    depth: int = 2
    n_critic: int = 5  # steps of the critic for one of the generator
    batch: int = 64
    weight: float = 1e-4  # lambda: of the squared L1 distance from x to G(x)
    rate: float = 5e-5
    clip: float = 0.01  # of the critic's weights

    def __post_init__(self) -> None:
        for name in ("steps", "width", "depth", "n_critic", "batch"):
            Number(1, whole=True).required(f"{name} of FlipTest", getattr(self, name))
        for name in ("rate", "clip", "weight"):
            Number(0, low_open=name != "weight").required(f"{name} of FlipTest", getattr(self, name))


@dataclass(kw_only=True)
class GanMap(GanSettings):
    """Everyone as a member of another group, mapped by a generator trained against a critic.

    One generator for each ordered pair of classes; all of them, and those of all refits, train in batched networks on
    standardised columns. Withheld columns are set to the other group's value by their ranks, as in the other maps.
    What is missing stays missing. The settings are those of Black et al. 2020.

    Example:
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float())
        >>> GanMap(steps=20).fit(data).map(data).rows.shape
        torch.Size([200, 2])
    """

    variable: int = 0
    seed: int = 0
    progress: Steps | None = field(default=None, repr=False, compare=False)
    fitted: Generators | None = field(default=None, init=False, repr=False, compare=False)

    def fit(self, data: Dataset) -> Self:
        """Train the generators between the classes of one variable on x and c, never y."""
        self.fitted = self._train(data, [self.variable], 1, 0)[0][0].fitted
        return self

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
        """Return `refits` maps for each protected variable, trained together; several on resampled rows each."""
        return [[*maps] for maps in self._train(data, range(len(data.protected)), refits, seed)]

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone in the class that `to` (N,) says (None: the other of two).

        People who go nowhere are abstained, as are those for whom a diverged generator returns no finite row.
        """
        fitted = self._trained()
        c, to = data.c[:, self.variable], where_to(data, self.variable, to)
        going = ~(c.isnan() | to.isnan() | (to == c))
        x, overshoot, lost = data.x.clone(), data.x.new_zeros(len(data)), torch.zeros_like(going)
        for own, other in torch.stack([c, to], dim=1)[going].unique(dim=0).long().tolist():
            people = (going & (c == own) & (to == other)).nonzero()[:, 0]
            for block in row_blocks(len(people), _BLOCK):
                rows = people[block]
                there = fitted.generate(data.x[rows], (own, other))
                lost[rows] = ~there.isfinite().all(1)
                there = torch.where(lost[rows, None], data.x[rows], there)
                overshoot[rows] = block_overshoot(there, data.features)
                x[rows] = kept_missing(project_blocks(there, data.features), data.x[rows], data.features)
        stay = ~going | lost
        x[lost] = data.x[lost]
        mapped = Mapped(x, stay, {UNKNOWN: ~going, NOT_FINITE: lost}, overshoot)
        return with_ranks(mapped, fitted.ranks, data, torch.where(stay, torch.nan, to))

    def checks(self) -> dict[str, float]:
        """Return how real the mapped people look, on their fitting rows (at most 5000 a group), mean over directions.

        `ks`: mean distance between a feature's distribution among the mapped and among the real people of the group
        they go to; a category's is the largest gap between the shares of a level. `ks_worst`: the same in the direction
        where it is largest. `ks_unmapped`: before mapping. `ks_chance`: what as many people of one group show by
        chance. `mse`: mean squared error on mapped people of the linear regressions of each column on the other
        features, fitted on the real people of that group. `mse_real`: the same on those. Values for mapped people are
        NaN where a generator diverged.
        """
        return dict(self._trained().checks)

    def warnings(self, checks: Mapping[str, float]) -> list[str]:
        """Return a sentence for each check that is poor or NaN."""
        if not all(math.isfinite(number) for number in checks.values()):
            return [
                "FlipTest's generators diverged and return rows that are not finite; these people are not judged. "
                "Choose a smaller `rate`."
            ]
        out = []
        if checks["ks"] > checks["ks_chance"] + _POOR_KS or checks["ks_worst"] > checks["ks_chance"] + _POOR_WORST:
            out.append(
                "FlipTest's mapped people differ from the real people of their new group: the mean KS distance of the "
                f"features is {checks['ks']:.2f}, {checks['ks_worst']:.2f} in the worst direction (chance "
                f"{checks['ks_chance']:.2f}, before mapping {checks['ks_unmapped']:.2f}). Train longer or choose "
                "another `weight`."
            )
        if checks["mse"] > _POOR_MSE * max(checks["mse_real"], 1e-3):
            out.append(
                "FlipTest's mapped people combine features unlike real people: regressions of each feature on the "
                f"others have a mean squared error of {checks['mse']:.3f} on them and {checks['mse_real']:.3f} on real "
                "people. Train longer or choose another `weight`."
            )
        return out

    def _trained(self) -> Generators:
        if self.fitted is None:
            raise NotFittedError("This GanMap is not fitted; call fit first")
        return self.fitted

    def _train(self, data: Dataset, variables: Sequence[int], refits: int, seed: int) -> list[list[Self]]:
        data = data if data.weights is None else data[data.weights > 0]
        for v in variables:
            check_is_grouped(data.protected[v], "FlipTest")
            check_groups_present(data, v)
        generator = torch.Generator().manual_seed(self.seed + seed)
        columns, centre, scale = _seen_columns(data)
        as_they_are = refits == 1 and data.weights is None
        samples = [
            torch.arange(len(data)) if as_they_are else resampled_rows(data, generator=generator) for _ in range(refits)
        ]
        passages = []
        for v in variables:
            for rows in samples:
                own = data.c[:, v].cpu()[rows]
                for here, there in compared_pairs(data.protected[v]):
                    drawn = int(torch.randint(2**62, (1,), generator=generator))
                    passages.append(Passage(rows[own == here], rows[own == there], drawn))
        _LOG.info("training %d generators on %d columns, %d steps each", len(passages), len(columns), self.steps)
        nets = self._generators((data.x[:, columns] - centre) / scale, passages)
        maps: list[list[Self]] = []
        for v in variables:
            maps.append([])
            for rows in samples:
                one, sample = copy.copy(self), replace(data[rows], weights=None)
                own_nets = {pair: _in_units(next(nets), centre, scale) for pair in compared_pairs(data.protected[v])}
                ranks = ranks_of(sample, v, sample.withheld, seed=seed)
                one.variable, one.fitted = v, Generators(columns, own_nets, ranks)
                one.fitted.checks.update(_checks(one, sample))
                maps[-1].append(one)
        return maps

    def _generators(self, x: Tensor, passages: Sequence[Passage]) -> Iterator[nn.Sequential]:
        """Yield the generator of each passage; so many train in one network."""
        size = _TOGETHER.get(x.device.type, 1)
        batches = [passages[start : start + size] for start in range(0, len(passages), size)]
        for number, batch in enumerate(batches):

            def say(done: int, total: int, number: int = number) -> None:
                if self.progress is not None:
                    self.progress(number * total + done, len(batches) * total)

            net = train_generators(x.float(), batch, self, progress=say)
            yield from (net.member(m) for m in range(len(batch)))


@dataclass(frozen=True)
class Generators:
    """The trained generators, on which columns they work, and how good they are."""

    columns: Tensor  # (S,): numbers that vary, and one-hot blocks
    nets: dict[Pair, nn.Sequential]
    ranks: RankMap | None  # sets withheld columns to the other group's values
    checks: dict[str, float] = field(default_factory=dict)

    def generate(self, x: Tensor, pair: Pair) -> Tensor:
        """Return rows (n, D) with their columns generated anew, before blocks are put back."""
        if pair not in self.nets:
            raise OptionError(
                f"No generator was trained from class {pair[0]} to class {pair[1]}; only pairs with the "
                "variable's reference group have one"
            )
        here = x.index_select(1, self.columns)
        net = self.nets[pair]
        return x.index_copy(1, self.columns, net(here.to(next(net.parameters()))).to(x))


def _checks(gan: GanMap, data: Dataset) -> dict[str, float]:
    """Return how real mapped people look; see `GanMap.checks`."""
    c, withheld, generator = data.c[:, gan.variable], data.withheld.tolist(), torch.Generator().manual_seed(gan.seed)
    features = [f for f in data.features if not withheld[f.start]]
    groups = {}
    for k in c[~c.isnan()].unique():
        rows = (c == k).nonzero()[:, 0]
        drawn = torch.randperm(len(rows), generator=generator)[:_MOST_CHECKED].to(rows.device)
        groups[int(k)] = data[rows if len(drawn) == len(rows) else rows[drawn]]
    found = []
    for own, other in gan._trained().nets:
        people, real = groups[own], groups[other].x
        mapped = gan.map(people, torch.full_like(people.c[:, gan.variable], other))
        there = torch.where(mapped.abstained[:, None], torch.nan, mapped.rows)
        distance = math.nan if bool(mapped.abstained.any()) else mean_distance(there, real, features)
        errors = [mean_regression_error(real, each, features) for each in (there, real)]
        chance = _CHANCE * (1 / len(people) + 1 / len(real)) ** 0.5
        found.append([distance, mean_distance(people.x, real, features), chance, *errors])
    each = torch.tensor(found, dtype=torch.float64)  # (directions, 5)
    ks, *others = each.mean(0).tolist()
    names = ("ks", "ks_worst", "ks_unmapped", "ks_chance", "mse", "mse_real")
    return dict(zip(names, (ks, float(each[:, 0].amax()), *others), strict=True))


def _in_units(net: nn.Sequential, centre: Tensor, scale: Tensor) -> nn.Sequential:
    """Return the network on x that equals centre + scale · net((x - centre) / scale), in the dtype of the scale."""
    net = net.to(scale)
    first, last = net[0], net[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.div_(scale)
        first.bias.sub_(first.weight @ centre)
        last.weight.mul_(scale[:, None])
        last.bias.mul_(scale).add_(centre)
    return net.requires_grad_(False)


def _seen_columns(data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """Return the columns (S,) that generators see, and what is their zero and one.

    Not withheld columns, those that only say that a value is missing, and constant numbers.
    """
    mean, spread, withheld = data.x.mean(0), data.x.std(0, correction=0), data.withheld.tolist()
    varies = (spread > 0).tolist()
    numbers = {f.start for f in data.features if f.kind == "continuous" and varies[f.start]}
    levels = {j for f in data.features if f.kind == "categorical" for j in range(f.start, f.stop)}
    seen = sorted(j for j in numbers | levels if not withheld[j])
    if not seen:
        raise DataError("FlipTest has no column to map, since all are withheld or constant; use rank instead")
    columns = torch.tensor(seen, device=data.x.device)
    is_number = torch.tensor([j in numbers for j in seen], device=data.x.device)
    return columns, torch.where(is_number, mean[columns], 0.0), torch.where(is_number, spread[columns], 1.0)


def mean_distance(mapped: Tensor, real: Tensor, features: Sequence[Feature]) -> float:
    """Return the mean distance between the features' distributions in mapped (n, D) and real (m, D) rows.

    A number's distance is the two-sample Kolmogorov-Smirnov statistic of the values that are not missing. A category's
    is the largest gap between the shares of a level.
    """
    gaps = []
    for f in features:
        if f.kind == "categorical":
            gaps.append(float((mapped[:, f.columns].mean(0) - real[:, f.columns].mean(0)).abs().max()))
        elif len(here := present(mapped, f)) and len(there := present(real, f)):
            both = here.numpy(force=True), there.numpy(force=True)
            gaps.append(float(scipy.stats.ks_2samp(*both, method="asymp").statistic))
    return sum(gaps) / max(len(gaps), 1)


def mean_regression_error(train: Tensor, rows: Tensor, features: Sequence[Feature]) -> float:
    """Return the mean squared error on `rows` (n, D) of the linear regressions of each column on the other features.

    They are fitted on `train` (m, D), and numbers are in its standard deviations. All come from one inverse P of the
    covariance: the residual of a feature's columns J is P_JJ⁻¹ P_J (x - mean).
    """
    stops = [f.stop if f.kind == "categorical" else f.start + 1 for f in features]  # without marks of missing values
    columns = [j for f, stop in zip(features, stops, strict=True) for j in range(f.start, stop)]
    ends = list(accumulate(stop - f.start for f, stop in zip(features, stops, strict=True)))
    blocks = [slice(start, end) for start, end in pairwise([0, *ends])]
    train, rows = train[:, columns].double(), rows[:, columns].double()
    scale = train.std(0, correction=0)
    for block in blocks:
        if block.stop - block.start > 1:
            scale[block] = 1.0  # shares stay shares
    scale[scale == 0] = 1.0
    centred, rows = (train - train.mean(0)) / scale, (rows - train.mean(0)) / scale
    covariance = centred.T @ centred / len(train)
    ridge = _RIDGE * covariance.diagonal().mean().clamp(min=1e-30)
    inverse = torch.linalg.inv(covariance + ridge * torch.eye(len(columns), device=rows.device, dtype=rows.dtype))
    apart = torch.zeros_like(inverse)  # P_JJ⁻¹ on the diagonal, block by block
    for block in blocks:
        apart[block, block] = torch.linalg.inv(inverse[block, block])
    return float((rows @ (apart @ inverse).T).square().mean())


# --- Wasserstein GANs, many in one batched network --------------------------------------------------------------------


class Passage(NamedTuple):
    """Whom one GAN takes where: rows of x, drawn with replacement, and the seed of its weights and minibatches."""

    source: Tensor  # (n,) row numbers
    target: Tensor  # (m,) row numbers
    seed: int


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
    with torch.no_grad():
        for done, rows in enumerate(_minibatches(passages, settings, x.device), start=1):
            gans.rows.copy_(rows)
            gans.step()
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
