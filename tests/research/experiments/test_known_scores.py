"""A quick run over worlds with a known truth, and what numbers add up to, worked by hand."""

import pytest
import torch
from causal_worlds import WORLDS, draw_people

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.fairtests.registry import make_test
from fairfox.models.torch import TorchModel

EXPERIMENT = "known_scores"
PART = ("known_truth", "scores")  # one setting, two causal worlds at three levels of bias, one draw, all methods
NEEDS = ("magic", "backache")
MAPS = ("rank", "move", "move-direct", "transport")


def entry(found, world, bias, method):
    (own,) = (e for e in found["results"] if (e["world"], e["bias"], e["method"]) == (world, bias, method))
    return own


def test_every_method_is_judged_in_every_world_and_maps_with_the_share_too(experiment, quick):
    run = [name for batch in quick["settings"]["batches"] for name in experiment.BATCHES[batch]]
    assert set(MAPS) <= set(run)
    names = [*run, *(f"{name}/a" for name in MAPS)]
    places = [("Synthetic-4", 1.0), *((w, b) for w in ("additive", "lending") for b in (0.0, 0.25, 1.0))]
    expected = {(*place, name) for place in places for name in names}
    expected -= {("lending", bias, "lic") for bias in (0.0, 0.25, 1.0)}  # categories have no derivative
    found = [(e["world"], e["bias"], e["method"]) for e in quick["results"]]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert quick["bars"] == []
    assert "| rank/a | 3 |" in experiment.show(quick)


def test_rank_is_right_about_the_additive_world_and_says_almost_nothing_where_nothing_is(quick):
    for name in ("rank", "rank/a"):
        own = entry(quick, "additive", 1.0, name)
        assert own["ap"][0] > 0.95
        assert own["rho"][0] > 0.95
    assert entry(quick, "additive", 1.0, "rank")["units"][0] == pytest.approx(1.0, abs=0.2)
    assert quick["nothing"]["rank"] < 0.4
    none = entry(quick, "additive", 0.0, "rank")
    assert (none["ap"], none["rho"], none["units"]) == ([None], [None], [None])
    assert none["mean"][0] < 1e-6  # the gate stays closed


def ground_of_three_classes(experiment):
    """Return a ground whose targets are fixed rules of the world with three classes."""
    drawn = draw_people(WORLDS["three classes"].at(1.0), 600, 200, seed=1)
    auxiliary = AuxiliaryModel(refits=1, max_epochs=3).fit(drawn.fitting)
    weights = torch.tensor([0.1, 0.0, 0.2, 0.3, -0.2])

    def rule(x):
        return (x @ weights.to(x))[:, None].sigmoid()

    def constant(x):
        return 0.5 + 0.0 * x[:, :1]

    models = (TorchModel(rule), TorchModel(constant))
    fixed = FixedAuxiliary(auxiliary.members, auxiliary.held_out)
    return experiment.Ground(drawn.fitting, drawn.people, models, fixed, 0.01, [0.5, 0.25], 0)


def test_the_worst_class_counts_as_it_does_in_an_audit(experiment):
    on = ground_of_three_classes(experiment)
    found = experiment.scores_of(["rank", "lic"], on, 1_000)
    assert list(found) == ["rank", "rank/a"]  # the derivative is not known between three classes
    expected = make_test("rank", refits=1).fit(on.fitting).score(on.models[0], on.people)
    torch.testing.assert_close(found["rank"][0], expected)
    torch.testing.assert_close(found["rank/a"][0], 0.5 * expected)
    assert not found["rank"][1].any()


def line(world, family, bias, method, ap, rho, units=1.0, fair=0.05, mean=0.1):
    numbers = {"ap": ap, "rho": rho, "units": [units] * 2, "fair": [fair] * 2, "mean": [mean] * 2}
    return {"world": world, "family": family, "bias": bias, "method": method, **numbers}


def test_summaries_are_means_over_worlds_and_errors_over_draws(experiment):
    entries = [
        line("a", "additive", 1.0, "rank", [0.8, 1.0], [0.5, 0.7]),
        line("b", "additive", 1.0, "rank", [0.6, 0.6], [None, None], units=2.0),
        line("c", "mixed", 1.0, "rank", [0.4, 0.4], [0.1, 0.3]),
    ]
    found = {one["family"]: one for one in experiment.summaries(entries)}
    own = found["additive"]
    assert own["ap"] == pytest.approx((0.9 + 0.6) / 2)
    assert own["ap_se"] == pytest.approx(0.05)  # 0.7 and 0.8: standard deviation 0.1 / sqrt 2, over sqrt 2
    assert (own["ap_worst"], own["rho"], own["rho_worst"], own["units"]) == pytest.approx((0.6, 0.6, 0.6, 1.5))
    assert own["worlds"] == 2
    assert found["all"]["ap"] == pytest.approx((0.9 + 0.6 + 0.4) / 3)
    assert found["all"]["rho_worst"] == pytest.approx(0.2)
