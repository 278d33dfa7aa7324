"""The benchmark runs, slopes are those of powers, and its README shows the numbers of its results."""

import pytest

BENCH = "bench_scaling"


def test_quick_measures_a_slope_along_every_axis(quick):
    assert [r["name"] for r in quick["ratios"]] == ["N", "D", "width", "K", "M"]
    for r in quick["ratios"]:
        small, large = r["details"]["points"]
        assert small["size"] < large["size"]
        assert (r["seconds_over"], r["seconds_of"]) == (small["seconds"], large["seconds"])
        assert 0 < small["fastest"] <= small["seconds"]
        assert small["forward"] > 0


def test_a_point_says_what_its_laps_did_in_forward_passes(bench):
    found = bench.summary(30, [(6.0, 2.0), (4.0, 1.0), (10.0, 5.0)])
    assert found == {"size": 30, "seconds": 6.0, "fastest": 4.0, "forward": 2.0, "passes": 3.0}


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(bench, power):
    assert bench.slope_of([10, 100, 1000], [3 * n**power for n in (10, 100, 1000)]) == pytest.approx(power)
