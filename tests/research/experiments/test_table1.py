"""A quick Table 1: loose bars that a broken pipeline would not keep."""

import pytest

EXPERIMENT = "table1"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("table1") / "table1.json"


@pytest.fixture(scope="module")
def quick(experiment, quick_run, out, pmlb):
    """What a run writes: two settings, one pair of tables, few rows, two re-trainings."""
    return quick_run(experiment.EXPERIMENT, out=out)


def quick_main(experiment, *arguments):
    return experiment.main(["--quick", "--workers", "1", *map(str, arguments)])


@pytest.fixture(scope="module")
def with_peers(experiment, quick, quick_run, out):
    """What is in the same file after the peers' tests were run."""
    return quick_run(experiment.PEERS, "--only", "transport", "fliptest", "--only", "unfair_map", out=out)


def entries(found, test, auxiliary):
    own = [one for one in found["results"] if (one["test"], one["auxiliary"]) == (test, auxiliary)]
    assert [one["setting"] for one in own] == ["Synthetic-3", "Synthetic-4"]
    return own


def test_there_is_one_entry_per_setting_test_and_auxiliary(experiment, quick):
    keys = [(one["setting"], one["test"], one["auxiliary"]) for one in quick["results"]]
    tests = [("fta", "none"), ("fta+linear", "none"), ("rank", "none"), ("lic", "none")]
    names = ["faux", "faux+ng", "faux+ig", "faux/s", "faux+ng/s", "faux+ig/s", "move", "move-direct"]
    names += ["move/a", "move-direct/a", "rank/a"]
    tests += [(name, kind) for kind in ("plain", "disentangled") for name in names]
    assert sorted(keys) == sorted((setting, *test) for setting in ("Synthetic-3", "Synthetic-4") for test in tests)
    wanted = {"ap_mean", "ap_std", "rho_mean", "rho_std", "prevalence"}
    assert all(wanted <= one.keys() for one in quick["results"])


def test_the_test_that_knows_the_generator_finds_almost_everyone(quick):
    assert all(one["ap_mean"] > 0.8 for one in entries(quick, "lic", "none"))


def test_what_a_user_has_tells_the_unfair_target_from_the_fair_one(quick):
    for one in entries(quick, "rank/a", "plain"):
        assert one["ap_mean"] > one["prevalence"] + 0.25
        assert one["rho_mean"] > 0.2


def test_the_fair_target_treats_everyone_the_same_and_both_have_learned(quick):
    for trial in quick["trials"]:
        for target in trial["targets"].values():
            assert target["fair"]["mean_ifs"] < 1e-6
            assert target["unfair"]["mean_ifs"] > 0.05
        assert all(accuracy > 0.8 for accuracy in trial["auxiliary_balanced_accuracy"]["disentangled"])


def test_the_full_table_is_the_papers(experiment):
    jobs = experiment.jobs(experiment.FULL, 0)
    assert len(jobs) == 8 * 3 * 10 + 5  # settings, kinds of auxiliary, re-trainings; draws of wdbc
    assert len({job.key for job in jobs}) == len(jobs)
    assert {(aux.width, aux.depth) for aux in experiment.FULL.auxiliaries} >= {(8, 1), (48, 4), (128, 3)}
    shared = {before.key for job in jobs for before in job.after if before.name.startswith("generator")}
    assert len(shared) == 2


def test_peers_come_into_the_file_and_everything_else_stays(quick, with_peers):
    assert {name: with_peers[name] for name in quick if name != "results"} == {
        name: quick[name] for name in quick if name != "results"
    }
    assert [one for one in quick["results"] if one not in with_peers["results"]] == []
    added = {(one["setting"], one["test"], one["auxiliary"]) for one in with_peers["results"]}
    added -= {(one["setting"], one["test"], one["auxiliary"]) for one in quick["results"]}
    tests = [("unfair_map", "none"), ("fliptest", "none"), ("transport", "none")]
    tests += [("fliptest/a", "plain"), ("transport/a", "plain")]
    assert added == {(setting, *test) for setting in ("Synthetic-3", "Synthetic-4") for test in tests}
    assert len(with_peers["results"]) == len(quick["results"]) + len(added)


def test_peers_have_found_something(with_peers):
    for test in ("transport", "unfair_map"):
        for one in entries(with_peers, test, "none"):
            assert one["ap_mean"] > one["prevalence"] + 0.1, test
    for plain, aligned in zip(
        entries(with_peers, "transport", "none"), entries(with_peers, "transport/a", "plain"), strict=True
    ):
        assert aligned["rho_mean"] == pytest.approx(plain["rho_mean"])  # a share has no order inside a model
        assert aligned["ap_mean"] != plain["ap_mean"]
    for one in entries(with_peers, "fliptest", "none"):
        assert 0.2 < one["ap_mean"] <= 1.0


def test_a_file_of_another_seed_is_left_alone(experiment, with_peers, out):
    before = out.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="another seed or other settings"):
        quick_main(experiment, "--only", "transport", "--seed", "1", "--out", out)
    assert out.read_text(encoding="utf-8") == before


def test_peers_run_in_all_settings(experiment):
    with pytest.raises(SystemExit, match="no test with a command of its own Synthetic-5"):
        experiment.main(["--only", "fliptest", "Synthetic-5"])


def test_the_full_peers_are_ten_retrainings_each_and_flip_tests_train_together(experiment):
    plan = experiment.PEERS.full
    names = [job.name for job in experiment.PEERS.jobs(plan, 0)]
    count = {start: sum(name.startswith(start) for name in names) for start in ("scores", "aligned")}
    assert count == {"scores": 8 + 2 * 80, "aligned": 160}
    assert sum(name.endswith("-fliptest") for name in names) == 8
    attacks = [job for job in experiment.PEERS.jobs(plan, 0) if job.name.startswith("scores-Synthetic-1-unfair_map")]
    assert [job.arguments[-2] for job in attacks] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert plan.gan.steps == 20_000
