"""Whether `plan` says how often an audit will find an effect: planned power beside that of many audits.

In causal worlds the true mean |effect| of a model is known. Pilots of some people say how far a mean scatters, and from
that how often an audit of n people finds the true mean above a limit; then many audits of n new people each are made,
and those that find it are counted. An audit here is what `fairfox.audit` does to get its scores with the test `rank`,
without its further readings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from runner import Experiment, Found, Job, named
from settings import Shape
from trials import Folders, seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.data.dataset import Dataset, assign_folds
from fairfox.fairtests.protocol import join
from fairfox.fairtests.registry import FAIR_TESTS, make_test
from fairfox.models.protocol import Model
from fairfox.planning import spread_of_mean
from fairfox.synthetic.graded import WORLDS, draw
from fairfox.synthetic.targets import TargetTraining, train_target
from fairfox.synthetic.truth import individual_fairness_score
from fairfox.verdicts.drifting import Scores
from fairfox.verdicts.estimates import errors_of_intervals
from fairfox.verdicts.power import LEVEL, p_above, power

TEST = "rank"
CLOSE = 0.1  # between planned and measured power
PLAIN = TargetTraining(batch_size=64, decay=0.0)


@dataclass(frozen=True)
class Power:
    """Which worlds, how large pilots and audits are, and how many of them are made."""

    worlds: tuple[str, ...] = ("additive", "lending")
    sizes: tuple[int, ...] = (100, 200, 400)  # people of an audit
    audits: int = 150
    pilots: int = 10
    pilot: int = 500  # people
    limit: float = 2 / 3  # times the true mean |effect|
    refits: int = 5
    folds: int = 5
    people: int = 20_000  # the truth is taken over, and audits draw from
    training: int = 4_000  # people the model learns from
    shape: Shape = Shape(16, 1)  # noqa: RUF009


FULL = Power()
QUICK = Power(
    worlds=("additive",), sizes=(100, 200), audits=6, pilots=2, pilot=200, refits=3, people=2_000, training=800
)


def jobs(plan: Power, seed: int) -> list[Job]:
    """Return one job per world."""
    return [Job(f"power-{world}", measured, (world, plan, seed_of(seed, world))) for world in plan.worlds]


def measured(folder: Path, needed: Folders, world: str, plan: Power, seed: int) -> dict[str, Any]:
    """Return the truth of a world, the spreads that pilots saw, and for each size how often audits found the effect."""
    drawn = draw(WORLDS[world].at(1.0), plan.training, plan.people, seed=seed % 2**31)
    model = train_target(
        drawn.fitting, width=plan.shape.width, depth=plan.shape.depth, seed=seed % 2**31, training=PLAIN
    )
    truth = float(individual_fairness_score(model, drawn.people).double().mean())
    generator = torch.Generator().manual_seed(seed)

    def audits(count: int, people: int) -> list[Scores]:
        chosen = (torch.randperm(len(drawn.people), generator=generator)[:people] for _ in range(count))
        return [
            audited(model, drawn.people[rows], refits=plan.refits, folds=plan.folds, seed=number)
            for number, rows in enumerate(chosen)
        ]

    pilots = [spread_of_mean(one) for one in audits(plan.pilots, plan.pilot)]
    return {
        "truth": truth,
        "spreads": pilots,
        "sizes": [_size(audits(plan.audits, n), n, truth, plan) for n in plan.sizes],
    }


def audited(model: Model, people: Dataset, *, refits: int, folds: int, seed: int) -> Scores:
    """Return the scores of an audit of these people by the test `rank`, cross-fitted as `fairfox.audit` does it."""
    fold = assign_folds(people.c, folds, seed=seed)
    places = [(fold == k).nonzero()[:, 0] for k in range(folds)]
    parts = []
    for k, rows in enumerate(places):
        test = make_test(TEST, refits=refits, seed=seed + k).fit(people[(fold != k).nonzero()[:, 0]])
        parts.append(test.measure(model, people[rows]))
    found, delta = join(parts, places, len(people)), FAIR_TESTS[TEST].delta
    assert found.interval is not None
    lower, upper = found.interval.double().numpy().T
    scores = found.score.double().numpy()
    return Scores(scores, errors_of_intervals(lower, upper, refits), scores > delta, delta, refits, folds)


def _size(each: Sequence[Scores], people: int, truth: float, plan: Power) -> dict[str, Any]:
    errors = [spread_of_mean(one) / people**0.5 for one in each]
    means = [float(one.scores.mean()) for one in each]
    pairs = list(zip(means, errors, strict=True))
    return {
        "people": people,
        "mean": fmean(means),
        "scatter": float(torch.tensor(means, dtype=torch.float64).std()),
        "error": fmean(errors),  # what audits say of the scatter
        "found": fmean(p_above(mean, error, plan.limit * truth) < LEVEL for mean, error in pairs),
        "found_at_limit": fmean(p_above(mean, error, truth) < LEVEL for mean, error in pairs),  # the limit is the truth
    }


def gather(plan: Power, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return planned and measured power of each world and size, and what they have to show."""
    results = []
    for world in plan.worlds:
        own = found[f"power-{world}"]
        for size in own["sizes"]:
            planned = [
                power(own["truth"], plan.limit * own["truth"], spread, size["people"]) for spread in own["spreads"]
            ]
            results.append(
                {"world": world, "truth": own["truth"], "limit": plan.limit * own["truth"], **size}
                | {"planned": fmean(planned), "planned_least": min(planned), "planned_most": max(planned)}
                | {"pilots_close": sum(abs(one - size["found"]) <= CLOSE for one in planned), "pilots": len(planned)}
            )
    return {"results": results, "bars": [] if about["quick"] else bars(results)}


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown."""
    off = {f"{one['world']}, {one['people']} people": one["planned"] - one["found"] for one in results}
    false = {f"{one['world']}, {one['people']} people": one["found_at_limit"] for one in results}
    return [
        bar(
            f"planned power, mean over the pilots, within {CLOSE:g} of measured power at every size",
            off,
            _within(off.values()),
        ),
        bar(
            "an effect of exactly the limit is found in at most a tenth of audits (asked for: a twentieth)",
            false,
            all(share <= 0.1 for share in false.values()),
        ),
    ]


def _within(values: Any) -> bool:
    return all(abs(value) <= CLOSE for value in values)


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    heads = ["world", "people", "true mean effect", "limit", "mean found", "its scatter", "its error, as audits say"]
    heads += [
        "found above the limit",
        "planned",
        "by single pilots",
        f"of them within {CLOSE:g}",
        "found where the limit is the truth",
    ]
    rows = [
        [one["world"], str(one["people"])]
        + [f"{one[name]:.4f}" for name in ("truth", "limit", "mean", "scatter", "error")]
        + [f"{one['found']:.0%}", f"{one['planned']:.0%}"]
        + [f"{one['planned_least']:.0%} to {one['planned_most']:.0%}", f"{one['pilots_close']} of {one['pilots']}"]
        + [f"{one['found_at_limit']:.0%}"]
        for one in found["results"]
    ]
    return "\n\n".join([markdown_table(heads, rows), table_of_bars(found)]).rstrip()


def narrow(plan: Power, names: Sequence[str]) -> Power:
    """Return the plan for some of the worlds."""
    return replace(plan, worlds=named("world", {world: world for world in plan.worlds}, names))


EXPERIMENT: Experiment[Power] = Experiment(
    name="power",
    description="Planned power beside that of many audits in causal worlds. --only names worlds.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
