"""What fAux and FlipTest need on each real table: parameters, training seconds and people scored in a second.

The paper's table on resources, in one run and with the ratios. fAux is one auxiliary network; FlipTest two generators,
one each way, with the reference settings of Black et al. 2020. Both on one thread of a CPU, each job after the one
before it: run it alone on the machine, with --workers 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from real_data import NOT_RUN, TITLES, Ground, lacking, load_targets, targets_job
from runner import Experiment, Folders, Found, Job, pick
from wording import bar, held, markdown_table

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import Auxiliary, AuxiliaryMember
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import FairnessTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.gan import GanMap, GanSettings

TESTS = {"faux": "fAux", "fliptest": "FlipTest"}
FASTER, SMALLER = 20.0, 10.0  # how many times fAux has to be


# On a V100.
def _printed(seconds: int, parameters: int) -> dict[str, int]:
    return {"training_seconds": seconds, "parameters": parameters}


PAPER = {
    "adult": {"faux": _printed(12, 13_000), "fliptest": _printed(1012, 220_000)},
    "chicago": {"faux": _printed(90, 7_000), "fliptest": _printed(1086, 154_000)},
    "bank": {"faux": _printed(15, 13_000), "fliptest": _printed(444, 206_000)},
}


@dataclass(frozen=True)
class Resources:
    """Which tables, how many of their people, and how often what is short is timed."""

    tables: tuple[str, ...] = ("adult", "bank", "chicago")
    rows: int | None = None  # all
    gan: GanSettings = GanSettings(steps=1_000)  # noqa: RUF009
    laps: int = 5
    target: HidingSettings = HidingSettings(epochs=2)  # noqa: RUF009  # only its shape matters


FULL = Resources()
QUICK = Resources(("bank", "chicago"), 1_000, GanSettings(steps=100), laps=1)


def jobs(plan: Resources, seed: int) -> list[Job]:
    """Return a job for each table and test, each after the one before it; tables that are not at hand have none."""
    absent = lacking(plan.tables)
    grounds = [Ground(table, 0, seed, plan.rows) for table in plan.tables if table not in absent]
    targets = [targets_job(ground, (None,), plan.target) for ground in grounds]
    out: list[Job] = []
    for number, ground in enumerate(grounds):
        for test in TESTS:
            gan = plan.gan if test == "fliptest" else None
            after = (targets[number], *targets, *out[-1:])  # its own target first
            out.append(Job(_name(test, ground.table), measure_resources, (ground, test, gan, plan.laps), after=after))
    return out


def _name(test: str, table: str) -> str:
    return f"resources-{test}-{table}"


def measure_resources(
    folder: Path, needed: Folders, ground: Ground, name: str, gan: GanSettings | None, laps: int
) -> dict[str, Any]:
    """Return what one test needs to learn from some people of a table, and to score the others for a plain target.

    An auxiliary is trained several times over, generators once and for a part of their steps, since they take minutes:
    each step takes as long as any other. Medians; the first lap of what is timed more than once is warm-up.
    """
    fitting, people = ground.people()
    (model,) = load_targets(needed[0], (None,))
    settings = {} if gan is None else asdict(gan)
    test = make_test(name, refits=1, seed=ground.seed_for(name), settings=settings)
    training = [seconds(lambda: test.fit(fitting)) for _ in range(1 if gan is not None else laps + 1)]
    scoring = [seconds(lambda: test.score(model, people)) for _ in range(laps + 1)]
    return {
        "columns": people.x.shape[1],
        "fitting_rows": len(fitting),
        "scored_rows": len(people),
        "parameters": parameters(test),
        "training_seconds": median(training[1:] or training) * (1 if gan is None else GanSettings().steps / gan.steps),
        "rows_per_second": len(people) / median(scoring[1:]),
    }


def parameters(test: FairnessTest) -> int:
    """Return how many numbers were trained: weights of an auxiliary, or of generators and of their critics."""
    auxiliary: Auxiliary | None = getattr(test, "auxiliary", None)
    if isinstance(test, Effect):
        return sum(_of_gan(fitted) for each in test.fitted for fitted in each if isinstance(fitted, GanMap))
    members = [] if auxiliary is None else auxiliary.members
    return sum(p.numel() for member in members if isinstance(member, AuxiliaryMember) for p in member.net.parameters())


def _of_gan(fitted: GanMap) -> int:
    """Return the weights of all generators and of the critics, which are not kept, that they were trained against."""
    assert fitted.fitted is not None
    critic = MLP(len(fitted.fitted.columns), 1, width=fitted.width, depth=fitted.depth)
    generators = sum(p.numel() for net in fitted.fitted.nets.values() for p in net.parameters())
    return generators + len(fitted.fitted.nets) * sum(p.numel() for p in critic.parameters())


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = perf_counter()
    call()
    return perf_counter() - began


def gather(plan: Resources, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return what both tests need on each table, how many times more FlipTest needs, and the paper's numbers."""
    ran = [table for table in plan.tables if _name("faux", table) in found]
    results = [table_result(table, {test: found[_name(test, table)] for test in TESTS}) for table in ran]
    return {
        "device": "cpu, one thread",
        "results": results,
        "not_run": {table: NOT_RUN for table in plan.tables if table not in ran},
        "paper": {table: PAPER[table] | {"ratios": ratios(**PAPER[table])} for table in plan.tables},
        "bars": bars(results),
    }


def table_result(table: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of both tests on a table, their ratios, and on whom they were taken."""
    shared = ("columns", "fitting_rows", "scored_rows")
    own = {test: {k: v for k, v in one.items() if k not in shared} for test, one in found.items()}
    return {"table": table, **{name: found["faux"][name] for name in shared}, **own, "ratios": ratios(**own)}


def ratios(faux: dict[str, Any], fliptest: dict[str, Any]) -> dict[str, float]:
    """Return how many times more FlipTest needs: above 1 fAux is the smaller or the faster one."""
    out = {
        "training": fliptest["training_seconds"] / faux["training_seconds"],
        "parameters": fliptest["parameters"] / faux["parameters"],
    }
    if "rows_per_second" in faux:
        out["scoring"] = faux["rows_per_second"] / fliptest["rows_per_second"]
    return out


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return whether fAux is so much faster to train and so much smaller on every table that was run."""
    out = []
    for name, least, words in (
        ("training", FASTER, f"an auxiliary trains at least {FASTER:g} times faster than FlipTest's generators"),
        ("parameters", SMALLER, f"an auxiliary has at most 1/{SMALLER:g} of FlipTest's parameters"),
    ):
        value = {TITLES[one["table"]]: one["ratios"][name] for one in results}
        holds = bool(value) and all(each >= least for each in value.values())
        out.append(bar(f"{words}, both ways, on every table", value, holds))
    return out


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    heads = ["table", "", *TESTS.values(), "ratio", *(f"{name}, the paper" for name in TESTS.values()), "ratio"]
    rows = [row for one in found["results"] for row in _rows(one, found["paper"][one["table"]])]
    rows += [[TITLES[table], why, *[""] * (len(heads) - 2)] for table, why in found["not_run"].items()]
    return "\n\n".join([markdown_table(heads, rows), "On one thread of a CPU; the paper's on a V100.", held(found)])


def _rows(one: dict[str, Any], paper: dict[str, Any]) -> list[list[str]]:
    """Return a table's rows: ours, and what the paper has of it."""
    rows = []
    for words, ratio, key in (
        ("parameters", "parameters", "parameters"),
        ("seconds of training", "training", "training_seconds"),
        ("people scored in a second", "scoring", "rows_per_second"),
    ):
        cells = [
            cell
            for side in (one, paper)
            for cell in (*(_cell(side[test].get(key)) for test in TESTS), _cell(side["ratios"].get(ratio)))
        ]
        rows.append([TITLES[one["table"]], words, *cells])
    return rows


def _cell(value: float | None) -> str:
    """Return a number with three digits that count, or all of a large one."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


narrow = pick("tables", "table")
ALONE = True
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
