import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.nets.mlp import MLP
from fairfox.nets.slopes import ReluNet


def by_hand(net: torch.nn.Sequential) -> ReluNet:
    linears = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    return ReluNet([one.weight.detach() for one in linears], [one.bias.detach() for one in linears])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_output_and_slope_are_those_of_autograd(depth):
    net = MLP(5, width=7, depth=depth, seed=depth).member(0).double()
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    out = net(x)[:, 0]
    (slope,) = torch.autograd.grad(out.sum(), x)
    found = by_hand(net).with_slope(x.detach())
    torch.testing.assert_close(found[0], out.detach())
    torch.testing.assert_close(found[1], slope)


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 29))
def test_rows_do_not_depend_on_their_block(cut):
    net = by_hand(MLP(3, width=4, depth=2, seed=1).member(0).double())
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(1)).double()
    whole, parts = net.with_slope(x), [net.with_slope(part) for part in (x[:cut], x[cut:])]
    torch.testing.assert_close(torch.cat([part[0] for part in parts]), whole[0])
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), whole[1])


def test_x_stays_as_it_is():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(2)).double()
    before = x.clone()
    by_hand(MLP(3, width=4, depth=1).member(0).double()).with_slope(x)
    assert torch.equal(x, before)
