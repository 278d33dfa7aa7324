"""Table 1 from several draws."""

import pytest

EXPERIMENT = "table1_draws"


def table(ap, holds):
    entry = {"setting": "Synthetic-1", "test": "rank", "auxiliary": "none", "ap_mean": ap, "rho_mean": 0.5}
    return {
        "results": [entry | {"prevalence": 0.4}],
        "bars": [{"bar": "high enough", "value": ap, "holds": holds}],
        "generators": {},
    }


def test_draws_are_put_side_by_side(experiment, monkeypatch):
    tables = {1: table(0.8, True), 2: table(0.6, False)}
    seen = []

    def gather(plan, found, about):
        seen.append(found)
        return tables[found["job"]]

    monkeypatch.setattr(experiment.table1, "gather", gather)
    plan = experiment.Draws(seeds=(1, 2))
    found = experiment.gather(plan, {"job-seed1": 1, "job-seed2": 2}, {})
    assert seen == [{"job": 1}, {"job": 2}]
    (entry,) = found["results"]
    assert entry["ap"]["each"] == [0.8, 0.6]
    assert (entry["ap"]["mean"], entry["ap"]["std"]) == (pytest.approx(0.7), pytest.approx(0.1 * 2**0.5))
    assert found["bars"] == [{"bar": "high enough", "kept": 1, "of": 2, "values": [0.8, 0.6]}]
    assert "| `rank` |  | 0.800 | 0.600 | 0.141 |" in experiment.show(found)
    assert experiment.show(found).endswith("- 1 of 2 draws: high enough")


def test_every_draw_has_jobs_of_its_own(experiment):
    plan = experiment.EXPERIMENT.quick
    jobs = experiment.jobs(plan, 0)
    alone = experiment.table1.jobs(plan.table, 1)
    assert len(jobs) == 2 * len(alone)
    assert len({job.key for job in jobs}) == len(jobs)
    assert jobs[0].name == f"{alone[0].name}-seed1"
    assert jobs[0].after[0].name.endswith("-seed1")
    assert jobs[0].arguments == alone[0].arguments
