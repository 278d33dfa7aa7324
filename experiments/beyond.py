"""Beyond the paper: every fairness test and map on every world whose truth is known, from no bias to all of it.

The eight settings of Table 1, the same pairs of tables at bias 0.25, fusions with wdbc, and causal worlds. In each,
several draws of people, targets and an auxiliary; what a test says of an unfair target is held against the truth, and
against what it says of a target that cannot treat anyone unfairly. --only names batches of methods.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from beyond_methods import BATCHES, scores_of
from beyond_report import report, show  # noqa: F401  # the runner wants to show results
from causal_worlds import WORLDS
from runner import Experiment, Folders, Found, Job, pick
from scoring import fair_over_unfair, judge_known
from settings import SETTINGS, TARGETS, Rows, Setting, Shape, Sources, Target
from torch import Tensor
from trials import seed_of
from wording import rounded
from worlds import Draw, Ground, World, ground_job, load_ground

from fairfox.benchmark.truth import individual_fairness_score

WEAK = 0.25  # the bias at which the paper's tests lose their footing
ADDITIVE = ("additive", "additive, skewed", "additive, long tails")
MIXED = ("lending", "categorical proxies", "heavy tails")  # categories, unequal spreads, ability as a common cause


def _fused(c: str, y: str, fusion: Any, family: str, bias: float) -> World:
    name = f"{c}-{y}-{fusion}"
    return World(name, family, bias, Setting(name, c, y, fusion, bias))


PAIRS = (("magic", "backache"), ("australian", "credit"))
OF_WDBC = (("wdbc", "credit", "concat"), ("magic", "wdbc", "concat"), ("magic", "wdbc", "outer"))  # 5 880 columns left
FUSED = (
    *(World(setting.name, "settings", setting.bias, setting) for setting in SETTINGS),
    *(_fused(*pair, fusion, "settings", WEAK) for pair in PAIRS for fusion in ("outer", "concat")),
    *(_fused(*three, "wdbc", bias) for three in OF_WDBC for bias in (WEAK, 1.0)),
)


@dataclass(frozen=True)
class Beyond:
    """Which worlds, how many draws of each, and which batches of methods."""

    fused: tuple[World, ...] = FUSED
    causal: tuple[str, ...] = tuple(WORLDS)
    biases: tuple[float, ...] = (0.0, WEAK, 1.0)  # of causal worlds
    draws: int = 2
    batches: tuple[str, ...] = tuple(BATCHES)
    rows: Rows = Rows(10_000, 2_000, 2_500)  # noqa: RUF009
    wide_rows: Rows = Rows(4_000, 1_000, 1_500)  # noqa: RUF009  # of wdbc multiplied out: 2 400 columns
    causal_rows: Rows = Rows(5_000, 1_000, 3_000)  # noqa: RUF009
    targets: tuple[Target, ...] = TARGETS  # in turn
    auxiliary: Shape = Shape(64, 2)  # noqa: RUF009
    sources: Sources = Sources()  # noqa: RUF009
    paired: int = 1_000  # people of each group that transport pairs; it takes the cube of that

    @property
    def worlds(self) -> list[World]:
        """All worlds at all levels of bias."""
        return [*self.fused, *(World(name, family(name), bias) for name in self.causal for bias in self.biases)]

    def draw(self, world: World, number: int, seed: int) -> Draw:
        """Return one of the draws of a world; the same people and networks at every bias, as far as that goes."""
        wide = world.family == "wdbc" and world.fused is not None and world.fused.fusion == "outer"
        rows = self.causal_rows if world.fused is None else self.wide_rows if wide else self.rows
        target = self.targets[number % len(self.targets)]
        return Draw(rows, target, self.auxiliary, number, seed_of(seed, world.name, number))


def family(name: str) -> str:
    """Return which family a causal world belongs to."""
    return "additive" if name in ADDITIVE else "mixed" if name in MIXED else "difficult"


FULL = Beyond()
QUICK = Beyond(
    fused=(FUSED[3],),
    causal=("additive", "lending"),
    biases=(0.0, WEAK, 1.0),
    draws=1,
    rows=Rows(800, 200, 250),
    causal_rows=Rows(800, 200, 250),
    sources=Sources(rows=800, steps=100, pairs=200, models=1),
    paired=200,
)


def jobs(plan: Beyond, seed: int) -> list[Job]:
    """Return a job for each world, draw and batch of methods, after the one that makes the ground."""
    return [
        _scoring_job(plan, world, number, batch, seed)
        for world in plan.worlds
        for number in range(plan.draws)
        for batch in plan.batches
    ]


def _scoring_job(plan: Beyond, world: World, number: int, batch: str, seed: int) -> Job:
    how = plan.draw(world, number, seed)
    ground = ground_job(world, how, plan.sources, seed)
    arguments = (world, how, tuple(BATCHES[batch]), plan.paired)
    outer = world.fused is not None and world.fused.fusion == "outer"
    after = (ground, *ground.after[:1])
    return Job(_name(world, number, batch), score_batch, arguments, after, seconds=60 if outer else 8)


def _name(world: World, number: int, batch: str) -> str:
    return f"beyond-{world.place}-{number}-{batch}"


def score_batch(
    folder: Path, needed: Folders, world: World, how: Draw, names: Sequence[str], paired: int
) -> dict[str, Any]:
    """Return how good each method is on one ground."""
    on = load_ground(needed, world, how)
    return {name: numbers(on, scores) for name, scores in scores_of(names, on, paired).items()}


def numbers(on: Ground, scores: Sequence[Tensor]) -> dict[str, float | None]:
    """Return how good a method's scores of both targets are; None where a number has no meaning.

    AP over both targets' people, rho inside the unfair one, the mean score over the mean true score (units), the fair
    target's mean score over the unfair one's (fair), and the unfair one's mean score itself.
    """
    judged = judge_known(on.models, scores, on.trial)
    unfair = float(scores[0][scores[0].isfinite()].double().mean())
    truth = float(individual_fairness_score(on.models[0], on.people).double().mean())
    found = {
        "ap": judged.ap,
        "rho": judged.rho,
        "units": unfair / truth if truth else None,
        "fair": fair_over_unfair(*scores),
        "mean": unfair,
    }
    return {name: value if value is not None and isfinite(value) else None for name, value in found.items()}


def gather(plan: Beyond, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return every world's numbers for each draw, and what they add up to."""
    results: list[dict[str, Any]] = []
    for world in plan.worlds:
        of_draws = [
            {name: one for batch in plan.batches for name, one in found[_name(world, number, batch)].items()}
            for number in range(plan.draws)
        ]
        for method in of_draws[0]:
            each = [own[method] for own in of_draws]
            entry = {"world": world.name, "family": world.family, "bias": world.bias, "method": method}
            results.append(entry | {name: [rounded(one[name]) for one in each] for name in each[0]})
    return {"results": results} | report(results, full=not about["quick"])


narrow = pick("batches", "batch of methods")
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
