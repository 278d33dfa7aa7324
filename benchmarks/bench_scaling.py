"""How the cost of a score grows with N, D, the width, K and M: curves, and the slope of each on logarithmic axes.

`python benchmarks/bench_scaling.py` measures, writes results/scaling.json, draws results/scaling.png and .svg, and
writes the numbers in README.md; with `--quick` it takes small sizes to see that everything runs, and no bar counts;
with `--readme` it only draws the curves and writes the numbers in README.md, from results/scaling.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import altair as alt
import numpy as np
import torch
from baselines import forward_pass
from timing import Benchmark, Ratio
from torch import Tensor

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryMember, FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.faux import FAux
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

SEED = 0
BLOCK = 4096  # people in a forward pass


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


@dataclass(frozen=True)
class Point:
    """What is timed at one size: everyone's score, and a forward pass of the target beside it."""

    size: int
    score: Callable[[], Tensor]
    forward: Callable[[], Tensor]

    def lap(self) -> tuple[float, float]:
        """Return the seconds of both, one after the other."""
        return _seconds(self.score), _seconds(self.forward)


def point(
    size: int, rows: int, features: int, width: int, *, classes: int = 2, members: int = 1, single: bool = True
) -> Point:
    """Return so many people scored with `faux` or, for many classes, with all of them solved together."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(rows, features, generator=generator)
    c = torch.arange(rows) % classes
    variable = (
        Protected("sex") if single else Protected("group", "categorical", tuple(f"class {k}" for k in range(classes)))
    )
    outputs = 1 if single else classes
    nets = [MLP(features, outputs, width=width, seed=1 + m).member(0) for m in range(members)]
    mask = torch.ones(features, dtype=torch.bool)
    auxiliary = FixedAuxiliary([AuxiliaryMember.of(net, mask, (variable,)) for net in nets])
    test = FAux(auxiliary=auxiliary)
    test.protected = (variable,)
    target = MLP(features, width=width, seed=SEED).member(0)
    model = TorchModel(target, output=Output("logit"))
    data = Dataset.from_arrays(x, c.float(), protected=(variable,))
    return Point(size, lambda: test.score(model, data), lambda: forward_pass(target, x, BLOCK))


def points(axis: str, s: Settings) -> Iterable[Point]:
    """Yield what is timed at each size on an axis."""
    if axis == "N":
        yield from (point(n, n, s.features, s.width) for n in s.n)
    elif axis == "D":
        yield from (point(d, s.rows, d, s.width) for d in s.d)
    elif axis == "width":
        yield from (point(w, s.rows // 4, s.features, w) for w in s.widths)
    elif axis == "K":
        yield from (point(k, s.rows // 4, s.features, s.width, classes=k, single=False) for k in s.k)
    else:
        yield from (point(m, s.rows // 2, s.features, s.width, members=m) for m in s.m)


def curve(axis: str, settings: Settings) -> Ratio:
    """Return the slope of log seconds on log size, with the curve itself."""
    timed = [*points(axis, settings)]
    for each in timed:
        each.lap()  # the first has memory to find
    laps = [[each.lap() for each in timed] for _ in range(settings.laps)]  # all sizes see the same machine
    found = [summary(each.size, seconds) for each, seconds in zip(timed, zip(*laps, strict=True), strict=True)]
    sizes, middle, best = ([one[name] for one in found] for name in ("size", "seconds", "fastest"))
    what, bar = AXES[axis]
    return Ratio(
        axis, f"slope in {axis}, {what}", "the logarithm of both", bar, True,
        slope_of(sizes, middle), slope_of(sizes, best), middle[-1], middle[0], details={"points": found},
    )  # fmt: skip


def summary(size: int, laps: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return what laps of a score and a forward pass say: medians, the fastest, and the one in units of the other."""
    ours, forward = zip(*laps, strict=True)
    return {
        "size": size,
        "seconds": median(ours),
        "fastest": min(ours),
        "forward": median(forward),
        "passes": median(a / b for a, b in laps),
    }


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


def more(found: dict[str, Any]) -> list[str]:
    """Return the lines of the picture and of a small table for each axis, where the curves are among the results."""
    curves = {r["name"]: r["details"]["points"] for r in found["ratios"] if "details" in r}
    lines = ["![Milliseconds of faux and of a forward pass along each axis](results/scaling.png)"] if curves else []
    for axis, points in curves.items():
        cells = {
            f"{axis}, {AXES[axis][0]}": [f"{one['size']:,}" for one in points],
            "`faux`, ms": [f"{1000 * one['seconds']:.3g}" for one in points],
            "a forward pass, ms": [f"{1000 * one['forward']:.3g}" for one in points],
            "`faux` in forward passes": [f"{one['passes']:.3g}" for one in points],
        }
        first, *rest = (f"| {' | '.join([name, *values])} |" for name, values in cells.items())
        lines += ["", first, f"|---|{'---:|' * len(points)}", *rest]
    return lines


def chart(found: dict[str, Any]) -> alt.ConcatChart:
    """Return a panel for each axis: milliseconds of both on the size, on logarithmic axes."""
    names = {"seconds": "faux", "forward": "a forward pass of the target"}
    colour = alt.Color("what:N", sort=list(names.values()), title=None, legend=alt.Legend(orient="bottom"))
    panels = []
    for ratio in found["ratios"]:
        axis, points = ratio["name"], ratio["details"]["points"]
        values = [
            {"size": one["size"], "ms": 1000 * one[name], "what": what}
            for one in points
            for name, what in names.items()
        ]
        sizes = [one["size"] for one in points]
        ends = alt.Scale(type="log", domain=[sizes[0], sizes[-1]])
        panels.append(
            alt.Chart(alt.InlineData(values=values), width=190, height=150, title=f"{axis}: slope {ratio['ratio']:.2f}")
            .mark_line(point=True)
            .encode(
                x=alt.X("size:Q", title=AXES[axis][0], scale=ends, axis=alt.Axis(values=sizes, format="~s")),
                y=alt.Y("ms:Q", title="ms", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=4, format="~g")),
                color=colour,
            )
        )
    return alt.concat(*panels, columns=3).configure(font="sans-serif", background="white")


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"`faux`, target and auxiliaries of depth 2; where they are not on the axis: {s['rows']:,} people (a quarter "
        f"for width and K, half for M), {s['features']} features, width {s['width']}, one auxiliary of one output. A "
        f"forward pass is the target's of the same people, in blocks of {BLOCK}."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
