"""How much of the score is gone once what carries the effect is legitimate: all of it, half of it, none of it.

In causal worlds it is known which part of the effect goes through legitimate columns, and so how far the score of the
same target should fall. It is measured by how many people the map learns from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from legitimate_worlds import PLACES, STRENGTHS, Known
from runner import Experiment, Found, Job, named
from settings import Shape
from torch import Tensor
from trials import Folders, seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.protocol import CounterfactualTest
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model
from fairfox.synthetic.targets import TargetTraining, train_target

EXPECTED = {"whole": 1.0, "half": 0.5, "none": 0.0}  # the fall
LIMITS = {"whole": (0.9, 1.0), "half": (0.4, 0.6), "none": (-0.1, 0.1)}  # what it has to lie between
TARGET = TargetTraining(decay=0.0)  # a target need not keep away from c by itself


@dataclass(frozen=True)
class Method:
    """A fairness test with its options, and the numbers of people it learns from."""

    name: str
    test: str
    sizes: tuple[int, ...]
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Falls:
    """Which worlds, which methods, how often, and how many people."""

    worlds: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: int
    size: int  # the number of people that has to do, also for the target
    people: int  # who are judged
    refits: int
    target: Shape = Shape(16, 1)  # noqa: RUF009

    @property
    def largest(self) -> int:
        """The most people anything learns from."""
        return max(self.size, *(size for method in self.methods for size in method.sizes))


def _methods(size: int, *others: int) -> tuple[Method, ...]:
    """Return the rank map and the move map."""
    every = tuple(sorted((size, *others)))
    return Method("rank", "rank", every), Method("move", "move", every)


FULL = Falls(tuple(PLACES), _methods(5_000, 1_000, 20_000), seeds=10, size=5_000, people=2_000, refits=1)
QUICK = Falls(("numbers", "a number"), _methods(400), seeds=2, size=400, people=200, refits=1)


def jobs(plan: Falls, seed: int) -> list[Job]:
    """Return one job per world, part of the effect and draw."""
    settings = (plan.methods, plan.size, plan.largest, plan.people, plan.refits, plan.target)
    return [
        Job(_name(world, grade, draw), falls_of, (world, grade, *settings, seed_of(seed, world, draw)))
        for world, grade, draw in _places(plan)
    ]


def _places(plan: Falls) -> Iterator[tuple[str, str, int]]:
    yield from ((world, grade, draw) for world in plan.worlds for grade in STRENGTHS for draw in range(plan.seeds))


def _name(world: str, grade: str, draw: int) -> str:
    return f"legitimate-{world.replace(' ', '_')}-{grade}-{draw}"


def falls_of(
    folder: Path,
    needed: Folders,
    world: str,
    grade: str,
    methods: Sequence[Method],
    size: int,
    largest: int,
    people: int,
    refits: int,
    target: Shape,
    seed: int,
) -> dict[str, Any]:
    """Return the mean score without and with legitimate columns, as each method and as the causal model has it."""
    place = PLACES[world]
    known = Known.of(place.at(grade), largest, people, seed=seed)
    model = train_target(known.fitting[:size], width=target.width, depth=target.depth, seed=seed, training=TARGET)
    truth, left = known.true_score(model), known.true_score(model, place.legitimate)
    found: dict[str, Any] = {"truth": _means(truth, left, ~truth.isnan())}
    auxiliaries: dict[int, Auxiliary] = {}
    for method in methods:
        for n in method.sizes:
            data = known.fitting[:n]
            if method.test == "move" and n not in auxiliaries:
                trained = AuxiliaryModel(refits=refits, seed=seed).fit(data)
                auxiliaries[n] = FixedAuxiliary(trained.members, trained.held_out)
            found[f"{method.name}-{n}"] = _scored(
                method, model, data, known.people, place.legitimate, auxiliaries.get(n), refits, seed
            )
    return found


def _scored(
    method: Method,
    model: Model,
    fitting: Dataset,
    people: Dataset,
    legitimate: Sequence[str],
    auxiliary: Auxiliary | None,
    refits: int,
    seed: int,
) -> dict[str, float]:
    """Return the mean scores of those who are judged without legitimate columns and with them."""
    options: dict[str, Any] = {"options": method.options, "refits": refits, "seed": seed, "auxiliary": auxiliary}
    each = []
    for names in ((), legitimate):
        test = make_test(method.test, legitimate=names, **options).fit(fitting)
        assert isinstance(test, CounterfactualTest)
        each.append(test.measure(model, people, rows=False))
    without, held = each
    return _means(without.score, held.score, ~(without.abstained | held.abstained))


def _means(without: Tensor, held: Tensor, judged: Tensor) -> dict[str, float]:
    before, after = (float(score[judged].double().mean()) for score in (without, held))
    return {"without": before, "with": after, "fall": 1 - after / before, "judged": float(judged.double().mean())}


def gather(plan: Falls, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return each method's falls over the draws, beside those of the causal model, and the bars."""
    results = []
    for world in plan.worlds:
        for grade in STRENGTHS:
            draws = [found[_name(world, grade, draw)] for draw in range(plan.seeds)]
            truth = [one["truth"] for one in draws]
            for method in plan.methods:
                for n in method.sizes:
                    own = over_draws(grade, [one[f"{method.name}-{n}"] for one in draws], truth)
                    results.append({"world": world, "legitimate": grade, "method": method.name, "people": n} | own)
    return {"results": results, "bars": [] if about["quick"] else bars(results, plan.size)}


def over_draws(
    grade: str, measured: Sequence[Mapping[str, float]], truth: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Return mean, spread and worst of the falls, the true one, and the mean score without legitimate columns."""
    falls = [one["fall"] for one in measured]
    return {
        "fall": _rounded(fmean(falls)),
        "std": _rounded(stdev(falls)),
        "worst": _rounded(max(falls, key=lambda fall: abs(fall - EXPECTED[grade]))),
        "true fall": _rounded(fmean(one["fall"] for one in truth)),
        "score": _rounded(fmean(one["without"] for one in measured)),
        "true score": _rounded(fmean(one["without"] for one in truth)),
        "judged": _rounded(fmean(one["judged"] for one in measured)),
    }


def bars(results: Sequence[Mapping[str, Any]], size: int) -> list[dict[str, Any]]:
    """Return what has to be shown with so many people to learn from, for each method."""
    words = {
        "whole": "the whole effect is legitimate: the score falls by at least 90 %",
        "half": "half of the effect is: by 40 to 60 %",
        "none": "none of it is: by less than 10 % either way",
    }
    out = []
    for method in dict.fromkeys(one["method"] for one in results):
        for grade, what in words.items():
            own = {
                one["world"]: one
                for one in results
                if (one["method"], one["legitimate"], one["people"]) == (method, grade, size)
            }
            low, high = LIMITS[grade]
            value = {world: [one["fall"], one["worst"]] for world, one in own.items()}
            holds = all(low <= one["fall"] <= high for one in own.values())
            out.append(bar(f"{method}: {what} (mean and worst seed, each world)", value, holds))
    return out


def _rounded(value: float) -> float:
    return round(value, 4)


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    return "\n\n".join([_table(found["results"]), table_of_bars(found)]).rstrip()


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world, part of the effect and method: the true fall and that with every number of people."""
    sizes = sorted({one["people"] for one in results})
    heads = ["world", "legitimate", "true fall", "method", *(f"{n} people" for n in sizes), "score", "true score"]
    lines: dict[tuple[str, str, str], dict[int, Mapping[str, Any]]] = {}
    for one in results:
        lines.setdefault((one["world"], one["legitimate"], one["method"]), {})[one["people"]] = one
    rows = []
    for (world, grade, method), own in lines.items():
        cells = [f"{own[n]['fall']:.3f} ({own[n]['worst']:.3f})" if n in own else "" for n in sizes]
        last = own[max(own)]
        numbers = [f"{last[name]:.3f}" for name in ("score", "true score")]
        rows.append([world, grade, f"{last['true fall']:.3f}", f"`{method}`", *cells, *numbers])
    return markdown_table(heads, rows)


def narrow(plan: Falls, names: Sequence[str]) -> Falls:
    """Return the plan for some of the worlds."""
    return replace(plan, worlds=named("world", {world: world for world in plan.worlds}, names))


EXPERIMENT: Experiment[Falls] = Experiment(
    name="legitimate",
    description="How far the score falls once what carries the effect is legitimate. --only names worlds.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
