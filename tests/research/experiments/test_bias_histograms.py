"""Histograms of the true score by bias."""

from dataclasses import replace
from pathlib import Path

EXPERIMENT = "bias_histograms"


def test_with_more_bias_people_are_treated_more_differently(experiment, quick_run, pmlb, tmp_path):
    plan = replace(
        experiment.QUICK,
        worlds=experiment.QUICK.worlds[1:],
        rows=experiment.Rows(1_000, 200, 300),
        sources=experiment.Sources(rows=1_000, steps=300, pairs=500, models=1),
    )
    found = quick_run(replace(experiment.EXPERIMENT, quick=plan), out=tmp_path / "histograms.json")
    none, half, full = found["results"]
    assert [one["bias"] for one in (none, half, full)] == [0.0, 0.5, 1.0]
    assert all(sum(one["counts"]) == 300 and len(one["counts"]) == experiment.BINS for one in found["results"])
    assert full["mean"] > 2 * none["mean"]
    assert Path(tmp_path / "histograms.svg").stat().st_size > 1_000
