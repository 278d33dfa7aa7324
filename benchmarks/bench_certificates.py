"""What certificates along the way cost, as ratios to one prediction taken side by side in one run.

`python benchmarks/bench_certificates.py` measures on one core, writes results/certificates.json and the numbers in
README.md; with `--quick` it takes small sizes to see that everything runs, and no bar counts; with `--readme` it only
writes the numbers in README.md, from results/certificates.json.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import crowds
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from threadpoolctl import threadpool_limits
from timing import Benchmark, Ratio, compare
from torch import Tensor

from fairfox.benchmark.truth import TargetTraining, train_target
from fairfox.certificates.certify import largest_on_path
from fairfox.data.dataset import Dataset
from fairfox.maps.rank import RankMap
from fairfox.models.adapters import as_model
from fairfox.models.protocol import predict

SEED = 0


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    people: int = 512  # whose ways are certified
    predicted: int = 8192  # people, for the cost of one prediction
    features: int = 50
    networks: tuple[tuple[int, int], ...] = ((64, 2), (128, 4))  # width, depth
    trees: int = 200
    training_rows: int = 10_000
    epochs: int = 20  # of a network
    laps: int = 5


QUICK = Settings(
    people=8, predicted=64, features=4, networks=((8, 2), (8, 4)), trees=3, training_rows=200, epochs=2, laps=2
)
BARS = {"network 0": 150, "network 1": 300, "histograms": 150, "forest": 250}


def population(rows: int, features: int) -> Dataset:
    """Return people of two groups that differ a little in every feature, and a label that bends and steps."""
    data = crowds.population(rows, features, gap=0.5, dtype=torch.float64)
    half = features // 2
    first, second = data.x[:, :half], data.x[:, half : 2 * half]
    return replace(data, y=((first * second).sum(1) + first.sum(1) > 0).double())


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch and the trees use one core for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def ratio(name: str, what: str, model: Any, here: Tensor, there: Tensor, settings: Settings, target: Any) -> Ratio:
    """Return the cost of a person's certificate over that of a prediction in blocks."""
    many = here.repeat(-(-settings.predicted // len(here)), 1)[: settings.predicted]
    certify = partial(largest_on_path, model, here, there, target=target)
    with one_core():
        factor, fastest, ours, theirs = compare(certify, lambda: predict(target, many), laps=settings.laps)
    scale = settings.predicted / len(here)
    ours, theirs = ours / len(here), theirs / settings.predicted
    return Ratio(
        name,
        f"certificate, {what} ({1e3 * ours:.3g} ms a person)",
        f"a prediction ({1e6 * theirs:.3g} µs)",
        BARS[name], True, factor * scale, fastest * scale, ours, theirs,
    )  # fmt: skip


def measure(settings: Settings) -> list[Ratio]:
    """Return all ratios; people go where rank coupling takes them."""
    data = population(settings.training_rows, settings.features)
    there = RankMap().fit(data).map(data).rows[: settings.people]
    here, out = data.x[: settings.people], []
    for place, (width, depth) in enumerate(settings.networks):
        how = TargetTraining(batch_size=256, max_epochs=settings.epochs, patience=settings.epochs)
        target = train_target(data, width=width, depth=depth, seed=SEED, training=how)
        what = f"network of width {width}, depth {depth}"
        out.append(ratio(f"network {place}", what, target, here, there, settings, target))
    assert data.y is not None
    x, y = data.x.numpy(), data.y.numpy()
    boosted = HistGradientBoostingClassifier(max_iter=settings.trees, early_stopping=False).fit(x, y)
    forest = RandomForestClassifier(settings.trees, random_state=SEED).fit(x, y)
    for name, model in (("histograms", boosted), ("forest", forest)):
        what = f"{type(model).__name__} of {settings.trees} trees"
        out.append(ratio(name, what, model, here, there, settings, as_model(model)))
    return out


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['features']} numeric features; {s['people']:,} people, each mapped by rank coupling; predictions of "
        f"{s['predicted']:,} people in blocks. Models fitted on {s['training_rows']:,} rows: networks for "
        f"{s['epochs']} epochs, the forest's trees to their ends. One core."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
