"""Moves that follow a gradient, against closed forms and loops written out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import curved, linear
from scipy.optimize import minimize
from torch import Tensor

from fairfox.gradients.jacobian import gradient_flow, largest_change, project_ball, steepest
from fairfox.models.torch import TorchModel

INF = float("inf")
DUAL = {1.0: INF, 2.0: 2.0, INF: 1.0}
orders = pytest.mark.parametrize("order", [1.0, 2.0, INF])


def moves(seed: int, rows: int = 6, columns: int = 5) -> Tensor:
    return 3 * torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def size(move: Tensor, order: float) -> Tensor:
    return torch.linalg.vector_norm(move, ord=order, dim=1)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (1.0, [[1.5, 0.5, 0.0]]),  # 3, 2 and -1 less 1.5 each: what is left of them is 1.5 + 0.5 = 2
        (2.0, [[6 / 14**0.5, 4 / 14**0.5, -2 / 14**0.5]]),  # shrunk from length sqrt 14 to 2
        (INF, [[2.0, 2.0, -1.0]]),
    ],
)
def test_projection_by_hand(order: float, expected: list[list[float]]):
    found = project_ball(torch.tensor([[3.0, 2.0, -1.0]]), radius=2.0, order=order)
    torch.testing.assert_close(found, torch.tensor(expected))


@orders
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), radius=st.floats(0.01, 20))
def test_projected_moves_are_inside_and_moves_inside_stay(order: float, seed: int, radius: float):
    move = moves(seed)
    found = project_ball(move, radius=radius, order=order)
    assert (size(found, order) <= radius * (1 + 1e-9)).all()
    inside = size(move, order) <= radius
    assert torch.equal(found[inside], move[inside])
    torch.testing.assert_close(project_ball(found, radius=radius, order=order), found)


def test_the_l1_projection_agrees_with_a_general_solver():
    move = moves(3, rows=1)[0].numpy()
    # d = plus - minus, both at least 0, and together at most 1
    found = minimize(
        lambda d: ((d[:5] - d[5:] - move) ** 2).sum(),
        np.full(10, 0.05),
        bounds=[(0, None)] * 10,
        constraints=[{"type": "ineq", "fun": lambda d: 1 - d.sum()}],
        method="SLSQP",
    ).x
    expected = project_ball(torch.as_tensor(move)[None], radius=1.0, order=1.0)[0]
    np.testing.assert_allclose(found[:5] - found[5:], expected, atol=1e-4)


@orders
def test_the_steepest_move_has_length_one_and_rises_by_the_dual_norm(order: float):
    gradient = moves(0)
    way = steepest(gradient, order=order)
    torch.testing.assert_close(size(way, order), torch.ones(6).double())
    torch.testing.assert_close((way * gradient).sum(1), size(gradient, DUAL[order]))
    assert not steepest(torch.zeros(2, 3), order=order).any()


@orders
def test_both_directions_are_searched(order: float):
    # at 1 the square rises to (1 + 0.5)^2 - 1 = 1.25 and falls to 0.25 - 1; of the negative it is the other way round
    x = torch.tensor([[1.0]]).double()
    for sign in (1.0, -1.0):
        square = TorchModel(lambda x, sign=sign: sign * x.square())
        found = largest_change(square, x, radius=0.5, order=order)
        torch.testing.assert_close(found, torch.tensor([1.25]).double())


def test_a_random_start_leaves_a_place_where_the_gradient_vanishes():
    dent = TorchModel(lambda x: x[:, :1].square())
    x = torch.zeros(1, 2).double()
    assert float(largest_change(dent, x, radius=1.0, restarts=0)) == 0.0
    assert float(largest_change(dent, x, radius=1.0)) == pytest.approx(1.0, abs=1e-6)


@orders
def test_the_search_finds_nearly_all_that_many_random_moves_find(order: float):
    x = moves(2, rows=3, columns=4)
    found = largest_change(curved(), x, radius=1.0, order=order)
    tried = project_ball(moves(5, rows=20_000, columns=4), radius=1.0, order=order)
    for row, best in zip(x, found, strict=True):
        change = (curved()(row + tried) - curved()(row[None])).abs().max()
        assert best >= 0.98 * change


def test_neither_blocks_nor_order_nor_the_global_generator_matter():
    x = moves(4, rows=9, columns=4)
    before = torch.get_rng_state()
    whole = largest_change(curved(), x, radius=0.5)
    assert torch.equal(before, torch.get_rng_state())
    torch.testing.assert_close(largest_change(curved(), x, radius=0.5, batch_size=2), whole)
    torch.testing.assert_close(largest_change(curved(), x.flip(0), radius=0.5), whole.flip(0))
    assert largest_change(curved(), x[:0], radius=0.5).shape == (0,)


def test_a_flow_moves_freely_inside_the_span_and_is_held_back_outside():
    # loss 2 x0 + 3 x1: x0 gains 0.1 * 2 a step. x1 has m -> m (1 - 2 * 0.5 * 0.1) + 0.1 * 3: 0.3, 0.57, 0.813
    free = torch.tensor([[1.0], [0.0]]).double()
    start = torch.tensor([[5.0, 7.0]]).double()
    found = gradient_flow(linear(2.0, 3.0), start, free, weight=0.5, rate=0.1, steps=3)
    torch.testing.assert_close(found, torch.tensor([[5.6, 7.813]]).double())
