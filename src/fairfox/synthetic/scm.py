"""Small structural causal models: people whose true counterfactuals are known.

Every variable is a function of its parents and of its own noise. The noise of a person is drawn once; evaluating the
same functions with another protected value and the same noise gives that person as a member of that group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import signature

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fairfox.errors import OptionError, ShapeError

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]
Mechanism = Callable[..., Values]  # (one argument per parent, by name, and `noise`) -> values


def normal(generator: np.random.Generator, n: int) -> Values:
    """Return standard normal noise (n,)."""
    return generator.standard_normal(n)


def uniform(generator: np.random.Generator, n: int) -> Values:
    """Return noise spread evenly over [0, 1) (n,): what a category is chosen by."""
    return generator.random(n)


def student(generator: np.random.Generator, n: int) -> Values:
    """Return heavy-tailed noise (n,): Student's t with four degrees of freedom."""
    return generator.standard_t(4, n)


def choose(noise: Values, *weights: Values | float) -> Values:
    """Return the index of a category per person (N,): the one whose share of [0, 1) holds the person's noise.

    One weight per category, each a number or one value per person; they need not sum to one. Because the noise is
    fixed, a person keeps the category unless its share moves away: the counterfactual is a value, not a lottery.
    """
    shares = np.stack([np.broadcast_to(w, noise.shape) for w in weights])  # (L, N)
    upper = np.cumsum(shares, axis=0) / shares.sum(axis=0)
    return np.asarray((noise >= upper[:-1]).sum(axis=0), dtype=np.float64)


def sigmoid(z: Values) -> Values:
    """Return the logistic function of z."""
    return 1.0 / (1.0 + np.exp(-z))


@dataclass(frozen=True)
class Variable:
    """One variable of a world: the mechanism it comes from and the noise that is its own.

    The mechanism is a function whose arguments are named after the variable's parents, besides its own `noise`. With
    `levels` the variable is a category and the mechanism returns indices into them. A `latent` variable acts on others
    and is never observed.
    """

    name: str
    mechanism: Mechanism
    noise: Noise = normal
    levels: tuple[str, ...] = ()
    latent: bool = False

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables it depends on."""
        return tuple(name for name in signature(self.mechanism).parameters if name != "noise")

    def given(self, values: str | float | ArrayLike, n: int) -> Values:
        """Return n values as mechanisms receive them, from one for everyone or one each: numbers, levels by name."""
        found = np.asarray(values)
        if found.ndim and found.shape != (n,):
            raise ShapeError(f"{len(found)} values of '{self.name}' for {n} people; give one for all or one each")
        if self.levels:
            equal = found.astype(str)[..., None] == np.asarray(self.levels)  # (N, L), or (L,) for everyone
            if len(unknown := found[~equal.any(-1)]):
                raise OptionError(f"'{self.name}' is never '{unknown[0]}'; its levels are {', '.join(self.levels)}")
            found = equal.argmax(-1)
        return np.broadcast_to(found.astype(np.float64), (n,))


@dataclass(frozen=True)
class Population:
    """People sampled from a world, and the same people, row by row, with other protected values.

    Example:
        >>> people = LENDING.sample(1000, seed=0)
        >>> set(people.as_if({"sex": "Male"})["sex"].to_pylist())
        {'Male'}
    """

    world: World
    noise: Mapping[str, Values]  # what is each person's own

    def __len__(self) -> int:
        return len(self.noise[self.label])

    @cached_property
    def values(self) -> dict[str, Values]:
        """Every variable of everyone as they are, latent ones too; categories as indices."""
        return self.world.evaluate(self.noise)

    @cached_property
    def table(self) -> pa.Table:
        """Everyone as they are: the observed variables."""
        return self.world.observed(self.values)

    @cached_property
    def counterfactual(self) -> pa.Table:
        """Everyone as a member of the other group, in a world whose one protected variable has two."""
        first, *more = self.world.chosen(self.protected)
        if more or len(first.levels) != 2:
            raise OptionError(f"The world '{self.world.name}' has no single other group; ask as_if for one")
        return self.as_if({first.name: _names(1.0 - self.values[first.name], first.levels)})

    def as_if(self, changes: Mapping[str, str | float | ArrayLike]) -> pa.Table:
        """Return the same people, their noise unchanged, had they had these protected values.

        A value is one class or number for everyone, or one each. Protected variables that are not changed stay as
        they are, also where they depend on one that is.
        """
        held = {name: self.values[name] for name in self.protected}
        if unknown := [name for name in changes if name not in held]:
            raise OptionError(f"'{unknown[0]}' is not protected here; change {' or '.join(map(repr, held))}")
        changed = {v.name: v.given(changes[v.name], len(self)) for v in self.world.chosen(tuple(changes))}
        return self.world.observed(self.world.evaluate(self.noise, held | changed))

    @property
    def protected(self) -> tuple[str, ...]:
        """The protected columns."""
        return self.world.protected

    @property
    def label(self) -> str:
        """The column that a model learns to predict."""
        return self.world.label

    @property
    def features(self) -> tuple[str, ...]:
        """The columns a model may learn from: all but the protected ones and the label, in the table's order."""
        apart = (*self.protected, self.label)
        return tuple(v.name for v in self.world.variables if not v.latent and v.name not in apart)

    @property
    def descendants(self) -> tuple[str, ...]:
        """The features that a protected variable acts on, directly or through others."""
        moved = self.world.moved()
        return tuple(name for name in self.features if name in moved)

    @property
    def legitimate(self) -> tuple[str, ...]:
        """All other features: the same whatever the protected values."""
        moved = self.world.moved()
        return tuple(name for name in self.features if name not in moved)

    @property
    def y(self) -> Values:
        """The label as numbers (N,)."""
        return self.values[self.label]


@dataclass(frozen=True)
class World:
    """A structural causal model: variables in causal order, parents first, some of them protected.

    A protected variable is a category or a number, and may have parents like any other. Mechanisms receive
    categories as indices into their levels.

    Example:
        >>> people = LENDING.sample(1000, seed=0)
        >>> len(people), people.protected, people.label
        (1000, ('sex',), 'approved')
    """

    name: str
    variables: tuple[Variable, ...]
    label: str
    protected: tuple[str, ...] = ("sex",)

    def __post_init__(self) -> None:
        known: set[str] = set()
        for v in self.variables:
            if missing := [p for p in v.parents if p not in known]:
                raise OptionError(
                    f"'{v.name}' depends on '{missing[0]}', which does not stand before it; put parents first"
                )
            known.add(v.name)
        if self.label not in known:
            raise OptionError(f"No variable is named '{self.label}'; the label must be one of the variables")
        if strangers := [name for name in self.protected if name not in known]:
            raise OptionError(f"No variable is named '{strangers[0]}'; protected ones must be among the variables")

    def sample(self, n: int, *, seed: int = 0) -> Population:
        """Return n people, each with noise of their own."""
        generator = np.random.default_rng(seed)
        return Population(self, {v.name: v.noise(generator, n) for v in self.variables})

    def evaluate(self, noise: Mapping[str, Values], held: Mapping[str, Values] | None = None) -> dict[str, Values]:
        """Return every variable, latent ones too, of people with the given noise.

        What is `held` has the given values instead of those of its mechanism: do(variable = values).
        """
        values: dict[str, Values] = {}
        for v in self.variables:
            if held is not None and v.name in held:
                values[v.name] = held[v.name]
            else:
                values[v.name] = v.mechanism(noise=noise[v.name], **{p: values[p] for p in v.parents})
        return values

    def chosen(self, names: tuple[str, ...]) -> tuple[Variable, ...]:
        """Return the variables of these names."""
        return tuple(v for v in self.variables if v.name in names)

    def moved(self) -> set[str]:
        """Return the protected variables and all that they act on, directly or through others."""
        moved = set(self.protected)
        for v in self.variables:
            if moved.intersection(v.parents):
                moved.add(v.name)
        return moved

    def observed(self, values: Mapping[str, Values]) -> pa.Table:
        """Return the table of what can be seen of people: no latent variables, categories by name."""
        columns = {}
        for v in self.variables:
            if not v.latent:
                columns[v.name] = _names(values[v.name], v.levels) if v.levels else pa.array(values[v.name])
        columns[self.label] = pa.array(values[self.label].astype(np.int64))
        return pa.table(columns)


def _names(index: Values, levels: tuple[str, ...]) -> pa.Array:
    return pa.array(np.asarray(levels, dtype=object)[index.astype(np.int64)], type=pa.string())


def happens(noise: Values, logit: Values) -> Values:
    """Return 1.0 for the people whose noise lies under the probability, 0.0 for the others."""
    return (noise < sigmoid(logit)).astype(np.float64)


def per_level(index: Values, *effects: float) -> Values:
    """Return the effect of each person's category (N,)."""
    return np.asarray(effects)[index.astype(np.int64)]


def _sex(noise: Values) -> Values:
    return (noise < 0.5).astype(np.float64)


def _ability(noise: Values) -> Values:
    return noise  # the same in all groups


SEX = Variable("sex", _sex, uniform, ("Female", "Male"))
ABILITY = Variable("ability", _ability, latent=True)


# Lending: who gets a loan. Two of the children of sex are categories, women and men differ in spread as well as in
# level, and the people who approved these loans preferred men, directly and through what differs between the groups.


def _savings_rate(ability: Values, noise: Values) -> Values:
    return 40.0 * sigmoid(0.5 * ability + 0.7 * noise - 1.2)  # % of income


def _debt_ratio(ability: Values, noise: Values) -> Values:
    return 100.0 * sigmoid(-0.4 * ability + 0.8 * noise - 0.6)  # % of income


def _credit_years(noise: Values) -> Values:
    return 40.0 * sigmoid(0.8 * noise - 1.1)


def _sector(sex: Values, ability: Values, noise: Values) -> Values:
    care, retail = np.exp(0.8 - 1.0 * sex), np.exp(0.5 - 0.3 * sex - 0.3 * ability)
    finance, engineering = np.exp(0.3 * sex + 0.4 * ability - 0.4), np.exp(1.2 * sex + 0.4 * ability - 0.9)
    return choose(noise, care, retail, 1.0, finance, engineering)


def _contract(sex: Values, noise: Values) -> Values:
    return choose(noise, 0.38 - 0.28 * sex, 0.15, 0.47 + 0.28 * sex)


def _income(sex: Values, ability: Values, sector: Values, contract: Values, noise: Values) -> Values:
    job = per_level(sector, -0.06, -0.12, 0.0, 0.16, 0.10) + per_level(contract, -0.16, -0.08, 0.0)
    person = (0.14 + 0.04 * sex) * ability + (0.18 + 0.16 * sex) * noise
    return 31_000.0 * np.exp(job + person + 0.12 * sex)  # a year


def _tenure_years(sex: Values, ability: Values, noise: Values) -> Values:
    return 2.5 * np.logaddexp(0.0, 1.4 + 0.7 * sex + 0.4 * ability + (1.6 - 0.5 * sex) * noise)


def _leave_months(sex: Values, noise: Values) -> Values:
    return (12.0 - 8.0 * sex) * np.exp(0.7 * noise)


def _approved(
    sex: Values,
    savings_rate: Values,
    debt_ratio: Values,
    credit_years: Values,
    sector: Values,
    contract: Values,
    income: Values,
    tenure_years: Values,
    leave_months: Values,
    noise: Values,
) -> Values:
    merit = 0.11 * (savings_rate - 10.0) - 0.035 * (debt_ratio - 37.0) + 0.07 * (credit_years - 11.0)
    means = 1.6 * np.log(income / 31_000.0) + 0.8 * np.log1p(tenure_years / 3.0) - 0.025 * leave_months
    habit = per_level(sector, -0.15, -0.1, 0.0, 0.1, 0.15) + per_level(contract, -0.15, -0.1, 0.0) + 0.25 * sex
    return happens(noise, merit + means + habit - 0.6)


LENDING = World(
    "lending",
    (
        SEX,
        ABILITY,
        Variable("savings_rate", _savings_rate),
        Variable("debt_ratio", _debt_ratio),
        Variable("credit_years", _credit_years),
        Variable("sector", _sector, uniform, ("care", "retail", "public", "finance", "engineering")),
        Variable("contract", _contract, uniform, ("part-time", "fixed-term", "full-time")),
        Variable("income", _income),
        Variable("tenure_years", _tenure_years),
        Variable("leave_months", _leave_months),
        Variable("approved", _approved, uniform),
    ),
    label="approved",
)


# Additive: scores in a hiring process, linear and Gaussian. In the other group every child of sex is shifted by the
# same amount for everybody: experience by 1.0, salary by 0.6 + 0.5 * 1.0, distance by -0.8.


def _aptitude(ability: Values, noise: Values) -> Values:
    return ability + 0.6 * noise


def _diligence(ability: Values, noise: Values) -> Values:
    return 0.5 * ability + 0.9 * noise


def _experience(sex: Values, ability: Values, noise: Values) -> Values:
    return 1.0 * sex + 0.5 * ability + noise


def _salary(sex: Values, ability: Values, experience: Values, noise: Values) -> Values:
    return 0.6 * sex + 0.4 * ability + 0.5 * experience + 0.8 * noise


def _distance(sex: Values, noise: Values) -> Values:
    return noise - 0.8 * sex


def _hired(sex: Values, aptitude: Values, experience: Values, salary: Values, noise: Values) -> Values:
    return happens(noise, 0.6 * sex + 0.9 * aptitude + 0.5 * experience + 0.9 * salary - 1.6)


ADDITIVE = World(
    "additive",
    (
        SEX,
        ABILITY,
        Variable("aptitude", _aptitude),
        Variable("diligence", _diligence),
        Variable("experience", _experience),
        Variable("salary", _salary),
        Variable("distance", _distance),
        Variable("hired", _hired, uniform),
    ),
    label="hired",
)


# Categorical proxies: who is invited to an interview. Field of study, last role (a child of the field too) and club
# each tell something about sex; what a person earned and for how long depends on them.


def _exam_points(ability: Values, noise: Values) -> Values:
    return 100.0 * sigmoid(0.6 * ability + 0.5 * noise + 0.4)


def _essay_points(ability: Values, noise: Values) -> Values:
    return 50.0 * sigmoid(0.3 * ability + 0.7 * noise)


def _field(sex: Values, ability: Values, noise: Values) -> Values:
    arts, health = np.exp(0.5 - 0.8 * sex), np.exp(0.3 - 0.6 * sex)
    return choose(noise, arts, health, 1.0, np.exp(1.0 * sex + 0.2 * ability - 0.5))


def _role(sex: Values, field: Values, noise: Values) -> Values:
    technical = np.exp(0.7 * sex + per_level(field, -0.5, -0.3, 0.1, 0.9) - 0.4)
    return choose(noise, np.exp(0.5 - 0.9 * sex), 1.0, technical)


def _club(sex: Values, noise: Values) -> Values:
    return choose(noise, 0.45 - 0.30 * sex, 0.35, 0.20 + 0.30 * sex)


def _experience_years(sex: Values, role: Values, noise: Values) -> Values:
    return (5.0 + 2.5 * sex + per_level(role, 0.0, 0.6, -0.4)) * np.exp((0.45 + 0.15 * sex) * noise)


def _last_salary(sex: Values, ability: Values, field: Values, noise: Values) -> Values:
    level = per_level(field, -0.06, 0.0, 0.02, 0.10)
    return 36_000.0 * np.exp(level + 0.18 * sex + 0.10 * ability + 0.16 * noise)  # a year


def _invited(
    sex: Values,
    exam_points: Values,
    essay_points: Values,
    field: Values,
    role: Values,
    club: Values,
    experience_years: Values,
    last_salary: Values,
    noise: Values,
) -> Values:
    merit = 0.06 * (exam_points - 58.0) + 0.06 * (essay_points - 25.0)
    career = np.log(experience_years / 5.5) + 2.5 * np.log(last_salary / 39_000.0)
    proxies = per_level(field, -0.2, -0.1, 0.0, 0.3) + per_level(role, -0.2, 0.0, 0.2) + per_level(club, -0.2, 0.0, 0.2)
    return happens(noise, merit + career + proxies + 0.3 * sex - 0.3)


CATEGORICAL_PROXIES = World(
    "categorical proxies",
    (
        SEX,
        ABILITY,
        Variable("exam_points", _exam_points),
        Variable("essay_points", _essay_points),
        Variable("field", _field, uniform, ("arts", "health", "business", "technology")),
        Variable("role", _role, uniform, ("office", "sales", "technical")),
        Variable("club", _club, uniform, ("dance", "chess", "football")),
        Variable("experience_years", _experience_years),
        Variable("last_salary", _last_salary),
        Variable("invited", _invited, uniform),
    ),
    label="invited",
)


# Heavy tails: who gets the good tariff of a car insurer. Sex multiplies what it acts on, lognormal or Student's t.


def _years_licensed(noise: Values) -> Values:
    return 15.0 * np.exp(0.5 * noise)


def _deductible(ability: Values, noise: Values) -> Values:
    return 500.0 * np.exp(0.3 * ability + 0.5 * noise)


def _vehicle(sex: Values, noise: Values) -> Values:
    return choose(noise, 0.50 - 0.25 * sex, 0.35, 0.15 + 0.25 * sex)


def _yearly_km(sex: Values, vehicle: Values, noise: Values) -> Values:
    return 9_000.0 * (1.0 + 0.7 * sex) * per_level(vehicle, 0.9, 1.0, 1.2) * np.exp(0.7 * noise)


def _vehicle_value(sex: Values, ability: Values, vehicle: Values, noise: Values) -> Values:
    return 11_000.0 * (1.0 + 0.4 * sex) * per_level(vehicle, 0.8, 1.0, 1.4) * np.exp(0.3 * ability + 0.6 * noise)


def _speeding(sex: Values, ability: Values, noise: Values) -> Values:
    return (1.0 + 0.7 * sex) * (4.0 - ability + 2.0 * noise)  # km/h over the limit; negative: under it


def _accepted(
    sex: Values,
    years_licensed: Values,
    deductible: Values,
    vehicle: Values,
    yearly_km: Values,
    vehicle_value: Values,
    speeding: Values,
    noise: Values,
) -> Values:
    merit = 0.8 * np.log(years_licensed / 15.0) + 0.7 * np.log(deductible / 500.0)
    risk = 0.9 * np.log(yearly_km / 11_000.0) + 0.3 * np.log(vehicle_value / 13_000.0) + 0.12 * (speeding - 5.0)
    habit = per_level(vehicle, 0.1, 0.0, -0.2) - 0.3 * sex
    return happens(noise, merit - risk + habit + 0.6)


HEAVY_TAILS = World(
    "heavy tails",
    (
        SEX,
        ABILITY,
        Variable("years_licensed", _years_licensed),
        Variable("deductible", _deductible),
        Variable("vehicle", _vehicle, uniform, ("small", "family", "sports")),
        Variable("yearly_km", _yearly_km),
        Variable("vehicle_value", _vehicle_value),
        Variable("speeding", _speeding, student),
        Variable("accepted", _accepted, uniform),
    ),
    label="accepted",
)
