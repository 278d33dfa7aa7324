"""Causal worlds with a known truth: lending, hiring and insurance, one difficulty each, with any amount of bias.

A world is a list of variables, each with its formula (`fairfox.benchmark.scm`). `WORLDS` are those that experiments
grade by bias: from 0, where the protected variable acts on nothing, to 1, where it acts as the world says. People are
truly treated unfairly if their prediction would differ by more than `DELTA` as a member of another group. A threshold
from a model trained without bias, as for fused tables, would be 0 here: without bias everyone is their own
counterfactual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fairfox.benchmark.scm import (
    ABILITY,
    SEX,
    Mechanism,
    Noise,
    Population,
    Values,
    Variable,
    World,
    choose,
    happens,
    per_level,
    sigmoid,
    uniform,
)
from fairfox.benchmark.worlds import LENDING
from fairfox.data.dataset import Dataset, Truth
from fairfox.data.encoding import Encoding, fit_encoding, with_covariates
from fairfox.data.table import load_table

_STEP = 1e-4  # of the protected variable, for the true derivative
DELTA = 0.01  # of a prediction: one point, about what fused tables have (0.001 to 0.02)


def student(generator: np.random.Generator, n: int) -> Values:
    """Return heavy-tailed noise (n,): Student's t with four degrees of freedom."""
    return generator.standard_t(4, n)


def exponential(generator: np.random.Generator, n: int) -> Values:
    """Return skewed noise (n,): exponential, its mean at 0."""
    return generator.exponential(1.0, n) - 1.0


# Additive: scores in a hiring process, linear and Gaussian. In the other group every child of sex is shifted by the
# same amount for everybody: experience by 1.0, salary by 0.6 + 0.5 * 1.0, distance by -0.8.

APTITUDE = Variable("aptitude", lambda ability, noise: ability + 0.6 * noise)
DILIGENCE = Variable("diligence", lambda ability, noise: 0.5 * ability + 0.9 * noise)

ADDITIVE = World(
    "additive",
    (
        SEX,
        ABILITY,
        APTITUDE,
        DILIGENCE,
        Variable("experience", lambda sex, ability, noise: 1.0 * sex + 0.5 * ability + noise),
        Variable(
            "salary", lambda sex, ability, experience, noise: 0.6 * sex + 0.4 * ability + 0.5 * experience + 0.8 * noise
        ),
        Variable("distance", lambda sex, noise: noise - 0.8 * sex),
        Variable(
            "hired",
            lambda sex, aptitude, experience, salary, noise: happens(
                noise, 0.6 * sex + 0.9 * aptitude + 0.5 * experience + 0.9 * salary - 1.6
            ),
            uniform,
        ),
    ),
    label="hired",
)


# Categorical proxies: who is invited to an interview. Field of study, last role (a child of the field too) and club
# each tell something about sex; what a person earned and for how long depends on them.


def _field(sex: Values, ability: Values, noise: Values) -> Values:
    arts, health = np.exp(0.5 - 0.8 * sex), np.exp(0.3 - 0.6 * sex)
    return choose(noise, arts, health, 1.0, np.exp(1.0 * sex + 0.2 * ability - 0.5))


def _role(sex: Values, field: Values, noise: Values) -> Values:
    technical = np.exp(0.7 * sex + per_level(field, -0.5, -0.3, 0.1, 0.9) - 0.4)
    return choose(noise, np.exp(0.5 - 0.9 * sex), 1.0, technical)


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
        Variable("exam_points", lambda ability, noise: 100.0 * sigmoid(0.6 * ability + 0.5 * noise + 0.4)),
        Variable("essay_points", lambda ability, noise: 50.0 * sigmoid(0.3 * ability + 0.7 * noise)),
        Variable("field", _field, uniform, ("arts", "health", "business", "technology")),
        Variable("role", _role, uniform, ("office", "sales", "technical")),
        Variable(
            "club",
            lambda sex, noise: choose(noise, 0.45 - 0.30 * sex, 0.35, 0.20 + 0.30 * sex),
            uniform,
            ("dance", "chess", "football"),
        ),
        Variable("experience_years", _experience_years),
        Variable("last_salary", _last_salary),
        Variable("invited", _invited, uniform),
    ),
    label="invited",
)


# Heavy tails: who gets the good tariff of a car insurer. Sex multiplies what it acts on, lognormal or Student's t.


def _yearly_km(sex: Values, vehicle: Values, noise: Values) -> Values:
    return 9_000.0 * (1.0 + 0.7 * sex) * per_level(vehicle, 0.9, 1.0, 1.2) * np.exp(0.7 * noise)


def _vehicle_value(sex: Values, ability: Values, vehicle: Values, noise: Values) -> Values:
    return 11_000.0 * (1.0 + 0.4 * sex) * per_level(vehicle, 0.8, 1.0, 1.4) * np.exp(0.3 * ability + 0.6 * noise)


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
        Variable("years_licensed", lambda noise: 15.0 * np.exp(0.5 * noise)),
        Variable("deductible", lambda ability, noise: 500.0 * np.exp(0.3 * ability + 0.5 * noise)),
        Variable(
            "vehicle",
            lambda sex, noise: choose(noise, 0.50 - 0.25 * sex, 0.35, 0.15 + 0.25 * sex),
            uniform,
            ("small", "family", "sports"),
        ),
        Variable("yearly_km", _yearly_km),
        Variable("vehicle_value", _vehicle_value),
        Variable(  # km/h over the limit; negative: under it
            "speeding", lambda sex, ability, noise: (1.0 + 0.7 * sex) * (4.0 - ability + 2.0 * noise), student
        ),
        Variable("accepted", _accepted, uniform),
    ),
    label="accepted",
)


# Additive with other noise: the shifts are those of ADDITIVE, whatever people look like otherwise.


def _with_noise(name: str, noise: Noise) -> World:
    """Return the additive world, what people are besides ability and sex drawn from other noise."""
    apart = ("sex", "ability", ADDITIVE.label)
    variables = (v if v.name in apart else replace(v, noise=noise) for v in ADDITIVE.variables)
    return replace(ADDITIVE, name=name, variables=tuple(variables))


SKEWED = _with_noise("additive, skewed", exponential)
LONG_TAILED = _with_noise("additive, long tails", student)


# Interaction: what sex does depends on ability and on the person's own noise, through curves that level off, and the
# people who promoted others looked at products of what they saw.


def _pay(sex: Values, ability: Values, weekly_hours: Values, noise: Values) -> Values:
    return 24.0 * np.exp(0.01 * (weekly_hours - 36.0) + 0.15 * ability + 0.2 * noise + sex * (0.15 + 0.15 * ability))


def _promoted(
    sex: Values,
    test_points: Values,
    training_days: Values,
    weekly_hours: Values,
    pay: Values,
    time_off: Values,
    noise: Values,
) -> Values:
    merit = 0.04 * (test_points - 50.0) + 0.6 * np.log(training_days / 10.0)
    visible = 2.0 * np.log(pay / 26.0) + 0.06 * (weekly_hours - 38.0) * (1.0 + np.log(pay / 26.0))
    missed = 0.04 * (time_off - 12.0) * sigmoid(0.05 * (50.0 - test_points))
    return happens(noise, merit + visible - missed + 0.3 * sex - 0.2)


INTERACTION = World(
    "interaction",
    (
        SEX,
        ABILITY,
        Variable("test_points", lambda ability, noise: 100.0 * sigmoid(0.9 * ability + 0.6 * noise)),
        Variable("training_days", lambda noise: 10.0 * np.exp(0.5 * noise)),
        Variable(
            "weekly_hours",
            lambda sex, ability, noise: 36.0 + 10.0 * np.tanh(0.9 * sex + 0.3 * ability + (0.8 - 0.3 * sex) * noise),
        ),
        Variable("pay", _pay),
        Variable(  # days a year
            "time_off", lambda sex, noise: 12.0 * np.logaddexp(0.0, 1.2 - 1.6 * sex + (1.0 - 0.4 * sex) * noise)
        ),
        Variable("promoted", _promoted, uniform),
    ),
    label="promoted",
)


# Confounding: where people grew up makes both their origin and much of what they have. Only a part of the difference
# between the groups would go away with another origin; schooling and savings would stay as they are.


def _granted(origin: Values, schooling: Values, savings: Values, wage: Values, tenure: Values, noise: Values) -> Values:
    means = 0.8 * savings + 0.9 * wage + 0.5 * tenure
    return happens(noise, 0.25 * (schooling - 12.0) + means + 0.5 * origin - 1.1)


CONFOUNDED = World(
    "confounded",
    (
        Variable("hometown", lambda noise: noise, latent=True),
        Variable("origin", lambda hometown, noise: happens(noise, 1.2 * hometown), uniform, ("abroad", "here")),
        ABILITY,
        Variable("schooling", lambda hometown, noise: 12.0 + 1.2 * hometown + 1.6 * noise),
        Variable("savings", lambda hometown, ability, noise: 0.5 * hometown + 0.5 * ability + 0.8 * noise),
        Variable(
            "wage", lambda origin, hometown, ability, noise: 0.9 * origin + 0.4 * hometown + 0.5 * ability + 0.8 * noise
        ),
        Variable("tenure", lambda origin, noise: 0.8 * origin + noise),
        Variable("granted", _granted, uniform),
    ),
    label="granted",
    protected=("origin",),
)


# Label bias: sex acts on the label itself, and on features that have nothing to do with it. A model that has learned
# from such labels uses these features to guess the sex.

LABEL_BIAS = World(
    "label bias",
    (
        SEX,
        ABILITY,
        Variable("grade", lambda ability, noise: ability + 0.6 * noise),
        Variable("reference", lambda ability, noise: 0.5 * ability + 0.9 * noise),
        Variable("height", lambda sex, noise: 1.5 * sex + noise),
        Variable("commute", lambda sex, noise: 0.8 * sex + (1.0 + 0.3 * sex) * noise),
        Variable("volunteering", lambda sex, ability, noise: 0.3 * ability + noise - 0.8 * sex),
        Variable(
            "admitted",
            lambda sex, grade, reference, noise: happens(noise, 0.9 * grade + 0.6 * reference + 1.6 * sex - 0.8),
            uniform,
        ),
    ),
    label="admitted",
)


# Protected variables of every other kind: many classes, a number, several, and their crossing. All describe who is
# hired, and all are additive: whatever the protected variables are, they give people a head start and make them live
# remotely, and every feature is a sum of such causes and of noise. So another protected value shifts the features of
# everyone by the same amount, given the own one. The worlds differ in who gets how much.


def _hired(
    head_start: Values, aptitude: Values, experience: Values, salary: Values, distance: Values, noise: Values
) -> Values:
    merit = 0.9 * aptitude + 0.5 * experience + 0.9 * salary
    return happens(noise, merit - 0.5 * distance + 0.4 * head_start)


def hiring_world(name: str, protected: tuple[Variable, ...], head_start: Mechanism, remoteness: Mechanism) -> World:
    """Return the world in which these protected variables act through these two mechanisms.

    Its bias is that of the two latent variables: classes are names, and cannot be multiplied.
    """
    variables = (
        *protected,
        ABILITY,
        Variable("head_start", head_start, latent=True),
        Variable("remoteness", remoteness, latent=True),
        APTITUDE,
        DILIGENCE,
        Variable("experience", lambda head_start, ability, noise: head_start + 0.5 * ability + noise),
        Variable(
            "salary",
            lambda head_start, ability, experience, noise: (
                0.6 * head_start + 0.4 * ability + 0.5 * experience + 0.8 * noise
            ),
        ),
        Variable("distance", lambda remoteness, noise: remoteness + noise),
        Variable("hired", _hired, uniform),
    )
    own = tuple(v.name for v in protected)
    return World(name, variables, label="hired", protected=own, carriers=("head_start", "remoteness"))


# Three classes: one group is far behind the two others.


def head_start_of_race(race: Values, noise: Values) -> Values:
    """Return the head start (N,) by race."""
    return per_level(race, 0.3, -1.0, 0.0) + 0.3 * noise


def remoteness_of_race(race: Values, noise: Values) -> Values:
    """Return how remote people live (N,) by race."""
    return per_level(race, -0.2, 0.8, 0.0) + 0.3 * noise


RACE = Variable("race", lambda noise: choose(noise, 0.2, 0.3, 0.5), uniform, ("Asian", "Black", "White"))
THREE_CLASSES = hiring_world("three classes", (RACE,), head_start_of_race, remoteness_of_race)


WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        *(ADDITIVE, SKEWED, LONG_TAILED, LENDING, CATEGORICAL_PROXIES, HEAVY_TAILS, INTERACTION, THREE_CLASSES),
        *(CONFOUNDED, LABEL_BIAS),
    )
}


# Three worlds that were written down after everything else was built, and never changed since.

# Hiring: gaps in a career that most people do not have, a hobby, a test score with a ceiling.


def _gap(sex: Values, noise: Values) -> Values:
    chance = 0.15 + 0.3 * (1 - sex)
    return np.where(noise < chance, np.ceil(24 * noise / chance), 0.0)


def _hobby(sex: Values, noise: Values) -> Values:
    return choose(noise, np.exp(-0.8 * (sex - 0.5)), 1.0, np.exp(1.2 * (sex - 0.5)), np.exp(0.4 * (sex - 0.5)))


HIRING = World(
    "hiring",
    (
        SEX,
        Variable("talent", lambda noise: noise, latent=True),
        Variable("gap_months", _gap, uniform),
        Variable("hobby", _hobby, uniform, ("choir", "running", "chess", "football")),
        Variable("test", lambda talent, noise: np.minimum(100.0, 75 + 12 * talent + 8 * noise)),
        Variable(
            "years",
            lambda sex, talent, gap_months, noise: np.maximum(
                0.0, 8 + 2.5 * sex + 1.5 * talent - gap_months / 12 + 2 * noise
            ),
        ),
        Variable(
            "hired",
            lambda talent, years, gap_months, noise: happens(
                noise, 1.2 * talent + 0.25 * (years - 8) - 0.04 * gap_months
            ),
            uniform,
        ),
    ),
    label="hired",
)

# Insurance: a skewed price of the car, counted claims, a district; how much the group matters grows with the price.

INSURANCE = World(
    "insurance",
    (
        SEX,
        Variable("care", lambda noise: noise, latent=True),
        Variable("car", lambda sex, noise: np.exp(9.5 + 0.35 * sex + 0.4 * noise)),
        Variable(
            "district",
            lambda sex, noise: choose(noise, np.exp(0.5 * (0.5 - sex)), 1.0, np.exp(0.9 * (sex - 0.5))),
            uniform,
            ("centre", "suburb", "village"),
        ),
        Variable("claims", lambda sex, care, noise: np.floor(noise * np.exp(0.4 * sex - 0.4 * care)), exponential),
        Variable("mileage", lambda sex, care, noise: (9 + 3 * sex - care) * np.exp(0.3 * noise)),
        Variable(
            "accepted",
            lambda care, claims, mileage, car, noise: happens(
                noise, 1.5 + 0.6 * care - 0.5 * claims - 0.12 * (mileage - 10) - 0.00003 * (car - 14_000)
            ),
            uniform,
        ),
    ),
    label="accepted",
)

# Pension: schooling in steps, a wage whose spread differs between the groups, part-time work that follows from both.

PENSION = World(
    "pension",
    (
        SEX,
        Variable("drive", lambda noise: noise, latent=True),
        Variable("schooling", lambda drive, noise: np.clip(np.round(11 + 1.5 * drive + 1.5 * noise), 8, 18)),
        Variable(
            "wage",
            lambda sex, drive, schooling, noise: (
                2.2 + 0.5 * sex + 0.1 * (schooling - 11) + 0.2 * drive + (0.3 + 0.25 * sex) * noise
            ),
        ),
        Variable(
            "part_time",
            lambda sex, noise: choose(noise, np.exp(1.0 * (0.5 - sex)), np.exp(1.0 * (sex - 0.5))),
            uniform,
            ("yes", "no"),
        ),
        Variable(
            "saved",
            lambda wage, part_time, noise: 3.0 * np.maximum(wage, 0.2) * (0.6 + 0.4 * part_time) * noise,
            exponential,
        ),
        Variable(
            "granted",
            lambda wage, saved, drive, noise: happens(noise, 1.5 * (wage - 2.4) + 0.1 * saved + 0.4 * drive - 0.5),
            uniform,
        ),
    ),
    label="granted",
)

UNSEEN: dict[str, World] = {world.name: world for world in (HIRING, INSURANCE, PENSION)}


@dataclass(frozen=True)
class Drawn:
    """People of a world, encoded: some to learn from, others whose truth is known."""

    fitting: Dataset
    people: Dataset
    legitimate: Tensor  # (D, P): x @ legitimate is what no protected variable acts on


def draw_people(world: World, fitting: int, people: int, *, seed: int = 0) -> Drawn:
    """Return people of a world with one protected variable that is a category.

    The truth of people of K classes holds them as members of each other one, (N, K - 1, D), and of two classes of the
    other, (N, D). It has the derivative dx/dc where there are two and no feature is a category.
    """
    past, new = (world.sample(n, seed=2 * seed + index) for index, n in enumerate((fitting, people)))
    encoding, learned, judged = encoded(past, new)
    truth = Truth(_counterfactuals(new, judged, encoding), _derivative(new, judged))
    return Drawn(learned, replace(judged, truth=truth), columns_of(judged, past.legitimate))


def encoded(past: Population, new: Population, outside: Sequence[str] = ()) -> tuple[Encoding, Dataset, Dataset]:
    """Return how people of two samples are encoded, and both; columns outside the model are covariates."""
    tables = [load_table(one.table) for one in (past, new)]
    encoding = fit_encoding(
        tables[0],
        protected=past.protected,
        label=past.label,
        columns=[name for name in past.features if name not in outside],
        contrasts="all",
        also=tables[1],
    )
    if outside:
        encoding = with_covariates(encoding, tables[0], outside, also=tables[1])
    return encoding, encoding.encode(tables[0]), encoding.encode(tables[1])


def _counterfactuals(population: Population, people: Dataset, encoding: Encoding) -> Tensor:
    """Return everyone as a member of each other class (N, K - 1, D), or of the other one (N, D)."""
    (p,) = people.protected
    each = [encoding.encode(load_table(population.as_if({p.name: level}))).x for level in p.levels]
    steps = torch.arange(1, len(each))
    other = (people.c[:, :1].long() + steps) % len(each)  # (N, K - 1)
    rows = torch.stack(each, dim=1)[torch.arange(len(people))[:, None], other]
    return rows[:, 0] if len(each) == 2 else rows


def _derivative(population: Population, people: Dataset) -> Tensor | None:
    """Return the true dx/dc (N, D, 1) from the first level to the second, by central differences in a relaxed c."""
    (p,) = people.protected
    if p.kind != "binary" or any(f.kind == "categorical" for f in people.features):
        return None
    world, own = population.world, population.values[p.name]
    (protected,) = world.chosen((p.name,))
    towards = _STEP if protected.levels == p.levels else -_STEP
    up, down = (world.evaluate(population.noise, {p.name: own + step}) for step in (towards, -towards))
    slopes = [(up[f.name] - down[f.name]) / (2 * _STEP * f.scale) for f in people.features]
    return torch.as_tensor(np.stack(slopes, axis=1)).to(people.x)[:, :, None]


def columns_of(people: Dataset, names: Sequence[str]) -> Tensor:
    """Return the projection (D, P) onto the columns of some features."""
    kept = [j for f in people.features if f.name in names for j in range(f.start, f.stop)]
    return torch.eye(people.x.shape[1], dtype=people.x.dtype)[:, kept]
