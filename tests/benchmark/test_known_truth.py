"""Fairness tests against people whose true counterfactuals are known, whatever kind their protected variables are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from causal_worlds import ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS, THREE_CLASSES
from hiring_worlds import AGE, CROSSING, IDLE_MIGRANT, RACE_AND_MIGRANT, SEX_AND_RACE, SIX_CLASSES
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.benchmark.judge import spearman
from fairfox.benchmark.scm import World
from fairfox.choices.tests import FAIR_TESTS
from fairfox.data.contrasts import Contrast
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import make_test
from tests.benchmark.truths import Audited, audited

GRADIENT_TESTS = ["faux", "faux/s", "faux+ng", "faux+ng/s", "faux+ig", "faux+ig/s", "fta", "fta+linear"]


@cache
def measured(world: World) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the true score of everyone, and what each test says, fitted on other people of the same world."""
    found = audited(world)
    auxiliary = AuxiliaryModel(refits=2).fit(found.fitting)
    fixed = FixedAuxiliary(auxiliary.members, auxiliary.held_out)
    scores = {
        name: make_test(name, auxiliary=fixed, refits=2).fit(found.fitting).score(found.model, found.people)
        for name in ["rank", *GRADIENT_TESTS]
    }
    return found.effect(Contrast(0)).abs(), scores


@pytest.mark.parametrize("world", [CATEGORICAL_PROXIES, HEAVY_TAILS], ids=lambda world: world.name)
def test_rank_names_the_right_people_in_mixed_worlds_better_than_any_gradient_test(world: World):
    truth, scores = measured(world)
    rho = {name: spearman(values, truth) for name, values in scores.items()}
    assert rho["rank"] >= 0.60
    assert all(rho["rank"] > rho[name] for name in GRADIENT_TESTS), rho


# --- many classes, numbers, several variables and their crossing ------------------------------------------------------

WORLDS = (THREE_CLASSES, SIX_CLASSES, AGE, SEX_AND_RACE, RACE_AND_MIGRANT, IDLE_MIGRANT, CROSSING)
CORRELATED = (RACE_AND_MIGRANT, IDLE_MIGRANT)
BRIEF = {"fliptest": {"steps": 20, "width": 8}, "unfair_map": {"steps": 5}}  # less work than they would do
every_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)


def audit_of(world: World) -> Audited:
    return audited(world, intersections=world is CROSSING)


@cache
def said_of(world: World, *, hold_others: bool) -> Measurement:
    """Return what `rank` says, fitted on other people of the same world."""
    found = audit_of(world)
    return make_test("rank", hold_others=hold_others).fit(found.fitting).measure(found.model, found.people)


@cache
def compared(world: World) -> tuple[Measurement, Tensor]:
    """Return what `rank` says, and the true |effect| of every contrast (N, Q), the other variables held.

    Of a crossing all variables change at once, and only that is true of it: -1 for the others.
    """
    found = audit_of(world)
    said = said_of(world, hold_others=world in CORRELATED)
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


def test_held_against_the_others_a_variable_without_effect_of_its_own_is_left_alone():
    found = audit_of(IDLE_MIGRANT)
    migrant = [p.name for p in found.people.protected].index("migrant")
    alone, held = (
        said_of(IDLE_MIGRANT, hold_others=hold).of_variable(migrant, found.people).score.mean()
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
    settings = BRIEF.get(name.removesuffix("/a"))
    test = make_test(name, auxiliary=auxiliary, refits=2, settings=settings).fit(fitting)
    return test.score(audited(ADDITIVE).model, people)


COMPARABLE = [  # on people without a truth, a graph, or the protected column among their features
    name for name, about in FAIR_TESTS.items() if not (about.needs_truth or about.needs_graph or about.needs_input)
]


@pytest.mark.parametrize("name", COMPARABLE)
def test_two_classes_and_two_groups_score_alike(name: str):
    expected = scores(name, "binary")
    assert float(expected.max()) > 0.01
    torch.testing.assert_close(scores(name, "categorical"), expected, rtol=0, atol=1e-3)
