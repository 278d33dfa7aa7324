"""The benchmark of certificates runs, and its README shows the numbers of its results."""

import pytest

BENCH = "bench_certificates"


def test_quick_measures_networks_and_trees_against_one_prediction(bench, quick):
    assert [(r["name"], r["bar"], r["at_most"]) for r in quick["ratios"]] == [
        ("network 0", 150, True),
        ("network 1", 300, True),
        ("histograms", 150, True),
        ("forest", 250, True),
    ]
    for r in quick["ratios"]:
        assert r["ratio"] > 1
        assert r["fastest"] == pytest.approx(r["seconds_of"] / r["seconds_over"], rel=3)
        assert f"({1e3 * r['seconds_of']:.3g} ms a person)" in r["of"]
    assert "RandomForestClassifier of 3 trees" in quick["ratios"][3]["of"]
    assert "8 people, each mapped by rank coupling" in bench.BENCHMARK.table(quick)
