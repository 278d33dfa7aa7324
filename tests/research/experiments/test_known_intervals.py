"""A quick run of intervals, and its numbers worked by hand."""

import pytest
import torch
from fused import fused

from fairfox.data.contrasts import moves
from fairfox.data.dataset import Dataset, Protected, Truth
from fairfox.fairtests.protocol import combine

EXPERIMENT = "known_intervals"
PART = ("known_truth", "intervals")


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


def test_intervals_that_hold_are_counted(experiment):
    # Ten people with effects 1 to 10, known exactly, and draws from -1 to 1; the truth of the two largest is far away.
    size = torch.arange(1.0, 11.0)
    people = Dataset.from_arrays(torch.zeros(10, 1), c=[0, 1] * 5)
    contrasts = moves(people.protected)
    measured = combine(size[None, :, None].repeat(3, 1, 1), people, contrasts=contrasts, signed=True)
    drawn = torch.linspace(-1, 1, 42)[:, None, None].repeat(1, 10, 1)
    truth = torch.where(size > 8, 99.0, size + 0.5)
    found = experiment.judged(experiment.replace(measured, deviations=drawn), truth, (2.5,))
    assert found["coverage"] == pytest.approx(0.8)
    assert found["sampling alone: coverage"] == 0
    assert found["width"] == pytest.approx(2 * (1 - 1.15 * 2 / 41))  # to the 2.15th of 42 from either end
    assert found["lists"]["2.5"]["over"] == pytest.approx(0.8)
    assert found["lists"]["2.5"]["0.05"]["false"] == 0
    # The two whose truth is far away have effects of 9 and 10: over delta as well, so that no list is false.
    assert found["significant"]["2.5"]["0.05"] == {"false": 0, "power": 1}


def test_a_list_has_its_false_entries_and_its_power(experiment):
    listed, over = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, True])
    nobody, third = torch.zeros(4, dtype=torch.bool), pytest.approx(1 / 3)
    assert experiment.errors({0.05: listed}, over) == {"over": 0.75, "0.05": {"false": 0.5, "power": third}}
    assert experiment.errors({0.2: listed}, nobody)["0.2"] == {"false": 1.0, "power": None}
    assert experiment.errors({0.2: nobody}, over)["0.2"] == {"false": 0.0, "power": 0.0}


def test_a_quick_run_has_every_world_with_and_without_what_hides(experiment, quick):
    places = [(one["world"], one["given"], one["barred"]) for one in quick["results"]]
    assert places == [("lending", "", True), ("confounded", "", False), ("confounded", "hometown", True)]
    for one in quick["results"]:
        assert one["sampling alone: coverage"] < one["coverage"] <= 1
        assert set(one["lists"]) == set(one["significant"]) == {"0.05", "0.1"}
    hidden, given = (one["coverage"] for one in quick["results"][1:])
    assert hidden < given
    assert quick["bars"] == []
    assert "confounded 1 given hometown" in experiment.chart(quick).to_json()


def test_bars_are_about_worlds_whose_causes_are_all_there_those_made_last_first(experiment):
    lists = {"0.05": {f"{level:g}": {"false": 0.01, "power": 0.5} for level in experiment.LEVELS}}
    one = {"bias": 1.0, "given": "", "barred": True, "unseen": False, "coverage": 0.9}
    one |= {"lists": lists, "significant": lists}
    results = [one | {"world": "a", "unseen": True, "coverage": 0.8}, one | {"world": "b"}]
    found = experiment.bars([*results, one | {"world": "c", "barred": False, "coverage": 0.1}])
    assert [each["holds"] for each in found] == [False, *[True] * 13]
    assert found[0]["value"] == {"a 1": 0.8}
    assert experiment.show({"bars": found}).startswith("- **fails**: worlds made last: robust")


def test_fused_people_are_generated_and_their_label_can_be_given(experiment, monkeypatch):
    def generate(folder, fusion, bias, rows, seed):
        return fused(rows.fitting, bias=bias, seed=seed), fused(rows.test, bias=bias, seed=seed + 1)

    monkeypatch.setattr(experiment, "generate", generate)
    setting = experiment.FULL.fused[0]
    place = experiment.Place(setting.name, setting.bias, 2, "", setting)
    own = {"fused_rows": experiment.Rows(480, 120, 100), "deltas": (0.05,), "target": experiment.Shape(8, 1)}
    found = experiment.judge(None, ("generator",), place, experiment.replace(experiment.FULL, **own), 0)
    assert sum(one["coverage"] for one in found) / 2 > 0.6  # shifts, as in additive worlds
    assert [each.given for each in experiment.FULL.places() if each.fused == setting] == ["", "y"]
