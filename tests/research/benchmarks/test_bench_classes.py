"""The benchmark of many classes runs, and its README shows the numbers of its results."""

BENCH = "bench_classes"


def test_quick_measures_every_test(bench, quick):
    assert [r["name"] for r in quick["ratios"]] == ["rank", "move", "faux", "faux+ng", "faux+ig", "fta+linear"]
    for r in quick["ratios"]:
        assert r["bar"] == 12
        assert r["at_most"] is True
        assert r["ratio"] > 0
    assert "| rank, 4 classes | two groups | ≤ 12 |" in bench.BENCHMARK.table(quick)
    assert "\n400 people, 4 numeric columns and 1 categorical of 3 levels;" in bench.BENCHMARK.table(quick)
