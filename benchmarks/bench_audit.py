"""What a default audit of many people costs: training in seconds, scores in forward passes of the target.

`python benchmarks/bench_audit.py` measures, writes results/audit.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/audit.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import chain
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import torch
from baselines import forward_pass
from fairfox.maps.resampled import forget
from timing import Benchmark, Ratio, places
from torch import Tensor, nn

import fairfox
from fairfox import crossfit
from fairfox import pipeline as auditing
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.fairtests.effect import Effect, model_alignment
from fairfox.fairtests.protocol import Measurement, join_measurements
from fairfox.models.protocol import Model, Output, predict
from fairfox.models.torch import TorchModel

SEED = 0


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    people: int = 100_000
    features: int = 50
    targets: tuple[tuple[int, int], ...] = ((64, 2), (128, 4))  # width, depth
    block: int = 4096
    threads: int = 2
    many: int | None = None  # from how many people on time is saved; None: fairfox's own
    laps: int = 9


QUICK = Settings(people=600, features=5, targets=((8, 1), (16, 2)), threads=1, many=100, laps=3)


def population(people: int, features: int) -> tuple[Tensor, Tensor]:
    """Return x (N, D) and two groups c (N,): correlated features, most of which depend on the group."""
    generator = torch.Generator().manual_seed(SEED)
    c = (torch.rand(people, generator=generator) < 0.5).float()
    mixing = torch.eye(features) + torch.randn(features, features, generator=generator) / features**0.5
    gap = 0.4 * torch.randn(features, generator=generator) * (torch.arange(features) % 3 == 0)
    own = torch.randn(people, features, generator=generator) + c[:, None] * gap
    return (own + 0.1 * own.square() * c[:, None]) @ mixing, c


@dataclass
class Watched:
    """What an audit did: the seconds of its parts, and the calls that gave scores, fold by fold."""

    seconds: dict[str, float] = field(default_factory=dict)
    measured: list[tuple[Effect, Dataset]] = field(default_factory=list)
    aligned: list[tuple[Any, ...]] = field(default_factory=list)
    people: Dataset | None = None

    def timed(self, name: str, call: Callable[..., Any], keep: Callable[..., None] | None = None) -> Callable[..., Any]:
        """Return a function that does the same, and is counted."""

        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            found = call(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
            if keep is not None:
                keep(*args, **kwargs)
            return found

        return watched

    def keep_measured(self, test: Effect, target: Model, people: Dataset, **known: Any) -> None:
        """Remember which fitted test measured whom."""
        self.measured.append((test, people))

    def keep_aligned(self, target: Model, people: Dataset, *rest: Any, **settings: Any) -> None:
        """Remember what the alignment share was read off."""
        self.aligned.append((people, *rest))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch an audit while this lasts."""
        with ExitStack() as watched:
            for owner, attribute, name, keep in (
                (AuxiliaryModel, "fit", "training", None),
                (crossfit, "_fit", "fitting maps", None),
                (Effect, "measure", "scoring", self.keep_measured),
                (crossfit, "model_alignment", "scoring", self.keep_aligned),
                (crossfit, "join", "scoring", None),
                (crossfit, "_counterfactuals", "counterfactual rows", None),
                (auditing, "_explain", "explaining", None),
            ):
                call = getattr(owner, attribute)
                watched.enter_context(patch.object(owner, attribute, self.timed(name, call, keep)))
            yield


@dataclass(frozen=True)
class Scoring:
    """The work of an audit between fitted tests and scores with intervals, part by part, for any target."""

    watched: Watched
    target: Model
    batch_size: int

    @property
    def everyone(self) -> Tensor:
        """The people of all folds (N, D)."""
        return torch.cat([people.x for people in self.folds])

    @property
    def folds(self) -> list[Dataset]:
        """The people of each fold."""
        return [people for _, people in self.readings("rank")]

    def readings(self, name: str) -> list[tuple[Effect, Dataset]]:
        """Return the tests of one reading, fold by fold, with the people they measured."""
        kind = {"rank": "RankMap", "move-direct": "MoveMap"}[name]
        return [each for each in self.watched.measured if type(each[0].map).__name__ == kind]

    def measure(self, name: str, here: list[Tensor]) -> list[Measurement]:
        """Return one reading of everyone, as if nobody had been seen before."""
        found = []
        for (test, people), known in zip(self.readings(name), here, strict=True):
            forget([*chain.from_iterable(test.fitted)])
            found.append(test.measure(self.target, people, predictions=known, rows=False))
        return found

    def once(self) -> dict[str, float]:
        """Return the seconds of each part of one whole scoring."""
        people, seconds, start = self.everyone, {}, perf_counter()

        def lap(name: str) -> None:
            nonlocal start
            seconds[name], start = perf_counter() - start, perf_counter()

        start = perf_counter()
        here = predict(self.target, people, batch_size=self.batch_size).split([len(each) for each in self.folds])
        lap("predictions")
        found = {}
        for name in ("rank", "move-direct"):
            found[name] = self.measure(name, [*here])
            lap(name)
        for each in self.watched.aligned:
            model_alignment(self.target, *each, seed=SEED, batch_size=self.batch_size)
        lap("alignment share")
        places = [*torch.arange(len(people)).split([len(each) for each in self.folds])]
        for parts in found.values():
            interval = join_measurements(parts, places, len(people)).interval
            assert interval is not None
        lap("intervals")
        return seconds


def scores(watched: Watched, settings: Settings, width: int, depth: int) -> Ratio:
    """Return what all scores cost in forward passes of a target, with the parts in words."""
    net = MLP(settings.features, width=width, depth=depth, seed=1).member(0)
    scoring = Scoring(watched, TorchModel(net, output=Output("logit")), settings.block)
    people = scoring.everyone

    def forward() -> float:
        start = perf_counter()
        forward_pass(net, people, settings.block)
        return perf_counter() - start

    scoring.once(), forward()  # the warm-up
    laps = []
    for _ in range(settings.laps):
        unit = forward() + forward()
        parts = scoring.once()
        laps.append((parts, (unit + forward() + forward()) / 4))  # before and after: both see the same machine
    ratios = [sum(parts.values()) / unit for parts, unit in laps]
    each = {name: median(parts[name] / unit for parts, unit in laps) for name in laps[0][0]}
    units, whole = [unit for _, unit in laps], [sum(parts.values()) for parts, _ in laps]
    told = ", ".join(f"{name} {passes:.1f}" for name, passes in each.items())
    return Ratio(
        f"scores, {width} x {depth}",
        f"scores with intervals and both readings, target of width {width}, depth {depth}: {told}",
        f"a forward pass of the target ({1e3 * median(units):.1f} ms)",
        40.0, True, median(ratios), min(whole) / min(units), median(whole), median(units),
    )  # fmt: skip


def watched_audit(settings: Settings) -> tuple[Watched, float]:
    """Return what a default audit did, and its seconds in all."""
    x, c = population(settings.people, settings.features)
    width, depth = settings.targets[0]
    target: nn.Sequential = MLP(settings.features, width=width, depth=depth, seed=1).member(0)
    table = pa.table({**{f"x{j}": column.numpy() for j, column in enumerate(x.T)}, "group": c.long().numpy()})
    watched = Watched()
    few = partial(patch.object, crossfit, "_MANY", crossfit._MANY if settings.many is None else settings.many)
    start = perf_counter()
    with few(), watched.watching():
        fairfox.audit(target, table, protected="group", returns="logit", seed=SEED, batch_size=settings.block)
    return watched, perf_counter() - start


def measure(settings: Settings) -> list[Ratio]:
    """Return the seconds of training, and the cost of all scores for each target."""
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        watched, whole = watched_audit(settings)
        training = watched.seconds["training"]
        told = ", ".join(f"{name} {spent:.1f} s" for name, spent in watched.seconds.items() if name != "training")
        first = Ratio(
            "training", f"training all auxiliaries; the whole audit takes {whole:.1f} s, of which {told}",
            "a second", 60.0, True, training, training, training, 1.0,
        )  # fmt: skip
        return [first, *(scores(watched, settings, *target) for target in settings.targets)]
    finally:
        torch.set_num_threads(before)


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['people']:,} people of two groups, {s['features']} numeric features, `fairfox.audit` with its defaults: "
        f"5 folds, 5 re-fits, auxiliaries of width 64, depth 2; blocks of {s['block']} rows, {s['threads']} thread(s)."
    )


BENCHMARK = Benchmark(
    description="What a default audit of many people costs.",
    measure=measure,
    settings=Settings(),
    quick=QUICK,
    seed=SEED,
    sizes=sizes,
    **places(__file__),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
