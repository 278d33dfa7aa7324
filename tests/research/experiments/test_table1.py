"""A quick Table 1: loose bars that a broken pipeline would not keep."""

from dataclasses import replace

import pytest

EXPERIMENT = "table1"
NEEDS = ("magic", "backache")  # two settings, one pair of tables, few rows, two re-trainings, two draws
SETTINGS = ("Synthetic-3", "Synthetic-4")


def entries(found, test, auxiliary="none"):
    own = [one for one in found["results"] if (one["test"], one["auxiliary"]) == (test, auxiliary)]
    assert [one["setting"] for one in own] == [*SETTINGS]
    return own


def test_there_is_one_entry_per_setting_test_and_auxiliary(quick):
    keys = [(one["setting"], one["test"], one["auxiliary"]) for one in quick["results"]]
    alone = ["fta", "fta+linear", "unfair_map", "fliptest", "rank", "rank given y", "lic"]
    tests = [*((name, "none") for name in alone), ("rank/a", "plain"), ("rank/a given y", "balanced")]
    kinds = ("plain", "disentangled", "balanced")
    tests += [(name, kind) for kind in kinds for name in ("faux", "faux+ng", "faux+ig")]
    assert sorted(keys) == sorted((setting, *test) for setting in SETTINGS for test in tests)
    assert all(len(one["ap_draws"]) == len(one["rho_draws"]) == 2 for one in quick["results"])


def test_the_test_that_knows_the_generator_finds_almost_everyone(quick):
    for one in entries(quick, "lic"):
        assert one["ap_mean"] > 0.9
        assert one["ap_retrainings"] == 0.0  # it learns nothing


def test_what_a_user_has_tells_the_unfair_target_from_the_fair_one(quick):
    for row in (("rank/a", "plain"), ("rank/a given y", "balanced"), ("unfair_map", "none")):
        for one in entries(quick, *row):
            assert one["ap_mean"] > one["prevalence"] + 0.1, row
    for one in entries(quick, "fliptest"):
        assert 0.2 < one["ap_mean"] <= 1.0


def test_a_share_has_no_order_inside_a_model(quick):
    for name, aligned, kind in (("rank", "rank/a", "plain"), ("rank given y", "rank/a given y", "balanced")):
        for plain, times in zip(entries(quick, name), entries(quick, aligned, kind), strict=True):
            assert times["rho_mean"] == pytest.approx(plain["rho_mean"], abs=1e-3)
            assert times["fair"] <= plain["fair"]


def test_the_fair_target_treats_everyone_the_same_and_both_have_learned(quick):
    for trial in quick["trials"]:
        assert 0.3 < trial["prevalence"] <= 0.5
        assert len(trial["draws"]) == 2
        for target in (target for draw in trial["draws"] for target in draw.values()):
            assert target["fair"]["mean_ifs"] < 1e-6
            assert target["unfair"]["mean_ifs"] > 0.05
            assert 0 < target["threshold"] < 0.05
        assert trial["auxiliaries"]["disentangled"] > 0.8


def test_with_the_label_given_a_fair_target_gets_smaller_effects(quick):
    for trial in quick["trials"]:
        fair = trial["fair_over_unfair"]
        assert fair["rank given y"] < fair["rank"]


def test_the_full_table_is_the_papers_with_two_draws(experiment):
    plan = experiment.FULL
    jobs = experiment.jobs(plan, 0)
    assert len(jobs) == 2 * 8 * (1 + 5 + 1 + 3 * 5)  # FlipTest, Unfair Map, maps, kinds of auxiliaries
    assert len({job.key for job in jobs}) == len(jobs)
    assert {(aux.width, aux.depth) for aux in plan.auxiliaries} >= {(8, 1), (48, 4), (128, 3)}
    generators = {before.name for job in jobs for before in job.after if before.name.startswith("generator")}
    assert len(generators) == 2 * 2
    attacks = [job for job in jobs if job.name.startswith("unfair_map-Synthetic-1-0-")]
    assert [job.arguments[-2] for job in attacks] == [10, 20, 30, 40, 50]
    assert plan.gan.steps == 20_000
    assert not {job.key for job in jobs} & {job.key for job in experiment.jobs(plan, 1)}


def test_only_names_settings_and_parts_of_the_work(experiment):
    plan = experiment.narrow(experiment.FULL, ["Synthetic-5", "plain", "maps"])
    assert [setting.name for setting in plan.settings] == ["Synthetic-5"]
    assert plan.parts == ("maps", "plain")
    assert len(experiment.jobs(plan, 0)) == 2 * (1 + 5)
    assert {job.key for job in experiment.jobs(plan, 0)} < {job.key for job in experiment.jobs(experiment.FULL, 0)}
    with pytest.raises(SystemExit, match="There is no setting or part magic"):
        experiment.narrow(experiment.FULL, ["magic"])


def test_a_device_changes_no_job_and_only_the_peers_are_on_it(experiment):
    cuda = experiment.Device("cuda")
    on_gpu = experiment.jobs(replace(experiment.FULL, device=cuda), 0)
    assert [job.key for job in on_gpu] == [job.key for job in experiment.jobs(experiment.FULL, 0)]
    assert {job.name.split("-")[0] for job in on_gpu if job.on_gpu} == {"fliptest", "unfair_map"}
    small = replace(experiment.FULL, parts=("maps",), device=cuda)
    assert not any(job.on_gpu for job in experiment.jobs(small, 0))
