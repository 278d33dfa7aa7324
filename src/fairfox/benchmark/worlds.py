"""Lending, a world with a known truth: who gets a loan (`fairfox.benchmark.scm` says what a world is)."""

from __future__ import annotations

import numpy as np

from fairfox.benchmark.scm import ABILITY, SEX, Values, Variable, World, choose, happens, per_level, sigmoid, uniform

# Lending: who gets a loan. Two of the children of sex are categories, women and men differ in spread as well as in
# level, and the people who approved these loans preferred men, directly and through what differs between the groups.


def _sector(sex: Values, ability: Values, noise: Values) -> Values:
    care, retail = np.exp(0.8 - 1.0 * sex), np.exp(0.5 - 0.3 * sex - 0.3 * ability)
    finance, engineering = np.exp(0.3 * sex + 0.4 * ability - 0.4), np.exp(1.2 * sex + 0.4 * ability - 0.9)
    return choose(noise, care, retail, 1.0, finance, engineering)


def _income(sex: Values, ability: Values, sector: Values, contract: Values, noise: Values) -> Values:
    job = per_level(sector, -0.06, -0.12, 0.0, 0.16, 0.10) + per_level(contract, -0.16, -0.08, 0.0)
    person = (0.14 + 0.04 * sex) * ability + (0.18 + 0.16 * sex) * noise
    return 31_000.0 * np.exp(job + person + 0.12 * sex)  # a year


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
        # the next two in % of income
        Variable("savings_rate", lambda ability, noise: 40.0 * sigmoid(0.5 * ability + 0.7 * noise - 1.2)),
        Variable("debt_ratio", lambda ability, noise: 100.0 * sigmoid(-0.4 * ability + 0.8 * noise - 0.6)),
        Variable("credit_years", lambda noise: 40.0 * sigmoid(0.8 * noise - 1.1)),
        Variable("sector", _sector, uniform, ("care", "retail", "public", "finance", "engineering")),
        Variable(
            "contract",
            lambda sex, noise: choose(noise, 0.38 - 0.28 * sex, 0.15, 0.47 + 0.28 * sex),
            uniform,
            ("part-time", "fixed-term", "full-time"),
        ),
        Variable("income", _income),
        Variable(
            "tenure_years",
            lambda sex, ability, noise: (
                2.5 * np.logaddexp(0.0, 1.4 + 0.7 * sex + 0.4 * ability + (1.6 - 0.5 * sex) * noise)
            ),
        ),
        Variable("leave_months", lambda sex, noise: (12.0 - 8.0 * sex) * np.exp(0.7 * noise)),
        Variable("approved", _approved, uniform),
    ),
    label="approved",
)
