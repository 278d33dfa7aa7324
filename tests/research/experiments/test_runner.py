"""Many jobs: resumed, independent of one another, the same whatever the number of workers."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

EXPERIMENT = "runner"
FOLDER = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True)
class Plan:
    values: tuple[str, ...] = ("1", "2", "3")


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


def test_a_job_that_a_long_one_waits_for_comes_before_one_of_middle_length(experiment):
    first = experiment.Job("first", double, (1,), seconds=1)
    long = experiment.Job("long", double, (2,), after=(first,), seconds=9)
    middle = experiment.Job("middle", double, (3,), seconds=5)
    ordered = experiment.most_urgent_first([[middle, first, long]])
    assert [job.name for job in ordered] == ["first", "long", "middle"]
    short = experiment.Job("short", double, (4,), seconds=2)
    ordered = experiment.most_urgent_first([[short], [middle, first, long]])
    assert [job.name for job in ordered] == ["first", "long", "middle", "short"]  # one experiment after the other


@pytest.fixture
def example(experiment):
    def jobs(plan, seed):
        return [experiment.Job(f"job-{value}", double, (int(value) + seed,)) for value in plan.values]

    return experiment.Experiment(
        name="example",
        description="doubles",
        full=Plan(),
        quick=Plan(("1",)),
        jobs=jobs,
        gather=lambda plan, found, about: {"results": [found[f"job-{value}"] for value in plan.values]},
        show=lambda found: f"doubled: {found['results']}",
        narrow=experiment.pick("values", "number"),
    )


def test_a_run_writes_results_with_all_that_is_needed_to_judge_them(example, tmp_path, capsys):
    out = tmp_path / "deep" / "example.json"
    assert example.run(["--workers", "1", "--seed", "5", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["results"] == [12, 14, 16]
    assert (found["seed"], found["quick"], found["settings"]) == (5, False, {"values": ["1", "2", "3"]})
    assert set(found["versions"]) == {"python", "torch", "numpy", "scikit-learn", "fairfox"}
    assert found["machine"]["workers"] == 1
    assert found["core_seconds"] >= 0
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
    assert {path.read_text() for path in tmp_path.glob("jobs.parts/*/calls")} == {"x"}


def test_a_failure_is_told_and_nothing_is_written(example, experiment, tmp_path, capsys):
    out = tmp_path / "example.json"
    failing = replace(example, jobs=lambda plan, seed: [experiment.Job("bad", fail, (1,))])
    assert failing.run(["--workers", "1", "--out", str(out)]) == 1
    assert not out.exists()
    assert "bad failed: ValueError: 1 is no good" in capsys.readouterr().err


def test_experiments_in_one_pool_share_jobs_and_one_that_fails_leaves_the_others(example, experiment, tmp_path):
    def bad(plan, seed):
        return [*example.jobs(plan, seed), experiment.Job("bad", fail, (1,))]

    def broken(plan, found, about):
        raise ValueError("no sum")

    others = [replace(example, name="bad", jobs=bad), replace(example, name="broken", gather=broken)]
    runs = [one.planned(["--out", str(tmp_path / f"{one.name}.json")]) for one in (*others, example)]
    assert sorted(experiment.run_together(runs, workers=1)) == ["bad", "broken"]
    assert [path.name for path in tmp_path.glob("*.json")] == ["example.json"]
    assert [path.read_text() for path in tmp_path.glob("jobs.parts/*/calls")] == ["x"] * 3


def test_results_are_written_where_charts_cannot_be_drawn(example, tmp_path, capsys):
    def draw(found):
        raise ImportError("no altair")

    out = tmp_path / "example.json"
    assert replace(example, charts={"": draw}).run(["--workers", "1", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["results"] == [2, 4, 6]
    assert "example: no chart (no altair); `python experiments/pages.py` draws it" in capsys.readouterr().err


SCRIPT = """
    import os, signal, sys
    from pathlib import Path
    from runner import Job, Parts, run_jobs

    def work(folder, needed, place, dies):
        with (folder / "calls").open("a") as calls:
            calls.write("x")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return place

    if __name__ == "__main__":
        first = Job("first", work, (0, False))
        jobs = [first, Job("second", work, (1, sys.argv[2] == "dies"), after=(first,))]
        for failure in run_jobs(jobs, Parts(Path(sys.argv[1])), workers=2):
            print(failure.job, failure.reason)
"""


@pytest.mark.slow
def test_a_run_whose_process_dies_says_so_and_the_next_goes_on_from_there(tmp_path):
    path, done = tmp_path / "script.py", tmp_path / "parts"
    path.write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path])}
    printed = [
        subprocess.run(
            [sys.executable, str(path), str(done), how], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for how in ("dies", "lives")
    ]
    assert printed == ["a job its process was ended; was there enough memory?\n", ""]
    assert [path.read_text() for path in done.glob("first*/calls")] == ["x"]
    assert len(list(done.glob("second*/result.json"))) == 1


def test_a_results_file_has_five_digits_of_each_number_and_a_line_for_each_entry(experiment, tmp_path):
    found = {"seed": 0, "results": [{"ap": 0.123456789, "n": 1234567}, {"ap": [1e-9 / 3, None]}], "edges": [0.5, 1.0]}
    experiment.write_results(tmp_path / "a.json", found)
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {
        "seed": 0,
        "results": [{"ap": 0.12346, "n": 1234567}, {"ap": [3.3333e-10, None]}],
        "edges": [0.5, 1.0],
    }
    assert len(text.splitlines()) == 8


def test_a_chart_loses_nothing_that_is_seen(experiment):
    svg = (
        '<svg width="10.25"><g class="mark" role="none"></g><path d="M0,0h0v0h0Z" fill="red"/>'
        '<path aria-label="a: 0.123" d="M1.2345,2h3.333" opacity="1"/><text font-family="sans-serif">0.05</text></svg>'
    )
    assert experiment.slim(svg) == (
        '<svg font-family="sans-serif" width="10.2"><path d="M1.2,2h3.3"/><text>0.05</text></svg>'
    )
