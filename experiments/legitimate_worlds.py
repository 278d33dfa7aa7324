"""Causal worlds in which a chosen part of what the protected variable does goes through legitimate columns.

Hours (or education, or both) are legitimate. The protected variable acts on them, and past them on the other columns;
`through` and `past` say how strongly, from 0 to 1. The other columns follow from the legitimate ones in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from causal_worlds import encoded
from torch import Tensor

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
from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.data.encoding import Encoding
from fairfox.data.table import load_table
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
