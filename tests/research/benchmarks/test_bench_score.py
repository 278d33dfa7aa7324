"""The benchmark runs, and its README shows the numbers of its results."""

import pytest
import torch
from populations import weighing

BENCH = "bench_score"


def test_quick_measures_every_ratio(quick):
    assert [r["name"] for r in quick["ratios"]] == ["gradient tests", "row by row", "rank on trees", "training"]
    assert [r["bar"] for r in quick["ratios"]] == [6.5, 150, 2.3, 1.0]
    assert all(r["ratio"] > 0 and r["seconds_of"] > 0 and r["seconds_over"] > 0 for r in quick["ratios"])


def test_algorithm_1_by_hand(bench):
    target = weighing(torch.nn.Linear(2, 1), [[2.0, 1.0]], 0.0)
    auxiliary = weighing(torch.nn.Linear(2, 1, bias=False), [[3.0, 4.0]])
    # at 0 the sigmoid's slope is 1/4: (0.5, 0.25) . (3, 4) / 25
    assert bench.algorithm_1(target, auxiliary, torch.zeros(2)) == pytest.approx(0.1)
