"""Worlds of two groups that single out one difficulty each: skew, heavy tails, interaction, confounding, label bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairfox.synthetic.scm import ABILITY, SEX, Noise, Values, Variable, World, happens, sigmoid, student, uniform
from fairfox.synthetic.two_groups import ADDITIVE


def exponential(generator: np.random.Generator, n: int) -> Values:
    """Return skewed noise (n,): exponential, its mean at 0."""
    return generator.exponential(1.0, n) - 1.0


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


def _test_points(ability: Values, noise: Values) -> Values:
    return 100.0 * sigmoid(0.9 * ability + 0.6 * noise)


def _training_days(noise: Values) -> Values:
    return 10.0 * np.exp(0.5 * noise)


def _weekly_hours(sex: Values, ability: Values, noise: Values) -> Values:
    return 36.0 + 10.0 * np.tanh(0.9 * sex + 0.3 * ability + (0.8 - 0.3 * sex) * noise)


def _pay(sex: Values, ability: Values, weekly_hours: Values, noise: Values) -> Values:
    return 24.0 * np.exp(0.01 * (weekly_hours - 36.0) + 0.15 * ability + 0.2 * noise + sex * (0.15 + 0.15 * ability))


def _time_off(sex: Values, noise: Values) -> Values:
    return 12.0 * np.logaddexp(0.0, 1.2 - 1.6 * sex + (1.0 - 0.4 * sex) * noise)  # days a year


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
    seen = 2.0 * np.log(pay / 26.0) + 0.06 * (weekly_hours - 38.0) * (1.0 + np.log(pay / 26.0))
    missed = 0.04 * (time_off - 12.0) * sigmoid(0.05 * (50.0 - test_points))
    return happens(noise, merit + seen - missed + 0.3 * sex - 0.2)


INTERACTION = World(
    "interaction",
    (
        SEX,
        ABILITY,
        Variable("test_points", _test_points),
        Variable("training_days", _training_days),
        Variable("weekly_hours", _weekly_hours),
        Variable("pay", _pay),
        Variable("time_off", _time_off),
        Variable("promoted", _promoted, uniform),
    ),
    label="promoted",
)


# Confounding: where people grew up makes both their origin and much of what they have. Only a part of the difference
# between the groups would go away with another origin; schooling and savings would stay as they are.


def _hometown(noise: Values) -> Values:
    return noise


def _origin(hometown: Values, noise: Values) -> Values:
    return (noise < sigmoid(1.2 * hometown)).astype(np.float64)


def _schooling(hometown: Values, noise: Values) -> Values:
    return 12.0 + 1.2 * hometown + 1.6 * noise


def _savings(hometown: Values, ability: Values, noise: Values) -> Values:
    return 0.5 * hometown + 0.5 * ability + 0.8 * noise


def _wage(origin: Values, hometown: Values, ability: Values, noise: Values) -> Values:
    return 0.9 * origin + 0.4 * hometown + 0.5 * ability + 0.8 * noise


def _tenure(origin: Values, noise: Values) -> Values:
    return 0.8 * origin + noise


def _granted(origin: Values, schooling: Values, savings: Values, wage: Values, tenure: Values, noise: Values) -> Values:
    means = 0.8 * savings + 0.9 * wage + 0.5 * tenure
    return happens(noise, 0.25 * (schooling - 12.0) + means + 0.5 * origin - 1.1)


CONFOUNDED = World(
    "confounded",
    (
        Variable("hometown", _hometown, latent=True),
        Variable("origin", _origin, uniform, ("abroad", "here")),
        ABILITY,
        Variable("schooling", _schooling),
        Variable("savings", _savings),
        Variable("wage", _wage),
        Variable("tenure", _tenure),
        Variable("granted", _granted, uniform),
    ),
    label="granted",
    protected=("origin",),
)


# Label bias: sex acts on the label itself, and on features that have nothing to do with it. A model that has learned
# from such labels uses these features to guess the sex.


def _grade(ability: Values, noise: Values) -> Values:
    return ability + 0.6 * noise


def _reference(ability: Values, noise: Values) -> Values:
    return 0.5 * ability + 0.9 * noise


def _height(sex: Values, noise: Values) -> Values:
    return 1.5 * sex + noise


def _commute(sex: Values, noise: Values) -> Values:
    return 0.8 * sex + (1.0 + 0.3 * sex) * noise


def _volunteering(sex: Values, ability: Values, noise: Values) -> Values:
    return 0.3 * ability + noise - 0.8 * sex


def _admitted(sex: Values, grade: Values, reference: Values, noise: Values) -> Values:
    return happens(noise, 0.9 * grade + 0.6 * reference + 1.6 * sex - 0.8)


LABEL_BIAS = World(
    "label bias",
    (
        SEX,
        ABILITY,
        Variable("grade", _grade),
        Variable("reference", _reference),
        Variable("height", _height),
        Variable("commute", _commute),
        Variable("volunteering", _volunteering),
        Variable("admitted", _admitted, uniform),
    ),
    label="admitted",
)
