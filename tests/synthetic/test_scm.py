"""Structural causal models: the counterfactuals are true, and the worlds are as they say."""

import inspect
from statistics import NormalDist

import numpy as np
import pytest

from fairfox.errors import OptionError
from fairfox.synthetic.scm import (
    ADDITIVE,
    CATEGORICAL_PROXIES,
    HEAVY_TAILS,
    LENDING,
    Variable,
    World,
    choose,
    student,
    uniform,
)

WORLDS = {world.name: world for world in (LENDING, ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS)}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


def column(table, name):
    return table[name].to_numpy(zero_copy_only=False)


def male(table):
    return column(table, "sex") == "Male"


@every_world
def test_the_same_seed_gives_the_same_people(world):
    first, again = world.sample(200, seed=3), world.sample(200, seed=3)
    assert first.table.equals(again.table)
    assert first.counterfactual.equals(again.counterfactual)


@every_world
def test_another_seed_gives_other_people(world):
    first, other = world.sample(200, seed=3), world.sample(200, seed=4)
    for name in first.features:
        assert not first.table[name].equals(other.table[name])


@every_world
def test_everyone_changes_group_and_keeps_what_sex_does_not_act_on(world):
    people = world.sample(500)
    assert people.counterfactual.column_names == people.table.column_names
    assert (male(people.table) != male(people.counterfactual)).all()
    assert len(people.legitimate) >= 2
    for name in people.legitimate:
        assert people.counterfactual[name].equals(people.table[name])


@every_world
def test_every_descendant_of_sex_moves_for_somebody(world):
    people = world.sample(500)
    assert set(people.descendants) | set(people.legitimate) == set(people.features)
    assert not set(people.descendants) & set(people.legitimate)
    for name in people.descendants:
        assert not people.counterfactual[name].equals(people.table[name])


@every_world
def test_flipped_twice_a_person_is_the_original(world):
    generator = np.random.default_rng(0)
    noise = {v.name: v.noise(generator, 300) for v in world.variables}
    group = (generator.random(300) < 0.5).astype(float)
    there = world.evaluate(1.0 - group, noise)
    back = world.evaluate(1.0 - there["sex"], noise)
    for name, values in world.evaluate(group, noise).items():
        np.testing.assert_array_equal(back[name], values)


@every_world
def test_the_table_holds_the_observed_columns_with_valid_levels(world):
    people = world.sample(2000)
    assert people.table.column_names[0] == "sex"
    assert "ability" not in people.table.column_names
    assert set(column(people.table, "sex")) == {"Female", "Male"}
    assert set(people.y) == {0.0, 1.0}
    for variable in world.variables:
        if variable.levels:
            assert set(column(people.table, variable.name)) == set(variable.levels)
        elif not variable.latent:
            assert np.isfinite(column(people.table, variable.name)).all()


@every_world
def test_both_groups_and_both_labels_are_common_and_label_rates_differ(world):
    people = world.sample(6000)
    men = male(people.table)
    assert 0.45 < men.mean() < 0.55
    rates = people.y[~men].mean(), people.y[men].mean()
    assert all(0.2 < rate < 0.8 for rate in rates)
    assert abs(rates[1] - rates[0]) > 0.1


@every_world
def test_the_label_depends_on_sex_directly_and_is_no_feature(world):
    label = next(v for v in world.variables if v.name == world.label)
    people = world.sample(10)
    assert "sex" in label.parents
    assert world.label not in people.features + people.descendants + people.legitimate


def test_additive_counterfactuals_are_shifted_by_a_constant():
    people = ADDITIVE.sample(1000)
    sign = np.where(male(people.table), -1.0, 1.0)  # towards the other group
    # salary: 0.6 directly and 0.5 through each unit of experience, which moves by 1.0
    for name, shift in {"experience": 1.0, "salary": 1.1, "distance": -0.8}.items():
        moved = column(people.counterfactual, name) - column(people.table, name)
        np.testing.assert_allclose(moved, sign * shift, atol=1e-12)
    assert people.descendants == ("experience", "salary", "distance")
    assert people.legitimate == ("aptitude", "diligence")


def test_additive_groups_differ_by_the_mechanisms_means_and_spread_as_they_say():
    people = ADDITIVE.sample(40_000, seed=1)
    men = male(people.table)
    # variance of salary: ability (0.4 + 0.5 * 0.5)^2, noise of experience 0.5^2, own noise 0.8^2
    expected = {
        "aptitude": (0.0, 1.36**0.5),
        "diligence": (0.0, 1.06**0.5),
        "experience": (1.0, 1.25**0.5),
        "salary": (1.1, (0.65**2 + 0.25 + 0.64) ** 0.5),
        "distance": (-0.8, 1.0),
    }
    for name, (shift, spread) in expected.items():
        values = column(people.table, name)
        # the difference of two means of 20 000 has a standard error of spread / 100
        assert values[men].mean() - values[~men].mean() == pytest.approx(shift, abs=0.04 * spread)
        assert values[men].std() == pytest.approx(spread, rel=0.03)
        assert values[~men].std() == pytest.approx(spread, rel=0.03)


def test_lending_groups_differ_in_category_shares_as_the_mechanism_says():
    people = LENDING.sample(20_000, seed=2)
    men, contract = male(people.table), column(people.table, "contract")
    assert (contract[~men] == "part-time").mean() == pytest.approx(0.38, abs=0.02)
    assert (contract[men] == "part-time").mean() == pytest.approx(0.10, abs=0.02)
    # one noise against cumulative shares: 0.28 of the women leave part-time work as men, none of the others enters it
    moved = column(people.counterfactual, "contract")
    assert ((contract == "part-time") & (moved != "part-time"))[~men].mean() == pytest.approx(0.28, abs=0.02)
    assert not ((contract != "part-time") & (moved == "part-time"))[~men].any()


def test_lending_incomes_of_men_are_higher_and_spread_wider():
    people = LENDING.sample(20_000, seed=2)
    men, income = male(people.table), np.log(column(people.table, "income"))
    assert income[men].mean() > income[~men].mean() + 0.1
    assert income[men].std() > 1.3 * income[~men].std()


def test_lending_ability_is_a_common_cause_of_legitimate_and_descending_columns():
    people = LENDING.sample(6000)
    savings, debt = column(people.table, "savings_rate"), column(people.table, "debt_ratio")
    income, men = column(people.table, "income"), male(people.table)
    assert np.corrcoef(savings, debt)[0, 1] < -0.1
    for group in (men, ~men):
        assert np.corrcoef(savings[group], income[group])[0, 1] > 0.1


def test_heavy_tails_multiply_by_sex():
    people = HEAVY_TAILS.sample(2000)
    men = male(people.table)
    ratio = column(people.counterfactual, "speeding")[~men] / column(people.table, "speeding")[~men]
    np.testing.assert_allclose(ratio, 1.7)
    values = column(people.table, "yearly_km")
    assert values.max() > 5 * values.mean()


def test_choose_takes_the_category_whose_share_holds_the_noise():
    noise = np.array([0.0, 0.24, 0.25, 0.74, 0.75, 0.99])
    np.testing.assert_array_equal(choose(noise, 1.0, 2.0, 1.0), [0, 0, 1, 1, 2, 2])
    # one weight per person: the first category has all of the last person's share
    np.testing.assert_array_equal(choose(noise, np.array([1, 1, 1, 1, 1, 1e9]), 2.0, 1.0), [0, 0, 1, 1, 2, 0])


def test_noises_have_the_spread_they_say():
    generator = np.random.default_rng(0)
    spread, tails = uniform(generator, 20_000), student(generator, 20_000)
    assert spread.min() >= 0.0
    assert spread.max() < 1.0
    assert spread.mean() == pytest.approx(0.5, abs=0.01)
    assert (np.abs(tails) > 4).mean() > 20 * 2 * NormalDist().cdf(-4)


def test_a_world_of_ones_own_needs_functions_only():
    def height(sex, noise):
        return 165.0 + 13.0 * sex + 7.0 * noise

    def picked(height, noise):
        return (noise < (height > 175.0)).astype(float)

    variables = (Variable("height", height), Variable("picked", picked, uniform))
    people = World("team", variables, label="picked", share=0.2).sample(5000)
    assert len(people) == 5000
    assert people.descendants == ("height",)
    assert people.legitimate == ()
    assert male(people.table).mean() == pytest.approx(0.2, abs=0.03)
    np.testing.assert_array_equal(people.y == 1.0, column(people.table, "height") > 175.0)
    assert variables[1].parents == tuple(inspect.signature(picked).parameters)[:1]


def test_a_variable_before_its_parents_is_refused():
    late = (Variable("weight", lambda height, noise: height + noise), Variable("height", lambda noise: noise))
    with pytest.raises(OptionError, match="'weight' depends on 'height', which does not stand before it"):
        World("disordered", late, label="weight")


def test_a_label_that_is_no_variable_is_refused():
    with pytest.raises(OptionError, match="No variable is named 'hired'"):
        World("unlabelled", (Variable("height", lambda noise: noise),), label="hired")
