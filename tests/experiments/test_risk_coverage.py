"""A quick run of risk and coverage, and its curves worked by hand."""

import json

import pytest
import torch

EXPERIMENT = "risk_coverage"
TEN = torch.arange(1.0, 11.0)


@pytest.fixture(scope="module")
def quick(experiment, tmp_path_factory):
    """What a run writes: two causal worlds."""
    out = tmp_path_factory.mktemp("risk") / "risk.json"
    before = torch.random.get_rng_state()
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def test_a_curve_is_taken_over_the_least_doubtful(experiment):
    # Scores 2 t for true scores t = 1..10, the largest the most doubtful: of n kept the mean error and true score are
    # (n + 1) / 2, the relative error is 1.
    found = experiment.curve(TEN, 2 * TEN, TEN)
    assert found["error"] == pytest.approx([5.5, 5.0, 4.5, 4.0, 3.5, 3.0])
    assert found["true score"] == found["error"]
    assert found["relative error"] == pytest.approx([1.0] * 6)
    assert found["rho"] == pytest.approx([1.0] * 6)


def test_where_nobody_is_treated_differently_there_is_neither_a_relative_error_nor_rho(experiment):
    found = experiment.curve(-TEN, TEN, torch.zeros(10))
    assert found["error"] == pytest.approx([5.5, 6.0, 6.5, 7.0, 7.5, 8.0])
    assert found["relative error"] == found["rho"] == [None] * 6


def curves(error, rho):
    return {"error": error, "relative error": error, "rho": rho, "true score": [1.0, 1.0]}


def test_worlds_are_averaged_and_counted(experiment):
    better, worse = curves([0.4, 0.2], [0.5, 0.9]), curves([0.2, 0.3], [None, 0.9])
    each = [{"curves": {"doubt": one}, "correlations": {"doubt": r}} for one, r in ((better, 0.6), (worse, -0.2))]
    own = experiment.over_worlds(each)["doubt"]
    assert own["error"] == [0.3, 0.25]
    assert own["error: worlds"] == {"known": 2, "better at every step": 1, "better at half": 1}
    assert own["rho"] == [0.5, 0.9]  # of the one world where it is known
    assert own["rho: worlds"]["known"] == 1
    assert own["correlation"] == [0.2, -0.2, 0.6]


def test_bars_fail_where_the_error_rises_once(experiment):
    falling, rising, random = [0.5, 0.4, 0.3], [0.5, 0.4, 0.45], {"error": [0.5, 0.5, 0.5]}
    own = {"error": falling, "relative error": rising, "rho": [0.7, 0.8, 0.8]}
    bars = experiment.bars({"rank": {"doubt": own, "random": random}})
    assert [one["holds"] for one in bars] == [True, False, False, True]


def test_a_quick_run_has_every_order_in_every_world(experiment, quick):
    places = [(e["test"], e["world"], e["bias"]) for e in quick["results"]]
    worlds = [(world, 1.0) for world in ("additive", "lending")]
    assert sorted(places) == sorted((test, *world) for test in ("rank", "move") for world in worlds)
    for orders in quick["means"].values():
        assert {"doubt", "spread", "distance", "gradient at x'", "oracle", "random"} <= orders.keys()
        assert len({own["error"][0] for own in orders.values()}) == 1  # of all people, in whatever order
    assert quick["bars"] == []
    assert "| doubt |" in experiment.show(quick)


def test_the_oracle_is_best_and_doubt_lies_between_it_and_chance(quick):
    for orders in quick["means"].values():
        oracle, doubt, random = (orders[name]["error"] for name in ("oracle", "doubt", "random"))
        assert all(a < b < c for a, b, c in zip(oracle[1:], doubt[1:], random[1:], strict=True))
        assert oracle == sorted(oracle, reverse=True)
        assert doubt == sorted(doubt, reverse=True)


def test_tests_are_chosen_by_name(experiment):
    assert experiment.narrow(experiment.FULL, ["rank"]).tests == ("rank",)
    with pytest.raises(SystemExit, match="no test fta"):
        experiment.narrow(experiment.FULL, ["fta"])


def test_a_full_run_covers_the_settings_of_table_1_and_every_causal_world_without_bias_too(experiment):
    worlds = experiment.FULL.grounds.worlds
    assert sorted(world.name for world in worlds if world.fused) == [f"Synthetic-{n}" for n in range(1, 9)]
    assert {world.bias for world in worlds if not world.fused} == {0.0, 0.25, 0.5, 1.0}
