"""Derivatives from predictions alone, by hand and against autograd."""

import pytest
import torch
from torch import Tensor

from fairfox.gradients.jacobian import (
    WIDE_STEP,
    autograd_jacobian,
    default_step,
    directional_derivative,
    finite_difference_jacobian,
    suited_step,
)


class Opaque:
    """A function of encoded rows that autograd is not allowed to see through."""

    differentiable = False

    def __init__(self, function, blocks=()) -> None:
        self.function, self.blocks, self.calls = function, blocks, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.function(x.detach())


class Clear:
    differentiable = True

    def __init__(self, function) -> None:
        self.function = function

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


def smooth(x: Tensor) -> Tensor:
    return torch.sigmoid(x[:, :1] - 2 * x[:, 1:2] * x[:, 2:3])


def rows(count=40, columns=3, *, dtype=torch.float64):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(0)).to(dtype)


def test_the_step_follows_the_precision():
    assert default_step(torch.zeros(1, dtype=torch.float32)) == 1e-2
    assert default_step(torch.zeros(1, dtype=torch.float64)) == 1e-4


def test_derivative_of_a_quadratic_is_exact():
    # f = x0² + x0 x1 at (1, 2): gradient (4, 1); along (3, -2): 12 - 2
    model = Opaque(lambda x: x[:, :1] ** 2 + x[:, :1] * x[:, 1:])
    x, v = torch.tensor([[1.0, 2.0]], dtype=torch.float64), torch.tensor([[3.0, -2.0]], dtype=torch.float64)
    assert directional_derivative(model, x, v, step=0.5).item() == pytest.approx(10.0)
    assert directional_derivative(model, x, v).item() == pytest.approx(10.0)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-8), (torch.float32, 1e-4)])
def test_derivative_agrees_with_autograd(dtype, error):
    x, v = rows(dtype=dtype), rows(columns=3, dtype=dtype).flip(0)
    expected = (autograd_jacobian(Clear(smooth), x)[:, 0] * v).sum(1)
    torch.testing.assert_close(directional_derivative(Opaque(smooth), x, v), expected, atol=error, rtol=error)


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e19])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_distance_walked_does_not_depend_on_the_length_of_the_direction(size, dtype):
    x, v = rows(dtype=dtype), torch.ones(40, 3, dtype=dtype)
    expected = size * directional_derivative(Opaque(smooth), x, v)
    torch.testing.assert_close(directional_derivative(Opaque(smooth), x, size * v), expected, rtol=1e-2, atol=0)


def test_jacobian_agrees_with_autograd():
    x = rows()
    found = finite_difference_jacobian(Opaque(smooth), x)
    torch.testing.assert_close(found, autograd_jacobian(Clear(smooth), x), atol=1e-8, rtol=1e-6)


def test_all_variants_of_a_few_people_are_asked_for_in_one_call():
    model = Opaque(smooth)
    finite_difference_jacobian(model, rows())
    assert model.calls == 1


def test_along_a_category_the_derivative_is_the_change_of_the_prediction_when_it_is_put_in_place():
    # f = 2 x0 + worth of the category (10, 11, 15); people in categories 0 and 2
    worth = torch.tensor([[10.0], [11.0], [15.0]], dtype=torch.float64)
    model = Opaque(lambda x: 2 * x[:, :1] + x[:, 1:] @ worth, blocks=(slice(1, 4),))
    x = torch.tensor([[0.5, 1, 0, 0], [3.0, 0, 0, 1]], dtype=torch.float64)
    expected = torch.tensor([[[2.0, 0, 1, 5]], [[2.0, -5, -4, 0]]], dtype=torch.float64)
    torch.testing.assert_close(finite_difference_jacobian(model, x), expected)


def test_a_step_function_is_seen_at_the_step_that_is_asked_for():
    # a tree's edge at 0, 0.05 away: a small step misses it, a step of 0.1 sees it
    model = Opaque(lambda x: (x[:, :1] > 0).double())
    x, v = torch.tensor([[-0.05]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    assert directional_derivative(model, x, v).item() == 0.0
    assert directional_derivative(model, x, v, step=0.1).item() == pytest.approx(5.0)  # 1 / 0.2


def test_a_step_function_gets_a_step_that_leaves_its_bins_and_a_smooth_one_a_small_one():
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stairs = Opaque(lambda x: (20 * x).floor().sum(1, keepdim=True) / 20)
    smooth = Opaque(lambda x: x.sin().sum(1, keepdim=True))
    constant = Opaque(lambda x: torch.zeros(len(x), 1, dtype=x.dtype))
    assert suited_step(stairs, x) == WIDE_STEP
    assert suited_step(smooth, x) == default_step(x)
    assert suited_step(constant, x) == default_step(x)
