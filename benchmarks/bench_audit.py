"""What a default audit of many people costs: training in seconds, scores in forward passes of the target.

`python benchmarks/bench_audit.py` measures, writes results/audit.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/audit.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import torch
from baselines import forward_pass
from timing import Benchmark, Ratio, places
from torch import Tensor, nn

import fairfox
from fairfox import pipeline
from fairfox.auxiliary.mlp import MLP
from fairfox.data.dataset import Dataset
from fairfox.fairtests import fitted
from fairfox.fairtests.fitted import Fold
from fairfox.fairtests.protocol import Measurement, join_measurements
from fairfox.models.protocol import Model, Output, predict
from fairfox.models.torch import TorchModel
from fairfox.statistics.intervals import interval_of

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
    """What an audit did: the seconds of its steps, the test of each fold, and the people."""

    seconds: dict[str, float] = field(default_factory=dict)
    folds: list[Fold] = field(default_factory=list)
    people: list[Dataset] = field(default_factory=list)  # of each fold

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and is timed."""

        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            found = call(*args, **kwargs)
            self.seconds[name] = perf_counter() - start
            return found

        return watched

    def measured(self, folds: Sequence[Fold], target: Model, data: Dataset, *rest: Any, **more: Any) -> Any:
        """Return the readings as `measure_folds` does, and remember who was measured by what."""
        self.folds, self.people = list(folds), [data[fold.rows] for fold in folds]
        return fitted.measure_folds(folds, target, data, *rest, **more)

    def audit(self, *given: Any, **options: Any) -> None:
        """Do an audit and watch it."""
        with ExitStack() as watched:
            for attribute, name, call in (
                ("fit_folds", "fitting", pipeline.fit_folds),
                ("measure_folds", "measuring", self.measured),
                ("explain", "explaining", pipeline.explain),
            ):
                watched.enter_context(patch.object(pipeline, attribute, self.timed(name, call)))
            start = perf_counter()
            fairfox.audit(*given, **options)
            self.seconds["all"] = perf_counter() - start

    @property
    def training(self) -> float:
        """The seconds in which the auxiliaries of all folds were trained."""
        return sum(fold.test.training_seconds for fold in self.folds)


@dataclass(frozen=True)
class Scoring:
    """The work of an audit between fitted tests and scores with intervals, step by step, for any target."""

    watched: Watched
    target: Model
    batch_size: int

    @property
    def everyone(self) -> Tensor:
        """The people of all folds (N, D)."""
        return torch.cat([people.x for people in self.watched.people])

    def measure(self, name: str, predictions: Sequence[Tensor]) -> list[Measurement]:
        """Return one reading of everyone, fold by fold."""
        each = zip(self.watched.folds, self.watched.people, predictions, strict=True)
        return [fold.test.measure_one(name, self.target, people, predictions=own) for fold, people, own in each]

    def once(self) -> dict[str, float]:
        """Return the seconds of each step of one whole scoring."""
        folds, groups, everyone = self.watched.folds, self.watched.people, self.everyone
        counts, seconds, start = [len(people) for people in groups], dict[str, float](), perf_counter()

        def lap(name: str) -> None:
            nonlocal start
            seconds[name], start = perf_counter() - start, perf_counter()

        predictions = predict(self.target, everyone, batch_size=self.batch_size).split(counts)
        lap("predictions")
        found = {}
        for name in (fitted.TOTAL, fitted.DIRECT):
            found[name] = self.measure(name, predictions)
            lap(name)
        for fold, people in zip(folds, groups, strict=True):
            fold.test.alignment(self.target, people, most=fitted._ALIGNED // len(folds))
        lap("alignment share")
        rows = torch.arange(len(everyone)).split(counts)
        for parts in found.values():
            joined = join_measurements(parts, rows, len(everyone))
            assert interval_of(joined.refits, joined.abstained) is not None
        lap("intervals")
        return seconds


def scores(watched: Watched, settings: Settings, width: int, depth: int) -> Ratio:
    """Return what all scores cost in forward passes of a target, with its steps in words."""
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
    words = ", ".join(f"{name} {passes:.1f}" for name, passes in each.items())
    return Ratio(
        f"scores, {width} x {depth}",
        f"scores with intervals and both readings, target of width {width}, depth {depth}: {words}",
        f"a forward pass of the target ({1e3 * median(units):.1f} ms)",
        40.0, True, median(ratios), min(whole) / min(units), median(whole), median(units),
    )  # fmt: skip


def watched_audit(settings: Settings) -> Watched:
    """Return what a default audit did."""
    x, c = population(settings.people, settings.features)
    width, depth = settings.targets[0]
    target: nn.Sequential = MLP(settings.features, width=width, depth=depth, seed=1).member(0)
    table = pa.table({**{f"x{j}": column.numpy() for j, column in enumerate(x.T)}, "group": c.long().numpy()})
    watched = Watched()
    options = {"returns": "logit", "batch_size": settings.block}
    with patch.object(fitted, "_MANY", fitted._MANY if settings.many is None else settings.many):
        watched.audit(target, table, protected="group", seed=SEED, options=options)
    return watched


def measure(settings: Settings) -> list[Ratio]:
    """Return the seconds of training, and the cost of all scores for each target."""
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        watched = watched_audit(settings)
        whole, training = watched.seconds["all"], watched.training
        steps = watched.seconds | {"fitting maps": watched.seconds["fitting"] - training}
        words = ", ".join(f"{name} {steps[name]:.1f} s" for name in ("fitting maps", "measuring", "explaining"))
        first = Ratio(
            "training", f"training all auxiliaries; the whole audit takes {whole:.1f} s, of which {words}",
            "a second", 60.0, True, training, training, training, 1.0,
        )  # fmt: skip
        return [first, *(scores(watched, settings, *target) for target in settings.targets)]
    finally:
        torch.set_num_threads(before)


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['people']:,} people of two groups, {s['features']} numeric features, `fairfox.audit` with its defaults: "
        f"5 folds, 5 refits, auxiliaries of width 64, depth 2; blocks of {s['block']} rows, {s['threads']} thread(s)."
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
