"""The benchmark runs, its peers find what they should, and its README shows the numbers of its results."""

import pytest
import torch
from torch import nn

BENCH = "bench_engine"


def test_quick_measures_every_ratio(quick):
    assert [r["name"] for r in quick["ratios"]] == [
        "gradient tests (12, 8, 2)",
        "gradient tests (20, 8, 2)",
        "integrated gradients, depth 1",
        "integrated gradients, depth 2",
        "auditor",
        "solve",
        "direction",
        "training",
    ]
    for r in quick["ratios"]:
        assert r["ratio"] > 0
        assert r["seconds_of"] > 0
        assert r["seconds_over"] > 0
        assert r["holds"] is None  # no bar counts at these sizes


def test_the_bars_are_those_that_were_promised(bench):
    assert bench.BARS == {(100, 64, 2): 5.0, (400, 64, 2): 3.5, (100, 128, 4): 5.5, (100, 1024, 4): 4.5}
    assert bench.INTEGRATED_BARS == {1: 80.0, 2: 20.0, 4: 5.0}
    assert {size[:3] for size in bench.Settings().sizes} == set(bench.BARS)


def test_the_reference_of_integrated_gradients_by_hand(bench):
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).eval()
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.fill_(-1.0)
        net[2].weight.fill_(3.0)
        net[2].bias.zero_()
    # from 0 to 4 the unit is active on 3/4 of the way: 4 * 3 * 3/4
    found = bench.reference(net, torch.tensor([[4.0]]), torch.zeros(1), 1000)
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(9.0, rel=1e-3)


def test_the_search_for_the_worst_case_written_anew_goes_up_the_loss_where_it_costs_nothing(bench):
    net = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 1.0]]))
    x, y, free = torch.zeros(5, 2), torch.ones(5, 1), torch.tensor([[1.0], [0.0]])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = bench.worst_case(net, x, y, weights=free, steps=100)
    # the loss of label 1 grows as the logit falls: along the first feature freely, along the second at a price
    assert (found[:, 0] < -0.8).all()
    assert (found[:, 1] > -0.5).all()
