"""Integrated gradients, against captum with the same rule, and completeness."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from fairfox.auxiliary.model import AuxiliaryMember
from fairfox.data.dataset import Protected
from fairfox.errors import OptionError
from fairfox.gradients.integrated import gauss_legendre, integrated_jacobian
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel

BINARY = Protected("sex")
RACE = Protected("race", "categorical", ("a", "b", "c"))
FEATURES = 6
X = torch.randn(40, FEATURES, generator=torch.Generator().manual_seed(1))
BASELINE = torch.linspace(-1, 1, FEATURES)


class Unsplit:
    """A model that hides that it starts with a linear layer."""

    differentiable = True

    def __init__(self, function) -> None:
        self.function = function

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


class Opaque(Unsplit):
    differentiable = False


def network(outputs=1, *, activation=nn.ReLU, dtype=torch.float32) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(FEATURES, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, outputs)
        )
    return net.to(dtype).eval()


def member() -> AuxiliaryMember:
    mask = torch.tensor([True, True, False, True, True, True])
    return AuxiliaryMember(network(4), mask, [BINARY, RACE])


MODELS = {
    "our auxiliary": member,
    "a torch module": lambda: TorchModel(network(), output=Output(returns="logit")),
    "a torch module of float64": lambda: TorchModel(network(dtype=torch.float64), output=Output(returns="logit")),
    "a model without the split": lambda: Unsplit(TorchModel(network(activation=nn.Tanh))),
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
    found = integrated_jacobian(model, x, baseline=BASELINE, steps=steps)
    assert found.dtype == dtype
    expected = by_captum(model, x, BASELINE.to(dtype), steps)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_applying_the_first_layer_once_changes_nothing(make):
    model = make()
    whole = Unsplit(model)
    found = integrated_jacobian(model, X, baseline=BASELINE)
    torch.testing.assert_close(found, integrated_jacobian(whole, X, baseline=BASELINE), atol=1e-6, rtol=1e-5)


def test_the_first_layer_really_is_applied_once():
    net = network()
    calls = []
    net[0].register_forward_hook(lambda *_: calls.append("first"))
    net[2].register_forward_hook(lambda *_: calls.append("second"))
    integrated_jacobian(TorchModel(net), X, baseline=BASELINE)
    assert calls == ["second"]  # the affine part is read off its weights


@pytest.mark.parametrize(
    "make", [lambda: TorchModel(network(activation=nn.Tanh)), lambda: Unsplit(network(3, activation=nn.Tanh))]
)
def test_integrated_gradients_of_a_smooth_model_sum_to_the_difference(make):
    model = make()
    found = integrated_jacobian(model, X, baseline=BASELINE)
    with torch.no_grad():
        difference = model(X) - model(BASELINE[None])
    torch.testing.assert_close(found.sum(2), difference, atol=1e-5, rtol=1e-5)


def test_integrated_gradients_of_a_linear_model_by_hand():
    weight = torch.tensor([[2.0], [-1.0]])
    x, baseline = torch.tensor([[1.0, 5.0]]), torch.tensor([0.5, 1.0])
    found = integrated_jacobian(Unsplit(lambda rows: rows @ weight), x, baseline=baseline)
    torch.testing.assert_close(found, torch.tensor([[[1.0, -4.0]]]))  # (0.5, 4) times (2, -1)


def test_everyone_may_have_a_baseline_of_their_own():
    model = TorchModel(network())
    together = integrated_jacobian(model, X, baseline=X.flip(0))
    alone = [integrated_jacobian(model, X[i : i + 1], baseline=X.flip(0)[i]) for i in range(len(X))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 33, 100])
def test_integrated_gradients_do_not_depend_on_the_size_of_blocks(batch_size):
    model = member()
    found = integrated_jacobian(model, X, baseline=BASELINE, batch_size=batch_size)
    torch.testing.assert_close(found, integrated_jacobian(model, X, baseline=BASELINE), atol=1e-6, rtol=1e-5)


def test_columns_hidden_from_the_auxiliary_get_nothing():
    assert not integrated_jacobian(member(), X, baseline=BASELINE)[:, :, 2].any()


def test_a_constant_has_no_integrated_gradients():
    found = integrated_jacobian(Unsplit(lambda x: torch.ones(len(x), 2)), X, baseline=BASELINE)
    assert found.shape == (40, 2, FEATURES)
    assert not found.any()


def test_nobody_has_empty_integrated_gradients():
    assert integrated_jacobian(member(), X[:0], baseline=BASELINE).shape == (0, 1, FEATURES)


def test_a_black_box_is_refused():
    with pytest.raises(OptionError, match="autograd sees through"):
        integrated_jacobian(Opaque(network()), X, baseline=BASELINE)


def test_quadrature_is_exact_for_high_powers():
    nodes, weights = (np.array(part) for part in gauss_legendre(4))
    assert weights.sum() == pytest.approx(1)
    assert (weights * nodes**7).sum() == pytest.approx(1 / 8)  # degree 2 * 4 - 1
