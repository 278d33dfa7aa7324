"""The one door to derivatives picks autograd or an estimate."""

import torch
from torch import Tensor

from fairfox.gradients.autograd import autograd_jacobian
from fairfox.gradients.jacobian import jacobian, slope


class Curve:
    """x0² + 3 x1, with or without autograd and one-hot blocks; remembers whether it was asked for gradients."""

    def __init__(self, *, differentiable: bool, blocks=()) -> None:
        self.differentiable, self.blocks = differentiable, blocks
        self.calls, self.asked = 0, False

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.asked |= x.requires_grad
        return x[:, :1] ** 2 + 3 * x[:, 1:2]


X = torch.tensor([[1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
EXPECTED = torch.tensor([[[2.0, 3.0]], [[4.0, 3.0]], [[-2.0, 3.0]]], dtype=torch.float64)
DIRECTION = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, -2.0]], dtype=torch.float64)
ALONG = torch.tensor([5.0, 4.0, -6.0], dtype=torch.float64)


def test_a_differentiable_model_is_differentiated_by_autograd():
    model = Curve(differentiable=True)
    torch.testing.assert_close(jacobian(model, X), EXPECTED)
    assert model.asked
    assert model.calls == 1


def test_blocks_of_rows_are_passed_on():
    model = Curve(differentiable=True)
    torch.testing.assert_close(jacobian(model, X, batch_size=2), EXPECTED)
    assert model.calls == 2


def test_a_black_box_is_estimated_from_predictions():
    model = Curve(differentiable=False)
    torch.testing.assert_close(jacobian(model, X), EXPECTED)
    assert not model.asked


def test_slope_of_a_differentiable_model_is_gradient_times_direction():
    model = Curve(differentiable=True)
    torch.testing.assert_close(slope(model, X, DIRECTION), ALONG)
    torch.testing.assert_close(slope(model, X, DIRECTION), (autograd_jacobian(model, X)[:, 0] * DIRECTION).sum(1))


def test_slope_of_a_black_box_needs_two_predictions():
    model = Curve(differentiable=False)
    torch.testing.assert_close(slope(model, X, DIRECTION), ALONG)
    assert model.calls == 2


def test_slope_of_a_black_box_with_categories_does_not_leave_the_corner_of_the_simplex():
    # The second column is a block of its own here: its derivative is f with the category less f as it is, 3 (1 - x1).
    model = Curve(differentiable=False, blocks=(slice(1, 2),))
    expected = torch.tensor([2.0 + 3.0, 4.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(slope(model, X, DIRECTION), expected)
