"""Mean slopes of plain networks on a straight way, by hand and against autograd; more stands in test_integrated.py."""

import pytest
import torch
from torch import nn

from fairfox.gradients.chain import block_jacobian, chain_of
from fairfox.gradients.secant import crossing_times, quadrature_slope, secant_slope
from fairfox.models.torch_model import TorchModel


def rectifier(leak=0.0):
    """Return y = 2 relu(x - 1), with a leak below, as a chain."""
    net = nn.Sequential(nn.Linear(1, 1), nn.LeakyReLU(leak) if leak else nn.ReLU(), nn.Linear(1, 1)).eval()
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.fill_(-1.0)
        net[2].weight.fill_(2.0)
        net[2].bias.fill_(0.0)
    return chain_of(TorchModel(net), 1)


@pytest.mark.parametrize(("leak", "expected"), [(0.0, 1.5), (0.5, 1.75)])
@pytest.mark.parametrize("nodes", [(0.0, 1.0), (0.0, 0.1, 0.7, 1.0)])
def test_the_mean_slope_of_one_unit_by_hand(leak, expected, nodes):
    # from -1 to 3 before the unit: active on 3/4 of the way with slope 2; below zero the leak's share of it
    found = secant_slope(rectifier(leak), torch.tensor([[-1.0]]), torch.tensor([[3.0]]), nodes)
    torch.testing.assert_close(found, torch.tensor([[[expected]]]))


@pytest.mark.parametrize(("leak", "expected"), [(0.0, [2.0, 0.0, 0.0]), (0.5, [2.0, 1.0, 1.0])])
def test_a_unit_that_stands_still_has_the_slope_of_where_it_stands(leak, expected):
    at = torch.tensor([[2.0], [-2.0], [0.0]])
    found = secant_slope(rectifier(leak), at, at.clone(), (0.0, 1.0))
    assert found.flatten().tolist() == expected


def test_a_way_that_is_not_known_has_no_slope():
    found = secant_slope(rectifier(), torch.tensor([[-1.0], [-1.0]]), torch.tensor([[torch.nan], [3.0]]), (0.0, 1.0))
    assert found.flatten().isnan().tolist() == [True, False]


def test_a_quadrature_is_the_weighted_mean_of_slopes_at_its_points():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)).double().eval()
        begin, end = torch.randn(2, 6, 5, dtype=torch.float64)
    chain, tail = chain_of(TorchModel(net), 3), nn.Sequential(*list(net)[1:])
    found = quadrature_slope(chain, begin, end, (0.25, 0.5), (0.4, 0.6))
    at = [begin + node * (end - begin) for node in (0.25, 0.5)]
    expected = 0.4 * block_jacobian(tail, at[0]) + 0.6 * block_jacobian(tail, at[1])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_units_pass_zero_where_they_do():
    begin, end = torch.tensor([[-1.0, 2.0, 1.0, 1.0]]), torch.tensor([[3.0, -2.0, 2.0, 1.0]])
    assert crossing_times(begin, end).tolist() == [0.25, 0.5]  # the third stays above, the fourth stands still
