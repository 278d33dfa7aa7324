"""A tiny Table 1: loose bars that a broken pipeline would not keep."""

import json
from dataclasses import replace

import pytest
import torch

from fairfox.data.cache import find
from fairfox.data.pmlb import BACKACHE, MAGIC

EXPERIMENT = "table1"


@pytest.fixture(scope="module")
def tiny(experiment, tmp_path_factory):
    """What a run writes: two settings, one pair of tables, few rows, one re-training."""
    missing = [source.remote.name for source in (MAGIC, BACKACHE) if find(source.remote) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path_factory.mktemp("table1") / "table1.json"
    before = torch.random.get_rng_state()
    tiny_table = replace(experiment.EXPERIMENT, quick=experiment.TINY)
    assert tiny_table.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def entries(found, test, auxiliary):
    own = [one for one in found["results"] if (one["test"], one["auxiliary"]) == (test, auxiliary)]
    assert [one["setting"] for one in own] == ["Synthetic-3", "Synthetic-4"]
    return own


def test_there_is_one_entry_per_setting_test_and_auxiliary(experiment, tiny):
    keys = [(one["setting"], one["test"], one["auxiliary"]) for one in tiny["results"]]
    tests = [("fta", "none"), ("fta+linear", "none"), ("rank", "none"), ("lic", "none")]
    names = ["faux", "faux+ng", "faux+ig", "faux/s", "faux+ng/s", "faux+ig/s", "move", "move-direct"]
    names += ["move/a", "move-direct/a", "rank/a"]
    tests += [(name, kind) for kind in ("plain", "disentangled") for name in names]
    assert sorted(keys) == sorted((setting, *test) for setting in ("Synthetic-3", "Synthetic-4") for test in tests)
    wanted = {"ap_mean", "ap_std", "rho_mean", "rho_std", "prevalence"}
    assert all(wanted <= one.keys() for one in tiny["results"])


def test_the_test_that_knows_the_generator_finds_almost_everyone(tiny):
    assert all(one["ap_mean"] > 0.8 for one in entries(tiny, "lic", "none"))


def test_shuffled_scores_find_no_more_than_chance(tiny):
    for trial, lic in zip(tiny["trials"], entries(tiny, "lic", "none"), strict=True):
        assert 0.25 < lic["prevalence"] <= 0.5
        assert trial["shuffled_ap"] == pytest.approx(lic["prevalence"], abs=0.08)


def test_what_a_user_has_tells_the_unfair_target_from_the_fair_one(tiny):
    for one in entries(tiny, "rank/a", "plain"):
        assert one["ap_mean"] > one["prevalence"] + 0.25
        assert one["rho_mean"] > 0.2


def test_the_steepness_of_a_target_says_less_than_the_true_direction(tiny):
    for steep, known in zip(entries(tiny, "fta", "none"), entries(tiny, "lic", "none"), strict=True):
        assert steep["ap_mean"] < known["ap_mean"]


def test_the_fair_target_treats_everyone_the_same_and_both_have_learned(tiny):
    for trial in tiny["trials"]:
        for target in trial["targets"].values():
            assert target["fair"]["mean_ifs"] < 1e-6
            assert target["unfair"]["mean_ifs"] > 0.05
        assert all(accuracy > 0.8 for accuracy in trial["auxiliary_balanced_accuracy"]["disentangled"])


def test_the_papers_rows_are_there_and_bars_are_left_to_the_full_table(tiny):
    assert tiny["paper"]["faux+ng"]["Synthetic-1"] == 0.876
    assert tiny["bars"] == []


def test_only_names_settings_that_there_are(experiment):
    assert [s.name for s in experiment.narrow(experiment.FULL, ["Synthetic-6"]).settings] == ["Synthetic-6"]
    with pytest.raises(SystemExit, match="no setting Synthetic-9"):
        experiment.narrow(experiment.FULL, ["Synthetic-9"])


def test_the_full_table_is_the_papers(experiment):
    jobs = experiment.jobs(experiment.FULL, 0)
    assert len(jobs) == 8 * 3 * 10  # settings, kinds of auxiliary, re-trainings
    assert len({job.key for job in jobs}) == len(jobs)
    assert {(aux.width, aux.depth) for aux in experiment.FULL.auxiliaries} >= {(8, 1), (48, 4), (128, 3)}
    shared = {before.key for job in jobs for before in job.after if before.name.startswith("generator")}
    assert len(shared) == 2
