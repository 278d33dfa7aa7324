"""What the peers' tests cost over fairfox's, as ratios taken side by side in one run.

`python benchmarks/bench_peers.py` measures, writes results/peers.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/peers.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from timing import Benchmark, Ratio, compare
from torch import nn

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.unfair_map import UnfairMap
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP
from fairfox.nets.wgan import GanSettings, Passage, train_generators

HERE = Path(__file__).parent
SEED = 0
STEPS = GanSettings().steps  # of FlipTest's generators in a full training


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    rows: int = 8192
    features: int = 100
    width: int = 64
    depth: int = 2
    attack_steps: int = 200
    training_rows: int = 10_000
    gan_steps: int = 2000  # that are measured; all of them take alike
    laps: int = 5
    long_laps: int = 3  # of what takes many seconds


QUICK = Settings(
    rows=256, features=8, width=8, attack_steps=5, training_rows=400, gan_steps=20, laps=2, long_laps=2
)  # fmt: skip


def population(rows: int, features: int) -> Dataset:
    """Return people of two groups that differ a little in every feature, and a label that depends on some."""
    generator = torch.Generator().manual_seed(SEED)
    c = (torch.rand(rows, generator=generator) < 0.5).float()
    x = torch.randn(rows, features, generator=generator)
    x = x + 0.2 * c[:, None] * torch.randn(features, generator=generator)
    y = (x[:, : features // 2].sum(1) + torch.randn(rows, generator=generator) > 0).float()
    return Dataset.from_arrays(x, c, y)


def scoring(settings: Settings) -> list[Ratio]:
    """Return the cost of Unfair Map with one metric over that of `faux` with one auxiliary of the target's size."""
    data = population(settings.rows, settings.features)
    target = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0)
    model = TorchModel(nn.Sequential(target, nn.Sigmoid()))
    auxiliary = AuxiliaryModel(refits=1, width=settings.width, depth=settings.depth, max_epochs=1, seed=SEED)
    faux = FAux(auxiliary=auxiliary).fit(data)
    attack = UnfairMap(auxiliary=LinearAuxiliary(), steps=settings.attack_steps).fit(data)
    found = compare(lambda: attack.score(model, data), lambda: faux.score(model, data), laps=settings.laps)
    _, _, theirs, ours = found
    return [
        Ratio(
            "unfair map",
            f"unfair_map, {settings.attack_steps} steps ({per_second(settings.rows, theirs)})",
            f"faux, one auxiliary ({per_second(settings.rows, ours)})",
            60, False, *found,
        )
    ]  # fmt: skip


def per_second(rows: int, seconds: float) -> str:
    """Return in words how many people are scored in a second."""
    return f"{rows / seconds:,.0f} rows/s"


def training(settings: Settings) -> list[Ratio]:
    """Return the cost of training FlipTest's generators, both ways in one network, over that of one auxiliary.

    So many steps of the generators are timed, and the ratio is that of a full training: its steps are all alike.
    """
    data = population(settings.training_rows, settings.features)
    groups = [(data.c[:, 0] == group).nonzero()[:, 0] for group in (0, 1)]
    ways = [Passage(groups[0], groups[1], SEED), Passage(groups[1], groups[0], SEED + 3)]
    scaled = (data.x - data.x.mean(0)) / data.x.std(0)
    gan = GanSettings(steps=settings.gan_steps)

    def auxiliary() -> AuxiliaryModel:
        return AuxiliaryModel(refits=1, seed=SEED).fit(data)

    ratio, fastest, theirs, ours = compare(
        lambda: train_generators(scaled, ways, gan), auxiliary, laps=settings.long_laps
    )
    scale = STEPS / settings.gan_steps
    seconds = f"{theirs:.3g} s for {settings.gan_steps:,} steps, times {scale:g}"
    return [
        Ratio(
            "training",
            f"FlipTest's generators both ways, {STEPS:,} steps ({seconds})",
            "one auxiliary, to its early stop",
            20, False, ratio * scale, fastest * scale, theirs * scale, ours,
        )
    ]  # fmt: skip


def measure(settings: Settings) -> list[Ratio]:
    """Return all ratios."""
    return [*scoring(settings), *training(settings)]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['features']} features; target and faux's auxiliary of width {s['width']}, depth {s['depth']}; "
        f"{s['rows']:,} rows scored. Training on {s['training_rows']:,} rows: FlipTest with its authors' settings, the "
        f"auxiliary with fairfox's; {s['gan_steps']:,} steps of the generators are timed and multiplied."
    )


BENCHMARK = Benchmark(
    description="What the peers' tests cost over fairfox's, as ratios in one run.",
    measure=measure,
    settings=Settings(),
    quick=QUICK,
    seed=SEED,
    sizes=sizes,
    results=HERE / "results" / "peers.json",
    readme=HERE / "README.md",
    marks=("<!-- numbers of bench_peers.py: begin -->", "<!-- numbers of bench_peers.py: end -->"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
