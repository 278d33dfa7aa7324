"""Do the checks of FlipTest's generator tell how good the test is? KS and MSE against average precision.

The paper's figure on Synthetic-5: generators with other transport weights (lambda), critic steps, depths, widths and
batches than the reference ones, each judged by both checks and by the average precision of FlipTest with it.
Configurations are drawn at random, whatever the results are, so that each is a job of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
from runner import Device, Experiment, Folders, Found, Job, named
from scoring import effects
from settings import SETTINGS, Setting
from table1_plan import FULL as TABLE
from table1_plan import QUICK as QUICK_TABLE
from table1_plan import Audience, Table1, load_setup, made_before, moved
from trials import seed_of
from wording import claim, finite, markdown_table, number
from wording import claims as claims_in_words

from fairfox.benchmark.judge import spearman
from fairfox.maps.gan import GanMap, GanSettings

CHECKS = ("ks", "mse")
TUNED = ("weight", "n_critic", "depth", "width", "batch")
CLEAR = 2.0  # standard errors of a rank correlation of independent numbers


@dataclass(frozen=True)
class Space:
    """What configurations are drawn from: lambda evenly on a logarithmic scale, the others among these."""

    weight: tuple[float, float] = (1e-10, 1e-4)
    n_critic: tuple[int, ...] = (1, 2, 5, 8)
    depth: tuple[int, ...] = (1, 2, 3)
    width: tuple[int, ...] = (32, 64, 128, 256)
    batch: tuple[int, ...] = (32, 64, 128)


@dataclass(frozen=True)
class Metrics:
    """How many generators are trained, for how long, and on whose people."""

    setting: Setting = SETTINGS[4]  # Synthetic-5
    table: Table1 = TABLE
    trials: int = 16
    steps: int = 20_000
    space: Space = Space()
    device: Device = Device()  # noqa: RUF009


FULL = Metrics()
QUICK = Metrics(SETTINGS[3], QUICK_TABLE, 3, 100, Space(n_critic=(1, 2), depth=(1, 2), width=(16, 32), batch=(32,)))


def configurations(plan: Metrics, seed: int) -> list[GanSettings]:
    """Return the configurations: the reference one first, then draws that depend on the seed alone."""
    generator, space = np.random.default_rng(seed), asdict(plan.space)
    low, high = np.log(space.pop("weight"))
    drawn: list[dict[str, Any]] = [
        {"weight": float(np.exp(generator.uniform(low, high)))}
        | {name: int(generator.choice(choices)) for name, choices in space.items()}
        for _ in range(plan.trials - 1)
    ]
    return [GanSettings(steps=plan.steps, **own) for own in [{}, *drawn]]


def jobs(plan: Metrics, seed: int) -> list[Job]:
    """Return one job per configuration; all of them start from the same seed."""
    table = plan.table
    after, gpu = made_before(table, plan.setting, seed), plan.device.name != "cpu"
    return [
        Job(
            _name(trial),
            try_generator,
            (table.audience(plan.setting, seed), gan, seed_of(seed, "gan"), plan.device),
            after,
            gpu,
            120,
        )
        for trial, gan in enumerate(configurations(plan, seed))
    ]


def _name(trial: int) -> str:
    return f"gan-{trial}"


def try_generator(
    folder: Path, needed: Folders, who: Audience, gan: GanSettings, seed: int, device: Device
) -> dict[str, Any]:
    """Return the checks of one generator each way, and how good FlipTest is with them."""
    here = load_setup(needed, who)
    began = perf_counter()
    ((one,),) = GanMap(**asdict(gan)).fit_many(here.fitting.to(device.name), 1, seed=seed)
    seconds = perf_counter() - began
    scores = effects(one, [moved(model, device) for model in here.models], here.people.to(device.name))
    judged = here.judged({"fliptest": [each.cpu() for each in scores]})["fliptest"]
    checks = cast(GanMap, one).checks()
    return {
        **{name: getattr(gan, name) for name in TUNED},
        **{name: finite(value) for name, value in checks.items()},
        **{name: judged[name] for name in ("ap", "rho", "prevalence")},
        **{"seconds": seconds, "device": device.name},
    }


def gather(plan: Metrics, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the trials, rank correlations with average precision, and what the paper says about them."""
    trials = [found[_name(trial)] for trial in range(plan.trials)]
    correlations = {name: correlation(trials, name) for name in (*CHECKS, *TUNED)}
    return {"trials": trials, "correlations": correlations, "claims": claims(correlations)}


def correlation(trials: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the rank correlation of a number with average precision, over the trials that have it.

    `clear` is what independent numbers reach by chance in one of twenty draws, about; null where the number is the same
    in all trials.
    """
    both = [(one[name], one["ap"]) for one in trials if one[name] is not None]
    if len({value for value, _ in both}) < 2 or len({ap for _, ap in both}) < 2:
        return {"spearman": None, "clear": None, "trials": len(both)}
    value = spearman(*zip(*both, strict=True))
    return {"spearman": value, "clear": CLEAR / math.sqrt(len(both) - 1), "trials": len(both)}


def claims(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the paper says, and whether it is so here; a number that is the same in all trials shows nothing."""
    values = {name: one["spearman"] for name, one in found.items()}
    below = {name: value is not None and value < -found[name]["clear"] for name, value in values.items()}
    sizes = {name: abs(values[name] or 0.0) for name in TUNED}
    largest = max(sizes, key=lambda name: sizes[name])
    return [
        claim("a smaller KS goes with a higher AP", values["ks"], _so(below["ks"])),
        claim("a smaller MSE does not go with a higher AP", values["mse"], _so(not below["mse"])),
        claim("of the settings lambda (weight) matters most", sizes, _so(largest == "weight")),
        claim("a smaller lambda gives a higher AP", values["weight"], _so(below["weight"])),
    ]


def _so(holds: bool) -> str:
    return "confirmed" if holds else "not confirmed"


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    correlations = [
        ["lambda" if name == "weight" else name, number(one["spearman"]), number(one["clear"])]
        for name, one in found["correlations"].items()
    ]
    steps = f"{len(found['trials'])} configurations, {found['settings']['steps']:,} training steps each."
    parts = [steps, markdown_table(["rank correlation with AP", "Spearman", "clear from"], correlations)]
    return "\n\n".join([*parts, claims_in_words(found)])


def chart(found: dict[str, Any]) -> Any:
    """Return KS and MSE against AP."""
    import altair as alt

    charts = []
    for name in CHECKS:
        rows = [
            {"check": one[name], "ap": one["ap"], "lambda": one["weight"]}
            for one in found["trials"]
            if one[name] is not None
        ]
        scale = alt.Scale(type="log" if name == "mse" else "linear", zero=False)
        charts.append(
            alt.Chart(alt.InlineData(values=rows))
            .mark_circle(size=60)
            .encode(
                x=alt.X("check:Q", title=f"mean {name.upper()} of the generator", scale=scale),
                y=alt.Y("ap:Q", title="average precision of FlipTest", scale=alt.Scale(zero=False)),
                color=alt.Color("lambda:Q", title="lambda", scale=alt.Scale(type="log", scheme="viridis")),
            )
            .properties(width=300, height=240)
        )
    return alt.hconcat(*charts)


def narrow(plan: Metrics, names: Sequence[str]) -> Metrics:
    """Return the plan for another setting of Table 1."""
    (setting,) = named("setting", {setting.name: setting for setting in TABLE.settings}, names[:1])
    return replace(plan, setting=setting)


CHARTS = {"": chart}
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
