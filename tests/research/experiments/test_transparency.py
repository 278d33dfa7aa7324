"""How well reports of the features that give c away agree with mutual information."""

import sys
from functools import cache
from math import log
from pathlib import Path

import pytest
import torch

from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.auxiliary.quality import proxy_strength
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.datasets import load_adult
from fairfox.maps.protocol import Mapped

EXPERIMENT = "transparency"
FEATURES = (Feature("income", "continuous", 0, 1), Feature("job", "categorical", 1, 4, levels=("a", "b", "c")))
WITH_AGE = (*FEATURES, Feature("age", "continuous", 4, 5))


class CallableOnRows:
    """A function of encoded rows, seen as a Model."""

    differentiable = True

    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        return self.function(x)


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


def test_a_small_run_reports_every_method_and_says_what_was_not_run(
    experiment, quick_run, need, tmp_path, capsys, monkeypatch
):
    need("adult")
    monkeypatch.setitem(sys.modules["real_data"].TABLES, "adult", cache(load_adult))  # each job reads it again
    found = quick_run(experiment.EXPERIMENT, out=tmp_path / "transparency.json")
    own = [one for one in found["results"] if one["table"] == "adult"]
    methods = {one["method"] for one in own}
    others = {"fliptest", "group difference", "group distance", "faux (adversarial auxiliary)"}
    assert methods >= {*experiment.OWN, *others}
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


def test_mean_gradients_are_plain_of_length_one_and_integrated_from_the_zero_row(experiment):
    # a = x0² + 4 x1: gradients (2 x0, 4), so (6, 4) and (0, 4) for these people; integrated ones are (x0², 4 x1)
    auxiliary = CallableOnRows(lambda x: x[:, :1] ** 2 + 4 * x[:, 1:])
    found = experiment.mean_gradients(auxiliary, torch.tensor([[3.0, 1.0], [0.0, -2.0]]))
    length = 52**0.5
    torch.testing.assert_close(found["faux"], torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(found["faux+ng"], torch.tensor([6 / length, 4 / length + 1]) / 2)
    torch.testing.assert_close(found["faux+ig"], torch.tensor([4.5, -2.0]))


def test_the_mean_gradient_by_feature_is_the_proxy_strength(experiment):
    auxiliary = CallableOnRows(lambda x: (x[:, :1] * x[:, 1:2]).tanh() + x[:, 3:4] * x[:, 4:] ** 2)
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    data = Dataset(x=x, c=torch.arange(50.0)[:, None] % 2, protected=(Protected("sex"),), features=WITH_AGE)
    means = experiment.mean_gradients(auxiliary, x[data.c[:, 0] == 0])["faux"]
    strength = experiment.strength_by_feature(means, WITH_AGE, "mean")
    torch.testing.assert_close(strength, proxy_strength(FixedAuxiliary([auxiliary]), data))


@pytest.mark.parametrize(("levels", "job"), [("mean", 2.0), ("max", 3.0), ("sum", 6.0)])
def test_columns_become_one_strength_for_each_feature(experiment, levels, job):
    columns = torch.tensor([-2.0, 3.0, -1.0, 2.0, 0.5])
    torch.testing.assert_close(experiment.strength_by_feature(columns, WITH_AGE, levels), torch.tensor([2.0, job, 0.5]))


def test_the_distance_of_groups_is_on_one_scale_for_numbers_and_categories(experiment):
    jobs = torch.eye(3)
    here = torch.stack([torch.cat([torch.tensor([i]), jobs[0 if i < 3 else 1], torch.tensor([0.0])]) for i in range(4)])
    there = torch.stack([torch.cat([torch.tensor([i + 2.0]), jobs[2], torch.tensor([0.0])]) for i in range(4)])
    # incomes 0..3 and 2..5: half are below all others; jobs have nothing in common; ages are the same
    torch.testing.assert_close(experiment.group_distance(here, there, WITH_AGE), torch.tensor([0.5, 1.0, 0.0]))
    torch.testing.assert_close(experiment.group_distance(there, here, WITH_AGE), torch.tensor([0.5, 1.0, 0.0]))
