"""What hiding c costs and brings on generated people."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.cache import find
from fairfox.data.dataset import Dataset, Truth
from fairfox.data.pmlb import BACKACHE, MAGIC
from fairfox.nets.adversarial import HidingSettings

EXPERIMENT = "fair_training"


def target(mean_ifs, auc, c_auc=0.6):
    return {"accuracy": 0.8, "balanced_accuracy": 0.7, "auc": auc, "c_auc": c_auc, "gap": 0.1, "mean_ifs": mean_ifs}


@pytest.fixture
def plan(experiment):
    return replace(experiment.FULL, settings=experiment.SETTINGS[:2], floors=(None, 3.0), seeds=2)


@pytest.fixture
def found():
    """Two settings, two seeds: floor 3 treats people less differently, and costs 0.03 of the label's AUC."""
    out = {}
    for setting in ("Synthetic-1", "Synthetic-2"):
        for seed in (0, 1):
            targets = {
                "plain": target(0.3 + 0.2 * seed, 0.9, c_auc=0.8),
                "3": target(0.02, 0.67),
                "cannot see c": target(0.0, 0.7),
            }
            out[f"hiding-{setting}-{seed}"] = {"columns": 20, "targets": targets}
    return out


def test_targets_that_hide_treat_people_less_differently(experiment, tmp_path):
    if find(MAGIC.remote) is None or find(BACKACHE.remote) is None:
        pytest.skip("the PMLB tables are not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out, before = tmp_path / "fair.json", torch.random.get_rng_state()
    plan = replace(
        experiment.QUICK,
        rows=experiment.Rows(800, 200, 300),
        sources=experiment.Sources(rows=1_000, steps=200, pairs=300, draws=1),
        hiding=HidingSettings(epochs=6, batch_size=64, decay=0.3),
    )
    assert replace(experiment.EXPERIMENT, quick=plan).run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    found = json.loads(out.read_text(encoding="utf-8"))
    plain, least, most = found["results"]
    assert [one["floor"] for one in (plain, least, most)] == [None, 0.0, 3.0]
    assert plain["mean_ifs_mean"] > 2 * most["mean_ifs_mean"]
    (blind,) = found["blind"]
    assert blind["mean_ifs_mean"] < 1e-5  # its first layer removes what depends on c
    assert found["bars"][0]["holds"]
    for kind in ("png", "svg"):
        assert Path(tmp_path / f"fair.{kind}").stat().st_size > 1_000


def test_a_target_is_measured_on_the_label_on_c_and_on_the_truth(experiment):
    # Ten people of each group; f = x. High (0.8) are two of the first group and eight of the second, the rest 0.2.
    x = torch.tensor([0.8] * 2 + [0.2] * 8 + [0.8] * 8 + [0.2] * 2)[:, None]
    y = (x[:, 0] > 0.5).float()
    y[9] = 1.0  # one who is low all the same
    people = replace(
        Dataset.from_arrays(x, c=[0.0] * 10 + [1.0] * 10, y=y),
        truth=Truth(counterfactual=1 - x),
    )
    found = experiment.numbers(LinearMember(torch.ones(1, 1), torch.zeros(1)), people)
    assert found == pytest.approx(
        {
            "accuracy": 19 / 20,
            "balanced_accuracy": (10 / 11 + 1) / 2,
            "auc": 10 / 11 + 0.5 / 11,  # one of eleven positives is tied with the negatives
            "c_auc": 0.8 * 0.8 + 0.5 * (0.8 * 0.2 + 0.2 * 0.8),
            "gap": (0.8 * 0.8 + 0.2 * 0.2) - (0.2 * 0.8 + 0.8 * 0.2),
            "mean_ifs": 0.6,  # |0.8 - 0.2|
        },
        abs=1e-6,
    )


def test_numbers_are_means_and_spreads_over_seeds(experiment, plan, found):
    sections = experiment.gather(plan, found, {})
    assert [(one["setting"], one["floor"]) for one in sections["results"]] == [
        ("Synthetic-1", None),
        ("Synthetic-1", 3.0),
        ("Synthetic-2", None),
        ("Synthetic-2", 3.0),
    ]
    first = sections["results"][0]
    assert first["mean_ifs_mean"] == pytest.approx(0.4)  # of 0.3 and 0.5
    assert first["mean_ifs_std"] == pytest.approx(0.02**0.5)
    assert first["accuracy_std"] == 0
    assert experiment.moments([target(0.3, 0.9)])["mean_ifs_std"] == 0.0


def test_bars_hold_where_hiding_brings_fairness_and_costs_little(experiment, plan, found):
    bars = experiment.gather(plan, found, {})["bars"]
    assert [bar["holds"] for bar in bars] == [True, True, True]
    assert bars[0]["value"]["Synthetic-2"] == pytest.approx([0.4, 0.02])
    assert bars[2]["value"] == pytest.approx({"Synthetic-1": 0.03, "Synthetic-2": 0.03})


def test_one_setting_that_fails_is_told(experiment, plan, found):
    for seed in (0, 1):
        found[f"hiding-Synthetic-2-{seed}"]["targets"]["3"] = target(0.5, 0.6, c_auc=0.9)
    sections = experiment.gather(plan, found, {})
    assert [bar["holds"] for bar in sections["bars"]] == [False, False, False]
    text = experiment.show(sections)
    assert "| setting | plain | 3 | cannot see c |" in text
    assert "| Synthetic-2 | 0.800 / 0.400 | 0.800 / 0.500 | 0.800 / 0.000 |" in text
    assert "| Synthetic-2 | 0.900 / 0.800 | 0.600 / 0.900 | 0.700 / 0.600 |" in text
    assert "- **fails**: the mean true score falls from the plain target to floor 3 in every setting" in text


def test_a_full_run_has_a_job_for_each_setting_and_seed_on_the_generators_of_table_1(experiment):
    jobs = experiment.jobs(experiment.FULL, 0)
    assert len({job.name for job in jobs}) == 8 * 5
    assert {job.after[0].name for job in jobs} == {"generator-magic-backache", "generator-australian-credit"}
    assert [job.arguments[0].fusion for job in jobs] == ["outer"] * 20 + ["concat"] * 20
    own = [job for job in jobs if job.name.startswith("hiding-Synthetic-8")]
    people, seeds = ({job.arguments[place] for job in own} for place in (-2, -1))
    assert (len(people), len(seeds)) == (1, 5)
    assert experiment.EXPERIMENT.parts_with == "table1"


def test_some_of_the_settings_can_be_asked_for(experiment):
    assert [one.name for one in experiment.narrow(experiment.FULL, ["Synthetic-3"]).settings] == ["Synthetic-3"]
    with pytest.raises(SystemExit, match="no setting Synthetic-9"):
        experiment.narrow(experiment.FULL, ["Synthetic-9"])
