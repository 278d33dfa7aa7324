"""What everyone would write does what it says."""

import torch
from torch import nn

BENCH = "baselines"


def test_a_forward_pass_in_blocks_is_that_of_everyone_at_once(bench):
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Linear(3, 1)
    found = bench.forward_pass(net, x, 4)
    torch.testing.assert_close(found, torch.sigmoid(net(x)).detach())
    assert not found.requires_grad


def test_the_plain_loop_learns_who_is_in_the_group(bench):
    x = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    c = (x[:, 0] > 0).float()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = bench.trained_alone(x, c, width=8, depth=1, batch=32, epochs=20, seed=0)
    told = (net(x)[:, 0] > 0).float()
    assert float((told == c).float().mean()) > 0.9
