"""The benchmark of a whole audit runs, and its README shows the numbers of its results."""

import os

import pytest
import torch

pytestmark = pytest.mark.skipif("FAIRFOX_DATA" not in os.environ, reason="FAIRFOX_DATA names the folder with Adult")
BENCH = "bench_audit"
PARTS = (
    "predictions", "rank", "move-direct", "alignment share", "intervals", "draws of ranks that persist in part"
)  # fmt: skip


def test_quick_measures_training_and_the_scores_of_each_target(bench, quick):
    *adult, seconds, memory, training, small, large = quick["ratios"]
    scores = [small, large]
    assert [r["name"].split(",")[0] for r in adult] == ["rows", "seconds"] * 2
    assert all(r["ratio"] > 1 for r in adult if r["name"].startswith("rows"))
    assert {r["bar"] for r in adult} == {60, 15, None}
    assert [(r["name"], r["bar"]) for r in (seconds, memory)] == [("seconds, 2,000 x 3", 1), ("memory, 2,000 x 3", 4)]
    assert seconds["seconds_of"] == seconds["details"]["seconds"] > seconds["details"]["once"]
    assert 0 < memory["ratio"] < 4
    assert (training["name"], training["bar"], training["at_most"]) == ("training", 60, True)
    assert training["ratio"] == training["seconds_of"] > 0
    assert "the whole audit takes" in training["of"]
    for part in ("fitting maps", "measuring", "explaining"):
        assert part in training["of"]
    assert [(r["name"], r["bar"], r["at_most"]) for r in scores] == [
        ("scores, 8 x 1", 60, True),
        ("scores, 16 x 2", 60, True),
    ]
    for r in scores:
        assert all(part in r["of"] for part in PARTS)
        assert r["ratio"] > 1
    assert "600 people of two groups" in bench.BENCHMARK.table(quick)


def test_the_steps_of_scoring_are_done_for_every_fold_with_all_refits(bench):
    threads = torch.get_num_threads()
    watched = bench.watched_audit(bench.QUICK)
    assert torch.get_num_threads() == threads
    spent = watched.seconds
    assert spent["all"] > spent["fitting"] + spent["measuring"] + spent["explaining"] > watched.training > 0
    net = bench.MLP(5, width=4, depth=1, seed=2).member(0)
    scoring = bench.Scoring(watched, bench.TorchModel(net, output=bench.Output("logit")), 64)
    assert scoring.everyone.shape == (600, 5)
    assert len(watched.folds) == 5
    here = [bench.predict(scoring.target, people.x) for people in watched.people]
    for name in ("rank", "move-direct"):
        found = scoring.measure(name, here)
        assert [one.refits.shape for one in found] == [(len(each), 5) for each in here]
    assert {fold.test.tests["move-direct"].map.steps for fold in watched.folds} == {2}
    assert set(scoring.once()) == set(PARTS)
