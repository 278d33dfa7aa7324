"""Networks behind a projection."""

import torch

from fairfox.nets.mlp import MLP
from fairfox.nets.projection import behind


def test_the_network_on_x_equals_the_inner_one_on_the_projected_x():
    generator = torch.Generator().manual_seed(0)
    projection, x = torch.randn(5, 3, generator=generator), torch.randn(20, 5, generator=generator)
    net = MLP(3, 2, width=8, depth=2, seed=1).member(0)
    torch.testing.assert_close(behind(projection, net)(x), net(x @ projection))


def test_columns_left_out_have_no_weight_and_the_inner_network_is_left_alone():
    net = MLP(2, width=4, depth=1).member(0)
    before = net[0].weight.clone()
    merged = behind(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), net)
    assert torch.equal(merged[0].weight, torch.stack([before[:, 0], torch.zeros(4), before[:, 1]], dim=1))
    assert torch.equal(net[0].weight, before)


def test_the_global_generator_is_left_alone():
    net, before = MLP(2).member(0), torch.get_rng_state()
    behind(torch.eye(2), net)
    assert torch.equal(before, torch.get_rng_state())
