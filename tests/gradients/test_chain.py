"""Plain networks by hand, against autograd; what is not plain is left to autograd."""

import pytest
import torch
from torch import nn

from fairfox.gradients.autograd import autograd_jacobian, chain_jacobian
from fairfox.gradients.chain import block_jacobian, chain_of
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel

FEATURES = 5
X = torch.randn(30, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double().eval()


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
    "leaky relu": lambda: TorchModel(network(lambda: nn.LeakyReLU(0.1))),
    "elu": lambda: TorchModel(network(lambda: nn.ELU(0.7))),
    "tanh": lambda: TorchModel(network(nn.Tanh)),
    "sigmoid": lambda: TorchModel(network(nn.Sigmoid)),
    "without biases": lambda: TorchModel(network(nn.ReLU, bias=False)),
    "a probability of a logit": lambda: TorchModel(network(nn.ReLU), output=Output("logit")),
    "a sigmoid in the network": lambda: TorchModel(network(nn.ReLU, behind=[nn.Sigmoid()])),
    "one of three classes": lambda: TorchModel(network(nn.ReLU, outputs=3), output=Output("logit", column=2)),
    "a softmax in the network": lambda: TorchModel(
        network(nn.Tanh, outputs=3, behind=[nn.Softmax(dim=1)]), output=Output("probability", column=0)
    ),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("batch_size", [7, 4096])
def test_derivatives_by_hand_are_those_of_autograd(make, batch_size):
    model = make()
    chain = chain_of(model, FEATURES)
    found = chain_jacobian(chain, X, batch_size=batch_size)
    torch.testing.assert_close(found, block_jacobian(model, X), **EXACT)
    torch.testing.assert_close(chain_jacobian(chain, X[:3]), found[:3], **EXACT)  # memory of a larger block is used
    single = chain_jacobian(chain_of(make(), FEATURES), X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), found, rtol=1e-4, atol=1e-5)


def test_several_outputs_have_a_derivative_each():
    class Raw(TorchModel):
        def __call__(self, x):
            return self.module(x)

        @property
        def first_affine(self):
            weight, bias, tail = super().first_affine
            return weight, bias, type(tail)(tail.layers)

    model = Raw(network(nn.ReLU, outputs=3))
    found = autograd_jacobian(model, X, batch_size=8)
    assert found.shape == (30, 3, FEATURES)
    torch.testing.assert_close(found, block_jacobian(model, X), **EXACT)


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
    "another activation": lambda: network(nn.GELU),
    "a layer of another kind": lambda: seeded(
        lambda: nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(), Doubling(7, 7), nn.ReLU(), nn.Linear(7, 1))
    ),
    "a hook": hooked,
    "a last layer that is normalised": lambda: network(nn.ReLU, outputs=4, behind=[nn.LayerNorm(4), nn.Linear(4, 1)]),
    "no hidden layer": lambda: seeded(lambda: nn.Sequential(nn.Linear(FEATURES, 1))),
    "a chain with a hook in another": lambda: nn.Sequential(watched(), nn.Sigmoid()).eval(),
    "a leak that turns around": lambda: network(lambda: nn.LeakyReLU(-0.5)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_not_plain_is_left_to_autograd(make):
    model = TorchModel(make())
    assert chain_of(model, FEATURES) is None
    torch.testing.assert_close(autograd_jacobian(model, X), block_jacobian(model, X), **EXACT)


def test_a_network_on_other_columns_is_no_chain():
    assert chain_of(TorchModel(network(nn.ReLU)), FEATURES + 1) is None


def test_the_weights_are_those_of_now():
    model = TorchModel(network(nn.ReLU))
    before = autograd_jacobian(model, X)
    with torch.no_grad():
        model.module[0].weight.mul_(2)
    torch.testing.assert_close(autograd_jacobian(model, X), block_jacobian(model, X), **EXACT)
    assert not torch.allclose(autograd_jacobian(model, X), before)


def test_a_chain_within_another_is_a_chain():
    model = TorchModel(nn.Sequential(network(nn.ReLU), nn.Sigmoid()).eval())
    assert chain_of(model, FEATURES) is not None
    torch.testing.assert_close(autograd_jacobian(model, X), block_jacobian(model, X), **EXACT)
