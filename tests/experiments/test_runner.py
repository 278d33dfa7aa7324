"""Many jobs: resumed, independent of one another, the same whatever the number of workers."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

EXPERIMENT = "runner"
FOLDER = Path(__file__).parents[2] / "experiments"


@dataclass(frozen=True)
class Plan:
    values: tuple[int, ...] = (1, 2, 3)


def double(folder, needed, value):
    with (folder / "calls").open("a") as calls:
        calls.write("x")
    return 2 * value


def fail(folder, needed, value):
    raise ValueError(f"{value} is no good")


def add(folder, needed, value):
    return value + sum(json.loads((path / "result.json").read_text())["result"] for path in needed)


def threads(folder, needed):
    return torch.get_num_threads()


@pytest.fixture
def parts(experiment, tmp_path):
    return experiment.Parts(tmp_path / "parts")


def run(experiment, parts, *jobs):
    return experiment.run_jobs(jobs, parts, workers=1)


def test_a_job_that_is_done_is_not_done_again(experiment, parts):
    job = experiment.Job("one", double, (4,))
    assert run(experiment, parts, job) == []
    assert run(experiment, parts, job) == []
    assert parts.read(job)["result"] == 8
    assert (parts.of(job) / "calls").read_text() == "x"


def test_a_job_with_other_arguments_is_another_job(experiment):
    job = experiment.Job("one", double, (4,))
    assert job.key != replace(job, arguments=(5,)).key
    assert job.key != replace(job, function=add).key
    assert job.key != replace(job, after=(experiment.Job("before", double, (1,)),)).key
    assert job.key == experiment.Job("one", double, (4,)).key


def test_a_job_finds_what_those_before_it_wrote(experiment, parts):
    before = [experiment.Job(f"double-{value}", double, (value,)) for value in (1, 2)]
    last = experiment.Job("sum", add, (10,), after=tuple(before))
    assert run(experiment, parts, last) == []  # those before it need not be named
    assert parts.read(last)["result"] == 10 + 2 + 4


def test_a_failed_job_stops_only_those_that_need_it_and_is_tried_again(experiment, parts):
    bad = experiment.Job("bad", fail, (7,))
    needs, other = experiment.Job("needs", add, (0,), after=(bad,)), experiment.Job("other", double, (1,))
    for _ in range(2):
        failures = {failure.job: failure.reason for failure in run(experiment, parts, needs, other)}
        assert failures["bad"].startswith("ValueError: 7 is no good")
        assert failures["needs"] == "it needs bad, which failed"
        assert set(failures) == {"bad", "needs"}
    assert parts.read(other)["result"] == 2


def test_jobs_run_on_one_thread_and_leave_the_number_of_threads_alone(experiment, parts):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        job = experiment.Job("threads", threads)
        run(experiment, parts, job)
        assert parts.read(job)["result"] == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def example(experiment):
    def jobs(plan, seed):
        return [experiment.Job(f"job-{value}", double, (value + seed,)) for value in plan.values]

    return experiment.Experiment(
        name="example",
        description="doubles",
        full=Plan(),
        quick=Plan((1,)),
        jobs=jobs,
        gather=lambda plan, found, about: {"results": [found[f"job-{value}"] for value in plan.values]},
        show=lambda found: f"doubled: {found['results']}",
        narrow=lambda plan, names: replace(plan, values=tuple(int(name) for name in names)),
    )


def test_a_run_writes_results_with_all_that_is_needed_to_judge_them(example, tmp_path, capsys):
    out = tmp_path / "deep" / "example.json"
    assert example.run(["--workers", "1", "--seed", "5", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["results"] == [12, 14, 16]
    assert (found["seed"], found["quick"], found["settings"]) == (5, False, {"values": [1, 2, 3]})
    assert set(found["versions"]) == {"python", "torch", "numpy", "scikit-learn", "fairfox"}
    assert found["machine"]["workers"] == 1
    assert found["seconds"] >= 0
    assert "doubled: [12, 14, 16]" in capsys.readouterr().out


def test_quick_and_partial_runs_do_not_replace_the_results_of_a_full_one(example, experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    for options in ([], ["--quick"], ["--only", "2", "3"]):
        assert example.run(["--workers", "1", *options]) == 0
    results = {path.name: json.loads(path.read_text())["results"] for path in tmp_path.glob("*.json")}
    assert results == {"example.json": [2, 4, 6], "example-quick.json": [2], "example-only.json": [4, 6]}


def test_a_fresh_run_forgets_what_is_done(example, tmp_path):
    out = tmp_path / "example.json"
    for options in ([], [], ["--fresh"]):
        assert example.run(["--workers", "1", "--out", str(out), *options]) == 0
    assert {path.read_text() for path in tmp_path.glob("example.parts/*/calls")} == {"x"}


def test_a_failure_is_told_and_nothing_is_written(example, experiment, tmp_path, capsys):
    out = tmp_path / "example.json"
    failing = replace(example, jobs=lambda plan, seed: [experiment.Job("bad", fail, (1,))])
    assert failing.run(["--workers", "1", "--out", str(out)]) == 1
    assert not out.exists()
    assert "bad failed: ValueError: 1 is no good" in capsys.readouterr().err


SCRIPT = """
    import os, signal, sys, time
    from pathlib import Path
    from runner import Job, Parts, run_jobs

    def slow(folder, needed, place, seconds):
        with (folder / "calls").open("a") as calls:
            calls.write("x")
        time.sleep(seconds)
        if place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return [place, seconds]

    if __name__ == "__main__":
        seconds = [0.0, 0.1, 0.0, 0.1, float(sys.argv[2])]
        jobs = [Job(f"job-{place}", slow, (place, pause)) for place, pause in enumerate(seconds)]
        for failure in run_jobs(jobs, Parts(Path(sys.argv[1])), workers=2):
            print(failure.job, failure.reason)
"""


@pytest.fixture
def script(tmp_path):
    """Five jobs on two workers: one dies, the last one takes as long as it is told."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path])}

    def start(seconds):
        command = [sys.executable, str(path), str(tmp_path / "parts"), str(seconds)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_and_survives_a_job_that_dies(script, tmp_path):
    first = script(60)
    done = tmp_path / "parts"
    deadline = time.monotonic() + 60
    while len(list(done.glob("job-*/result.json"))) < 3 or not list(done.glob("job-4*/calls")):
        assert time.monotonic() < deadline, first.communicate()
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 128 + signal.SIGTERM
    first.communicate()
    second = script(0)  # other arguments for the last job only
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert out == "job-2 its process was ended by SIGKILL; was there enough memory?\n"
    assert {path.read_text() for path in done.glob("job-[013]*/calls")} == {"x"}
    assert len(list(done.glob("job-4*/result.json"))) == 1
