"""The benchmark runs, slopes are those of powers, and its README shows the numbers of its results."""

import json

import pytest

BENCH = "bench_scaling"


def test_quick_measures_a_slope_along_every_axis(quick):
    assert [r["name"] for r in quick["ratios"]] == ["N", "D", "width", "K", "M"]
    for r in quick["ratios"]:
        assert r["seconds_of"] > 0
        assert r["seconds_over"] > 0
        assert r["holds"] is None


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(bench, power):
    assert bench.slope_of([10, 100, 1000], [3 * n**power for n in (10, 100, 1000)]) == pytest.approx(power)


def test_the_readme_shows_the_numbers_of_the_results(bench):
    results = json.loads(bench.BENCHMARK.results.read_text(encoding="utf-8"))
    assert results["quick"] is False
    assert bench.BENCHMARK.table(results) in bench.BENCHMARK.readme.read_text(encoding="utf-8")
