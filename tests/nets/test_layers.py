"""Layers by hand against plain networks and autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.nets.layers import backward, forward, layers_of, outputs_of, slope_by_inputs, take, through_relu
from fairfox.nets.mlp import MLP

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 11, 5, 2
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 3])


def network(depth, *, members=MEMBERS):
    return MLP(INPUTS, OUTPUTS, width=7, depth=depth, members=members, seed=4).double()


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_autograd(net, x, slope):
    """Return each member's outputs, its derivatives of sum(slope · outputs) by x and by its own Linear layers."""
    found = []
    for m in range(net.members):
        alone, rows = net.member(m), x[m].clone().requires_grad_()
        out = alone(rows)
        (out * slope[m]).sum().backward()
        found.append((out.detach(), rows.grad, [(layer.weight.grad, layer.bias.grad) for layer in alone[::2]]))
    return found


def check_against_autograd(depth, members, rows):
    net, x, slope = network(depth, members=members), numbers(members, rows, INPUTS), numbers(members, rows, OUTPUTS)
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


@settings(max_examples=25, deadline=None)
@given(depth=st.integers(0, 4), members=st.integers(1, 4), rows=st.integers(1, 9))
def test_outputs_and_all_derivatives_are_those_of_autograd(depth, members, rows):
    check_against_autograd(depth, members, rows)


@DEPTHS
def test_what_enters_each_layer_is_x_and_then_what_the_relu_before_it_lets_through(depth):
    net, x = network(depth), numbers(MEMBERS, ROWS, INPUTS)
    seen = forward(layers_of(net), x)
    assert len(seen) == depth + 1
    for m in range(MEMBERS):
        for number, entered in enumerate(seen):
            torch.testing.assert_close(entered[m], net.member(m)[: 2 * number](x[m]))


@DEPTHS
def test_gradients_are_where_an_optimiser_of_the_network_reads_them(depth):
    net, x, slope = network(depth), numbers(MEMBERS, ROWS, INPUTS), numbers(MEMBERS, ROWS, OUTPUTS)
    layers = layers_of(net)
    backward(layers, forward(layers, x), slope)
    found = [parameter.grad.clone() for parameter in net.parameters()]
    for parameter in net.parameters():
        parameter.grad = None
    (net(x) * slope).sum().backward()
    for one, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_gradients_take_the_place_of_those_before_and_are_not_added_to_them():
    layers, x, slope = layers_of(network(2)), numbers(MEMBERS, ROWS, INPUTS), numbers(MEMBERS, ROWS, OUTPUTS)
    backward(layers, forward(layers, x), slope)
    first = [layer.weight_grad.clone() for layer in layers]
    backward(layers, forward(layers, x), slope)
    assert all(torch.equal(layer.weight_grad, one) for layer, one in zip(layers, first, strict=True))


def test_the_slope_by_inputs_leaves_gradients_and_what_was_seen_alone():
    layers, x, slope = layers_of(network(2)), numbers(MEMBERS, ROWS, INPUTS), numbers(MEMBERS, ROWS, OUTPUTS)
    seen = forward(layers, x)
    before = [entered.clone() for entered in seen]
    slope_by_inputs(layers, seen, slope)
    assert all(not layer.weight_grad.any() and not layer.bias_grad.any() for layer in layers)
    assert all(map(torch.equal, seen, before))


def test_layers_see_every_step_that_an_optimiser_takes():
    net, x = network(1), numbers(MEMBERS, ROWS, INPUTS)
    layers = layers_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = outputs_of(layers, forward(layers, x))
    backward(layers, forward(layers, x), numbers(MEMBERS, ROWS, OUTPUTS))
    optimizer.step()
    after = outputs_of(layers, forward(layers, x))
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, net(x).detach())


def test_a_relu_lets_the_slope_through_where_it_is_open():
    slope, hidden = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[0.5, 0.0, 4.0]])
    assert torch.equal(through_relu(slope, hidden), torch.tensor([[1.0, 0.0, 3.0]]))


def test_rows_are_taken_for_each_member():
    values, rows = numbers(6, 3), torch.tensor([[0, 5, 5], [2, 1, 0]])
    assert torch.equal(take(values, rows), values[rows])
    assert torch.equal(take(values[:, 0], rows), values[rows, 0])
    parts = torch.arange(24).view(2, 3, 4)[:, 1]  # minibatches are cut out of larger pieces
    assert torch.equal(take(numbers(30, 2), parts), numbers(30, 2)[parts])
