"""How much Table 1 depends on the draw: the same table from other generators, targets and people.

The spread that Table 1 itself shows is that of re-trained auxiliaries; generators and targets are drawn once there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import table1
from runner import Experiment, Found, Job, named
from settings import AUXILIARIES
from table1_plan import FULL, QUICK, Table1

KEYS = ("setting", "test", "auxiliary")


@dataclass(frozen=True)
class Draws:
    """Which seeds everything is drawn from, and how large each table is."""

    seeds: tuple[int, ...] = (1, 2)
    table: Table1 = replace(FULL, auxiliaries=AUXILIARIES[:2])  # noqa: RUF009


def jobs(plan: Draws, seed: int) -> list[Job]:
    """Return the jobs of each table, with the seed in their names."""
    return [_named(job, own) for own in plan.seeds for job in table1.jobs(plan.table, seed + own)]


def _named(job: Job, seed: int) -> Job:
    return replace(job, name=_name(job.name, seed), after=tuple(_named(before, seed) for before in job.after))


def _name(name: str, seed: int) -> str:
    return f"{name}-seed{seed}"


def gather(plan: Draws, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return average precision and rho of each draw, their mean and spread, and which bars each draw keeps."""
    tables = {}
    for seed in plan.seeds:
        end = _name("", seed)
        own = {name.removesuffix(end): one for name, one in found.items() if name.endswith(end)}
        tables[seed] = table1.gather(plan.table, own, about)
    return {
        "results": [_over_draws(list(same)) for same in zip(*(one["results"] for one in tables.values()), strict=True)],
        "bars": [_kept(list(same)) for same in zip(*(one["bars"] for one in tables.values()), strict=True)],
        "generators": {str(seed): one["generators"] for seed, one in tables.items()},
    }


def _over_draws(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one entry of the table over all draws."""
    keys = [tuple(entry[key] for key in KEYS) for entry in same]
    assert len(set(keys)) == 1
    out: dict[str, Any] = dict(zip(KEYS, keys[0], strict=True))
    for number in ("ap", "rho", "prevalence"):
        values = [entry[number if number == "prevalence" else f"{number}_mean"] for entry in same]
        out[number] = {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0, "each": values}
    return out


def _kept(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one bar with its value in each draw; the name is that of the first, since it names the best test."""
    return {
        "bar": same[0]["bar"],
        "kept": sum(bar["holds"] for bar in same),
        "of": len(same),
        "values": [bar["value"] for bar in same],
    }


def show(found: dict[str, Any]) -> str:
    """Return each test's mean over the settings in every draw, its widest spread, and how many draws keep each bar."""
    seeds = range(len(found["results"][0]["ap"]["each"]))
    heads = [f"draw {seed + 1}" for seed in seeds]
    lines = [f"| mean AP of | auxiliary | {' | '.join(heads)} | largest ± in a setting |"]
    lines.append("|---" * (len(heads) + 3) + "|")
    for test, kind in dict.fromkeys((entry["test"], entry["auxiliary"]) for entry in found["results"]):
        own = [e["ap"] for e in found["results"] if (e["test"], e["auxiliary"]) == (test, kind)]
        means = [f"{fmean(ap['each'][seed] for ap in own):.3f}" for seed in seeds]
        shown = "" if kind == "none" else kind
        lines.append(f"| `{test}` | {shown} | {' | '.join(means)} | {max(ap['std'] for ap in own):.3f} |")
    kept = [f"- {bar['kept']} of {bar['of']} draws: {bar['bar']}" for bar in found["bars"]]
    return "\n".join([*lines, "", *kept])


def narrow(plan: Draws, names: Sequence[str]) -> Draws:
    """Return the plan for some of the seeds."""
    return replace(plan, seeds=named("seed", {str(seed): seed for seed in plan.seeds}, names))


EXPERIMENT = Experiment(
    name="table1_draws",
    description="Table 1 from other draws of generators, targets and people.",
    full=Draws(),
    quick=Draws(seeds=(1, 2), table=replace(QUICK, auxiliaries=AUXILIARIES[:1])),
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
