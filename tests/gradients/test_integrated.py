"""Integrated gradients, against captum with the same rule, and completeness."""

import pytest
import torch
from captum.attr import IntegratedGradients
from populations import Function, seeded, weighing
from torch import nn

from fairfox.auxiliary.model import AuxiliaryMember
from fairfox.data.dataset import Protected
from fairfox.gradients.integrated import choose_path, integrated_jacobian, quadrature, secant_slope
from fairfox.gradients.relu import relu_network
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

BINARY = Protected("sex")
RACE = Protected("race", "categorical", ("a", "b", "c"))
FEATURES = 6
X = torch.randn(40, FEATURES, generator=torch.Generator().manual_seed(1))
BASELINE = torch.linspace(-1, 1, FEATURES)


def network(outputs=1, *, activation=nn.ReLU, dtype=torch.float32) -> nn.Sequential:
    def make():
        return nn.Sequential(
            nn.Linear(FEATURES, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, outputs)
        )

    return seeded(make).to(dtype)


def test_features_that_hold_a_unit_still_together_each_have_their_part():
    net = weighing(nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)), [[1.0, -1.0]], 1.0, 1.0, 0.0)
    # relu(a - b + 1) is active on the whole way from 0: the gradient is (1, -1) there, and the parts sum to 0
    found = integrated_jacobian(TorchModel(net), torch.tensor([[1.0, 1.0], [0.5, 0.25]]), baseline=torch.zeros(2))
    assert found[:, 0].tolist() == [[1.0, -1.0], [0.5, -0.25]]


def member() -> AuxiliaryMember:
    mask = torch.tensor([True, True, False, True, True, True])
    return AuxiliaryMember.of(network(4), mask, [BINARY, RACE])


MODELS = {
    "our auxiliary": member,
    "a torch module": lambda: TorchModel(network(), output=Output(returns="logit")),
    "a torch module of float64": lambda: TorchModel(network(dtype=torch.float64), output=Output(returns="logit")),
    "a model without the split": lambda: Function(TorchModel(network(activation=nn.Tanh))),
}


def by_captum(model, x, baseline, steps):
    """Return captum's integrated gradients of every output (N, K, D)."""
    outputs = model(x[:1]).shape[1]
    engine = IntegratedGradients(model)
    rows = [
        engine.attribute(x, baselines=baseline.expand_as(x), target=k, n_steps=steps, method="gausslegendre")
        for k in range(outputs)
    ]
    return torch.stack(rows, dim=1).detach().to(x)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("steps", [8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_integrated_gradients_are_captum_s(make, steps, dtype):
    model, x = make(), X.to(dtype)
    found = integrated_jacobian(model, x, baseline=BASELINE, path=quadrature(steps))
    assert found.dtype == dtype
    expected = by_captum(model, x, BASELINE.to(dtype), steps)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_everyone_may_have_a_baseline_of_their_own():
    model = TorchModel(network())
    path = choose_path(model, X)
    together = integrated_jacobian(model, X, baseline=X.flip(0))
    alone = [integrated_jacobian(model, X[i : i + 1], baseline=X.flip(0)[i], path=path) for i in range(len(X))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)


def finely(model, x, baseline, points=20_000):
    """Return integrated gradients (N, K, D) in float64 by the midpoint rule and autograd."""
    x, baseline = x.double(), baseline.double()
    at = (torch.arange(points, dtype=torch.float64)[:, None] + 0.5) / points
    rows = []
    for one in x:
        way = (baseline + at * (one - baseline)).requires_grad_()
        grads = [torch.autograd.grad(total, way, retain_graph=True)[0].mean(0) for total in model(way).sum(0)]
        rows.append((one - baseline) * torch.stack(grads))
    return torch.stack(rows)


def relative(found, expected):
    return (found.double() - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)


RECTIFIED = {
    "one output": lambda: TorchModel(network(dtype=torch.float64)),
    "a probability": lambda: TorchModel(network(dtype=torch.float64), output=Output(returns="logit")),
    "one of three classes": lambda: TorchModel(
        network(3, dtype=torch.float64), output=Output(returns="logit", column=1)
    ),
}


@pytest.mark.parametrize("make", RECTIFIED.values(), ids=RECTIFIED)
def test_secant_slopes_come_to_the_integral_and_faster_than_quadrature_does(make):
    model, x = make(), X[:15].double()
    expected = finely(model, x, BASELINE)
    errors = {
        steps: relative(integrated_jacobian(model, x, baseline=BASELINE, steps=steps), expected) for steps in (4, 32)
    }
    assert errors[32].median() < 1e-3
    assert errors[32].median() < errors[4].median() / 8  # a power of at least 1.5: quadrature has the first
    plain = relative(integrated_jacobian(model, x, baseline=BASELINE, path=quadrature(32)), expected)
    assert errors[32].median() < plain.median()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", ["one output", "a probability"])
def test_secant_slopes_sum_to_the_difference_exactly_however_few_they_are(name, steps):
    model, x = RECTIFIED[name](), X.double()
    found = integrated_jacobian(model, x, baseline=BASELINE, steps=steps)
    with torch.no_grad():
        difference = model(x) - model(BASELINE[None].double())
    torch.testing.assert_close(found.sum(2), difference, atol=1e-12, rtol=1e-9)


def test_one_hidden_layer_is_integrated_exactly_in_one_interval_by_hand():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    model = TorchModel(weighing(net, torch.eye(2), [-1.0, -3.0], [[2.0, 10.0]], 0.0))
    assert choose_path(model, torch.zeros(2)).nodes == (0.0, 1.0)
    found = integrated_jacobian(model, torch.tensor([[4.0, 4.0]]), baseline=torch.zeros(2))
    # the first unit is active on 3/4 of the way, the second on 1/4: 4 * 2 * 3/4 and 4 * 10 * 1/4
    torch.testing.assert_close(found, torch.tensor([[[6.0, 10.0]]]))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_the_chosen_path_keeps_its_error(activation):
    model, x = TorchModel(network(activation=activation, dtype=torch.float64)), X[:20].double()
    path = choose_path(model, BASELINE.double())
    error = relative(integrated_jacobian(model, x, baseline=BASELINE, path=path), finely(model, x, BASELINE))
    assert error.quantile(0.9) < 5e-3


def rectifier():
    """Return y = 2 relu(x - 1) as a plain network."""
    net = weighing(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)), 1.0, -1.0, 2.0, 0.0)
    return relu_network(TorchModel(net), 1)


def test_a_unit_that_does_not_move_has_its_derivative_as_slope():
    at = torch.tensor([[2.0], [-2.0], [0.0]])
    assert secant_slope(rectifier(), at, at.clone(), (0.0, 1.0)).flatten().tolist() == [2.0, 0.0, 0.0]


def test_a_path_to_a_missing_number_has_no_slope():
    found = secant_slope(rectifier(), torch.tensor([[-1.0], [-1.0]]), torch.tensor([[torch.nan], [3.0]]), (0.0, 1.0))
    assert found.flatten().isnan().tolist() == [True, False]
