"""The benchmark runs, slopes are those of powers, and its README shows the numbers of its results."""

from dataclasses import replace

import pytest

BENCH = "bench_scaling"


def test_quick_measures_a_slope_along_every_axis(quick):
    assert [r["name"] for r in quick["ratios"]] == ["N", "D", "width", "K", "M"]
    for r in quick["ratios"]:
        assert r["seconds_of"] > 0
        assert r["seconds_over"] > 0
        assert r["holds"] is None
        small, large = r["details"]["points"]
        assert small["size"] < large["size"]
        assert (r["seconds_over"], r["seconds_of"]) == (small["seconds"], large["seconds"])
        assert 0 < small["fastest"] <= small["seconds"]
        assert small["forward"] > 0


def test_a_point_says_what_its_laps_did_in_forward_passes(bench):
    found = bench.summary(30, [(6.0, 2.0), (4.0, 1.0), (10.0, 5.0)])
    assert found == {"size": 30, "seconds": 6.0, "fastest": 4.0, "forward": 2.0, "passes": 3.0}


def test_a_small_table_and_a_panel_for_every_axis(bench, quick):
    shown = bench.BENCHMARK.table(quick)
    assert "](results/scaling.png)\n\n| N, people | 100 | 200 |\n|---|---:|---:|\n| `faux`, ms | " in shown
    assert shown.count("| `faux` in forward passes |") == 5
    drawn = bench.chart(quick).to_dict()
    panels = drawn["concat"]
    assert [panel["encoding"]["x"]["title"] for panel in panels] == [what for what, _ in bench.AXES.values()]
    assert {panel["encoding"][axis]["scale"]["type"] for panel in panels for axis in ("x", "y")} == {"log"}
    for panel, ratio in zip(panels, quick["ratios"], strict=True):
        points = ratio["details"]["points"]
        values = drawn["datasets"][panel["data"]["name"]]
        shown = [(one["size"], one["ms"]) for one in values if one["what"] == "faux"]
        assert shown == [(point["size"], 1000 * point["seconds"]) for point in points]


def test_the_curves_are_written_as_pictures(bench, quick, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("\n".join(bench.BENCHMARK.marks), encoding="utf-8")
    replace(bench.BENCHMARK, results=tmp_path / "scaling.json", readme=readme).show(quick)
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "protected classes" in (tmp_path / "scaling.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(bench, power):
    assert bench.slope_of([10, 100, 1000], [3 * n**power for n in (10, 100, 1000)]) == pytest.approx(power)
