"""Several networks in one, each as it would be alone."""

import pytest
import torch
from torch import nn

from fairfox.nets.mlp import MLP


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_member_alone_predicts_what_it_predicts_among_the_others(depth):
    net, x = MLP(5, 2, width=7, depth=depth, members=3, seed=4), rows(11, 5)
    together = net(x)
    assert together.shape == (3, 11, 2)
    for m in range(3):
        torch.testing.assert_close(net.member(m)(x), together[m])


def test_a_member_is_a_plain_stack_of_linear_layers_ready_to_predict():
    member = MLP(5, 2, width=7, depth=2, members=3).member(1)
    assert [type(layer) for layer in member] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert not member.training
    assert [layer.out_features for layer in member if isinstance(layer, nn.Linear)] == [7, 7, 2]


def test_every_member_may_be_given_rows_of_its_own():
    net, x = MLP(5, members=3), rows(3, 11, 5)
    out = net(x)
    for m in range(3):
        torch.testing.assert_close(out[m], net(x[m])[m])


def test_members_keep_the_precision_of_the_network():
    net, x = MLP(5, members=2).double(), rows(4, 5, dtype=torch.float64)
    member = net.member(1)
    assert member[0].weight.dtype == torch.float64
    torch.testing.assert_close(member(x), net(x)[1], rtol=0, atol=1e-14)


def test_changing_a_member_leaves_the_network_alone():
    net, x = MLP(5, members=2), rows(4, 5)
    before = net(x)
    with torch.no_grad():
        net.member(0)[0].weight.zero_()
    torch.testing.assert_close(net(x), before)


def test_weights_start_as_those_of_a_linear_layer_and_differ_between_members():
    net = MLP(16, members=2, width=100, depth=1)
    first = net.weights[0].detach()
    assert first.shape == (2, 16, 100)
    assert first.abs().max() <= 0.25  # 1 / sqrt(16)
    assert first.std() == pytest.approx(0.25 / 3**0.5, rel=0.05)  # uniform
    assert not torch.equal(first[0], first[1])


def test_the_same_seed_gives_the_same_network_and_another_seed_another_one():
    x = rows(4, 5)
    assert torch.equal(MLP(5, seed=3)(x), MLP(5, seed=3)(x))
    assert not torch.equal(MLP(5, seed=3)(x), MLP(5, seed=4)(x))


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


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    MLP(5, members=2).member(0)
    MLP.of_seeds(5, seeds=[1, 2])
    assert torch.equal(torch.get_rng_state(), before)
