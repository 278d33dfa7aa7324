"""How much of the score is gone once what carries the effect is legitimate: all of it, half of it, none of it.

In causal worlds it is known which part of the effect goes through legitimate columns, and so how far the score of the
same target should fall. It is measured by how many people the map learns from. Hours (or education, or both) are
legitimate. The protected variable acts on them, and past them on the other columns; `through` and `past` say how
strongly, from 0 to 1. The other columns follow from the legitimate ones in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from causal_worlds import encoded
from runner import Folders, Found, Job
from settings import Shape
from torch import Tensor
from trials import seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.benchmark.scm import (
    SEX,
    Mechanism,
    Population,
    Values,
    Variable,
    World,
    choose,
    happens,
    per_level,
    uniform,
)
from fairfox.benchmark.truth import train_target
from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.data.encoding import Encoding
from fairfox.data.table import load_table
from fairfox.fairtests.protocol import CounterfactualTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.protocol import number_reached
from fairfox.models.protocol import Model, predict

Columns = Mapping[str, Mechanism | Variable]

# How strongly the protected variable acts through the legitimate columns, and past them.
STRENGTHS = {"whole": (1.0, 0.0), "half": (0.5, 0.5), "none": (0.0, 1.0)}


@dataclass(frozen=True)
class Place:
    """A world by strengths, which of its columns are legitimate, and which the model does not take."""

    build: Callable[[float, float], World]
    legitimate: tuple[str, ...] = ("hours",)
    outside: tuple[str, ...] = ()

    def at(self, grade: str) -> World:
        """Return the world in which so much goes through the legitimate columns: `whole`, `half` or `none`."""
        return self.build(*STRENGTHS[grade])


def _world(name: str, first: Variable, variables: Columns, label: Mechanism) -> World:
    """Return the world of a protected variable, of others with normal noise or as they are given, and of `paid`."""
    others = [v if isinstance(v, Variable) else Variable(name, v) for name, v in variables.items()]
    return World(name, (first, *others, Variable("paid", label, uniform)), "paid", (first.name,))


def _by_both(hours: Values, income: Values, noise: Values) -> Values:
    return happens(noise, 0.6 * hours + income - 1.1)


def _numbers(through: float, past: float) -> World:
    """Straight lines, everything a number."""
    columns: Columns = {
        "hours": lambda sex, noise: 1.8 * through * sex + noise,
        "income": lambda sex, hours, noise: 0.4 * hours + 1.8 * past * sex + noise,
    }
    return _world("numbers", SEX, columns, _by_both)


def _outside(through: float, past: float) -> World:
    """Hours are in the table and no input of the model; they pay in full."""
    columns: Columns = {
        "hours": lambda sex, noise: 1.8 * through * sex + noise,
        "income": lambda sex, hours, noise: hours + 1.8 * past * sex + noise,
        "thrift": lambda noise: noise,
    }
    return _world("outside", SEX, columns, lambda income, thrift, noise: happens(noise, 0.8 * income + thrift - 1))


def _bent(through: float, past: float) -> World:
    """Hours pay on a curve, with a spread that grows with them; sex lifts the income of many hours more."""

    def income(sex: Values, hours: Values, noise: Values) -> Values:
        paid = np.sin(1.5 * hours) + 0.3 * hours**2 + 0.5 * hours
        return np.asarray(paid + 2.5 * past * sex * (1 + 0.4 * np.tanh(hours)) + (0.6 + 0.25 * np.tanh(hours)) * noise)

    columns: Columns = {"hours": lambda sex, noise: 1.8 * through * sex + noise, "income": income}
    return _world("bent", SEX, columns, lambda income, noise: happens(noise, 0.9 * (income - 1.5)))


def _leaning(noise: Values, lean: Values) -> Values:
    """Return a category of three (N,), further up the further the lean (N,) is above 0."""
    return choose(noise, np.exp(-lean), 1.0, np.exp(lean))


def _education(lean: float) -> Variable:
    """Return a level of education that leans to one sex."""
    levels = ("low", "middle", "high")
    return Variable("education", lambda sex, noise: _leaning(noise, lean * (sex - 0.5)), uniform, levels)


def _categories(through: float, past: float) -> World:
    """Both the legitimate column and the other one are categories."""
    job = Variable(
        "job",
        lambda sex, education, noise: _leaning(noise, 1.2 * (education - 1) + 4.0 * past * (sex - 0.5)),
        uniform,
        ("clerk", "nurse", "smith"),
    )
    label = lambda education, job, noise: happens(noise, 0.6 * (education - 1) + 1.2 * (job - 1))  # noqa: E731
    return _world("categories", SEX, {"education": _education(2.4 * through), "job": job}, label)


def _several(through: float, past: float) -> World:
    """A category and a number are legitimate and act on income together; income is skewed, days off are counted."""

    def hours(sex: Values, education: Values, noise: Values) -> Values:
        return 1.0 * through * sex + 0.4 * (education - 1) + noise

    def income(sex: Values, education: Values, hours: Values, noise: Values) -> Values:
        return np.asarray(np.exp(0.3 * (hours * (1 + 0.4 * (education - 1)) + 2.0 * past * sex + 0.8 * noise)))

    def days(sex: Values, hours: Values, noise: Values) -> Values:
        return np.maximum(0.0, np.round(2.0 - 0.8 * hours - 1.8 * past * sex + noise))

    def label(education: Values, income: Values, days: Values, noise: Values) -> Values:
        return happens(noise, 2.0 * (income - 1.4) - 0.5 * (days - 1.5) + 0.4 * (education - 1))

    columns: Columns = {"education": _education(1.6 * through), "hours": hours, "income": income, "days": days}
    return _world("several", SEX, columns, label)


RACE = Variable("race", lambda noise: choose(noise, 0.25, 0.3, 0.45), uniform, ("Asian", "Black", "White"))
AGE = Variable("age", lambda noise: 40 + 12 * noise)


def _three_classes(through: float, past: float) -> World:
    """Three classes, straight lines."""
    columns: Columns = {
        "hours": lambda race, noise: through * per_level(race, 1.0, -1.2, 0.0) + noise,
        "income": lambda race, hours, noise: 0.4 * hours + past * per_level(race, 1.0, -1.2, 0.0) + noise,
    }
    return _world("three classes", RACE, columns, lambda hours, income, noise: happens(noise, 0.6 * hours + income))


def _number(through: float, past: float) -> World:
    """A protected number, straight lines."""
    columns: Columns = {
        "hours": lambda age, noise: through * (age - 40) / 12 + noise,
        "income": lambda age, hours, noise: 0.4 * hours + 1.1 * past * (age - 40) / 12 + noise,
    }
    return _world("a number", AGE, columns, lambda hours, income, noise: happens(noise, 0.6 * hours + income))


PLACES: dict[str, Place] = {
    "numbers": Place(_numbers),
    "outside": Place(_outside, outside=("hours",)),
    "bent": Place(_bent),
    "categories": Place(_categories, ("education",)),
    "several": Place(_several, ("education", "hours")),
    "three classes": Place(_three_classes),
    "a number": Place(_number),
}


@dataclass(frozen=True)
class SampledWorld:
    """People of a world, some to learn from and others to be judged, and the way back to where these come from."""

    population: Population  # those who are judged
    encoding: Encoding
    fitting: Dataset
    people: Dataset
    spread: float  # of a protected number, among those to learn from
    values: Tensor  # (n,) of it, in order

    @classmethod
    def of(cls, place: Place, grade: str, fitting: int, people: int, *, seed: int) -> SampledWorld:
        """Return people of a world with one protected variable."""
        world = place.at(grade)
        past, new = (world.sample(n, seed=2 * seed + index) for index, n in enumerate((fitting, people)))
        encoding, fit, judged = encoded(past, new, place.outside)
        own = torch.as_tensor(past.values[past.protected[0]])
        return cls(new, encoding, fit, judged, float(own.std(correction=0)), own.unique())

    def true_score(self, model: Model, held: Sequence[str] = ()) -> Tensor:
        """Return the largest |f(x) - f(x')| of everyone (N,), with some columns held; NaN for who goes nowhere."""
        here = predict(model, self.people.x)
        each = []
        for contrast in moves(self.people.protected):
            to = self._value(destinations(self.people, contrast))
            known = ~to.isnan()
            there = self._rows(torch.where(known, to, self._own()), held)
            each.append(torch.where(known, (predict(model, there) - here).abs(), -torch.inf))
        worst = torch.stack(each).amax(0)
        return torch.where(worst < 0, torch.nan, worst)

    def _own(self) -> Tensor:
        """Return everyone's protected value as mechanisms receive it (N,)."""
        return torch.as_tensor(self.population.values[self.population.protected[0]])

    def _value(self, to: Tensor) -> Tensor:
        """Return where a contrast takes everyone as mechanisms receive it (N,); NaN for nowhere."""
        (p,), (variable,) = self.people.protected, self.population.world.chosen(self.population.protected)
        if p.is_continuous:
            return number_reached(self._own(), to.double() * self.spread, self.values)
        places = torch.tensor([variable.levels.index(level) for level in p.levels], dtype=torch.float64)
        return torch.where(to.isnan(), torch.nan, places[to.nan_to_num().long()])

    def _rows(self, values: Tensor, held: Sequence[str]) -> Tensor:
        """Return everyone's row (N, D) with these protected values and some columns as they were."""
        fixed = {name: self.population.values[name] for name in held}
        changed = fixed | {self.population.protected[0]: values.numpy()}
        world = self.population.world
        return self.encoding.encode(load_table(world.observed(world.evaluate(self.population.noise, changed)))).x


EXPECTED = {"whole": 1.0, "half": 0.5, "none": 0.0}  # the fall
BARS = {  # what it has to lie between, and the words for it
    "whole": (0.95, 1.0, "the whole effect is legitimate: the score falls by at least 95 %"),
    "half": (0.45, 0.55, "half of the effect is: by 45 to 55 %"),
    "none": (-0.1, 0.1, "none of it is: by less than 10 % either way"),
}


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
        for world in plan.worlds
        for grade in STRENGTHS
        for draw in range(plan.seeds)
    ]


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
    for world, grade in product(plan.worlds, STRENGTHS):
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
    out = []
    for grade, (low, high, what) in BARS.items():
        own = {one["world"]: one for one in results if (one["legitimate"], one["people"]) == (grade, size)}
        value = {world: [one["fall"], one["worst"]] for world, one in own.items()}
        holds = all(low <= one["fall"] <= high for one in own.values())
        out.append(bar(f"{what} (mean and worst seed, each world)", value, holds))
    return out


def show(found: dict[str, Any]) -> str:
    """Return a line per world and part of the effect: the true fall and that with every number of people; the bars."""
    results = found["results"]
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
    return f"{markdown_table(heads, rows)}\n\n{table_of_bars(found)}".rstrip()
