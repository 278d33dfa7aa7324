"""Short coordinates keep inner products, and are short."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairfox.alignment import products
from fairfox.gradients.autograd import autograd_jacobian
from fairfox.gradients.coordinates import pairing_of, short_factors, whole_products
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def network(features, width, seed, outputs=1):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, outputs)).double().eval()


@pytest.mark.parametrize("features", [3, 8, 20])
def test_products_of_a_pair_are_those_of_their_gradients(features):
    x = normal(25, features, seed=3)
    target = TorchModel(network(features, 6, 0), output=Output("logit"))
    other = TorchModel(network(features, 5, 1), output=Output("logit"))
    pairing = pairing_of(target, [other], x)
    found = whole_products([pairing.pieces(pairing.gradient(few), pairing.jacobian(0, few)) for few in x.split(10)])
    expected = products(autograd_jacobian(target, x)[:, 0], autograd_jacobian(other, x)[:, 0])
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-14)


def test_something_that_is_no_plain_network_makes_no_pair():
    x = normal(4, 3)
    plain, other = TorchModel(network(3, 4, 0)), TorchModel(lambda rows: rows[:, :1])
    assert pairing_of(plain, [plain], x) is not None
    assert pairing_of(plain, [plain, other], x) is None
    assert pairing_of(other, [plain], x) is None
