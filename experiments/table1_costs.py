"""What every test of Table 1 costs: seconds of training, trained numbers, and people scored in a second.

Each test is fitted once and scores the judged people of one setting for one target, on one core of a CPU. The jobs come
one after the other, so that each has the machine to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from runner import Found, Job
from scoring import WITH, WITHOUT
from settings import Rows, Setting, Target, setting_named
from table1_plan import Table1, made_before, stand
from trials import Folders, seed_of

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import Auxiliary, AuxiliaryMember
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import FairnessTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.gan import GanMap
from fairfox.maps.move import MoveMap
from fairfox.models.protocol import Model
from fairfox.nets.mlp import MLP
from fairfox.nets.wgan import GanSettings

PATIENCE = 10.0  # seconds, after which no more laps are asked for


@dataclass(frozen=True)
class Costs:
    """Which tests are timed, on the people of which setting, and how often each scores them."""

    setting: str = "Synthetic-8"
    tests: tuple[str, ...] = (
        *WITHOUT,
        *WITH,
        *("unfair_map", "fliptest", "fliptest/a", "transport", "transport/a"),
    )
    laps: int = 5


def cost_jobs(plan: Costs, table: Table1, gan: GanSettings, seed: int) -> list[Job]:
    """Return a job for each test, each after the one before it."""
    setting, small = setting_named(plan.setting), replace(table, targets=table.targets[:1])
    people = (setting, small.targets, table.rows, seed_of(seed, setting.name))
    out: list[Job] = []
    for test in plan.tests:
        options = asdict(gan) if test.startswith("fliptest") else {}
        arguments = (*people, test, options, plan.laps, seed_of(seed, test))
        after = (*made_before(small, setting, seed), *out[-1:])
        out.append(Job(_name(test), measure_cost, arguments, after=after))
    return out


def _name(test: str) -> str:
    return f"costs-{test.replace('/', '_')}"


def measure_cost(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    rows: Rows,
    people_seed: int,
    name: str,
    options: dict[str, object],
    laps: int,
    seed: int,
) -> dict[str, Any]:
    """Return what one test costs: to fit it once, and to score everyone (the median lap; the first is warm-up)."""
    here = stand(needed, setting, targets, rows, people_seed)
    test = make_test(name, refits=1, seed=seed, options=options)
    began = perf_counter()
    test.fit(here.fitting)
    training = perf_counter() - began
    seconds: list[float] = []
    while len(seconds) < laps + 1 and (len(seconds) < 2 or sum(seconds) < PATIENCE):
        began = perf_counter()
        test.score(here.models[0], here.people)
        seconds.append(perf_counter() - began)
    return {
        "training_seconds": training,
        "parameters": parameters(test),
        "rows_per_second": len(here.people) / median(seconds[1:]),
        "columns": here.people.x.shape[1],
    }


def parameters(test: FairnessTest) -> int:
    """Return how many numbers were trained: weights of auxiliaries, generators and their critics, coefficients."""
    auxiliary: Auxiliary | None = getattr(test, "auxiliary", None)
    members: list[Model] = [] if auxiliary is None else [*auxiliary.members]
    if not isinstance(test, Effect):
        return sum(map(_of_member, members))
    maps = [one for each in test.fitted for one in each]
    moves = [
        one.model for one in maps if isinstance(one, MoveMap) and one.model is not None
    ]  # trained for the map alone
    gans = sum(_of_gan(one) for one in maps if isinstance(one, GanMap))
    return gans + sum(map(_of_member, [*moves, *(members if test.aligned else [])]))


def _of_member(member: Model) -> int:
    if isinstance(member, LinearMember):
        return member.weights.numel() + member.bias.numel()
    assert isinstance(member, AuxiliaryMember)
    return sum(parameter.numel() for parameter in member.net.parameters())


def _of_gan(one: GanMap) -> int:
    """Return the weights of all generators and of the critics, which are not kept, that they were trained against."""
    assert one.fitted is not None
    critic = MLP(len(one.fitted.columns), 1, width=one.width, depth=one.depth)
    generators = sum(p.numel() for net in one.fitted.generators.values() for p in net.parameters())
    return generators + len(one.fitted.generators) * sum(p.numel() for p in critic.parameters())


def costs_section(plan: Costs, table: Table1, found: Found) -> dict[str, Any]:
    """Return what each test costs, and on whom that was measured."""
    parts = {test: found[_name(test)] for test in plan.tests}
    return {
        "setting": plan.setting,
        "columns": next(iter(parts.values()))["columns"],
        "fitting_rows": table.rows.fitting,
        "scored_rows": table.rows.test,
        "target": str(table.targets[0]),
        "device": "cpu, one thread",
        "tests": {test: {k: v for k, v in part.items() if k != "columns"} for test, part in parts.items()},
    }
