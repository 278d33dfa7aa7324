"""What fAux and FlipTest need on real tables."""

import sys
from dataclasses import replace

import pytest
import torch

from fairfox.data.dataset import Dataset
from fairfox.maps.gan import GanSettings

EXPERIMENT = "resources"


def needs(parameters, seconds, rate):
    return {
        "columns": 101,
        "fitting_rows": 4,
        "scored_rows": 1,
        "parameters": parameters,
        "training_seconds": seconds,
        "rows_per_second": rate,
    }


@pytest.fixture
def found():
    """FlipTest: 25 times the training, 12 times the parameters, half the speed."""
    return {
        "resources-faux-adult": needs(1_000, 2.0, 400_000.0),
        "resources-fliptest-adult": needs(12_000, 50.0, 200_000.0),
    }


@pytest.fixture
def plan(experiment):
    return replace(experiment.FULL, tables=("adult", "chicago"))


@pytest.fixture
def people():
    """Five hundred made-up people with as many columns as Adult has."""
    x = torch.randn(500, 101, generator=torch.Generator().manual_seed(0))
    return Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())


def test_a_small_run_measures_everything_and_says_what_was_not_run(experiment, quick_run, people, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": experiment.NOT_RUN})
    monkeypatch.setitem(sys.modules["real_data"].TABLES, "bank", lambda: people)
    tiny = replace(experiment.QUICK, gan=GanSettings(steps=20))
    sections = quick_run(replace(experiment.EXPERIMENT, quick=tiny))
    assert sections["not_run"] == {"chicago": "not run: file not available"}
    (bank,) = sections["results"]
    assert (bank["columns"], bank["fitting_rows"], bank["scored_rows"]) == (101, 400, 100)
    # 64-64-1: 101 * 64 + 64 + 64 * 64 + 64 + 64 + 1
    assert bank["faux"]["parameters"] == 10_753
    # two each way: 101 * 128 + 128 + 128 * 128 + 128, and after it 128 * 101 + 101 or, for the critic, 128 + 1
    assert bank["fliptest"]["parameters"] == 2 * (2 * 29_568 + 13_029 + 129)
    for test in ("faux", "fliptest"):
        assert bank[test]["training_seconds"] > 0
        assert bank[test]["rows_per_second"] > 0


def test_ratios_say_how_many_times_more_fliptest_needs(experiment, plan, found):
    sections = experiment.gather(plan, found, {})
    (adult,) = sections["results"]
    wanted = {"training": 25.0, "parameters": 12.0, "scoring": 2.0}
    assert adult["ratios"] == wanted
    assert sections["paper"]["adult"]["ratios"] == pytest.approx({"training": 1012 / 12, "parameters": 220 / 13})
    assert "columns" not in adult["faux"]
