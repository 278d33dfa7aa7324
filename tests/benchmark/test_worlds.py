"""Worlds whose bias is chosen: their truth against formulas worked by hand."""

from __future__ import annotations

import pytest
import torch
from causal_worlds import WORLDS, Drawn, draw_people
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.auxiliary.linear import LinearMember
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.fairtests.faux import LIC

ADDITIVE = ("additive", "additive, skewed", "additive, long tails")
SHIFTS = {"aptitude": 0.0, "diligence": 0.0, "experience": 1.0, "salary": 0.6 + 0.5 * 1.0, "distance": -0.8}
additive = pytest.mark.parametrize("name", ADDITIVE)


def people_of(name: str, bias: float, n: int = 300, seed: int = 3) -> Drawn:
    return draw_people(WORLDS[name].at(bias), n, n, seed=seed)


def shifts(drawn: Drawn) -> torch.Tensor:
    """Return what each column of x gains from the first group to the second (N, D), in the world's own units."""
    people = drawn.people
    away = 1 - 2 * people.c  # the second group goes back
    return away * (people.truth.counterfactual - people.x) * torch.tensor([f.scale for f in people.features])


@additive
@settings(max_examples=8, deadline=None)
@given(bias=st.floats(0.0, 1.0))
def test_another_sex_adds_the_same_to_everyone_in_additive_worlds(name: str, bias: float):
    drawn = people_of(name, bias, n=60)
    expected = bias * torch.tensor(list(SHIFTS.values()))
    assert [f.name for f in drawn.people.features] == list(SHIFTS)
    torch.testing.assert_close(shifts(drawn), expected.expand(60, -1), atol=2e-5, rtol=0)


@additive
def test_the_true_derivative_of_an_additive_world_is_its_shift(name: str):
    people = people_of(name, 0.5).people
    expected = 0.5 * torch.tensor([SHIFTS[f.name] / f.scale for f in people.features])
    torch.testing.assert_close(people.truth.dx_dc[:, :, 0], expected.expand(300, -1), atol=1e-5, rtol=0)
    rule = LinearMember(torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.5]]), torch.zeros(1))
    torch.testing.assert_close(LIC().score(rule, people), individual_fairness_score(rule, people), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", WORLDS)
def test_without_bias_everyone_is_their_own_counterfactual(name: str):
    drawn = people_of(name, 0.0)
    others = drawn.people.truth.counterfactual
    x = drawn.people.x if others.ndim == 2 else drawn.people.x[:, None]
    torch.testing.assert_close(others, x.expand_as(others), rtol=0, atol=0)


def test_the_true_score_of_three_classes_is_the_worst_over_the_two_others():
    people = people_of("three classes", 0.5).people
    assert people.truth.counterfactual.shape == (300, 2, 5)
    column = next(f for f in people.features if f.name == "salary")
    weights = torch.zeros(1, 5)
    weights[0, column.start] = column.scale  # the rule is the salary itself
    # salaries of Asian, Black and White people differ by 0.5 * 1.1 times 0.3, -1.0 and 0.0: Asians and Whites lose
    # most by being Black, 1.3 and 1.0, and Black people gain most by being Asian
    worst = 0.55 * torch.tensor([1.3, 1.3, 1.0])[people.c[:, 0].long()]
    assert people.protected[0].levels == ("Asian", "Black", "White")
    found = individual_fairness_score(LinearMember(weights, torch.zeros(1)), people)
    torch.testing.assert_close(found, worst, atol=1e-4, rtol=0)


def test_confounded_people_differ_by_more_than_another_origin_would_change():
    drawn = people_of("confounded", 1.0, n=6000)
    names = [f.name for f in drawn.people.features]
    # wage: origin adds 0.9, tenure: 0.8; schooling and savings come from the hometown
    expected = torch.tensor([{"wage": 0.9, "tenure": 0.8}.get(name, 0.0) for name in names])
    torch.testing.assert_close(shifts(drawn), expected.expand(6000, -1), atol=2e-5, rtol=0)
    here = drawn.people.c[:, 0] == 1
    scales = torch.tensor([f.scale for f in drawn.people.features])
    gap = (drawn.people.x[here].mean(0) - drawn.people.x[~here].mean(0)) * scales
    assert float(gap[names.index("schooling")]) > 0.5
    assert float(gap[names.index("wage")]) > 1.1
