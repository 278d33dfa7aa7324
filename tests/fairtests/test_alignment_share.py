"""The alignment share of a model: bounds, hand-worked values, black boxes."""

import pytest
import torch
from populations import Function, normal
from torch import Tensor

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary, heads_of
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.effect import model_alignment
from fairfox.gradients.alignment import alignment_parts, covariance_metric, ratio_of_sums
from fairfox.gradients.jacobian import autograd_jacobian, jacobian
from fairfox.models.torch import TorchModel

RACE = Protected("race", "categorical", ("a", "b", "c"))
METRIC = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))


def linear(*rows) -> LinearMember:
    weights = torch.tensor(rows, dtype=torch.float64)
    return LinearMember(weights, torch.zeros(len(rows), dtype=torch.float64))


def people(count=1000, features=6):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, dtype=torch.float64, generator=generator)
    x[:, 1] += 0.8 * x[:, 0]
    return Dataset.from_arrays(x, (x[:, 0] + torch.randn(count, generator=generator) > 0).double())


def two_columns(count=4):
    return Dataset.from_arrays(torch.zeros(count, 2, dtype=torch.float64), torch.arange(count).double() % 2)


def curve(x: Tensor) -> Tensor:
    return torch.sigmoid(x[:, :1] + 0.5 * x[:, 1:2] * x[:, 2:3] - x[:, 3:4])


def bend(x: Tensor) -> Tensor:
    return torch.tanh(x[:, :1]) + 0.3 * x[:, 1:2] ** 2 + 0.2 * x[:, 4:5]


def share(model, data, *members, metric=METRIC, **options):
    return [one.value for one in model_alignment(model, data, FixedAuxiliary(members), metric, **options)]


@pytest.mark.parametrize("differentiable", [True, False])
def test_share_of_linear_models_is_the_squared_cosine_in_the_metric(differentiable):
    # g = (1, 1), a = (1, -1), S = diag(4, 1): g S a = 3, g S g = a S a = 5
    target = Function(lambda x: x.sum(1, keepdim=True), differentiable=differentiable)
    data = two_columns(4 if differentiable else 1000)
    (found,) = share(target, data, linear([1.0, -1.0]))
    assert found == pytest.approx(0.36, abs=1e-12 if differentiable else 0.05)


@pytest.mark.parametrize("differentiable", [True, False])
def test_share_is_one_along_the_auxiliary_and_zero_across_it(differentiable):
    data = two_columns(1000)
    along = Function(lambda x: 3 * x[:, :1] - 3 * x[:, 1:], differentiable=differentiable)
    across = Function(lambda x: x[:, :1] + 4 * x[:, 1:], differentiable=differentiable)  # 4 * 1 - 1 * 4
    assert share(along, data, linear([1.0, -1.0]))[0] == pytest.approx(1.0, abs=1e-9 if differentiable else 0.05)
    assert share(across, data, linear([1.0, -1.0]))[0] == pytest.approx(0.0, abs=1e-9)


def test_share_is_averaged_over_the_auxiliary_s_members():
    target = Function(lambda x: x.sum(1, keepdim=True))
    # (1, 0): (g S a)² / (a S a) (g S g) = 16 / 20
    found = share(target, two_columns(), linear([1.0, -1.0]), linear([1.0, 0.0]))
    assert found == pytest.approx([(0.36 + 0.8) / 2])


def test_every_variable_has_a_share_of_its_own():
    data = Dataset.from_arrays(torch.zeros(4, 2, dtype=torch.float64), [[0.0, 0], [1, 1], [0, 1], [1, 0]])
    target = Function(lambda x: x.sum(1, keepdim=True))
    assert share(target, data, linear([1.0, -1.0], [1.0, 0.0])) == pytest.approx([0.36, 0.8])


@pytest.mark.parametrize("differentiable", [True, False])
def test_share_of_classes_is_the_share_inside_their_span(differentiable):
    # three centred logits over two of three features; the target has variation 1 + 4 inside the span and 4 outside
    data = Dataset.from_arrays(torch.zeros(999, 3, dtype=torch.float64), torch.arange(999.0) % 3, protected=[RACE])
    target = Function(lambda x: x @ torch.tensor([[1.0], [2.0], [2.0]], dtype=x.dtype), differentiable=differentiable)
    member = linear([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, 0.0])
    (found,) = share(target, data, member, metric=torch.eye(3, dtype=torch.float64))
    assert found == pytest.approx(5 / 9, abs=1e-12 if differentiable else 0.05)


def test_share_by_gradients_follows_its_formula():
    data = people()
    metric = covariance_metric(data.x)
    target, member = Function(curve), Function(bend)
    grad_tar, jac_aux = jacobian(target, data.x)[:, 0], jacobian(member, data.x)
    expected = ratio_of_sums(*alignment_parts(grad_tar, jac_aux, metric, heads=heads_of(data.protected)))
    assert share(target, data, member, metric=metric) == [pytest.approx(expected)]
    assert share(target, data, member, metric=metric, batch_size=77) == [pytest.approx(expected)]


@pytest.mark.parametrize("seed", range(3))
def test_a_black_box_s_share_is_close_to_that_of_the_same_function_seen_through(seed):
    data = people()
    metric = covariance_metric(data.x)
    (expected,) = share(Function(curve), data, Function(bend), metric=metric)
    (found,) = share(Function(curve, differentiable=False), data, Function(bend), metric=metric, seed=seed)
    assert 0.1 < expected < 0.9
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("blocks", [(), (slice(0, 0),)], ids=["by directions", "column by column"])
def test_what_a_black_box_costs_is_bounded(blocks):
    data, target = people(5000), Function(curve, differentiable=False, blocks=blocks)
    share(target, data, Function(bend), Function(bend), metric=covariance_metric(data.x))
    assert sum(target.calls) <= 5_000
    assert min(target.calls) >= 200


def test_people_where_the_auxiliary_is_flat_do_not_count():
    data = Dataset.from_arrays(torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64), c=[0, 1])
    member = Function(lambda x: torch.relu(x[:, :1]))
    target = Function(lambda x: x.sum(1, keepdim=True))
    assert share(target, data, member) == pytest.approx([0.8])  # person 1 alone: 16 / 20
    assert share(target, data[1:], member) == [0.0]


def test_the_standard_error_is_that_of_a_ratio_of_sums():
    # one member, g and a per person: A = sum(along) / sum(whole); error = sqrt(sum((along - A whole)^2)) / sum(whole)
    data = Dataset.from_arrays(normal(40, 5), torch.arange(40) % 2)
    target, member = TorchModel(curve), TorchModel(bend)
    metric = torch.eye(5, dtype=torch.float64)
    grad, jac = autograd_jacobian(target, data.x)[:, 0], autograd_jacobian(member, data.x)
    along = (grad * jac[:, 0]).sum(1) ** 2 / jac[:, 0].square().sum(1)
    whole = grad.square().sum(1)
    expected = float((along - along.sum() / whole.sum() * whole).square().sum().sqrt() / whole.sum())
    (found,) = model_alignment(target, data, FixedAuxiliary([member]), metric)
    assert found.error == pytest.approx(expected)
    # half the people: about sqrt(2) times the error
    (half,) = model_alignment(target, data[torch.arange(20)], FixedAuxiliary([member]), metric)
    assert half.error > found.error
