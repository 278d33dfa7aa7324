from importlib.util import find_spec

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

import fairfox.maps.plans as plans
from fairfox.maps.plans import assigned_plan, entropic_plan, evenly, nearest, simplex_plan

needs_pot = pytest.mark.skipif(find_spec("ot") is None, reason="POT is not installed")


def random_rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def least_cost(cost: Tensor) -> float:
    """Return the least mean cost (n, m) of any plan between uniform groups, by linear programming."""
    n, m = cost.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    found = linprog(cost.numpy().ravel(), A_eq=sums, b_eq=[1 / n] * n + [1 / m] * m)
    return float(found.fun)


@needs_pot
@pytest.mark.parametrize(("n", "m"), [(7, 5), (4, 9)])
def test_groups_of_unequal_size_have_the_least_cost_and_the_right_marginals(n: int, m: int):
    cost = torch.cdist(random_rows(n, 2), random_rows(m, 2, seed=1), p=1).square()
    plan = simplex_plan(cost, torch.ones(n).double(), torch.ones(m).double())
    torch.testing.assert_close(plan.sum(1), torch.full((n,), 1 / n).double())
    torch.testing.assert_close(plan.sum(0), torch.full((m,), 1 / m).double())
    assert float((plan * cost).sum()) == pytest.approx(least_cost(cost))


@pytest.mark.parametrize("times", [2, 3])
def test_without_pot_a_size_that_is_a_multiple_of_the_other_is_exact(times: int):
    cost = torch.cdist(random_rows(5, 2), random_rows(5 * times, 2, seed=1), p=1).square()
    plan = assigned_plan(cost, torch.ones(5).double(), torch.ones(5 * times).double(), 5 * times, 0.3)
    torch.testing.assert_close(plan.sum(1), torch.full((5,), 0.2).double())
    assert float((plan * cost).sum()) == pytest.approx(least_cost(cost))


def test_without_pot_other_sizes_repeat_the_smaller_group_as_evenly_as_can_be():
    cost = torch.cdist(random_rows(7, 2), random_rows(5, 2, seed=1), p=1).square()
    plan = assigned_plan(cost, torch.ones(7).double(), torch.ones(5).double(), 7, 0.3)
    torch.testing.assert_close(plan.sum(1), torch.full((7,), 1 / 7).double())
    assert set((plan.sum(0) * 7).round().tolist()) == {1.0, 2.0}
    assert float((plan * cost).sum()) < 1.2 * least_cost(cost)


def test_steps_of_equal_length_give_everyone_their_part():
    assert evenly(torch.ones(4).double(), 4, 0.99).tolist() == [0, 1, 2, 3]
    assert evenly(torch.ones(2).double(), 6, 0.0).tolist() == [0, 0, 0, 1, 1, 1]
    assert evenly(torch.tensor([1.0, 3.0]).double(), 4, 0.5).tolist() == [0, 1, 1, 1]
    assert evenly(torch.ones(9).double(), 3, 0.5).tolist() == [1, 4, 7]


def test_neighbours_are_found_block_by_block(monkeypatch: pytest.MonkeyPatch):
    x, among = random_rows(50, 4), random_rows(30, 4, seed=1)
    whole = nearest(x, among)
    assert torch.equal(whole, (x[:, None] - among).abs().sum(2).argmin(1))
    monkeypatch.setattr(plans, "_CELLS", 64)
    assert torch.equal(nearest(x, among), whole)


def test_entropic_transport_comes_close_to_the_exact_one_as_regularisation_falls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans, "_MOST_ROUNDS", 3000)
    a, b = random_rows(20, 2), 1.5 * random_rows(20, 2, seed=1) + 1
    cost, ones = torch.cdist(a, b, p=1).square(), torch.ones(20).double()
    exact = assigned_plan(cost, ones, ones, 20, 0.5)
    gaps, distances = [], []
    for regularisation in (0.1, 0.01, 0.001):
        plan = entropic_plan(cost, ones, ones, regularisation=regularisation)
        torch.testing.assert_close(plan.sum(0), torch.full((20,), 1 / 20).double())
        assert float((plan.sum(1) - 1 / 20).abs().sum()) < 0.01
        gaps.append(float((plan * cost).sum() - (exact * cost).sum()))
        distances.append(float(((plan - exact) @ b * 20).square().mean().sqrt()))
    assert gaps == sorted(gaps, reverse=True)
    assert distances == sorted(distances, reverse=True)
    assert gaps[-1] < 0.01 * float((exact * cost).sum())
    assert distances[-1] < 0.2


@needs_pot
def test_entropic_transport_is_that_of_pot(monkeypatch: pytest.MonkeyPatch):
    import ot

    monkeypatch.setattr(plans, "_CLOSE", 1e-9)
    a, b = random_rows(20, 2), random_rows(30, 2, seed=1)
    cost = torch.cdist(a, b, p=1).square()
    weight = 0.1 * float(cost.mean())
    expected = ot.sinkhorn([1 / 20] * 20, [1 / 30] * 30, cost.numpy(), weight, method="sinkhorn_log", stopThr=1e-9)
    plan = entropic_plan(cost, torch.ones(20).double(), torch.ones(30).double(), regularisation=0.1)
    np.testing.assert_allclose(plan, expected, atol=1e-8)


def test_entropic_transport_that_does_not_arrive_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(plans, "_MOST_ROUNDS", 9)
    cost, ones = torch.cdist(random_rows(20, 2), random_rows(20, 2, seed=1), p=1).square(), torch.ones(20).double()
    entropic_plan(cost, ones, ones, regularisation=0.005)
    assert "Entropic transport stopped with" in caplog.text
