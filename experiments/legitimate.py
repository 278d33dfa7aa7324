"""How much of the score is gone once what carries the effect is legitimate: all of it, half of it, none of it.

In causal worlds it is known which part of the effect goes through legitimate columns, and so how far the score of the
same target should fall. It is measured by how many people the map learns from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from legitimate_worlds import PLACES, STRENGTHS, SampledWorld
from runner import Experiment, Folders, Found, Job, pick
from settings import Shape
from torch import Tensor
from trials import seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.benchmark.truth import train_target
from fairfox.data.dataset import Dataset
from fairfox.fairtests.protocol import CounterfactualTest
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model

EXPECTED = {"whole": 1.0, "half": 0.5, "none": 0.0}  # the fall
LIMITS = {"whole": (0.95, 1.0), "half": (0.45, 0.55), "none": (-0.1, 0.1)}  # what it has to lie between


@dataclass(frozen=True)
class Falls:
    """Which worlds, how often, and how many people."""

    worlds: tuple[str, ...]
    sizes: tuple[int, ...]  # how many people tests learn from
    seeds: int
    size: int  # the number of people that has to do, also for the target
    people: int  # who are judged
    refits: int
    target: Shape = Shape(16, 1)  # noqa: RUF009


FULL = Falls(tuple(PLACES), (1_000, 5_000), seeds=5, size=5_000, people=2_000, refits=1)
QUICK = Falls(("outside", "a number"), (400,), seeds=2, size=400, people=200, refits=1)


def jobs(plan: Falls, seed: int) -> list[Job]:
    """Return one job per world, part of the effect and draw."""
    size = replace(plan, worlds=(), seeds=0)  # all that decides a job's result
    return [
        Job(_name(world, grade, draw), falls_of, (world, grade, size, seed_of(seed, world, draw)))
        for world, grade, draw in _places(plan)
    ]


def _places(plan: Falls) -> Iterator[tuple[str, str, int]]:
    yield from ((world, grade, draw) for world in plan.worlds for grade in STRENGTHS for draw in range(plan.seeds))


def _name(world: str, grade: str, draw: int) -> str:
    return f"legitimate-{world.replace(' ', '_')}-{grade}-{draw}"


def falls_of(folder: Path, needed: Folders, world: str, grade: str, size: Falls, seed: int) -> dict[str, Any]:
    """Return the mean score without and with legitimate columns, as `rank` and as the causal model has it."""
    place = PLACES[world]
    known = SampledWorld.of(place, grade, max(size.size, *size.sizes), size.people, seed=seed)
    model = train_target(known.fitting[: size.size], width=size.target.width, depth=size.target.depth, seed=seed)
    truth, left = known.true_score(model), known.true_score(model, place.legitimate)
    found: dict[str, Any] = {"truth": _means(truth, left, ~truth.isnan())}
    for n in size.sizes:
        found[str(n)] = _scored(model, known.fitting[:n], known.people, place.legitimate, size.refits, seed)
    return found


def _scored(
    model: Model, fitting: Dataset, people: Dataset, legitimate: Sequence[str], refits: int, seed: int
) -> dict[str, float]:
    """Return the mean scores of those who are judged without legitimate columns and with them."""
    each = []
    for names in ((), legitimate):
        test = make_test("rank", given=names, refits=refits, seed=seed).fit(fitting)
        assert isinstance(test, CounterfactualTest)
        each.append(test.measure(model, people, rows=False))
    without, held = each
    return _means(without.score, held.score, ~(without.abstained | held.abstained))


def _means(without: Tensor, held: Tensor, judged: Tensor) -> dict[str, float]:
    before, after = (float(score[judged].double().mean()) for score in (without, held))
    return {"without": before, "with": after, "fall": 1 - after / before, "judged": float(judged.double().mean())}


def gather(plan: Falls, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the falls over the draws, beside those of the causal model, and the bars."""
    results = []
    for world in plan.worlds:
        for grade in STRENGTHS:
            draws = [found[_name(world, grade, draw)] for draw in range(plan.seeds)]
            truth = [one["truth"] for one in draws]
            for n in plan.sizes:
                own = over_draws(grade, [one[str(n)] for one in draws], truth)
                results.append({"world": world, "legitimate": grade, "people": n} | own)
    return {"results": results, "bars": [] if about["quick"] else bars(results, plan.size)}


def over_draws(
    grade: str, measured: Sequence[Mapping[str, float]], truth: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Return mean, spread and worst of the falls, the true one, and the mean score without legitimate columns."""
    falls = [one["fall"] for one in measured]
    return {
        "fall": round(fmean(falls), 4),
        "std": round(stdev(falls), 4),
        "worst": round(max(falls, key=lambda fall: abs(fall - EXPECTED[grade])), 4),
        "true fall": round(fmean(one["fall"] for one in truth), 4),
        "score": round(fmean(one["without"] for one in measured), 4),
        "true score": round(fmean(one["without"] for one in truth), 4),
        "judged": round(fmean(one["judged"] for one in measured), 4),
    }


def bars(results: Sequence[Mapping[str, Any]], size: int) -> list[dict[str, Any]]:
    """Return what has to be shown with so many people to learn from."""
    words = {
        "whole": "the whole effect is legitimate: the score falls by at least 95 %",
        "half": "half of the effect is: by 45 to 55 %",
        "none": "none of it is: by less than 10 % either way",
    }
    out = []
    for grade, what in words.items():
        own = {one["world"]: one for one in results if (one["legitimate"], one["people"]) == (grade, size)}
        low, high = LIMITS[grade]
        value = {world: [one["fall"], one["worst"]] for world, one in own.items()}
        holds = all(low <= one["fall"] <= high for one in own.values())
        out.append(bar(f"{what} (mean and worst seed, each world)", value, holds))
    return out


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    return "\n\n".join([_table(found["results"]), table_of_bars(found)]).rstrip()


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world and part of the effect: the true fall and that with every number of people."""
    sizes = sorted({one["people"] for one in results})
    heads = ["world", "legitimate", "true fall", *(f"{n} people" for n in sizes), "score", "true score"]
    lines: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for one in results:
        lines.setdefault((one["world"], one["legitimate"]), {})[one["people"]] = one
    rows = []
    for (world, grade), own in lines.items():
        cells = [f"{own[n]['fall']:.3f} ({own[n]['worst']:.3f})" if n in own else "" for n in sizes]
        last = own[max(own)]
        numbers = [f"{last[name]:.3f}" for name in ("score", "true score")]
        rows.append([world, grade, f"{last['true fall']:.3f}", *cells, *numbers])
    return markdown_table(heads, rows)


narrow = pick("worlds", "world")
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
