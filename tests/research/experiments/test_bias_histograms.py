"""Histograms of the true score by bias."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairfox.data.catalog import DATASETS
from fairfox.data.files import find_file

BACKACHE = DATASETS["backache"].files[0]
MAGIC = DATASETS["magic"].files[0]

EXPERIMENT = "bias_histograms"


def test_with_more_bias_people_are_treated_more_differently(experiment, tmp_path):
    if find_file(MAGIC) is None or find_file(BACKACHE) is None:
        pytest.skip("the PMLB tables are not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path / "histograms.json"
    plan = replace(
        experiment.QUICK,
        worlds=experiment.QUICK.worlds[1:],
        rows=experiment.Rows(1_000, 200, 300),
        sources=experiment.Sources(rows=1_000, steps=300, pairs=500, models=1),
    )
    assert replace(experiment.EXPERIMENT, quick=plan).run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    none, half, full = found["results"]
    assert [one["bias"] for one in (none, half, full)] == [0.0, 0.5, 1.0]
    assert all(sum(one["counts"]) == 300 and len(one["counts"]) == experiment.BINS for one in found["results"])
    assert full["mean"] > 2 * none["mean"]
    assert Path(tmp_path / "histograms.svg").stat().st_size > 1_000
