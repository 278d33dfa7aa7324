"""What a default audit costs: of many people with a network in forward passes, of Adult in predictions and seconds.

`python benchmarks/bench_audit.py` measures, writes results/audit.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/audit.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from multiprocessing import get_context
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import memory
import numpy as np
import pyarrow as pa
import torch
from baselines import forward_pass
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from timing import Benchmark, Ratio
from torch import Tensor, nn

import fairfox
from fairfox import pipeline
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.training import one_thread
from fairfox.data.dataset import Dataset
from fairfox.data.datasets import ADULT_LABEL, adult_table
from fairfox.fairtests import fitted, readings
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
    adult: int = 16_281  # people of Adult: as many as its test file has
    learnt: int = 32_561  # people that models of Adult learn from
    large: tuple[tuple[int, int], ...] = ((1_000_000, 20), (200_000, 200))  # people, features


QUICK = Settings(
    people=600, features=5, targets=((8, 1), (16, 2)), threads=1, many=100, laps=3, adult=300, learnt=1_000,
    large=((2_000, 3),),
)  # fmt: skip


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
    training: float = 0.0  # seconds, of the auxiliaries of all folds

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
        """Return the readings as `measure_folds` does, and remember who was measured by what, and the training."""
        self.folds, self.people = list(folds), [data[fold.rows] for fold in folds]
        found = readings.measure_folds(folds, target, data, *rest, **more)
        self.training = found.training_seconds
        return found

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
        for fold, people, measured, own in zip(folds, groups, found[fitted.TOTAL], predictions, strict=True):
            fold.test.deviations(fitted.TOTAL, self.target, people, measured, own)
        lap("draws of ranks that persist in part")
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
        60.0, True, median(ratios), min(whole) / min(units), median(whole), median(units),
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


def adult_audit(kind: str, settings: Settings) -> list[Ratio]:
    """Return what a default audit of Adult costs on one thread: rows that are predicted, and seconds."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = adult_table(complete=False).to_native().to_pandas()
    inputs = [name for name in table.columns if name not in ("sex", "race", ADULT_LABEL)]
    categories = [name for name in inputs if table[name].dtype.kind not in "if"]
    numbers = [name for name in inputs if name not in categories]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((encoder, categories), (StandardScaler(), numbers))
    last = HistGradientBoostingClassifier(random_state=0) if kind == "trees" else LogisticRegression(max_iter=1000)
    past, people = table[: settings.learnt], table[-settings.adult :]
    model = make_pipeline(columns, last).fit(past[inputs], past[ADULT_LABEL])
    counted, predict_proba = [0], model.predict_proba

    def counting(rows: Any) -> Any:
        counted[0] += len(rows)
        return predict_proba(rows)

    model.predict_proba = counting
    start = perf_counter()
    result = fairfox.audit(model, people[[*inputs, "sex", ADULT_LABEL]], protected="sex", label=ADULT_LABEL, seed=SEED)
    result.to_html()
    seconds, rows = perf_counter() - start, counted[0] / len(people)
    start = perf_counter()
    predict_proba(people[inputs])
    once = perf_counter() - start
    what = {"trees": "HistGradientBoosting", "linear": "logistic regression"}[kind]
    return [
        Ratio(f"rows, {what}", f"rows of Adult sent to a Pipeline with {what}, in an audit with its page",
              "rows of the table", 60.0, True, rows, rows, seconds, once),
        Ratio(f"seconds, {what}", f"this audit on one thread, {seconds / once:.0f} times one prediction of everyone",
              "a second", 15.0 if kind == "linear" else None, True, seconds, seconds, seconds, 1.0),
    ]  # fmt: skip


def large_table(people: int, features: int) -> dict[str, Any]:
    """Return what an audit of a large table with a cheap function takes, page included: seconds, gigabytes."""
    generator = np.random.default_rng(SEED)
    group = generator.integers(0, 2, people)
    weights = generator.normal(size=features) / features**0.5
    columns = {f"x{j}": generator.normal(size=people) + 0.3 * group * (j % 3 == 0) for j in range(features)}
    table = pa.table({**columns, "group": group})

    def model(rows: Any) -> np.ndarray:
        return 1 / (1 + np.exp(-sum(w * np.asarray(rows[name]) for w, name in zip(weights, columns, strict=True))))

    start = perf_counter()
    model(columns)
    once, before = perf_counter() - start, memory.peak("self")
    start = perf_counter()
    fairfox.audit(model, table, protected="group", seed=SEED).to_html()
    return {"seconds": perf_counter() - start, "once": once, "gigabytes": (memory.peak("self") - before) / 1024}


def large_audits(settings: Settings) -> list[Ratio]:
    """Return time and memory of audits of large tables, each in a process of its own."""
    out = []
    for people, features in settings.large:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found = alone.submit(large_table, people, features).result()
        what, allowed = f"{people:,} x {features}", 25 * found["once"] + 60
        out += [
            Ratio(f"seconds, {what}", f"a whole audit with its page of a function on {what}, in memory",
                  "25 predictions and 60 s", 1.0, True, found["seconds"] / allowed, found["seconds"] / allowed,
                  found["seconds"], allowed, details=found),
            Ratio(f"memory, {what}", "gigabytes that this audit takes beside the table", "1 GB", 4.0, True,
                  found["gigabytes"], found["gigabytes"], found["seconds"], allowed),
        ]  # fmt: skip
    return out


def measure(settings: Settings) -> list[Ratio]:
    """Return what audits of Adult cost, the seconds of training, and the cost of all scores for each target."""
    with one_thread(), threadpool_limits(1):
        adult = [ratio for kind in ("linear", "trees") for ratio in adult_audit(kind, settings)]
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
        large = large_audits(settings)
        return [*adult, *large, first, *(scores(watched, settings, *target) for target in settings.targets)]
    finally:
        torch.set_num_threads(before)


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['people']:,} people of two groups, {s['features']} numeric features, `fairfox.audit` with its defaults: "
        f"5 folds, 5 refits, auxiliaries of width 64, depth 2; blocks of {s['block']} rows, {s['threads']} thread(s). "
        f"Adult: {s['adult']:,} people, one thread."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
