"""Whether `compare` ranks targets by how much they hide: plain, floor 0.5, floor 3 on Adult, with several seeds.

What is compared is the mean |effect| of the test `rank` on the same people by the same maps, each target with the next
one that hides more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from real_data import Floor, Ground, floor_name, load_targets, targets_job
from runner import Experiment, Found, Job, named
from trials import Folders
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.fairtests.effect import Effect
from fairfox.fairtests.registry import FAIR_TESTS, make_test
from fairfox.nets.adversarial import HidingSettings
from fairfox.verdicts.comparing import B, Seen, compare_people

TEST = "rank"


@dataclass(frozen=True)
class CompareFloors:
    """Which targets on how many people: those that hide more come later."""

    table: str = "adult"
    rows: int = 6_000
    floors: tuple[Floor, ...] = (None, 0.5, 3.0)
    seeds: int = 5
    refits: int = 5
    hiding: HidingSettings | None = None  # the usual ones


FULL = CompareFloors()
QUICK = CompareFloors(rows=900, seeds=2, refits=3, hiding=HidingSettings(epochs=4, batch_size=32, decay=0.2))


def jobs(plan: CompareFloors, seed: int) -> list[Job]:
    """Return one job per seed, after the one that trains its targets."""
    grounds = [Ground(plan.table, number, seed, plan.rows) for number in range(plan.seeds)]
    return [
        Job(
            f"compare-{ground.name}",
            compared,
            (ground, plan.floors, plan.refits),
            after=(targets_job(ground, plan.floors, plan.hiding),),
        )
        for ground in grounds
    ]


def compared(
    folder: Path, needed: Folders, ground: Ground, floors: Sequence[Floor], refits: int
) -> list[dict[str, Any]]:
    """Return each target beside the next one that hides more, on people none of them has seen, by the same maps."""
    fitting, people = ground.people()
    seed, delta = ground.seed_for("maps"), FAIR_TESTS[TEST].delta
    test = make_test(TEST, refits=refits, seed=seed).fit(fitting)
    assert isinstance(test, Effect)
    seen = []
    for model in load_targets(needed[0], floors):
        found = test.measure(model, people, rows=False)
        kept = ~found.abstained
        scores = found.score[kept].double().numpy()
        seen.append(Seen(found.refits[kept].double().numpy(), scores, scores > delta))
    out = []
    for (less, a), (more, b) in pairwise(zip(floors, seen, strict=True)):
        pair = compare_people(a, b, delta=delta, folds=None, seed=seed)
        out.append({"a": floor_name(less), "b": floor_name(more), "word": pair.word, "why": pair.why, **asdict(pair)})
    return out


def gather(plan: CompareFloors, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return every comparison of every seed, and what they have to show."""
    results = [
        {"seed": number, **one}
        for number in range(plan.seeds)
        for one in found[f"compare-{Ground(plan.table, number, about['seed']).name}"]
    ]
    return {"results": results, "bars": [] if about["quick"] else bars(results)}


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown: the order in every seed, and how often a comparison alone is sure of it."""
    seeds = list(dict.fromkeys(one["seed"] for one in results))
    ordered = [seed for seed in seeds if all(one["difference"]["value"] < 0 for one in results if one["seed"] == seed)]
    order = " > ".join(dict.fromkeys(name for one in results for name in (one["a"], one["b"])))
    sure = sum(one["word"] == B for one in results)
    return [
        bar(f"mean effect: {order} in every seed", f"{len(ordered)} of {len(seeds)}", len(ordered) == len(seeds)),
        bar(
            "every comparison says that the one that hides more is fairer",
            f"{sure} of {len(results)}",
            sure == len(results),
        ),
    ]


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    heads = ["seed", "A", "B", "mean effect: A", "B", "B less A", "95 % interval", "over delta: A", "B"]
    heads += ["less unequal with B", "verdict"]
    rows = []
    for one in found["results"]:
        d = one["difference"]
        means = [f"{value:.4f}" for value in (*one["means"], d["value"])]
        shares = [f"{value:.1%}" for value in (*one["shares"], one["less"])]
        rows.append(
            [
                str(one["seed"]),
                one["a"],
                one["b"],
                *means,
                f"{d['lower']:.4f} to {d['upper']:.4f}",
                *shares,
                one["word"],
            ]
        )
    return "\n\n".join([markdown_table(heads, rows), table_of_bars(found)]).rstrip()


def narrow(plan: CompareFloors, names: Sequence[str]) -> CompareFloors:
    """Return the plan for some of the targets."""
    return replace(plan, floors=named("target", {floor_name(floor): floor for floor in plan.floors}, names))


EXPERIMENT: Experiment[CompareFloors] = Experiment(
    name="compare_floors",
    description="Targets that hide more and less, ranked by compare on Adult. --only names targets.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
