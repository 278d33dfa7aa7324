"""Plain ReLU networks by hand, against autograd, and the inner products of their gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from populations import normal, seeded
from torch import nn

from fairfox.auxiliary.mlp import MLP
from fairfox.gradients.jacobian import autograd_jacobian
from fairfox.gradients.relu import ReluNetwork, block_jacobian, relu_network, short_factors
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

FEATURES = 5
X = normal(30, FEATURES, seed=1)
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def network(activation, *, outputs=1, depth=2, behind=(), bias=True):
    def make():
        layers = [nn.Linear(FEATURES, 7, bias=bias), activation()]
        for _ in range(depth - 1):
            layers += [nn.Linear(7, 7, bias=bias), activation()]
        return nn.Sequential(*layers, nn.Linear(7, outputs, bias=bias), *behind)

    return seeded(make)


NETWORKS = {
    "relu": lambda: TorchModel(network(nn.ReLU)),
    "one hidden layer": lambda: TorchModel(network(nn.ReLU, depth=1)),
    "four hidden layers": lambda: TorchModel(network(nn.ReLU, depth=4)),
    "without biases": lambda: TorchModel(network(nn.ReLU, bias=False)),
    "a probability of a logit": lambda: TorchModel(network(nn.ReLU), output=Output("logit")),
    "a sigmoid in the network": lambda: TorchModel(network(nn.ReLU, behind=[nn.Sigmoid()])),
    "a network within another": lambda: TorchModel(nn.Sequential(network(nn.ReLU), nn.Sigmoid()).eval()),
    "one of three classes": lambda: TorchModel(network(nn.ReLU, outputs=3), output=Output("logit", column=2)),
    "a softmax in the network": lambda: TorchModel(
        network(nn.ReLU, outputs=3, behind=[nn.Softmax(dim=1)]), output=Output("probability", column=0)
    ),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("batch_size", [7, 4096])
def test_derivatives_by_hand_are_those_of_autograd(make, batch_size):
    model = make()
    assert relu_network(model, FEATURES) is not None
    found = autograd_jacobian(model, X, batch_size=batch_size)
    torch.testing.assert_close(found, block_jacobian(model, X), **EXACT)
    single = autograd_jacobian(model, X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), found, rtol=1e-4, atol=1e-5)


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    net = network(nn.ReLU)
    net[1].register_forward_hook(lambda module, args, out: 2 * out)
    return net


def watched():
    net = network(nn.ReLU)
    net.register_forward_hook(lambda module, args, out: 2 * out)
    return net


OTHERS = {
    "another activation": lambda: network(nn.Tanh),
    "a leak": lambda: network(nn.LeakyReLU),
    "a layer of another kind": lambda: seeded(
        lambda: nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(), Doubling(7, 7), nn.ReLU(), nn.Linear(7, 1))
    ),
    "a hook": hooked,
    "a last layer that is normalised": lambda: network(nn.ReLU, outputs=4, behind=[nn.LayerNorm(4), nn.Linear(4, 1)]),
    "no hidden layer": lambda: seeded(lambda: nn.Sequential(nn.Linear(FEATURES, 1))),
    "a network with a hook in another": lambda: nn.Sequential(watched(), nn.Sigmoid()).eval(),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_not_plain_is_left_to_autograd(make):
    model = TorchModel(make())
    assert relu_network(model, FEATURES) is None
    torch.testing.assert_close(autograd_jacobian(model, X), block_jacobian(model, X), **EXACT)


def test_a_network_on_other_columns_is_not_taken():
    assert relu_network(TorchModel(network(nn.ReLU)), FEATURES + 1) is None


def test_the_weights_are_those_of_now():
    model = TorchModel(network(nn.ReLU))
    before = autograd_jacobian(model, X)
    with torch.no_grad():
        model.module[0].weight.mul_(2)
    torch.testing.assert_close(autograd_jacobian(model, X), block_jacobian(model, X), **EXACT)
    assert not torch.allclose(autograd_jacobian(model, X), before)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_output_and_slope_in_one_pass_are_those_of_autograd_and_leave_x_alone(depth):
    net = MLP(5, width=7, depth=depth, seed=depth).member(0).double()
    before = X.clone()
    output, slope = ReluNetwork([one.weight for one in net[::2]], [one.bias for one in net[::2]]).with_slope(X)
    torch.testing.assert_close(output, net(X)[:, 0])
    torch.testing.assert_close(slope, block_jacobian(net, X)[:, 0])
    assert torch.equal(X, before)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_inner_products_stay_what_they_are(features, own, other, with_metric):
    first, second = normal(own, features), normal(other, features, seed=1)
    root = normal(features, features, seed=2)
    metric = root @ root.T if with_metric else None
    short, (long,) = short_factors(first, [second], metric=metric)
    inner = torch.eye(features, dtype=torch.float64) if metric is None else metric
    wide = long.shape[1]
    assert short.shape[1] == min(own, features)
    assert wide <= min(own + other, features)
    padded = nn.functional.pad(short, (0, wide - short.shape[1])) if wide >= short.shape[1] else short
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(short @ short.T, first @ inner @ first.T, **close)
    torch.testing.assert_close(long @ long.T, second @ inner @ second.T, **close)
    torch.testing.assert_close(padded @ long.T, first @ inner @ second.T, **close)
