"""Structural causal models: the counterfactuals are true, and the worlds are as they say."""

import numpy as np
import pytest
from causal_worlds import ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS

from fairfox.benchmark.scm import Variable, World, choose, uniform
from fairfox.benchmark.worlds import LENDING
from fairfox.errors import OptionError, ShapeError

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


def test_a_seed_gives_the_people_it_has_always_given():
    first = LENDING.sample(1000, seed=0).table.slice(0, 1).to_pylist()[0]
    assert (first["sex"], first["sector"], first["contract"], first["approved"]) == ("Female", "care", "fixed-term", 0)
    assert first["income"] == pytest.approx(32396.3045, abs=1e-4)  # depends on what is drawn before it
    assert first["leave_months"] == pytest.approx(32.5659, abs=1e-4)  # the last that is drawn


@every_world
def test_everyone_changes_group_and_keeps_what_sex_does_not_act_on(world):
    people = world.sample(500)
    assert people.counterfactual.column_names == people.table.column_names
    assert (male(people.table) != male(people.counterfactual)).all()
    assert len(people.legitimate) >= 2
    for name in people.legitimate:
        assert people.counterfactual[name].equals(people.table[name])


def test_choose_takes_the_category_whose_share_holds_the_noise():
    noise = np.array([0.0, 0.24, 0.25, 0.74, 0.75, 0.99])
    np.testing.assert_array_equal(choose(noise, 1.0, 2.0, 1.0), [0, 0, 1, 1, 2, 2])
    # one weight per person: the first category has all of the last person's share
    np.testing.assert_array_equal(choose(noise, np.array([1, 1, 1, 1, 1, 1e9]), 2.0, 1.0), [0, 0, 1, 1, 2, 0])


def family():
    """A world with every kind of protected variable: a child's class depends on that of its parent."""
    variables = (
        Variable("wealth", lambda noise: noise, latent=True),
        Variable("race", lambda noise: choose(noise, 1.0, 1.0, 1.0), uniform, ("a", "b", "c")),
        Variable("migrant", lambda race, noise: (noise < 0.3 * race).astype(float), uniform, ("no", "yes")),
        Variable("age", lambda wealth, noise: 40.0 + 5.0 * wealth + 10.0 * noise),
        Variable("height", lambda noise: noise),
        Variable("income", lambda race, migrant, age, noise: 10.0 * race - 3.0 * migrant + 0.5 * age + noise),
        Variable("hired", lambda income, noise: (income + noise > 30.0).astype(float)),
    )
    return World("family", variables, label="hired", protected=("race", "migrant", "age"))


def test_protected_variables_are_no_features_and_what_none_of_them_acts_on_is_legitimate():
    people = family().sample(10)
    assert people.table.column_names == ["race", "migrant", "age", "height", "income", "hired"]
    assert people.features == ("height", "income")
    assert people.legitimate == ("height",)


def test_as_if_sets_one_variable_and_holds_the_other_protected_ones():
    people = family().sample(400)
    moved = people.as_if({"race": "c"})
    assert set(column(moved, "race")) == {"c"}
    for name in ("migrant", "age", "height"):  # who migrated depends on race, and stays all the same
        assert moved[name].equals(people.table[name])
    # 10 per class on the way to the third
    steps = 2.0 - people.values["race"]
    np.testing.assert_allclose(column(moved, "income") - column(people.table, "income"), 10.0 * steps, atol=1e-9)


def test_as_if_moves_a_number_by_as_much_as_is_asked_for():
    people = family().sample(400)
    age = column(people.table, "age")
    moved = people.as_if({"age": age + age.std()})
    np.testing.assert_allclose(column(moved, "age"), age + age.std())
    expected = column(people.table, "income") + 0.5 * age.std()
    np.testing.assert_allclose(column(moved, "income"), expected, atol=1e-9)
    assert set(column(people.as_if({"age": 40.0}), "age")) == {40.0}


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"height": 1.0}, OptionError, "'height' is not protected here; change 'race' or 'migrant' or 'age'"),
        ({"race": "d"}, OptionError, "'race' is never 'd'; its levels are a, b, c"),
        ({"race": 1}, OptionError, "'race' is never '1'; its levels are a, b, c"),
        ({"age": np.zeros(4)}, ShapeError, "4 values of 'age' for 5 people; give one for all or one each"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(changes, kind, message):
    with pytest.raises(kind, match=message):
        family().sample(5).as_if(changes)


def test_many_groups_have_no_single_counterfactual():
    with pytest.raises(OptionError, match="The world 'family' has no single other group; ask as_if for one"):
        _ = family().sample(5).counterfactual
