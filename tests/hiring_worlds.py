"""Hiring worlds with protected variables of every kind: many classes, a number, several, and their crossing."""

import numpy as np
from causal_worlds import RACE, head_start_of_race, hiring_world, remoteness_of_race

from fairfox.benchmark.scm import SEX, Variable, choose, per_level, uniform

# Six classes, no two alike.
ORIGIN = Variable(
    "origin",
    lambda noise: choose(noise, 0.14, 0.18, 0.20, 0.10, 0.12, 0.26),
    uniform,
    ("Africa", "America", "Asia", "Caucasus", "Europe", "Oceania"),
)
SIX_CLASSES = hiring_world(
    "six classes",
    (ORIGIN,),
    lambda origin, noise: per_level(origin, -0.5, 0.5, -0.2, -1.8, 0.2, 0.0) + 0.3 * noise,
    lambda origin, noise: per_level(origin, 0.2, -0.2, 0.3, 1.0, -0.4, 0.0) + 0.3 * noise,
)

# A number: what people have grows with age.
AGE = hiring_world(
    "age",
    (Variable("age", lambda noise: 45.0 + 12.0 * noise),),
    lambda age, noise: 0.6 * (age - 45.0) / 12.0 + 0.3 * noise,
    lambda age, noise: 0.4 * (age - 45.0) / 12.0 + 0.3 * noise,
)

# Two variables that know nothing of each other.
SEX_AND_RACE = hiring_world(
    "sex and race",
    (SEX, RACE),
    lambda sex, race, noise: 0.5 * sex + per_level(race, 0.3, -1.0, 0.0) + 0.3 * noise,
    remoteness_of_race,
)

# Two variables of which one says much about the other: who migrated depends on race. In the second world that is all:
# migrants are as they are because of their race, and migrating does nothing.
MIGRANT = Variable(
    "migrant", lambda race, noise: (noise < per_level(race, 0.2, 0.7, 0.1)).astype(np.float64), uniform, ("no", "yes")
)
RACE_AND_MIGRANT = hiring_world(
    "race and migrant",
    (RACE, MIGRANT),
    lambda race, migrant, noise: per_level(race, 0.2, -0.4, 0.0) - 1.2 * migrant + 0.3 * noise,
    lambda race, migrant, noise: per_level(race, -0.1, 0.3, 0.0) + 0.6 * migrant + 0.3 * noise,
)
IDLE_MIGRANT = hiring_world("idle migrant", (RACE, MIGRANT), head_start_of_race, remoteness_of_race)

# A crossing: White men and Black women are ahead, White women and Black men behind, so that neither the two sexes nor
# the two races differ from each other in anything.
RACE_OF_TWO = Variable("race", lambda noise: choose(noise, 0.5, 0.5), uniform, ("Black", "White"))
CROSSING = hiring_world(
    "crossing",
    (SEX, RACE_OF_TWO),
    lambda sex, race, noise: np.where(sex == race, 0.0, -1.2) + 0.3 * noise,
    lambda sex, race, noise: np.where(sex == race, 0.0, 0.6) + 0.3 * noise,
)
