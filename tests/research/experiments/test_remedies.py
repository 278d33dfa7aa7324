"""What repairs and their rivals take away and cost."""

from math import inf

import pytest

EXPERIMENT = "remedies"
NEEDS = ("adult", "german")


def test_every_remedy_is_measured_by_every_map_on_people_it_has_not_seen(experiment, quick):
    assert [one["table"] for one in quick["tables"]] == ["adult", "german"]
    for one in quick["tables"]:
        assert one["fitting"] == one["people"] == experiment.QUICK.rows / 2
        assert {"model", experiment.REPAIRED, experiment.PROXY, "train_fair, 3"} <= one["found"].keys()
        for name, numbers in one["found"].items():
            weaker = name.startswith("repaired") and name != experiment.REPAIRED
            audited = set() if name.startswith("equal") else {*experiment.MAPS[: 1 if weaker else 3], "gap"}
            assert numbers.keys() == audited | {"auc"}
            assert 0 < numbers["auc"] < 1
    adult = quick["tables"][0]
    falls = [experiment.fall(adult, f"repaired, {strength}", "rank") for strength in ("0.25", "0.5", "0.75", "1")]
    assert falls == sorted(falls)
    assert falls[0] < 0.5 < falls[-1]


def test_the_true_effect_falls_and_a_fair_network_stays(quick):
    (world,) = quick["worlds"]
    before, after = (world["found"][f"unfair, {when}"]["unfairness"] for when in ("before", "after"))
    assert after < 0.5 * before
    assert world["found"]["fair, before"]["unfairness"] < 1e-9
    changes = world["change of the fair network"]
    assert changes["repair"] < changes["refit"]


def test_a_quick_run_is_shown_with_its_bars(experiment, quick):
    shown = experiment.show(quick)
    assert "| German credit | logistic regression | 225 |" in shown
    assert "| additive |" in shown
    assert 13 <= len(quick["bars"]) <= 15  # two of them only where a map shows more than it shows of shuffled groups


def remedies(**found):
    """Return a table whose model has the effect .2 and the AUC .9; others are given with both."""
    numbers = {"model": (0.2, 0.9), **found}
    return {"found": {name: {"rank": effect, "auc": auc} for name, (effect, auc) in numbers.items()}}


def test_remedies_are_compared_where_half_of_the_effect_is_gone(experiment):
    one = remedies(**{"repaired, 0.5": (0.12, 0.89), "repaired, 1": (0.04, 0.85), "train_fair, 3": (0.02, 0.81)})
    assert experiment.fall(one, "repaired, 0.5", "rank") == pytest.approx(0.4)
    assert experiment.loss_at_half(one, "repaired") == pytest.approx(0.02)  # .01 at .4, .05 at .8
    assert experiment.loss_at_half(one, "train_fair") == pytest.approx(0.05)  # 5/9 of .09
    assert experiment.loss_at_half(one, experiment.PROXY) == inf


def test_what_a_map_shows_of_shuffled_groups_does_not_count(experiment):
    one = remedies(**{"repaired, 1": (0.11, 0.9)}) | {"shuffled": {"rank": 0.1}}
    assert experiment.beyond_chance(one, "rank") == pytest.approx(0.9)  # .1 to .01
    assert experiment.beyond_chance(one | {"shuffled": {"rank": 0.195}}, "rank") is None


def test_only_unlikely_improvements_count_against_a_search(experiment):
    searches = [{"said": 0.05, "gain": 0.02}, {"said": 0.5, "gain": 0.02}, {"said": None, "gain": None}]
    searches += [{"said": 0.01, "gain": 0.004}, {"said": 0.0, "gain": None}]
    last = experiment.bar_of_searches(searches)
    assert last["value"] == [pytest.approx(1 / 3), 3]
    assert last["holds"]  # .1 and two errors of .17
    assert not experiment.bar_of_searches(searches * 5)["holds"]  # .1 and two errors of .077
