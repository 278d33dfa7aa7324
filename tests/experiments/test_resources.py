"""What fAux and FlipTest need on real tables."""

import json
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from fairfox.data.dataset import Dataset
from fairfox.nets.wgan import GanSettings, Passage, train_generators

EXPERIMENT = "resources"


def needs(parameters, seconds, rate, mib):
    memory = {"peak": 300.0 + mib, "increase": mib}
    return {
        "columns": 101,
        "fitting_rows": 4,
        "scored_rows": 1,
        "parameters": parameters,
        "training_seconds": seconds,
        "rows_per_second": rate,
        "training_memory": memory,
        "scoring_memory": memory,
    }


@pytest.fixture
def found():
    """FlipTest: 25 times the training, 12 times the parameters, half the speed, four times the memory."""
    return {
        "resources-faux-adult": needs(1_000, 2.0, 400_000.0, 10.0),
        "resources-fliptest-adult": needs(12_000, 50.0, 200_000.0, 40.0),
    }


@pytest.fixture
def plan(experiment):
    return replace(experiment.FULL, tables=("adult", "chicago"))


@pytest.fixture
def people():
    """Five hundred made-up people with as many columns as Adult has."""
    x = torch.randn(500, 101, generator=torch.Generator().manual_seed(0))
    return Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())


def test_a_small_run_measures_everything_and_says_what_was_not_run(experiment, tmp_path, people, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": experiment.NOT_RUN})
    monkeypatch.setitem(sys.modules["real_data"].TABLES, "bank", lambda: people)
    out, before = tmp_path / "resources.json", torch.random.get_rng_state()
    tiny = replace(experiment.QUICK, gan=GanSettings(steps=20), gan_weighed=5)
    own = replace(experiment.EXPERIMENT, quick=tiny)
    assert own.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    sections = json.loads(out.read_text(encoding="utf-8"))
    assert sections["not_run"] == {"chicago": "not run: file not available"}
    (bank,) = sections["results"]
    assert (bank["columns"], bank["fitting_rows"], bank["scored_rows"]) == (101, 400, 100)
    # 64-64-1: 101 * 64 + 64 + 64 * 64 + 64 + 64 + 1
    assert bank["faux"]["parameters"] == 10_753
    # two each way: 101 * 128 + 128 + 128 * 128 + 128, and after it 128 * 101 + 101 or, for the critic, 128 + 1
    assert bank["fliptest"]["parameters"] == 2 * (2 * 29_568 + 13_029 + 129)
    for test in ("faux", "fliptest"):
        assert bank[test]["training_seconds"] > 0
        assert bank[test]["rows_per_second"] > 0
        if experiment.FORGET.exists():
            for phase in ("training_memory", "scoring_memory"):
                assert 0 <= bank[test][phase]["increase"] < bank[test][phase]["peak"]
                assert bank[test][phase]["peak"] > 50  # MiB: torch and the people


def test_ratios_say_how_many_times_more_fliptest_needs(experiment, plan, found):
    sections = experiment.gather(plan, found, {})
    (adult,) = sections["results"]
    wanted = {"training": 25.0, "parameters": 12.0, "scoring": 2.0, "memory": 4.0, "scoring_memory": 4.0}
    assert adult["ratios"] == wanted
    assert sections["paper"]["adult"]["ratios"] == pytest.approx({"training": 1012 / 12, "parameters": 220 / 13})
    assert "columns" not in adult["faux"]


def test_memory_that_was_not_seen_has_no_ratio(experiment, found):
    ours, theirs = found.values()
    assert experiment.ratios(ours | {"training_memory": None}, theirs)["memory"] is None
    assert experiment.ratios(ours | {"training_memory": {"peak": 1.0, "increase": 0.0}}, theirs)["memory"] is None


def test_bars_are_judged_by_the_worst_table(experiment, found):
    adult = experiment.table_result("adult", dict(zip(("faux", "fliptest"), found.values(), strict=True)))
    assert [bar["holds"] for bar in experiment.bars([adult])] == [True, True]
    slow = adult | {"table": "bank", "ratios": adult["ratios"] | {"training": 19.9, "parameters": 9.9}}
    both = experiment.bars([adult, slow])
    assert [bar["holds"] for bar in both] == [False, False]
    assert both[0]["value"] == {"Adult": 25.0, "Bank": 19.9}
    exact = slow | {"ratios": adult["ratios"] | {"training": 20.0, "parameters": 10.0}}
    assert [bar["holds"] for bar in experiment.bars([exact])] == [True, True]
    assert [bar["holds"] for bar in experiment.bars([])] == [False, False]  # nothing was shown


def test_the_text_has_the_papers_numbers_beside_ours(experiment, plan, found):
    text = experiment.show(experiment.gather(plan, found, {}))
    assert "| Adult | parameters | 1,000 | 12,000 | 12 | 13,000 | 220,000 | 16.9 |" in text
    assert "| Adult | seconds of training | 2 | 50 | 25 | 12 | 1,012 | 84.3 |" in text
    assert "| Adult | people scored in a second | 400,000 | 200,000 | 2 |  |  |  |" in text
    assert "| Adult | MiB for training (in all) | 10 (310) | 40 (340) | 4 |  |  |  |" in text
    assert "| Chicago SSL | not run: file not available |  |  |  |  |  |  |" in text
    assert "- holds: an auxiliary trains at least 20 times faster" in text


def test_jobs_come_one_after_the_other(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": experiment.NOT_RUN})
    jobs = experiment.jobs(experiment.FULL, 0)
    names = [f"resources-{test}-{table}" for table in ("adult", "bank") for test in ("faux", "fliptest")]
    assert [job.name for job in jobs] == names
    for before, job in pairwise(jobs):
        assert job.after[-1] == before
    for job in jobs:
        assert job.after[0].name == f"targets-{job.arguments[0].name}"
        assert {"targets-adult-0", "targets-bank-0"} <= {one.name for one in job.after}
    reference = jobs[1].arguments[2][0]
    assert (reference.steps, reference.width, reference.n_critic, reference.batch) == (20_000, 128, 5, 64)


def test_memory_is_what_a_call_takes_at_its_peak(experiment):
    if not experiment.FORGET.exists():
        pytest.skip("this system does not tell how much memory a process had at its peak")
    numbers = 16 * 2**20  # 64 MiB in float32; they are freed before the end
    found = experiment.taken(lambda: torch.ones(numbers).sum())
    assert found["increase"] == pytest.approx(64, abs=2)
    assert found["peak"] > found["increase"]
    assert experiment.taken(lambda: None)["increase"] < 1


def test_generators_take_no_more_memory_the_longer_they_train(experiment):
    if not experiment.FORGET.exists():
        pytest.skip("this system does not tell how much memory a process had at its peak")
    x, halves = torch.zeros(20, 2), torch.arange(20).split(10)

    def taken(steps):
        settings = GanSettings(steps=steps, width=4, depth=1, batch=512)
        return experiment.taken(lambda: train_generators(x, [Passage(*halves, 0)], settings))["increase"]

    first, longer = taken(150), taken(950)  # row numbers of 800 steps more would take 34 MiB: 11 * 512 * 8 bytes each
    assert longer < first + 12


def test_some_of_the_tables_can_be_asked_for(experiment):
    assert experiment.narrow(experiment.FULL, ["bank"]).tables == ("bank",)
    with pytest.raises(SystemExit, match="no table compas"):
        experiment.narrow(experiment.FULL, ["compas"])
