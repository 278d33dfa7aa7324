"""Worlds with protected variables of every kind: many classes, a number, several, and their crossing.

All describe who is hired, and all are additive: whatever the protected variables are, they give people a head start
and make them live remotely, and every feature is a sum of such causes and of noise. So another protected value shifts
the features of everyone by the same amount, given the own one. The worlds differ in who gets how much.
"""

from __future__ import annotations

import numpy as np

from fairfox.synthetic.scm import ABILITY, SEX, Mechanism, Values, Variable, World, choose, happens, per_level, uniform


def _aptitude(ability: Values, noise: Values) -> Values:
    return ability + 0.6 * noise


def _diligence(ability: Values, noise: Values) -> Values:
    return 0.5 * ability + 0.9 * noise


def _experience(head_start: Values, ability: Values, noise: Values) -> Values:
    return head_start + 0.5 * ability + noise


def _salary(head_start: Values, ability: Values, experience: Values, noise: Values) -> Values:
    return 0.6 * head_start + 0.4 * ability + 0.5 * experience + 0.8 * noise


def _distance(remoteness: Values, noise: Values) -> Values:
    return remoteness + noise


def _hired(
    head_start: Values, aptitude: Values, experience: Values, salary: Values, distance: Values, noise: Values
) -> Values:
    merit = 0.9 * aptitude + 0.5 * experience + 0.9 * salary
    return happens(noise, merit - 0.5 * distance + 0.4 * head_start)


def _hiring(name: str, protected: tuple[Variable, ...], head_start: Mechanism, remoteness: Mechanism) -> World:
    """Return the world in which these protected variables act through these two mechanisms."""
    variables = (
        *protected,
        ABILITY,
        Variable("head_start", head_start, latent=True),
        Variable("remoteness", remoteness, latent=True),
        Variable("aptitude", _aptitude),
        Variable("diligence", _diligence),
        Variable("experience", _experience),
        Variable("salary", _salary),
        Variable("distance", _distance),
        Variable("hired", _hired, uniform),
    )
    return World(name, variables, label="hired", protected=tuple(v.name for v in protected))


# Three classes: one group is far behind the two others.


def _race(noise: Values) -> Values:
    return choose(noise, 0.2, 0.3, 0.5)


def _head_start_of_race(race: Values, noise: Values) -> Values:
    return per_level(race, 0.3, -1.0, 0.0) + 0.3 * noise


def _remoteness_of_race(race: Values, noise: Values) -> Values:
    return per_level(race, -0.2, 0.8, 0.0) + 0.3 * noise


RACE = Variable("race", _race, uniform, ("Asian", "Black", "White"))
THREE_CLASSES = _hiring("three classes", (RACE,), _head_start_of_race, _remoteness_of_race)


# Six classes, no two alike.


def _origin(noise: Values) -> Values:
    return choose(noise, 0.14, 0.18, 0.20, 0.10, 0.12, 0.26)


def _head_start_of_origin(origin: Values, noise: Values) -> Values:
    return per_level(origin, -0.5, 0.5, -0.2, -1.8, 0.2, 0.0) + 0.3 * noise


def _remoteness_of_origin(origin: Values, noise: Values) -> Values:
    return per_level(origin, 0.2, -0.2, 0.3, 1.0, -0.4, 0.0) + 0.3 * noise


ORIGIN = Variable("origin", _origin, uniform, ("Africa", "America", "Asia", "Caucasus", "Europe", "Oceania"))
SIX_CLASSES = _hiring("six classes", (ORIGIN,), _head_start_of_origin, _remoteness_of_origin)


# A number: what people have grows with age.


def _age(noise: Values) -> Values:
    return 45.0 + 12.0 * noise


def _head_start_of_age(age: Values, noise: Values) -> Values:
    return 0.6 * (age - 45.0) / 12.0 + 0.3 * noise


def _remoteness_of_age(age: Values, noise: Values) -> Values:
    return 0.4 * (age - 45.0) / 12.0 + 0.3 * noise


AGE = _hiring("age", (Variable("age", _age),), _head_start_of_age, _remoteness_of_age)


# Two variables that know nothing of each other.


def _head_start_of_both(sex: Values, race: Values, noise: Values) -> Values:
    return 0.5 * sex + per_level(race, 0.3, -1.0, 0.0) + 0.3 * noise


SEX_AND_RACE = _hiring("sex and race", (SEX, RACE), _head_start_of_both, _remoteness_of_race)


# Two variables of which one says much about the other: who migrated depends on race. In the second world that is all:
# migrants are as they are because of their race, and migrating does nothing.


def _migrant(race: Values, noise: Values) -> Values:
    return (noise < per_level(race, 0.2, 0.7, 0.1)).astype(np.float64)


def _head_start_of_migrants(race: Values, migrant: Values, noise: Values) -> Values:
    return per_level(race, 0.2, -0.4, 0.0) - 1.2 * migrant + 0.3 * noise


def _remoteness_of_migrants(race: Values, migrant: Values, noise: Values) -> Values:
    return per_level(race, -0.1, 0.3, 0.0) + 0.6 * migrant + 0.3 * noise


MIGRANT = Variable("migrant", _migrant, uniform, ("no", "yes"))
RACE_AND_MIGRANT = _hiring("race and migrant", (RACE, MIGRANT), _head_start_of_migrants, _remoteness_of_migrants)
IDLE_MIGRANT = _hiring("idle migrant", (RACE, MIGRANT), _head_start_of_race, _remoteness_of_race)


# A crossing: White men and Black women are ahead, White women and Black men behind, so that neither the two sexes nor
# the two races differ from each other in anything.


def _race_of_two(noise: Values) -> Values:
    return choose(noise, 0.5, 0.5)


def _head_start_of_crossing(sex: Values, race: Values, noise: Values) -> Values:
    return np.where(sex == race, 0.0, -1.2) + 0.3 * noise


def _remoteness_of_crossing(sex: Values, race: Values, noise: Values) -> Values:
    return np.where(sex == race, 0.0, 0.6) + 0.3 * noise


RACE_OF_TWO = Variable("race", _race_of_two, uniform, ("Black", "White"))
CROSSING = _hiring("crossing", (SEX, RACE_OF_TWO), _head_start_of_crossing, _remoteness_of_crossing)
