"""A quick run of coverage, and its numbers worked by hand."""

import pytest
import torch
from fused import fused

from fairfox.data.dataset import Dataset, Protected, Truth

EXPERIMENT = "coverage"


@pytest.fixture(scope="module")
def quick(experiment, quick_run):
    return quick_run(experiment.EXPERIMENT)  # three causal worlds


class First:
    """A target that returns the first column."""

    differentiable = True

    def __call__(self, x):
        return x[:, :1]


def test_the_true_effect_of_two_groups_is_that_of_the_other_one(experiment):
    people = Dataset.from_arrays([[0.0], [1.0]], c=[0, 1])
    people = experiment.replace(people, truth=Truth(torch.tensor([[0.5], [-2.0]])))
    assert experiment.true_effect(First(), people, torch.tensor([1, 0])).tolist() == [0.5, -3.0]


def test_the_true_effect_of_many_groups_is_that_of_the_one_that_counts(experiment):
    race = Protected("race", "categorical", ("a", "b", "c"))
    people = Dataset.from_arrays([[0.0], [0.0], [0.0]], c=[0, 1, 2], protected=(race,))
    others = torch.tensor([[[0.1], [0.2]], [[0.3], [0.4]], [[0.5], [0.6]]])  # the next class, the one after it
    people = experiment.replace(people, truth=Truth(others))
    effect = experiment.true_effect(First(), people, torch.tensor([2, 2, 0]))
    torch.testing.assert_close(effect, torch.tensor([0.2, 0.3, 0.5]))


def test_intervals_that_hold_are_counted_by_fifths(experiment):
    # Ten people with effects 1 to 10 and the same scatter; the truth of the two largest is far away.
    size = torch.arange(1.0, 11.0)
    refits = size[:, None] + torch.tensor([-0.1, 0.0, 0.1])
    truth = torch.where(size > 8, 99.0, size)
    found = experiment.judged(refits, truth, (2.5,))
    assert found["coverage"] == pytest.approx(0.8)
    assert found["fifths"] == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert found["coverage by the error of the mean"] == pytest.approx(0.8)
    # s² is 0.01 for all, and the log of a variance of three values is 0.5772 too small: (0.01 + 0.0178) / 2 · (1 + 1/3)
    assert found["standard error"] == pytest.approx(0.13616, rel=1e-4)
    assert found["lists"]["2.5"]["over"] == pytest.approx(0.8)
    assert found["lists"]["2.5"]["0.05"] == {"false": 0.0, "power": 1.0}


def test_a_list_has_its_false_entries_and_its_power(experiment):
    p, over = torch.tensor([0.001, 0.001, 0.9, 0.9]), torch.tensor([True, False, True, True])
    found = experiment.lists(p, over)
    assert found["over"] == 0.75
    assert found["0.05"] == {"false": 0.5, "power": pytest.approx(1 / 3)}
    assert experiment.lists(p, torch.zeros(4, dtype=torch.bool))["0.2"] == {"false": 1.0, "power": None}
    assert experiment.lists(torch.ones(4), over)["0.2"] == {"false": 0.0, "power": 0.0}


def test_a_quick_run_has_every_world_and_says_why_intervals_fail(experiment, quick):
    ways = [(one["world"], one["learns from"]) for one in quick["results"]]
    assert ways == [("additive", "others"), ("additive", "folds"), ("three classes", "others"), ("lending", "others")]
    for one in quick["results"]:
        assert 0 <= one["coverage"] <= 1
        assert one["coverage by the error of the mean"] <= one["coverage"]
        assert one["error that stays"] > 0
        assert set(one["lists"]) == {"0.05", "0.1"}
    assert quick["bars"] == []
    assert "| lending | 1 | others | **" in experiment.show(quick)
    assert "the truth puts everyone in one" in experiment.SECTIONS["reasons"](quick)


def test_fused_people_are_generated_and_the_first_of_them_suffice_to_learn_from(experiment, monkeypatch):
    def generate(folder, fusion, bias, rows, seed):
        return fused(rows.fitting, bias=bias, seed=seed), fused(rows.test, bias=bias, seed=seed + 1)

    monkeypatch.setattr(experiment, "generate", generate)
    setting = experiment.FULL.fused[0]
    place = experiment.Place(setting.name, setting.bias, 2, setting)
    rows = experiment.Rows(480, 120, 100)
    found = experiment.judge(None, ("generator",), place, rows, 2_000, 1, 5, 2, (0.05,), experiment.Shape(8, 1), 0)
    assert [list(one) for one in found] == [["others", "error that stays"], ["others"]]
    held = [one["others"]["coverage"] for one in found]
    assert sum(held) / 2 > 0.6, held  # shifts, as in additive worlds
