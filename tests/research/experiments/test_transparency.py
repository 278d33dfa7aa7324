"""How well reports of the features that give c away agree with mutual information."""

import json
import sys
from functools import cache
from math import log
from pathlib import Path

import pytest
import torch

from fairfox.data.catalog import ADULT
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.datasets import load_adult
from fairfox.data.files import find_file
from fairfox.maps.protocol import Mapped

EXPERIMENT = "transparency"
FEATURES = (Feature("income", "continuous", 0, 1), Feature("job", "categorical", 1, 4, levels=("a", "b", "c")))
TRUTH = {"paper": [2.0, 1.0, 0.0], "own": [0.0, 1.0, 2.0]}


class Shift:
    """A map that adds the same to everyone it can map."""

    def __init__(self, by, abstained):
        self.by, self.abstained = torch.tensor(by), torch.tensor(abstained)

    def map(self, data, to=None):
        return Mapped(data.x + self.by, self.abstained)


@pytest.fixture
def people():
    """Sixty people: jobs are a, b, c in turn, and c is 1 for whoever has job a."""
    job = torch.eye(3).repeat(20, 1)
    x = torch.cat([torch.randn(60, 1, generator=torch.Generator().manual_seed(0)), job], dim=1)
    return Dataset(x, job[:, :1], (Protected("sex"),), FEATURES)


def test_our_truth_is_of_the_whole_category_and_the_paper_s_a_mean_over_its_columns(experiment, people):
    found = experiment.truths_of(people, seed=0)
    third = log(3) - 2 / 3 * log(2)  # the entropy of having job a, which is c
    # columns b and c: 20 of 60 have it, all of c = 0, among whom it is every second
    other = sum(p * log(p / q) for p, q in ((1 / 3, 1 / 3 * 2 / 3), (1 / 3, 2 / 3 * 2 / 3), (1 / 3, 2 / 3 * 1 / 3)))
    assert found["own"][1] == pytest.approx(third)
    assert found["own"][0] == pytest.approx(found["paper"][0])  # a number is the same in both
    assert found["paper"][1] == pytest.approx((third + 2 * other) / 3, rel=0.5)  # by neighbours, of few people


def test_displacements_of_levels_are_summed_or_averaged_over_those_who_could_be_mapped(experiment):
    data = Dataset(torch.zeros(3, 4), torch.zeros(3, 1), (Protected("sex"),), FEATURES)
    by = [[0.5, -0.6, 0.4, 0.2], [1.5, -0.6, 0.4, 0.2], [90.0, 0.0, 0.0, 0.0]]
    found = experiment.displaced("shift", Shift(by, [False, False, True]), data)["shift"]
    assert found["sum"] == pytest.approx([1.0, 1.2])
    assert found["mean"] == pytest.approx([1.0, 0.4])


def test_a_small_run_reports_every_method_and_says_what_was_not_run(experiment, tmp_path, capsys, monkeypatch):
    if any(find_file(file) is None for file in ADULT):
        pytest.skip("Adult is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    monkeypatch.setitem(sys.modules["real_data"].TABLES, "adult", cache(load_adult))  # each job reads it again
    out, before = tmp_path / "transparency.json", torch.random.get_rng_state()
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    found = json.loads(out.read_text(encoding="utf-8"))
    own = [one for one in found["results"] if one["table"] == "adult"]
    methods = {one["method"] for one in own}
    assert methods >= {
        *experiment.OWN,
        "fliptest",
        "group difference",
        "group distance",
        "faux (adversarial auxiliary)",
    }
    assert len(own) == len({(one["method"], one["aggregation"]) for one in own})
    assert all(0 < one[f"ndcg_{truth}_mean"] <= 1 for one in own for truth in experiment.TRUTHS)
    assert {one["retrainings"] for one in own if one["method"] in experiment.FAMILY} == {2}
    assert len(found["truths"]["adult"]["features"]) == 12
    # the groups' own distance ranks features much better than chance does, whatever the sample
    (distance,) = (one["ndcg_own_mean"] for one in own if one["method"] == "group distance")
    assert distance > found["random"]["adult"]["own"] + 0.2
    assert "chicago" in found["not_run"]
    assert not [one for one in found["results"] if one["table"] == "chicago"]
    shown = capsys.readouterr().out
    assert "**Chicago SSL**: not run: file not available" in shown
    assert shown.count("above a random one") == 1
    assert Path(tmp_path / "transparency.svg").stat().st_size > 1_000
