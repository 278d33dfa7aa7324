"""Every test on targets that hide c and on targets that do not."""

import json
import math
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from populations import weighing
from torch import nn

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.data.contrasts import Contrast
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.datasets import load_adult
from fairfox.errors import FileError
from fairfox.fairtests.protocol import combine
from fairfox.maps.gan import GanSettings
from fairfox.models.torch import TorchModel

EXPERIMENT = "fair_vs_unfair"
FLOORS = ("plain", "0", "0.5", "1", "3", "10")
PAPER = {"fta", "fta+linear", "unfair_map", "fliptest", "faux", "faux+ng", "faux+ig"}
SCALED = ("rank", "move", "move-direct")
ADVERSARIAL = " (adversarial auxiliary)"
LEVELS = ("Husband", "Own-child", "Wife")


# --- one small run of everything ------------------------------------------------------------------------------------


def made_up():
    """Return two hundred people whose first number tells their group, and no `relationship`."""
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    x[:, 0] += torch.arange(200) % 2
    return Dataset.from_arrays(x, c=(torch.arange(200) % 2).float(), y=(x[:, 0] + x[:, 1] > 0.5).float())


def no_file():
    raise FileError("the list is not on this machine")


@pytest.fixture(scope="module")
def found(experiment, quick_run, need):
    """Return the results of a small run on people of Adult and on made-up ones."""
    need("adult")
    plan = replace(
        experiment.QUICK,
        tables=("adult", "bank", "chicago"),
        rows=500,
        hiding=HidingSettings(epochs=2, batch_size=64),
        gan=GanSettings(steps=5),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, load in {"adult": cache(load_adult), "bank": made_up, "chicago": no_file}.items():
            patch.setitem(sys.modules["real_data"].TABLES, name, load)
        own = replace(experiment.EXPERIMENT, quick=plan, charts={})  # pictures have a test of their own
        return quick_run(own)


def results_of(found, table):
    return {(one["test"], one["target"]): one for one in found["results"] if one["table"] == table}


def test_every_test_is_told_of_every_target(found):
    for table in ("adult", "bank"):
        own = results_of(found, table)
        tests = {test for test, _ in own}
        assert tests >= PAPER | {*SCALED, *(f"{name}/a" for name in SCALED)}
        assert tests >= {f"{name}{after}" for name in ("faux", "faux+ng", "faux+ig") for after in (ADVERSARIAL,)}
        assert own.keys() == {(test, target) for test in tests for target in ("plain", "3")}
    for one in found["results"]:
        assert 0 <= one["auc"][0] <= 1
        assert one["box"] == sorted(one["box"])
        assert all(map(math.isfinite, one["mean"]))


def test_the_plain_target_is_not_above_itself(found):
    for one in found["results"]:
        if one["target"] == "plain":
            assert one["auc"] == [0.5, 0.0]


def test_aligned_effects_are_effects_times_the_alignment_share(found):
    for target in found["targets"]:
        own, (share, _) = results_of(found, target["table"]), target["alignment_share"]
        for name in SCALED:
            effect, aligned = own[name, target["target"]], own[f"{name}/a", target["target"]]
            assert aligned["box"] == pytest.approx([share * one for one in effect["box"]], rel=1e-3, abs=1e-6)
            assert aligned["towards_1"] == pytest.approx([share * one for one in effect["towards_1"]], rel=1e-3)


def test_targets_are_told_with_what_their_output_gives_away(found):
    assert [(one["table"], one["target"]) for one in found["targets"]] == [
        (table, target) for table in ("adult", "bank") for target in ("plain", "3")
    ]
    for one in found["targets"]:
        assert one["people"] == (100 if one["table"] == "adult" else 40)
        assert all(0 <= one[name][0] <= 1 for name in ("accuracy", "auc", "c_auc", "gap", "alignment_share"))
        assert abs(one["gap_towards_1"][0]) == pytest.approx(one["gap"][0])
    for table in ("adult", "bank"):
        assert found["auxiliary_auc"][table]["plain"][0] > 0.6  # c can be reading here
        assert found["generators"][table]["ks"][0] > 0


def test_a_table_without_its_file_has_no_number(found):
    assert found["not_run"] == {"chicago": "not run: file not available"}
    reading = {name: value for name, value in found.items() if name not in ("not_run", "settings")}
    assert "chicago" not in json.dumps(reading)


# --- readings of one target -----------------------------------------------------------------------------------------


def standing(experiment, models, people):
    return experiment.Setup(
        experiment.Ground("made", 0, 0), experiment.replace(experiment.QUICK, refits=1), models, people, people
    )


@pytest.fixture
def couples():
    """Return two husbands, a wife and two children of theirs, with their ages."""
    kinds = torch.eye(3)[[0, 0, 2, 1, 1]]
    x = torch.cat([torch.tensor([[1.0], [2.0], [0.5], [-1.0], [-2.0]]), kinds], dim=1)
    features = (Feature("age", "continuous", 0, 1), Feature("relationship", "categorical", 1, 4, levels=LEVELS))
    return Dataset(x, torch.tensor([1.0, 1, 0, 0, 1])[:, None], (Protected("sex"),), features)


def linear(weights, bias):
    return TorchModel(weighing(nn.Sequential(nn.Linear(len(weights), 1), nn.Sigmoid()), [weights], bias))


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_the_swap_changes_one_word_and_nothing_else(experiment, couples):
    # age counts 0.5, a husband +1, a wife -2, a child 7
    first, second = experiment.swapped(
        standing(experiment, [linear([0.5, 1, 7, -2], 0.25), linear([0.5, 0, 7, 0], 0)], couples)
    )
    husbands = [sigmoid(0.5 * age - 2 + 0.25) - sigmoid(0.5 * age + 1 + 0.25) for age in (1, 2)]
    assert first["husbands"] == pytest.approx(sum(husbands) / 2, abs=1e-6)
    assert first["wives"] == pytest.approx(sigmoid(0.25 + 1.25) - sigmoid(0.25 - 1.75), abs=1e-6)
    assert second == {"husbands": 0.0, "wives": 0.0}


class Scripted:
    """A test that says what it was given for each model; the last person is abstained from."""

    def __init__(self, signed):
        self.effect = signed  # of each model

    def measure(self, model, data):
        values = torch.tensor([*self.effect[model], float("nan")])
        return combine(values[None, :, None], data, contrasts=[Contrast(0)], signed=True)


def test_scores_are_told_in_comparison_with_the_first_target(experiment):
    people = Dataset.from_arrays(torch.zeros(5, 1), c=[0.0, 0.0, 1.0, 1.0, 1.0])
    test = Scripted({"plain": [0.4, 0.2, -0.3, 0.1], "fair": [0.1, 0.2, -0.1, 0.5]})
    plain, fair = standing(experiment, ["plain", "fair"], people).readings(test)
    assert plain["auc"] == 0.5
    # 0.4, 0.2, 0.3, 0.1 against 0.1, 0.2, 0.1, 0.5
    assert fair["auc"] == pytest.approx((3 + 2.5 + 3 + 1) / 16)
    assert fair["mean"] == pytest.approx(0.225)
    assert fair["towards_1"] == pytest.approx((0.1 + 0.2 + 0.1 - 0.5) / 4)
    _, half = standing(experiment, ["plain", "fair"], people).readings(test, [1.0, 0.5])
    assert half["box"] == pytest.approx([0.5 * one for one in fair["box"]])
    assert half["auc"] == pytest.approx((4 + 3 + 4 + 2.5) / 16)  # 0.05, 0.1, 0.05, 0.25


def test_jobs_come_after_the_targets_and_generators_of_their_ground(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": "not run"})
    jobs = {job.name: job for job in experiment.jobs(experiment.FULL, 0)}
    assert len(jobs) == 4 * 3 * 4  # tables, numbers; generators and three kinds of tests
    assert [job.name for job in jobs["pairs-bank-2"].after] == ["targets-bank-2", "gan-bank-2"]
    assert [job.name for job in jobs["with-bank-2"].after] == ["targets-bank-2"]
    assert jobs["without-bank-2"].after[0].arguments[1] == (None, 0.0, 0.5, 1.0, 3.0, 10.0)


# --- what has to be shown -------------------------------------------------------------------------------------------


def test_auc_counts_ties_half(experiment):
    # of six pairs one is above (2 over 1) and one is tied (1 with 1)
    assert experiment.auc_above(np.array([2.0, 1.0, 0.0]), np.array([1.0, 3.0])) == pytest.approx((1 + 0.5) / 6)
    same = np.array([0.3, 0.3, 0.7, np.nan])
    assert experiment.auc_above(same, same) == 0.5
