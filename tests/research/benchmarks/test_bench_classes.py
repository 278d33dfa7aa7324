"""The benchmark of many classes runs, and its README shows the numbers of its results."""

import torch

BENCH = "bench_classes"


def test_quick_measures_every_test(bench, quick):
    assert [r["name"] for r in quick["ratios"]] == ["rank", "move", "faux", "faux+ng", "faux+ig", "fta+linear"]
    for r in quick["ratios"]:
        assert r["bar"] == 12
        assert r["at_most"] is True
        assert r["ratio"] > 0
        assert r["holds"] is None  # no bar counts at these sizes
    assert "| rank, 4 classes | two groups | ≤ 12 |" in bench.BENCHMARK.table(quick)
    assert "\n400 people, 4 numeric columns and 1 categorical of 3 levels;" in bench.BENCHMARK.table(quick)


def test_both_sides_are_the_same_people_in_the_same_columns(bench):
    many = bench.population(bench.QUICK)
    two = bench.halved(many)
    assert two.x is many.x
    assert two.features == many.features
    assert torch.equal(many.c[:, 0].unique(), torch.arange(4.0))
    assert torch.equal(two.c[:, 0], (many.c[:, 0] >= 2).float())
    block = many.x[:, many.features[-1].columns]
    assert torch.equal(block.sum(1), torch.ones(len(many)))
