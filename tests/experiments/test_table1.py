"""A quick Table 1: loose bars that a broken pipeline would not keep."""

import json

import pytest
import torch

from fairfox.data.cache import find
from fairfox.data.pmlb import BACKACHE, MAGIC

EXPERIMENT = "table1"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("table1") / "table1.json"


@pytest.fixture(scope="module")
def quick(experiment, out):
    """What a run writes: two settings, one pair of tables, few rows, two re-trainings."""
    missing = [source.remote.name for source in (MAGIC, BACKACHE) if find(source.remote) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    before = torch.random.get_rng_state()
    assert experiment.main(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def quick_main(experiment, *arguments):
    return experiment.main(["--quick", "--workers", "1", *map(str, arguments)])


@pytest.fixture(scope="module")
def with_peers(experiment, quick, out):
    """What is in the same file after the peers' tests, and then the costs, were run."""
    before = torch.random.get_rng_state()
    arguments = ["--only", "transport", "fliptest", "--only", "unfair_map", "--out", out]
    assert quick_main(experiment, *arguments) == 0
    assert quick_main(experiment, "--only", "costs", "--out", out) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


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


def test_shuffled_scores_find_no_more_than_chance(quick):
    for trial, lic in zip(quick["trials"], entries(quick, "lic", "none"), strict=True):
        assert 0.25 < lic["prevalence"] <= 0.5
        assert trial["shuffled_ap"] == pytest.approx(lic["prevalence"], abs=0.08)


def test_what_a_user_has_tells_the_unfair_target_from_the_fair_one(quick):
    for one in entries(quick, "rank/a", "plain"):
        assert one["ap_mean"] > one["prevalence"] + 0.25
        assert one["rho_mean"] > 0.2


def test_the_steepness_of_a_target_says_less_than_the_true_direction(quick):
    for steep, known in zip(entries(quick, "fta", "none"), entries(quick, "lic", "none"), strict=True):
        assert steep["ap_mean"] < known["ap_mean"]


def test_the_fair_target_treats_everyone_the_same_and_both_have_learned(quick):
    for trial in quick["trials"]:
        for target in trial["targets"].values():
            assert target["fair"]["mean_ifs"] < 1e-6
            assert target["unfair"]["mean_ifs"] > 0.05
        assert all(accuracy > 0.8 for accuracy in trial["auxiliary_balanced_accuracy"]["disentangled"])


def test_the_papers_rows_are_there_and_bars_are_left_to_the_full_table(quick):
    assert quick["paper"]["faux+ng"]["Synthetic-1"] == 0.876
    assert quick["bars"] == []


def test_only_names_settings_that_there_are(experiment):
    assert [s.name for s in experiment.narrow(experiment.FULL, ["Synthetic-6"]).settings] == ["Synthetic-6"]
    with pytest.raises(SystemExit, match="no setting Synthetic-9"):
        experiment.narrow(experiment.FULL, ["Synthetic-9"])


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


def test_every_run_of_a_peer_leaves_its_circumstances(quick, with_peers):
    assert sorted(with_peers["runs"]) == ["costs", "fliptest", "transport", "unfair_map"]
    for test in ("fliptest", "transport", "unfair_map"):
        run = with_peers["runs"][test]
        assert run["seconds"] > 0
        assert run["together"] == ["fliptest", "transport", "unfair_map"]
        assert run["thresholds"] == {trial["name"]: trial["thresholds"] for trial in quick["trials"]}
        assert sorted(run["details"]) == ["Synthetic-3", "Synthetic-4"]
    assert set(with_peers["runs"]["fliptest"]["details"]["Synthetic-4"]["checks"]) >= {"ks", "mse"}
    assert with_peers["runs"]["fliptest"]["details"]["Synthetic-4"]["training"]["device"] == "cpu"
    solver = with_peers["runs"]["transport"]["details"]["Synthetic-3"]["solver"]
    assert solver.startswith(("POT ", "scipy "))
    bounds = with_peers["runs"]["unfair_map"]["details"]["Synthetic-3"]["checks"]
    assert bounds["bound unfair"] > bounds["bound fair"]


def test_costs_are_those_of_what_was_trained(with_peers):
    costs = with_peers["costs"]
    d = costs["columns"]
    assert (costs["setting"], costs["scored_rows"], costs["target"]) == ("Synthetic-4", 500, "64x2")
    auxiliary = d * 64 + 64 + 64 * 64 + 64 + 64 + 1
    gan = d * 128 + 128 + 128 * 128 + 128  # up to the last layer: d outputs of a generator, one of a critic
    found = {test: one["parameters"] for test, one in costs["tests"].items()}
    assert found == {
        **{"rank": 0, "transport": 0, "faux": auxiliary, "move": auxiliary, "move/a": 2 * auxiliary},
        **{"fta+linear": d + 1, "unfair_map": d + 1, "fliptest": 2 * (gan + 129 * d + gan + 129)},
    }
    assert all(one["training_seconds"] > 0 and one["rows_per_second"] > 0 for one in costs["tests"].values())
    assert costs["tests"]["faux"]["rows_per_second"] > costs["tests"]["unfair_map"]["rows_per_second"]


def test_a_whole_table_keeps_the_peers_of_the_same_settings(experiment, quick, with_peers, out):
    assert quick_main(experiment, "--out", out) == 0
    again = json.loads(out.read_text(encoding="utf-8"))
    assert (again["runs"], again["costs"]) == (with_peers["runs"], with_peers["costs"])
    key = "{setting} {test} {auxiliary}".format_map
    assert sorted(again["results"], key=key) == sorted(with_peers["results"], key=key)
    other = again | {"seed": 1}
    assert "runs" not in experiment.keep_peers(other, quick)


def test_a_file_of_another_seed_is_left_alone(experiment, with_peers, out):
    before = out.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="another seed or other settings"):
        quick_main(experiment, "--only", "transport", "--seed", "1", "--out", out)
    assert out.read_text(encoding="utf-8") == before


def test_costs_are_timed_alone_and_peers_run_in_all_settings(experiment):
    with pytest.raises(SystemExit, match="Costs are timed while nothing else runs"):
        experiment.main(["--only", "costs", "fliptest"])
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
    assert set(plan.costs.tests) >= {"rank/a", "faux", "lic", "unfair_map", "fliptest", "transport"}


def test_another_device_asks_for_the_same_jobs(experiment):
    plan = experiment.PEERS.full
    keys = [[job.key for job in experiment.PEERS.jobs(p, 0)] for p in (plan, experiment.PEERS.on(plan, "cuda"))]
    assert keys[0] == keys[1]
    assert experiment.PEERS.on(plan, "cuda").device.name == "cuda"
