"""Small structural causal models: people whose true counterfactuals are known.

Every variable is a function of its parents and of its own noise. The noise of a person is drawn once; evaluating the
same functions with the other group and the same noise gives that person as a member of the other group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairfox.errors import OptionError

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


@dataclass(frozen=True)
class Population:
    """People sampled from a world, and the same people, row by row, as members of the other group."""

    table: pa.Table
    counterfactual: pa.Table
    protected: str
    label: str
    descendants: tuple[str, ...]  # columns the protected variable acts on, directly or through others; not the label
    legitimate: tuple[str, ...]  # all other columns: the same in both tables

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns a model may learn from: all but the protected one and the label, in the table's order."""
        return tuple(name for name in self.table.column_names if name not in (self.protected, self.label))

    @property
    def y(self) -> Values:
        """The label as numbers (N,)."""
        return np.asarray(self.table[self.label].to_numpy(), dtype=np.float64)


@dataclass(frozen=True)
class World:
    """A structural causal model over two groups.

    Variables stand in causal order: parents first. The protected variable comes before them all; mechanisms receive
    it as 0.0 and 1.0, the index into `groups`.

    Example:
        >>> people = LENDING.sample(1000, seed=0)
        >>> len(people), people.protected, people.label
        (1000, 'sex', 'approved')
    """

    name: str
    variables: tuple[Variable, ...]
    label: str
    protected: str = "sex"
    groups: tuple[str, str] = ("Female", "Male")
    share: float = 0.5  # of the second group

    def __post_init__(self) -> None:
        known = {self.protected}
        for v in self.variables:
            if missing := [p for p in v.parents if p not in known]:
                raise OptionError(
                    f"'{v.name}' depends on '{missing[0]}', which does not stand before it; put parents first"
                )
            known.add(v.name)
        if self.label not in known:
            raise OptionError(f"No variable is named '{self.label}'; the label must be one of the variables")

    def sample(self, n: int, *, seed: int = 0) -> Population:
        """Return n people, each as they are and as they would be in the other group with the same noise."""
        generator = np.random.default_rng(seed)
        group = (generator.random(n) < self.share).astype(np.float64)
        noise = {v.name: v.noise(generator, n) for v in self.variables}
        moved = self._descendants()
        observed = [v.name for v in self.variables if not v.latent and v.name != self.label]
        return Population(
            table=self._table(self.evaluate(group, noise)),
            counterfactual=self._table(self.evaluate(1.0 - group, noise)),
            protected=self.protected,
            label=self.label,
            descendants=tuple(name for name in observed if name in moved),
            legitimate=tuple(name for name in observed if name not in moved),
        )

    def evaluate(self, group: Values, noise: Mapping[str, Values]) -> dict[str, Values]:
        """Return every variable, latent ones too, of people in the given group (0 or 1 each) with the given noise."""
        values = {self.protected: group}
        for v in self.variables:
            values[v.name] = v.mechanism(noise=noise[v.name], **{p: values[p] for p in v.parents})
        return values

    def _descendants(self) -> set[str]:
        moved = {self.protected}
        for v in self.variables:
            if moved.intersection(v.parents):
                moved.add(v.name)
        return moved

    def _table(self, values: Mapping[str, Values]) -> pa.Table:
        columns = {self.protected: _names(values[self.protected], self.groups)}
        for v in self.variables:
            if not v.latent:
                columns[v.name] = _names(values[v.name], v.levels) if v.levels else pa.array(values[v.name])
        columns[self.label] = pa.array(values[self.label].astype(np.int64))
        return pa.table(columns)


def _names(index: Values, levels: tuple[str, ...]) -> pa.Array:
    return pa.array(np.asarray(levels, dtype=object)[index.astype(np.int64)], type=pa.string())


def _happens(noise: Values, logit: Values) -> Values:
    """Return 1.0 for the people whose noise lies under the probability, 0.0 for the others."""
    return (noise < sigmoid(logit)).astype(np.float64)


def _per_level(index: Values, *effects: float) -> Values:
    """Return the effect of each person's category (N,)."""
    return np.asarray(effects)[index.astype(np.int64)]


def _ability(noise: Values) -> Values:
    return noise  # the same in both groups


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
    job = _per_level(sector, -0.06, -0.12, 0.0, 0.16, 0.10) + _per_level(contract, -0.16, -0.08, 0.0)
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
    habit = _per_level(sector, -0.15, -0.1, 0.0, 0.1, 0.15) + _per_level(contract, -0.15, -0.1, 0.0) + 0.25 * sex
    return _happens(noise, merit + means + habit - 0.6)


LENDING = World(
    "lending",
    (
        Variable("ability", _ability, latent=True),
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
    return _happens(noise, 0.6 * sex + 0.9 * aptitude + 0.5 * experience + 0.9 * salary - 1.6)


ADDITIVE = World(
    "additive",
    (
        Variable("ability", _ability, latent=True),
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
    technical = np.exp(0.7 * sex + _per_level(field, -0.5, -0.3, 0.1, 0.9) - 0.4)
    return choose(noise, np.exp(0.5 - 0.9 * sex), 1.0, technical)


def _club(sex: Values, noise: Values) -> Values:
    return choose(noise, 0.45 - 0.30 * sex, 0.35, 0.20 + 0.30 * sex)


def _experience_years(sex: Values, role: Values, noise: Values) -> Values:
    return (5.0 + 2.5 * sex + _per_level(role, 0.0, 0.6, -0.4)) * np.exp((0.45 + 0.15 * sex) * noise)


def _last_salary(sex: Values, ability: Values, field: Values, noise: Values) -> Values:
    level = _per_level(field, -0.06, 0.0, 0.02, 0.10)
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
    proxies = (
        _per_level(field, -0.2, -0.1, 0.0, 0.3) + _per_level(role, -0.2, 0.0, 0.2) + _per_level(club, -0.2, 0.0, 0.2)
    )
    return _happens(noise, merit + career + proxies + 0.3 * sex - 0.3)


CATEGORICAL_PROXIES = World(
    "categorical proxies",
    (
        Variable("ability", _ability, latent=True),
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
    return 9_000.0 * (1.0 + 0.7 * sex) * _per_level(vehicle, 0.9, 1.0, 1.2) * np.exp(0.7 * noise)


def _vehicle_value(sex: Values, ability: Values, vehicle: Values, noise: Values) -> Values:
    return 11_000.0 * (1.0 + 0.4 * sex) * _per_level(vehicle, 0.8, 1.0, 1.4) * np.exp(0.3 * ability + 0.6 * noise)


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
    habit = _per_level(vehicle, 0.1, 0.0, -0.2) - 0.3 * sex
    return _happens(noise, merit - risk + habit + 0.6)


HEAVY_TAILS = World(
    "heavy tails",
    (
        Variable("ability", _ability, latent=True),
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
