"""Worlds of two groups: lending, and hiring and insuring in harder and easier forms."""

from __future__ import annotations

import numpy as np

from fairfox.synthetic.scm import (
    ABILITY,
    SEX,
    Values,
    Variable,
    World,
    choose,
    happens,
    per_level,
    sigmoid,
    student,
    uniform,
)

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
