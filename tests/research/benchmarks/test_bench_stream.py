"""What runs say of memory, workers and growth, as medians over laps; the page on speed shows the results."""

from dataclasses import replace

import pytest

BENCH = "bench_stream"


@pytest.fixture
def settings(bench):
    return replace(bench.QUICK, few=100, many=1000, most=10_000, laps=3)


def run_of(seconds=10.0, work=8.0, moved=1.0, largest=200.0, total=400.0, load=0.5):
    memory = {"largest": largest, "total": total}
    return {"seconds": seconds, "scoring": seconds / 1.25, "work": work, "moved": moved, **memory, "load": load}


@pytest.fixture
def runs():
    """Three laps; the middle one is not in the middle of the numbers."""
    return {
        (100, 1): [run_of(seconds=1.0, work=0.1)] * 3,
        (1000, 2): [run_of(largest=largest) for largest in (180.0, 220.0, 200.0)],
        (10_000, 1): [run_of(seconds=s, work=w, load=1.04) for s, w in ((30.0, 11.0), (50.0, 12.0), (20.0, 10.0))],
        (10_000, 2): [
            run_of(seconds=10.0, moved=2.0, work=10.0, largest=210.0, total=400.0, load=0.5),
            run_of(seconds=40.0, moved=9.0, work=20.0, largest=300.0, total=700.0, load=2.0),
            run_of(seconds=15.0, moved=1.0, work=8.0, largest=190.0, total=390.0, load=1.0),
        ],
    }


def test_every_number_is_a_median_over_laps_beside_the_lowest(bench, settings, runs):
    found = {r.name: r for r in bench.ratios(settings, runs)}
    assert {name: (r.ratio, r.fastest) for name, r in found.items()} == {
        "memory": (210.0, 190.0),
        "memory, all": (400.0, 390.0),
        "flat": (210 / 200, 190 / 180),
        "input and output": (2 / 10, 1 / 8),
        "verdict": (1.25, 1.25),
        "workers": (30 / 15, 20 / 10),
        "slope, from above": pytest.approx((1.0207, 1.0), abs=1e-4),  # log10(110) / 2, log10(100) / 2
        "slope, from below": pytest.approx((1.0207, 1.0), abs=1e-4),
    }
    assert [r.bar for r in found.values()] == [300, 900, 1.1, 0.25, 1.3, 1.0, 1.05, 0.95]
    assert (found["workers"].seconds_of, found["workers"].seconds_over) == (30.0, 15.0)
    assert (found["flat"].seconds_of, found["flat"].seconds_over) == (15.0, 10.0)
