"""How differently a plain target truly treats people as its data becomes more biased: histograms of |f(x) - f(x')|.

The paper's figure on the bias parameter: with more bias in the data, more people are treated unfairly.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from runner import Experiment, Folders, Found, Job, pick
from settings import ROWS, SETTINGS, TARGETS, Rows, Setting, Sources, Target
from trials import generate, generator_job, seed_of, train_shape
from wording import held, markdown_table

from fairfox.benchmark.truth import individual_fairness_score

BINS = 40  # of |f(x) - f(x')| from 0 to 1


@dataclass(frozen=True)
class Histograms:
    """Which targets are looked at: one for each world and level of bias."""

    worlds: tuple[Setting, ...]
    biases: tuple[float, ...] = (0.0, 0.5, 1.0)
    rows: Rows = ROWS
    shape: Target = TARGETS[0]
    sources: Sources = Sources()  # noqa: RUF009


# The pairs of tables and fusions of Table 1, whatever their bias.
WORLDS = tuple(replace(s, name=f"{s.c}-{s.y}-{s.fusion}") for s in SETTINGS if s.bias == 1.0)
FULL = Histograms(WORLDS)
QUICK = Histograms(
    WORLDS[:2], rows=Rows(2_000, 500, 1_000), sources=Sources(rows=3_000, steps=600, pairs=2_000, models=1)
)


def jobs(plan: Histograms, seed: int) -> list[Job]:
    """Return one job per world and level of bias."""
    return [
        Job(
            _name(world, bias),
            true_scores,
            (replace(world, bias=bias), plan.shape, plan.rows, seed_of(seed, world.name, bias)),
            after=(generator_job(world, plan.sources, seed),),
        )
        for world in plan.worlds
        for bias in plan.biases
    ]


def _name(world: Setting, bias: float) -> str:
    return f"ifs-{world.name}-{bias:g}"


def true_scores(folder: Path, needed: Folders, world: Setting, shape: Target, rows: Rows, seed: int) -> dict[str, Any]:
    """Return the histogram and the mean of the true scores of a plain target."""
    fitting, people = generate(needed[0], world.fusion, world.bias, rows, seed)
    model = train_shape(fitting, shape, rows, seed)
    ifs = individual_fairness_score(model, people).double().numpy(force=True)
    counts, _ = np.histogram(ifs, bins=BINS, range=(0.0, 1.0))
    return {"counts": counts.tolist(), "mean": float(ifs.mean())}


def gather(plan: Histograms, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the histograms, and whether people are treated more differently with every step of bias."""
    results = [
        {"world": world.name, "bias": bias, **found[_name(world, bias)]}
        for world in plan.worlds
        for bias in plan.biases
    ]
    means = {world.name: [found[_name(world, bias)]["mean"] for bias in plan.biases] for world in plan.worlds}
    grows = all(own == sorted(own) for own in means.values())
    bar = {"bar": "the mean true score grows with the bias in every world", "value": means, "holds": grows}
    return {"edges": np.linspace(0.0, 1.0, BINS + 1).tolist(), "results": results, "bars": [bar]}


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    biases = list(dict.fromkeys(one["bias"] for one in found["results"]))
    means = {(one["world"], one["bias"]): f"{one['mean']:.3f}" for one in found["results"]}
    worlds = dict.fromkeys(world for world, _ in means)
    rows = [[world, *(means.get((world, bias), "-") for bias in biases)] for world in worlds]
    return f"{markdown_table(['mean true score', *(f'bias {bias:g}' for bias in biases)], rows)}\n\n{held(found)}"


def chart(found: dict[str, Any]) -> Any:
    """Return the histograms."""
    import altair as alt

    rows = [
        {
            "world": one["world"],
            "bias": f"bias {one['bias']:g}",
            "low": low,
            "high": high,
            "share": count / sum(one["counts"]),
        }
        for one in found["results"]
        for low, high, count in zip(found["edges"][:-1], found["edges"][1:], one["counts"], strict=True)
    ]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar(color="#0072b2")
    return (
        bars.encode(
            x=alt.X("low:Q", title="|f(x) - f(x')|", scale=alt.Scale(domain=[0, 1])).bin("binned"),
            x2="high:Q",
            y=alt.Y("share:Q", title="share of people"),
        )
        .properties(width=220, height=110)
        .facet(row=alt.Row("world:N", title=None), column=alt.Column("bias:N", title=None))
        .resolve_scale(y="independent")
    )


narrow = pick("worlds", "world")
CHARTS = {"": chart}
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
