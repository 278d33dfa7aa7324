"""Three causal worlds that were written down after everything else was built, and never changed since."""

from __future__ import annotations

import numpy as np
from causal_worlds import exponential

from fairfox.benchmark.scm import SEX, Values, Variable, World, choose, happens, uniform

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
        Variable(
            "claims",
            lambda sex, care, noise: np.floor(noise * np.exp(0.4 * sex - 0.4 * care)),
            exponential,
        ),
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

UNSEEN = {world.name: world for world in (HIRING, INSURANCE, PENSION)}
