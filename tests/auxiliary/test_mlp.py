"""Several networks in one, each as it would be alone; their gradients by hand, against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import normal

from fairfox.auxiliary.mlp import MLP, backward, behind, forward, layers_of, outputs_of, slope_by_inputs


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_member_alone_predicts_what_it_predicts_among_the_others(depth):
    net, x = MLP(5, 2, width=7, depth=depth, members=3, seed=4), rows(11, 5)
    together = net(x)
    assert together.shape == (3, 11, 2)
    for m in range(3):
        torch.testing.assert_close(net.member(m)(x), together[m])


def test_every_member_may_be_given_rows_of_its_own():
    net, x = MLP(5, members=3), rows(3, 11, 5)
    out = net(x)
    for m in range(3):
        torch.testing.assert_close(out[m], net(x[m])[m])


@pytest.mark.parametrize("depth", [0, 2])
def test_members_of_several_seeds_are_those_that_each_seed_gives_alone(depth):
    seeds, x = [7, 3, 7], rows(4, 5)
    net = MLP.of_seeds(5, 2, width=6, depth=depth, seeds=seeds)
    assert (net.members, net.inputs, net.outputs, net.width, net.depth) == (3, 5, 2, 6, depth)
    for m, seed in enumerate(seeds):
        alone = MLP(5, 2, width=6, depth=depth, seed=seed).member(0)
        for one, other in zip(net.member(m).parameters(), alone.parameters(), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(net(x)[0], net(x)[2])
    assert not torch.equal(net(x)[0], net(x)[1])


INPUTS, OUTPUTS = 5, 2


def by_autograd(net, x, slope):
    """Return each member's outputs, its derivatives of sum(slope · outputs) by x and by its own Linear layers."""
    found = []
    for m in range(net.members):
        alone, rows = net.member(m), x[m].clone().requires_grad_()
        out = alone(rows)
        (out * slope[m]).sum().backward()
        found.append((out.detach(), rows.grad, [(layer.weight.grad, layer.bias.grad) for layer in alone[::2]]))
    return found


@settings(max_examples=25, deadline=None)
@given(depth=st.integers(0, 4), members=st.integers(1, 4), rows=st.integers(1, 9))
def test_outputs_and_all_derivatives_are_those_of_autograd(depth, members, rows):
    net = MLP(INPUTS, OUTPUTS, width=7, depth=depth, members=members, seed=4).double()
    x, slope = normal(members, rows, INPUTS), normal(members, rows, OUTPUTS)
    layers = layers_of(net)
    seen = forward(layers, x)
    outputs, by_x = outputs_of(layers, seen), slope_by_inputs(layers, seen, slope)
    backward(layers, seen, slope)
    for m, (expected, expected_by_x, gradients) in enumerate(by_autograd(net, x, slope)):
        torch.testing.assert_close(outputs[m], expected)
        torch.testing.assert_close(by_x[m], expected_by_x)
        for layer, (weight, bias) in zip(layers, gradients, strict=True):
            torch.testing.assert_close(layer.weight_grad[m].T, weight)
            torch.testing.assert_close(layer.bias_grad[m, 0], bias)


def test_the_network_on_x_equals_the_inner_one_on_the_projected_x():
    generator = torch.Generator().manual_seed(0)
    projection, x = torch.randn(5, 3, generator=generator), torch.randn(20, 5, generator=generator)
    net = MLP(3, 2, width=8, depth=2, seed=1).member(0)
    torch.testing.assert_close(behind(projection, net)(x), net(x @ projection))
