"""What the peers' tests cost over fairfox's, as ratios taken side by side in one run.

`python benchmarks/bench_peers.py` measures, writes results/peers.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/peers.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from crowds import population
from timing import Benchmark, Ratio, compare
from torch import nn

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.protocol import FairnessTest
from fairfox.fairtests.unfair_map import UnfairMap
from fairfox.maps.gan import GanMap, GanSettings, Passage, train_generators
from fairfox.models.torch import TorchModel

SEED = 0
STEPS = GanSettings().steps  # of FlipTest's generators in a full training
FEW = 20  # steps of generators that are only timed when they score, which takes as long after any number of steps


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


def scoring(settings: Settings) -> list[Ratio]:
    """Return the cost of the peers' scores over that of `faux` with one auxiliary of the target's size, same people."""
    data = population(settings.rows, settings.features)
    target = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0)
    model = TorchModel(nn.Sequential(target, nn.Sigmoid()))
    auxiliary = AuxiliaryModel(refits=1, width=settings.width, depth=settings.depth, max_epochs=1, seed=SEED)
    faux = FAux(auxiliary=auxiliary).fit(data)
    attack = UnfairMap(auxiliary=LinearAuxiliary(), steps=settings.attack_steps).fit(data)
    flip = Effect(map=GanMap(steps=FEW, seed=SEED), refits=1, seed=SEED).fit(data)
    peers: list[tuple[str, str, float | None, FairnessTest]] = [
        ("unfair map", f"unfair_map, {settings.attack_steps} steps", 60, attack),
        ("fliptest, scores", "FlipTest's scores, its generators trained before", None, flip),
    ]
    out = []
    for name, what, bar, peer in peers:
        found = compare(lambda peer=peer: peer.score(model, data), lambda: faux.score(model, data), laps=settings.laps)
        theirs, ours = (per_second(settings.rows, seconds) for seconds in found[2:])
        out.append(Ratio(name, f"{what} ({theirs})", f"faux, one auxiliary ({ours})", bar, False, *found))
    return out


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
        f"{s['rows']:,} rows scored, the same by all. Training on the same {s['training_rows']:,} rows: FlipTest with "
        f"its authors' settings, the auxiliary with fairfox's; {s['gan_steps']:,} steps of the generators are timed "
        "and multiplied."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
