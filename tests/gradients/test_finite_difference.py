"""Derivatives from predictions alone, by hand and against autograd."""

from functools import partial

import pytest
import torch
from populations import Function
from torch import Tensor

from fairfox.gradients.jacobian import (
    WIDE_STEP,
    autograd_jacobian,
    default_step,
    directional_derivative,
    finite_difference_jacobian,
    suited_step,
)

opaque = partial(Function, differentiable=False)  # autograd is not allowed to see through it


def smooth(x: Tensor) -> Tensor:
    return torch.sigmoid(x[:, :1] - 2 * x[:, 1:2] * x[:, 2:3])


def rows(count=40, columns=3, *, dtype=torch.float64):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-8), (torch.float32, 1e-4)])
def test_derivative_agrees_with_autograd(dtype, error):
    x, v = rows(dtype=dtype), rows(columns=3, dtype=dtype).flip(0)
    expected = (autograd_jacobian(Function(smooth), x)[:, 0] * v).sum(1)
    torch.testing.assert_close(directional_derivative(opaque(smooth), x, v), expected, atol=error, rtol=error)


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e19])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_distance_walked_does_not_depend_on_the_length_of_the_direction(size, dtype):
    x, v = rows(dtype=dtype), torch.ones(40, 3, dtype=dtype)
    expected = size * directional_derivative(opaque(smooth), x, v)
    torch.testing.assert_close(directional_derivative(opaque(smooth), x, size * v), expected, rtol=1e-2, atol=0)


def test_jacobian_agrees_with_autograd():
    x = rows()
    found = finite_difference_jacobian(opaque(smooth), x)
    torch.testing.assert_close(found, autograd_jacobian(Function(smooth), x), atol=1e-8, rtol=1e-6)


def test_all_variants_of_a_few_people_are_asked_for_in_one_call():
    model = opaque(smooth)
    finite_difference_jacobian(model, rows())
    assert model.calls == [7 * 40]


def test_along_a_category_the_derivative_is_the_change_of_the_prediction_when_it_is_put_in_place():
    # f = 2 x0 + worth of the category (10, 11, 15); people in categories 0 and 2
    worth = torch.tensor([[10.0], [11.0], [15.0]], dtype=torch.float64)
    model = opaque(lambda x: 2 * x[:, :1] + x[:, 1:] @ worth, blocks=(slice(1, 4),))
    x = torch.tensor([[0.5, 1, 0, 0], [3.0, 0, 0, 1]], dtype=torch.float64)
    expected = torch.tensor([[[2.0, 0, 1, 5]], [[2.0, -5, -4, 0]]], dtype=torch.float64)
    torch.testing.assert_close(finite_difference_jacobian(model, x), expected)


def test_a_step_function_is_seen_at_the_step_that_is_asked_for():
    # a tree's edge at 0, 0.05 away: a small step misses it, a step of 0.1 sees it
    model = opaque(lambda x: (x[:, :1] > 0).double())
    x, v = torch.tensor([[-0.05]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    assert directional_derivative(model, x, v).item() == 0.0
    assert directional_derivative(model, x, v, step=0.1).item() == pytest.approx(5.0)  # 1 / 0.2


def test_a_step_function_gets_a_step_that_leaves_its_bins_and_a_smooth_one_a_small_one():
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stairs = opaque(lambda x: (20 * x).floor().sum(1, keepdim=True) / 20)
    smooth = opaque(lambda x: x.sin().sum(1, keepdim=True))
    constant = opaque(lambda x: torch.zeros(len(x), 1, dtype=x.dtype))
    assert suited_step(stairs, x) == WIDE_STEP
    assert suited_step(smooth, x) == default_step(x)
    assert suited_step(constant, x) == default_step(x)
