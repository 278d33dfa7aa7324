"""A quick run of comparisons between targets that hide more and less."""

import json
import os

import pytest

EXPERIMENT = "compare_floors"


def entry(seed, a, b, value, word):
    return {"seed": seed, "a": a, "b": b, "difference": {"value": value}, "word": word}


def test_bars_count_the_seeds_in_order_and_the_sure_verdicts(experiment):
    sure, unsure = "B is fairer", "cannot tell"
    good = [entry(0, "plain", "0.5", -0.1, sure), entry(0, "0.5", "3", -0.05, sure)]
    assert [one["holds"] for one in experiment.bars(good)] == [True, True]
    second = [entry(1, "plain", "0.5", -0.1, sure), entry(1, "0.5", "3", 0.01, unsure)]
    bars = experiment.bars([*good, *second])
    assert [(one["value"], one["holds"]) for one in bars] == [("1 of 2", False), ("3 of 4", False)]
    assert bars[0]["bar"] == "mean effect: plain > 0.5 > 3 in every seed"


def test_targets_are_chosen_by_name(experiment):
    assert experiment.narrow(experiment.FULL, ["plain", "3"]).floors == (None, 3.0)
    with pytest.raises(SystemExit, match="no target 7"):
        experiment.narrow(experiment.FULL, ["7"])


@pytest.mark.skipif("FAIRFOX_DATA" not in os.environ, reason="needs Adult")
def test_a_quick_run_compares_each_target_with_the_next(experiment, tmp_path):
    out = tmp_path / "compare_floors.json"
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [(one["seed"], one["a"], one["b"]) for one in found["results"]] == [
        (seed, *pair) for seed in (0, 1) for pair in (("plain", "0.5"), ("0.5", "3"))
    ]
    for one in found["results"]:
        assert one["people"] == 180
        assert one["difference"]["lower"] <= one["difference"]["value"] <= one["difference"]["upper"]
    assert "| plain | 0.5 |" in experiment.show(found)
