"""Many classes, numbers, several protected variables and their crossing, against what is truly so."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.contrasts import Contrast
from fairfox.data.dataset import Dataset, Protected
from fairfox.evaluation import spearman
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import FAIR_TESTS, make_test
from fairfox.synthetic.scm import World
from fairfox.synthetic.two_groups import ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS, LENDING
from fairfox.synthetic.worlds import (
    AGE,
    CROSSING,
    IDLE_MIGRANT,
    RACE_AND_MIGRANT,
    SEX_AND_RACE,
    SIX_CLASSES,
    THREE_CLASSES,
)
from tests.synthetic.truths import Audited, audited

WORLDS = (THREE_CLASSES, SIX_CLASSES, AGE, SEX_AND_RACE, RACE_AND_MIGRANT, IDLE_MIGRANT, CROSSING)
CORRELATED = (RACE_AND_MIGRANT, IDLE_MIGRANT)
BRIEF = {"fliptest": {"steps": 20, "width": 8}, "unfair_map": {"steps": 5}}  # less work than they would do
every_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)


def column(table, name):
    return table[name].to_numpy(zero_copy_only=False)


def audit_of(world: World) -> Audited:
    return audited(world, intersections=world is CROSSING)


@cache
def measured(world: World, *, hold_others: bool) -> Measurement:
    """Return what `rank` says, fitted on other people of the same world."""
    found = audit_of(world)
    return make_test("rank", hold_others=hold_others).fit(found.fitting).measure(found.model, found.people)


@cache
def compared(world: World) -> tuple[Measurement, Tensor]:
    """Return what `rank` says, and the true |effect| of every contrast (N, Q), the other variables held.

    Of a crossing all variables change at once, and only that is true of it: -1 for the others.
    """
    found = audit_of(world)
    said = measured(world, hold_others=world in CORRELATED)
    truth = found.truth(said).nan_to_num(nan=-1.0)
    for q, contrast in enumerate(said.contrasts):
        if world is CROSSING and not found.people.protected[contrast.variable].parts:
            truth[:, q] = -1.0
    return said, truth


@every_world
def test_rank_orders_people_by_their_true_worst_effect(world: World):
    said, truth = compared(world)
    assert not said.abstained.any()
    assert float(truth.amax(1).std()) > 0.02  # there is something to order
    assert spearman(said.score, truth.amax(1)) >= 0.90


@every_world
def test_rank_names_the_variable_and_class_that_truly_count_most(world: World):
    said, truth = compared(world)
    worst = truth.amax(1, keepdim=True)
    right = truth >= 0.999 * worst  # classes that are alike in truth are equally right
    clear = worst[:, 0] > 2 * truth.masked_fill(right, 0.0).amax(1)
    assert float(clear.float().mean()) > 0.1
    named = torch.stack([is_named(said, contrast, audit_of(world).people) for contrast in said.contrasts], dim=1)
    assert float((named & right).any(1)[clear].float().mean()) >= 0.90


def is_named(said: Measurement, contrast: Contrast, data: Dataset) -> Tensor:
    """Return whose worst contrast is this one (N,); up and down a number, or the other of two groups, is its name."""
    variable = said.variable == contrast.variable
    many = data.protected[contrast.variable].kind == "categorical"
    return variable & (said.klass == contrast.towards) if many else variable


def test_both_variables_are_named_somewhere():
    race, migrant = (int((compared(w)[0].variable == v).sum()) for w, v in ((SEX_AND_RACE, 1), (RACE_AND_MIGRANT, 1)))
    assert min(race, migrant) > 1000


def test_held_against_the_others_a_variable_without_effect_of_its_own_is_left_alone():
    found = audit_of(IDLE_MIGRANT)
    migrant = [p.name for p in found.people.protected].index("migrant")
    alone, held = (
        measured(IDLE_MIGRANT, hold_others=hold).of_variable(migrant, found.people).score.mean()
        for hold in (False, True)
    )
    assert float(found.effect(Contrast(migrant)).abs().max()) == 0.0
    assert float(alone) > 0.05  # migrants differ, because of their race
    assert float(held) <= float(alone) / 5


def test_a_crossing_shows_what_neither_of_its_variables_shows_alone():
    said, truth = compared(CROSSING)
    people = audit_of(CROSSING).people
    for v in (0, 1):
        assert float(said.of_variable(v, people).score.mean()) <= float(truth.amax(1).mean()) / 5
    assert float((said.variable == 2).float().mean()) >= 0.90


@cache
def two_groups(kind: str) -> tuple[Dataset, Dataset, FixedAuxiliary]:
    """Return people of two groups to fit on and to audit, read as this kind of variable, and an auxiliary."""
    found = audited(ADDITIVE)
    variable = (Protected("sex", kind, ("Female", "Male"), "sex"),)
    fitting, people = (replace(data[:2000], protected=variable) for data in (found.fitting, found.people))
    auxiliary = AuxiliaryModel(refits=2, max_epochs=10).fit(fitting)
    return fitting, people, FixedAuxiliary(auxiliary.members, auxiliary.held_out)


def scores(name: str, kind: str) -> Tensor:
    fitting, people, auxiliary = two_groups(kind)
    options = BRIEF.get(name.removesuffix("/a"))
    test = make_test(name, auxiliary=auxiliary, refits=2, options=options).fit(fitting)
    return test.score(audited(ADDITIVE).model, people)


COMPARABLE = [  # on people without a truth, a graph, or the protected column among their features
    name for name, about in FAIR_TESTS.items() if not (about.needs_truth or about.needs_graph or about.needs_input)
]


@pytest.mark.parametrize("name", COMPARABLE)
def test_two_classes_and_two_groups_score_alike(name: str):
    expected = scores(name, "binary")
    assert float(expected.max()) > 0.01
    torch.testing.assert_close(scores(name, "categorical"), expected, rtol=0, atol=1e-3)


def as_number(data: Dataset) -> Dataset:
    return replace(data, protected=(Protected("sex", "continuous", (), "sex"),))


@pytest.mark.parametrize("world", [ADDITIVE, LENDING, CATEGORICAL_PROXIES, HEAVY_TAILS], ids=lambda world: world.name)
def test_a_number_of_two_values_ranks_people_as_two_groups_do(world: World):
    found = audited(world)
    groups, number = (
        make_test("rank").fit(read(found.fitting)).score(found.model, read(found.people))
        for read in (lambda data: data, as_number)
    )
    assert spearman(number, groups) >= 0.95


@every_world
def test_everyone_has_legitimate_and_other_features_and_both_labels_are_common(world: World):
    people = world.sample(4000)
    assert people.legitimate == ("aptitude", "diligence")
    assert people.descendants == ("experience", "salary", "distance")
    assert 0.25 < people.y.mean() < 0.75


def test_another_race_shifts_everyone_by_the_difference_of_the_head_starts():
    people = THREE_CLASSES.sample(500)
    moved = people.as_if({"race": "Black"})
    own = np.array([0.3, -1.0, 0.0])[people.values["race"].astype(int)]  # Asian, Black, White
    np.testing.assert_allclose(column(moved, "experience") - column(people.table, "experience"), -1.0 - own, atol=1e-9)
    # salary: 0.6 of the head start, and half of what it does for experience
    shift = column(moved, "salary") - column(people.table, "salary")
    np.testing.assert_allclose(shift, 1.1 * (-1.0 - own), atol=1e-9)


def test_a_standard_deviation_of_age_shifts_everyone_alike():
    people = AGE.sample(500)
    moved = people.as_if({"age": column(people.table, "age") + 12.0})
    for name, shift in {"experience": 0.6, "salary": 0.66, "distance": 0.4, "aptitude": 0.0}.items():
        np.testing.assert_allclose(column(moved, name) - column(people.table, name), shift, atol=1e-9)


def test_migrating_says_much_about_race_and_does_nothing_in_one_of_the_worlds():
    for world in CORRELATED:
        people = world.sample(5000)
        black = column(people.table, "race") == "Black"
        migrant = column(people.table, "migrant") == "yes"
        assert migrant[black].mean() == pytest.approx(0.7, abs=0.05)
        assert migrant[~black].mean() < 0.2
        moved = people.as_if({"migrant": "yes"})
        assert moved["race"].equals(people.table["race"])
        assert moved["salary"].equals(people.table["salary"]) is (world is IDLE_MIGRANT)


def test_neither_the_sexes_nor_the_races_of_the_crossing_differ():
    people = CROSSING.sample(40_000)
    for name in people.descendants:
        values = column(people.table, name)
        for protected in people.protected:
            first = people.values[protected] == 0
            # two means of 20 000 each, of values with a spread of about 1.3: a standard error of 0.013
            assert values[first].mean() == pytest.approx(values[~first].mean(), abs=0.05)
            assert values[first].std() == pytest.approx(values[~first].std(), rel=0.03)
    ahead = people.values["sex"] == people.values["race"]
    salary = column(people.table, "salary")
    assert salary[ahead].mean() - salary[~ahead].mean() == pytest.approx(1.1 * 1.2, abs=0.05)
