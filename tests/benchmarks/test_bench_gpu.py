"""The benchmark runs without a GPU too, and its README shows the numbers of its results."""

import json

BENCH = "bench_gpu"


def test_quick_measures_every_ratio(quick):
    names = ["rows a second", "share of the bandwidth", "equal to the processor", "from Parquet"]
    assert [r["name"] for r in quick["ratios"]] == names
    assert all(r["holds"] is None for r in quick["ratios"])  # no bar counts at these sizes
    assert quick["ratios"][2]["ratio"] < 1e-4


def test_the_readme_shows_the_numbers_of_the_results(bench):
    results = json.loads(bench.BENCHMARK.results.read_text(encoding="utf-8"))
    assert results["quick"] is False
    assert results["settings"]["gpu"] != "no GPU"
    assert bench.BENCHMARK.table(results) in bench.BENCHMARK.readme.read_text(encoding="utf-8")
