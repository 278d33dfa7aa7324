"""How the cost of a score grows with N, D, the width, K and M: the slope of each curve on logarithmic axes.

`python benchmarks/bench_scaling.py` measures, writes results/scaling.json and the numbers in README.md; with `--quick`
it takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/scaling.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from timing import Benchmark, Ratio
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryMember, FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.gradient import score_together
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP

HERE = Path(__file__).parent
SEED = 0


@dataclass(frozen=True)
class Settings:
    """The sizes that are not on an axis, and those on each."""

    rows: int = 32_768
    features: int = 100
    width: int = 64
    n: tuple[int, ...] = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    d: tuple[int, ...] = (25, 50, 100, 200, 400, 800)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    k: tuple[int, ...] = (3, 5, 10, 20)
    m: tuple[int, ...] = (1, 2, 5, 10, 20)
    laps: int = 7


QUICK = Settings(
    rows=256, features=6, width=4, n=(100, 200), d=(4, 8), widths=(4, 8), k=(3, 4), m=(1, 2), laps=2
)  # fmt: skip

AXES = {  # the axis: what grows along it, and the steepest slope it may have
    "N": ("people", 1.05),
    "D": ("features", 1.0),
    "width": ("width of target and auxiliary", 2.0),
    "K": ("protected classes", 2.0),
    "M": ("auxiliaries", 1.05),
}


def scorer(
    rows: int, features: int, width: int, *, classes: int = 2, members: int = 1, single: bool = True
) -> Callable[[], Tensor]:
    """Return a call that scores so many people with `faux` or, for many classes, with all of them solved together."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(rows, features, generator=generator)
    c = torch.arange(rows) % classes
    variable = (
        Protected("sex") if single else Protected("group", "categorical", tuple(f"class {k}" for k in range(classes)))
    )
    outputs = 1 if single else classes
    nets = [MLP(features, outputs, width=width, seed=1 + m).member(0) for m in range(members)]
    mask = torch.ones(features, dtype=torch.bool)
    auxiliary = FixedAuxiliary([AuxiliaryMember(net, mask, (variable,)) for net in nets])
    test = FAux(auxiliary=auxiliary)
    test.protected = (variable,)
    model = TorchModel(MLP(features, width=width, seed=SEED).member(0), output=Output("logit"))
    data = Dataset.from_arrays(x, c.float(), protected=(variable,))
    return lambda: score_together([test], model, data)[0]


def calls(axis: str, s: Settings) -> Iterable[tuple[int, Callable[[], Tensor]]]:
    """Yield the sizes on an axis, each with what is timed."""
    if axis == "N":
        yield from ((n, scorer(n, s.features, s.width)) for n in s.n)
    elif axis == "D":
        yield from ((d, scorer(s.rows, d, s.width)) for d in s.d)
    elif axis == "width":
        yield from ((w, scorer(s.rows // 4, s.features, w)) for w in s.widths)
    elif axis == "K":
        yield from ((k, scorer(s.rows // 4, s.features, s.width, classes=k, single=False)) for k in s.k)
    else:
        yield from ((m, scorer(s.rows // 2, s.features, s.width, members=m)) for m in s.m)


def curve(axis: str, settings: Settings) -> Ratio:
    """Return the slope of log seconds on log size, with the seconds in words."""
    sizes, timed = zip(*calls(axis, settings), strict=True)
    for call in timed:
        call()  # the first has memory to find
    laps = [[_seconds(call) for call in timed] for _ in range(settings.laps)]  # all sizes see the same machine
    middle, best = ([reduce(each) for each in zip(*laps, strict=True)] for reduce in (median, min))
    points = ", ".join(f"{size:,}: {1000 * s:.3g}" for size, s in zip(sizes, best, strict=True))
    what, bar = AXES[axis]
    return Ratio(
        axis, f"slope in {axis}, {what} (ms, fastest lap: {points})", "the logarithm of both", bar, True,
        slope_of(sizes, middle), slope_of(sizes, best), middle[-1], middle[0],
    )  # fmt: skip


def _seconds(call: Callable[[], Tensor]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def slope_of(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the straight line through the logarithms: 1 is linear, 2 quadratic."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure(settings: Settings) -> list[Ratio]:
    """Return the slope along each axis."""
    return [curve(axis, settings) for axis in AXES]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"`faux`, target and auxiliaries of depth 2; where they are not on the axis: {s['rows']:,} people (a quarter "
        f"for width and K, half for M), {s['features']} features, width {s['width']}, one auxiliary of one output."
    )


BENCHMARK = Benchmark(
    description="How the cost of a score grows, as slopes.",
    measure=measure,
    settings=Settings(),
    quick=QUICK,
    seed=SEED,
    sizes=sizes,
    results=HERE / "results" / "scaling.json",
    readme=HERE / "README.md",
    marks=("<!-- numbers of bench_scaling.py: begin -->", "<!-- numbers of bench_scaling.py: end -->"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
