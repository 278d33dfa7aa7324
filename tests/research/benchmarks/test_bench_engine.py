"""The benchmark runs, its peers find what they should, and its README shows the numbers of its results."""

import pytest
import torch
from populations import weighing
from torch import nn

BENCH = "bench_engine"


def test_quick_measures_every_ratio(quick):
    assert [r["name"] for r in quick["ratios"]] == [
        *("gradient tests (12, 8, 2)", "gradient tests (20, 8, 2)"),
        *("integrated gradients, depth 1", "integrated gradients, depth 2"),
        *("auditor", "solve", "direction", "training"),
    ]
    assert all(r["ratio"] > 0 and r["seconds_of"] > 0 and r["seconds_over"] > 0 for r in quick["ratios"])


def test_the_reference_of_integrated_gradients_by_hand(bench):
    net = weighing(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)), 1.0, -1.0, 3.0, 0.0)
    # from 0 to 4 the unit is active on 3/4 of the way: 4 * 3 * 3/4
    found = bench.reference(net, torch.tensor([[4.0]]), torch.zeros(1), 1000)
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(9.0, rel=1e-3)
