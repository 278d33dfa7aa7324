"""The benchmark runs without a GPU too, and its README shows the numbers of its results."""

BENCH = "bench_gpu"


def test_quick_measures_every_ratio(quick):
    names = ["rows a second", "share of the bandwidth", "equal to the processor", "from Parquet"]
    assert [r["name"] for r in quick["ratios"]] == names
    assert quick["ratios"][2]["ratio"] < 1e-4
