"""The benchmark of the peers' tests runs, and its README shows the numbers of its results."""

BENCH = "bench_peers"


def test_quick_measures_every_ratio_and_rows_per_second(bench, quick):
    assert [(r["name"], r["bar"], r["at_most"]) for r in quick["ratios"]] == [
        ("unfair map", 60, False),
        ("fliptest, scores", None, False),
        ("training", 20, False),
    ]
    assert all(r["ratio"] > 0 and r["seconds_of"] > 0 and r["seconds_over"] > 0 for r in quick["ratios"])
    scored = quick["ratios"][0]
    assert scored["of"] == f"unfair_map, 5 steps ({256 / scored['seconds_of']:,.0f} rows/s)"
    assert scored["over"] == f"faux, one auxiliary ({256 / scored['seconds_over']:,.0f} rows/s)"
    flipped = quick["ratios"][1]
    assert flipped["of"].startswith("FlipTest's scores, its generators trained before (")
    assert flipped["of"].endswith(f"({256 / flipped['seconds_of']:,.0f} rows/s)")
    table = bench.BENCHMARK.table(quick)
    assert "20 steps of the generators are timed and multiplied." in table
