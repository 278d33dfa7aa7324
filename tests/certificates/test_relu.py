"""Networks along the path: against hand-made tents, brute force and the counting of bends."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP
from fairfox.certificates.certify import largest_on_path
from fairfox.certificates.relu import _bends, read_network
from fairfox.errors import OptionError
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel
from tests.certificates.brute import GRID, at_points, close_to, tent


def network(inputs: int, *, width: int, depth: int, seed: int = 0, outputs: int = 1) -> nn.Sequential:
    """Return a network whose weights are large enough to bend often, in float64."""
    net = MLP(inputs, outputs, width=width, depth=depth, seed=seed).member(0).double()
    for parameter in net.parameters():
        parameter.data *= 2
    return net


def paths(people: int, features: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, move = (torch.randn(people, features, generator=generator, dtype=torch.float64) for _ in range(2))
    return x, x + move


def test_the_top_of_a_tent_is_found_where_it_is():
    here, there = torch.tensor([[0.0], [0.5], [2.0]]), torch.tensor([[4.0], [0.75], [-2.0]])
    path = largest_on_path(tent().double(), here, there)
    # from 0: up to 1 at x = 1 (t = 1/4), down to -2 at x = 4; from 1/2 up to 3/4; from f = 0 at x = 2 to 1 at x = 1
    torch.testing.assert_close(path.largest, torch.tensor([2.0, 0.25, 1.0], dtype=torch.float64))
    torch.testing.assert_close(path.at, torch.tensor([1.0, 1.0, 0.25], dtype=torch.float64))
    torch.testing.assert_close(path.end, torch.tensor([-2.0, 0.25, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(("width", "depth"), [(8, 1), (64, 2), (128, 4)])
def test_certificates_equal_brute_force_and_are_never_below_it(width: int, depth: int):
    model = TorchModel(network(10, width=width, depth=depth), output=Output("logit"))
    here, there = paths(4, 10)
    path = largest_on_path(model, here, there)
    brute = at_points(model, here, there)
    assert bool((path.largest >= brute - 1e-12).all())
    closer = torch.maximum(brute, at_points(model, here, there, close_to(path.at)))
    torch.testing.assert_close(path.largest, closer, atol=1e-9, rtol=0)
    torch.testing.assert_close(path.largest, brute, atol=1e-4, rtol=0)  # the grid itself may miss a top by so much


def test_between_bends_the_log_odds_are_linear():
    net = network(4, width=12, depth=3)
    here, there = paths(3, 4, seed=5)
    owner, t, values = _bends(read_network(TorchModel(net)).layers, here, there)
    same = owner[1:] == owner[:-1]
    middle = (0.5 * (t[1:] + t[:-1]))[same]
    rows = here[owner[1:][same]] + middle[:, None] * (there - here)[owner[1:][same]]
    torch.testing.assert_close(
        net(rows).detach(), (0.5 * (values[1:] + values[:-1]))[same].detach(), atol=1e-12, rtol=0
    )
    assert len(middle) > 10


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 9), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_neither_order_nor_batches_nor_units_of_the_output_matter(seed: int, batch: int, scale: float):
    net = network(3, width=8, depth=2, seed=seed)
    here, there = paths(8, 3, seed=seed)
    path = largest_on_path(net, here, there)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    mixed = largest_on_path(net, here[order], there[order], batch_size=batch)
    torch.testing.assert_close(mixed.largest, path.largest[order], atol=1e-12, rtol=1e-12)
    net[-1].weight.data *= scale
    net[-1].bias.data *= scale
    torch.testing.assert_close(largest_on_path(net, here, there).largest, scale * path.largest)


def test_other_layers_of_trained_networks_are_read_too():
    inner = network(4, width=8, depth=1)
    norm = nn.BatchNorm1d(4).double()
    norm.running_mean, norm.running_var = torch.tensor([1.0, 2, 3, 4]).double(), torch.tensor([1.0, 4, 9, 16]).double()
    norm.weight.data, norm.bias.data = torch.tensor([1.0, -1, 2, 1]).double(), torch.tensor([0.0, 1, 0, -1]).double()
    net = nn.Sequential(norm, nn.Sequential(inner, nn.Identity()), nn.Dropout(), nn.Sigmoid(), nn.Flatten(0)).eval()
    here, there = paths(4, 4)
    path = largest_on_path(net, here, there)
    brute = at_points(TorchModel(net), here, there, torch.cat([GRID, path.at]))
    torch.testing.assert_close(path.largest, brute, atol=1e-9, rtol=0)


def test_two_log_odds_are_one_and_a_column_of_values_is_its_own():
    net = network(3, width=8, depth=2, outputs=2)
    here, there = paths(4, 3)
    odds = TorchModel(net, output=Output("logit", column=1))
    soft = TorchModel(nn.Sequential(net, nn.Softmax(dim=1)), output=Output("probability", column=1))
    value = TorchModel(net, output=Output("value", column=0))
    for model in (odds, soft, value):
        path = largest_on_path(model, here, there)
        brute = at_points(model, here, there, torch.cat([GRID, path.at]))
        torch.testing.assert_close(path.largest, brute, atol=1e-9, rtol=0)
    torch.testing.assert_close(largest_on_path(odds, here, there).largest, largest_on_path(soft, here, there).largest)


@pytest.mark.parametrize(
    ("net", "output", "message"),
    [
        (nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)), Output(), "has a Tanh; .* support Linear, ReLU"),
        (nn.Sequential(nn.Linear(2, 3)), Output("logit", column=1), "mixes 3 columns"),
        (nn.Sequential(nn.Linear(2, 3), nn.Softmax(dim=1)), Output("probability", column=1), "mixes 3 columns"),
        (nn.Sequential(nn.ReLU()), Output(), "mixes 0 columns"),
        (MLP(2, width=4, depth=1), Output(), "has a MLP"),
    ],
)
def test_networks_that_bend_otherwise_are_refused(net: nn.Module, output: Output, message: str):
    with pytest.raises(OptionError, match=message):
        read_network(TorchModel(net, output=output))


def test_functions_and_hooks_are_refused():
    with pytest.raises(OptionError, match="function of tensors"):
        read_network(TorchModel(torch.sigmoid))
    net = nn.Sequential(nn.Linear(2, 1))
    net[0].register_forward_hook(lambda module, inputs, out: out + 1)
    with pytest.raises(OptionError, match="has hooks"):
        read_network(TorchModel(net))
