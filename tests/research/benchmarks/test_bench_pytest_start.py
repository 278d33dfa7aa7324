"""The benchmark of pytest's start runs, and its README shows the numbers of its results."""

import pytest

BENCH = "bench_pytest_start"


def test_quick_compares_two_starts_and_judges_nothing(bench, quick):
    (found,) = quick["ratios"]
    assert (found["name"], found["bar"], found["at_most"]) == ("start", 1, True)
    assert found["ratio"] == pytest.approx(found["seconds_of"] / 0.05)
    assert found["over"] == "50 ms"
    assert "1 laps of two runs" in bench.BENCHMARK.table(quick)
