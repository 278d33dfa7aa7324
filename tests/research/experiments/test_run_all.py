"""`make results`: what is due, in which order, and one experiment in small through the command itself."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

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
    assert "--device" not in experiment.arguments(known["verdicts"], options)
    options = Namespace(quick=False, workers=None, device=None, results=Path("here"))
    assert experiment.arguments(known["resources"], options) == ["--out", "here/resources.json", "--jobs", "1"]


def test_a_quick_run_leaves_results_with_hashes_and_does_nothing_twice(experiment):
    out = experiment.RESULTS / "legitimate-quick.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, experiment.FOLDER / "run_all.py", "--quick", "--jobs", "1", "legitimate"]
    seconds = []
    for _ in range(2):
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        seconds.append(json.loads(out.read_text())["core_seconds"])
    found = json.loads(out.read_text())
    assert (found["defaults"], found["code"]) == (experiment.defaults_hash(), experiment.code_hash())
    assert seconds[0] == seconds[1]  # the second run took over the finished jobs of the first
