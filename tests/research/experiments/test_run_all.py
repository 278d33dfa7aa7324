"""`make results`: what is due, in which order, and one experiment in small through the command itself."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

EXPERIMENT = "run_all"


def test_every_experiment_has_its_turn_and_the_one_that_measures_seconds_is_last(experiment):
    names = list(experiment.experiments())
    assert names[-1] == "resources"
    stored = {path.stem for path in experiment.RESULTS.glob("*.json") if not path.stem.endswith(("-quick", "-only"))}
    assert stored <= set(names)


def test_results_are_due_unless_defaults_and_code_are_the_shipped_ones(experiment, tmp_path):
    assert experiment.is_due("table1", tmp_path)
    current = {"defaults": experiment.defaults_hash(), "code": experiment.code_hash(), "quick": False, "only": None}
    changes = {"defaults": "other", "code": "other", "quick": True, "only": ["rank"]}
    for name, value in changes.items():
        (tmp_path / "table1.json").write_text(json.dumps(current | {name: value}))
        assert experiment.is_due("table1", tmp_path), name
    (tmp_path / "table1.json").write_text(json.dumps(current))
    assert not experiment.is_due("table1", tmp_path)


def test_an_experiment_gets_the_options_that_it_has(experiment):
    options, known = Namespace(quick=True, workers=3, device="cuda", results=Path("here")), experiment.experiments()
    out = ["--quick", "--out", "here/table1-quick.json", "--jobs", "3", "--device", "cuda"]
    assert experiment.arguments(known["table1"], options) == out
    assert "--device" not in experiment.arguments(known["known_truth"], options)
    options = Namespace(quick=False, workers=None, device=None, results=Path("here"))
    assert experiment.arguments(known["resources"], options) == ["--out", "here/resources.json", "--jobs", "1"]


def test_a_quick_run_leaves_results_with_hashes_and_does_nothing_twice(experiment, load, monkeypatch, tmp_path):
    parts = load("experiments", "known_truth").EXPERIMENT
    small = replace(parts, quick={"legitimate": parts.quick["legitimate"]})  # needs no table
    monkeypatch.setattr(experiment, "experiments", lambda: {"known_truth": small})
    found = []
    for _ in range(2):
        assert experiment.main(["--quick", "--jobs", "1", "known_truth", "--results", str(tmp_path)]) == 0
        found.append(json.loads((tmp_path / "known_truth-quick.json").read_text()))
    assert (found[1]["defaults"], found[1]["code"]) == (experiment.defaults_hash(), experiment.code_hash())
    assert found[0] == found[1]  # the second run took over the finished jobs of the first, and their seconds


FOUND = {"settings": {}, "versions": {"torch": "2.13"}, "machine": {"processor": ["Zen"]}, "core_seconds": 1.5}
FOUND["results"] = [{"ap": 0.98765, "people": 20, "word": "passes", "seconds": 2.5}]
FOUND["bars"] = [{"bar": "high", "value": {"lic": 0.9}, "holds": True}]
OTHER = {"versions": {"torch": "2.14"}}
LOWER = [{"bar": "high", "value": {"lic": 0.6}, "holds": False}]


@pytest.mark.parametrize(
    ("name", "changed", "status", "told"),
    [
        ("table1", {"core_seconds": 3.0}, 0, "6 values, 0 differ, the largest relative difference is 0: within 0.0001"),
        ("table1", {"results": [{"ap": 0.98766, "people": 20, "word": "passes"}]}, 0, "1 differ"),
        ("table1", {"results": [{"ap": 0.98865, "people": 20, "word": "passes"}]}, 1, "0.001: not within 0.0001"),
        ("table1", {"results": [{"ap": 0.98765, "people": 20, "word": "fails"}]}, 1, "is inf: not within"),
        ("table1", {"machine": {"cores": 4}, "bars": LOWER}, 1, "not within"),  # no processor was recorded
        ("table1", OTHER | {"results": [{"ap": 0.5}]}, 0, "3 differ, the largest relative difference is inf; other"),
        ("table1", OTHER | {"bars": LOWER}, 1, "\n- high: lic 0.9, lic 0.6 (0.33), holds: True, now False\n"),
        ("table1", {"machine": {"processor": ["Haswell"]}, "results": []}, 0, "0 bars have another verdict"),
        ("table1", {"settings": {"device": {"name": "cuda"}}, "results": []}, 0, "0 bars have another verdict"),
        ("resources", {"results": [{"ap": 0.5, "people": 20, "word": "passes"}]}, 0, "4 values, 0 differ"),
        ("resources", {"results": [{"ap": 0.5, "people": 21, "word": "passes"}]}, 1, "1 differ"),
    ],
)
def test_a_run_is_held_against_earlier_results(experiment, tmp_path, capsys, name, changed, status, told):
    for folder, found in (("now", FOUND | changed), ("before", FOUND)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.json").write_text(json.dumps(found))
    assert experiment.main(["--results", str(tmp_path / "now"), "--against", str(tmp_path / "before")]) == status
    assert told in capsys.readouterr().out


def test_results_that_are_missing_are_not_those_of_an_earlier_run(experiment, tmp_path, capsys):
    assert experiment.main(["--results", str(tmp_path), "--against", str(tmp_path)]) == 1
    assert experiment.main(["table1", "--results", str(tmp_path), "--against", str(experiment.RESULTS)]) == 1
    assert capsys.readouterr().out == f"table1: there is no {tmp_path / 'table1.json'}\n"
