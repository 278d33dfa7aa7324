"""Jacobians by autograd, against torch.func; black boxes are estimated."""

import pytest
import torch
from populations import Function, normal, seeded
from torch import Tensor, nn

from fairfox.auxiliary.model import AuxiliaryMember
from fairfox.data.dataset import Protected
from fairfox.errors import ModelError
from fairfox.gradients.jacobian import autograd_jacobian, jacobian, slope
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel


def network(outputs: int) -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs)))


X = normal(13, 4, seed=1)


@pytest.mark.parametrize("outputs", [1, 3])
def test_jacobian_is_torch_func_s(outputs):
    net = network(outputs)
    expected = torch.func.vmap(torch.func.jacrev(net))(X).detach()
    torch.testing.assert_close(autograd_jacobian(Function(net), X), expected)


def test_jacobian_of_a_constant_is_zero():
    assert not autograd_jacobian(Function(lambda x: torch.ones(len(x), 2)), X).any()
    assert autograd_jacobian(Function(lambda x: torch.ones(len(x), 2)), X).shape == (13, 2, 4)


def test_an_output_that_ignores_x_has_zero_derivatives_beside_one_that_does_not():
    weight = torch.ones(1, requires_grad=True)
    model = Function(lambda x: torch.stack([x[:, 0], weight.expand(len(x))], dim=1))
    found = autograd_jacobian(model, X.float())
    assert found[:, 0, 0].tolist() == [1.0] * 13
    assert not found[:, 1].any()


def test_nobody_has_an_empty_jacobian():
    assert autograd_jacobian(Function(network(1)), X[:0]).shape == (0, 1, 4)


SEX, RACE = Protected("sex"), Protected("race", "categorical", ("a", "b", "c"))
STARTING_LINEARLY = {
    "our auxiliary": lambda: AuxiliaryMember.of(network(4), torch.tensor([True, False, True, True]), [SEX, RACE]),
    "a torch module": lambda: TorchModel(network(1), output=Output(returns="logit")),
    "a torch module of float32": lambda: TorchModel(network(1).float(), output=Output(returns="logit")),
    "a linear model": lambda: TorchModel(nn.Sequential(nn.Linear(4, 1, bias=False)).double()),
}


@pytest.mark.parametrize("make", STARTING_LINEARLY.values(), ids=STARTING_LINEARLY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_undoing_the_first_layer_by_hand_changes_nothing(make, dtype):
    model, x = make(), X.to(dtype)
    found = autograd_jacobian(model, x, batch_size=5)
    assert found.dtype == dtype
    torch.testing.assert_close(found, autograd_jacobian(Function(model), x), atol=1e-6, rtol=1e-5)


def test_a_module_for_other_columns_says_so_itself():
    with pytest.raises(ModelError, match="The model failed on a"):
        autograd_jacobian(TorchModel(network(1)), X[:, :3])


CURVE_X = torch.tensor([[1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
EXPECTED = torch.tensor([[[2.0, 3.0]], [[4.0, 3.0]], [[-2.0, 3.0]]], dtype=torch.float64)
DIRECTION = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, -2.0]], dtype=torch.float64)
ALONG = torch.tensor([5.0, 4.0, -6.0], dtype=torch.float64)


def curve(x: Tensor) -> Tensor:
    return x[:, :1] ** 2 + 3 * x[:, 1:2]


@pytest.mark.parametrize(("differentiable", "calls"), [(True, [1, 1]), (False, [1, 2])], ids=["autograd", "black box"])
def test_derivatives_come_from_autograd_or_from_predictions_alone(differentiable, calls):
    models = [Function(curve, differentiable=differentiable) for _ in range(2)]
    torch.testing.assert_close(jacobian(models[0], CURVE_X), EXPECTED)
    torch.testing.assert_close(slope(models[1], CURVE_X, DIRECTION), ALONG)
    assert [len(model.calls) for model in models] == calls  # two predictions per person along a direction


def test_slope_of_a_black_box_with_categories_does_not_leave_the_corner_of_the_simplex():
    # The second column is a block of its own here: its derivative is f with the category less f as it is, 3 (1 - x1).
    model = Function(curve, differentiable=False, blocks=(slice(1, 2),))
    expected = torch.tensor([2.0 + 3.0, 4.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(slope(model, CURVE_X, DIRECTION), expected)
