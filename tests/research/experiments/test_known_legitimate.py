"""A quick run of the fall of the score, its bars worked by hand, and the causal worlds against their formulas."""

import pytest
import torch

EXPERIMENT = "known_legitimate"
PART = ("known_truth", "legitimate")


class Sum:
    """A target that adds up all columns: numbers in their own units, categories by their place."""

    differentiable = True

    def __init__(self, features):
        scales = [torch.arange(float(f.stop - f.start)) if f.levels else torch.tensor([f.scale]) for f in features]
        self.scale = torch.cat(scales)

    def __call__(self, x):
        return (x * self.scale.to(x)).sum(1, keepdim=True)


# hours = 1.8 through sex, income = 0.4 hours + 1.8 past sex: their sum changes by 1.8 (1.4 through + past), and by
# 1.8 past with hours held.
@pytest.mark.parametrize(("grade", "free", "held"), [("whole", 2.52, 0.0), ("half", 2.16, 0.9), ("none", 1.8, 1.8)])
def test_the_true_score_is_what_the_causal_model_says(experiment, grade, free, held):
    known = experiment.SampledWorld.of(experiment.PLACES["numbers"], grade, 50, 20, seed=0)
    model = Sum(known.people.features)
    torch.testing.assert_close(known.true_score(model), torch.full((20,), free), atol=1e-4, rtol=0)
    torch.testing.assert_close(known.true_score(model, ("hours",)), torch.full((20,), held), atol=1e-4, rtol=0)


def test_of_three_classes_the_largest_difference_counts(experiment):
    # Past hours, income is 1.0, -1.2 and 0.0 higher: the furthest other class is 2.2, 2.2 and 1.2 away.
    known = experiment.SampledWorld.of(experiment.PLACES["three classes"], "none", 50, 40, seed=0)
    race = torch.as_tensor(known.population.values["race"]).long()
    expected = torch.tensor([2.2, 2.2, 1.2])[race]
    torch.testing.assert_close(known.true_score(Sum(known.people.features)), expected, atol=1e-4, rtol=0)


def test_a_number_goes_one_standard_deviation_and_not_beyond_those_to_learn_from(experiment):
    known = experiment.SampledWorld.of(experiment.PLACES["a number"], "none", 400, 300, seed=0)
    score = known.true_score(Sum(known.people.features))
    shift = 1.1 * known.spread / 12  # of income, per standard deviation of age
    torch.testing.assert_close(score, torch.full((300,), shift), atol=1e-4, rtol=0, equal_nan=True)


def test_every_world_has_its_legitimate_columns_and_nothing_else_decides_where_the_whole_effect_is(experiment):
    for place in experiment.PLACES.values():
        known = experiment.SampledWorld.of(place, "whole", 60, 30, seed=0)
        taken = {f.name for f in known.people.features}
        assert set(place.legitimate) - set(place.outside) == set(place.legitimate) & taken < taken
        model = Sum(known.people.features)
        assert float(known.true_score(model, place.legitimate).nan_to_num().max()) < 1e-5
        assert float(known.true_score(model).nan_to_num().max()) > 0.1


def measured(*falls):
    return [{"fall": fall, "without": 0.2, "judged": 1.0} for fall in falls]


def test_the_worst_seed_is_the_furthest_from_what_is_expected(experiment):
    truth = measured(0.5, 0.5, 0.5)
    own = experiment.over_draws("half", measured(0.5, 0.42, 0.55), truth)
    assert (own["fall"], own["std"], own["worst"], own["true fall"]) == (0.49, 0.0656, 0.42, 0.5)
    assert experiment.over_draws("whole", measured(0.97, 0.93, 1.0), truth)["worst"] == 0.93
    assert experiment.over_draws("none", measured(0.02, -0.05, 0.01), truth)["worst"] == -0.05


def entry(grade, fall, world="here", people=5000):
    return {"world": world, "legitimate": grade, "people": people, "fall": fall, "worst": fall - 0.1}


def test_a_bar_holds_where_every_worlds_mean_does_with_that_many_people(experiment):
    good = [entry("whole", 0.95), entry("half", 0.55), entry("none", -0.1), entry("whole", 0.5, people=1000)]
    assert [one["holds"] for one in experiment.bars(good, 5000)] == [True, True, True]
    bad = [entry("whole", 0.94, "there"), entry("half", 0.44, "there"), entry("none", 0.11, "there")]
    found = experiment.bars([*good, *bad], 5000)
    assert [one["holds"] for one in found] == [False, False, False]
    assert found[0]["value"] == {"here": [0.95, pytest.approx(0.85)], "there": [0.94, pytest.approx(0.84)]}


def test_a_quick_run_tells_the_three_parts_apart(experiment, quick):
    places = {(e["world"], e["legitimate"], e["people"]) for e in quick["results"]}
    assert len(places) == len(quick["results"]) == 2 * 3
    for world in experiment.QUICK.worlds:
        falls = {e["legitimate"]: e["fall"] for e in quick["results"] if e["world"] == world}
        assert falls["none"] + 0.2 < falls["half"] < falls["whole"] - 0.1
    assert quick["bars"] == []
    assert "| outside | whole | 1.000 |" in experiment.show(quick)
