"""What hiding c costs and brings on generated people."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.data.catalog import DATASETS
from fairfox.data.files import find_file

BACKACHE = DATASETS["backache"].files[0]
MAGIC = DATASETS["magic"].files[0]

EXPERIMENT = "fair_training"


def target(mean_ifs, auc, c_auc=0.6):
    return {"accuracy": 0.8, "balanced_accuracy": 0.7, "auc": auc, "c_auc": c_auc, "gap": 0.1, "mean_ifs": mean_ifs}


@pytest.fixture
def plan(experiment):
    return replace(experiment.FULL, settings=experiment.SETTINGS[:2], floors=(None, 3.0), seeds=2)


@pytest.fixture
def found():
    """Two settings, two seeds: floor 3 treats people less differently, and costs 0.03 of the label's AUC."""
    out = {}
    for setting in ("Synthetic-1", "Synthetic-2"):
        for seed in (0, 1):
            targets = {
                "plain": target(0.3 + 0.2 * seed, 0.9, c_auc=0.8),
                "3": target(0.02, 0.67),
                "cannot see c": target(0.0, 0.7),
            }
            out[f"hiding-{setting}-{seed}"] = {"columns": 20, "targets": targets}
    return out


def test_targets_that_hide_treat_people_less_differently(experiment, tmp_path):
    if find_file(MAGIC) is None or find_file(BACKACHE) is None:
        pytest.skip("the PMLB tables are not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out, before = tmp_path / "fair.json", torch.random.get_rng_state()
    plan = replace(
        experiment.QUICK,
        rows=experiment.Rows(800, 200, 300),
        sources=experiment.Sources(rows=1_000, steps=200, pairs=300, models=1),
        hiding=HidingSettings(epochs=6, batch_size=64, decay=0.3),
    )
    assert replace(experiment.EXPERIMENT, quick=plan).run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    found = json.loads(out.read_text(encoding="utf-8"))
    plain, least, most = found["results"]
    assert [one["floor"] for one in (plain, least, most)] == [None, 0.0, 3.0]
    assert plain["mean_ifs_mean"] > 2 * most["mean_ifs_mean"]
    (blind,) = found["blind"]
    assert blind["mean_ifs_mean"] < 1e-5  # its first layer removes what depends on c
    assert found["bars"][0]["holds"]
    assert Path(tmp_path / "fair.svg").stat().st_size > 1_000
