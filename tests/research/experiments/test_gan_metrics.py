"""Checks of FlipTest's generator against how good the test is."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairfox.maps.gan import GanSettings

EXPERIMENT = "gan_metrics"


def trial(ks, mse, ap, weight=1e-4, **others):
    sizes = {"n_critic": 5, "depth": 2, "width": 128, "batch": 64, "rho": 0.1, "prevalence": 0.4}
    return {"weight": weight, "ks": ks, "mse": mse, "ap": ap, **sizes, **others}


@pytest.fixture
def found():
    """Fifty generators: AP falls with KS and with lambda, rises with MSE; one has no finite MSE."""
    trials = [trial(ks=i, mse=-i, ap=1 - i / 100, weight=1e-6 * (i + 1)) for i in range(50)]
    trials[10]["mse"] = None
    return {f"gan-{i}": one for i, one in enumerate(trials)}


def test_a_broken_pipeline_is_told_by_a_tiny_run(experiment, quick_run, pmlb, tmp_path, monkeypatch):
    drawn = [GanSettings(steps=20), GanSettings(steps=30, weight=1e-2, width=8, depth=1, batch=16, n_critic=1)]
    monkeypatch.setattr(experiment, "configurations", lambda plan, seed: drawn)
    rows, sources = (
        replace(experiment.QUICK.table.rows, train=600, valid=200, test=200),
        replace(experiment.QUICK.table.sources, rows=800, steps=150, pairs=300),
    )
    tiny = replace(experiment.QUICK, trials=2, table=replace(experiment.QUICK.table, rows=rows, sources=sources))
    found = quick_run(replace(experiment.EXPERIMENT, quick=tiny), out=tmp_path / "gan_metrics.json")
    assert [one["weight"] for one in found["trials"]] == [1e-4, 1e-2]
    for one in found["trials"]:
        assert 0 < one["ks"] < 1
        assert one["mse"] > 0
        assert 0 < one["ap"] <= 1
        assert one["device"] == "cpu"
    assert found["correlations"]["ks"]["trials"] == 2
    assert Path(tmp_path / "gan_metrics.svg").stat().st_size > 1_000


def test_claims_of_the_paper_are_judged_by_the_numbers(experiment, found):
    sections = experiment.gather(replace(experiment.FULL, trials=50), found, {"versions": {}})
    assert sections["correlations"]["ks"] == {
        "spearman": pytest.approx(-1.0),
        "clear": pytest.approx(2 / 7),
        "trials": 50,
    }
    assert sections["correlations"]["mse"] == {
        "spearman": pytest.approx(1.0),
        "clear": pytest.approx(2 / 48**0.5),
        "trials": 49,
    }
    assert sections["correlations"]["width"] == {"spearman": None, "clear": None, "trials": 50}
    assert [one["verdict"] for one in sections["claims"]] == ["confirmed"] * 4
    for one in found.values():
        one["ap"] = 1 - one["ap"]
    turned = experiment.gather(replace(experiment.FULL, trials=50), found, {"versions": {}})
    assert [one["verdict"] == "confirmed" for one in turned["claims"]] == [False, False, True, False]
