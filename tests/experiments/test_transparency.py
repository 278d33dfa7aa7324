"""How well reports of the features that give c away agree with mutual information."""

import json
import sys
from dataclasses import replace
from functools import cache
from itertools import permutations
from math import log, log2
from pathlib import Path

import pytest
import torch

from fairfox.data.adult import FILES, load_adult
from fairfox.data.catalog import find_file
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.protocol import Mapped

EXPERIMENT = "transparency"
FEATURES = (Feature("income", "continuous", 0, 1), Feature("job", "categorical", 1, 4, levels=("a", "b", "c")))
TRUTH = {"paper": [2.0, 1.0, 0.0], "counted": [2.0, 1.0, 0.0], "own": [0.0, 1.0, 2.0]}


class Shift:
    """A map that adds the same to everyone it can map."""

    def __init__(self, by, abstained):
        self.by, self.abstained = torch.tensor(by), torch.tensor(abstained)

    def map(self, data):
        return Mapped(data.x + self.by, self.abstained)


def result(method, *, aggregation="mean", table="adult", paper=0.8, own=0.8, **others):
    numbers = {"ndcg_paper_mean": paper, "ndcg_own_mean": own, "ndcg_own_std": 0.0}
    return {"table": table, "method": method, "aggregation": aggregation, **numbers, **others}


@pytest.fixture
def people():
    """Sixty people: jobs are a, b, c in turn, and c is 1 for whoever has job a."""
    job = torch.eye(3).repeat(20, 1)
    x = torch.cat([torch.randn(60, 1, generator=torch.Generator().manual_seed(0)), job], dim=1)
    return Dataset(x, job[:, :1], (Protected("sex"),), FEATURES)


def test_a_random_order_has_the_mean_ndcg_of_all_orders(experiment):
    gains = (3.0, 1.0, 0.5)
    discounts = [1 / log2(place + 1) for place in (1, 2, 3)]
    every = [sum(g * d for g, d in zip(order, discounts, strict=True)) for order in permutations(gains)]
    assert experiment.random_ndcg(gains) == pytest.approx(sum(every) / len(every) / max(every))


def test_our_truth_is_of_the_whole_category_and_the_paper_s_a_mean_over_its_columns(experiment, people):
    found = experiment.truths_of(people, seed=0)
    third = log(3) - 2 / 3 * log(2)  # the entropy of having job a, which is c
    # columns b and c: 20 of 60 have it, all of c = 0, among whom it is every second
    other = sum(p * log(p / q) for p, q in ((1 / 3, 1 / 3 * 2 / 3), (1 / 3, 2 / 3 * 2 / 3), (1 / 3, 2 / 3 * 1 / 3)))
    assert found["own"][1] == pytest.approx(third)
    assert found["counted"][1] == pytest.approx((third + 2 * other) / 3)
    assert found["own"][0] == pytest.approx(found["counted"][0])  # a number is the same in both
    assert found["paper"][1] == pytest.approx(found["counted"][1], rel=0.5)  # by neighbours, of few people
    assert found["paper"][1] != found["counted"][1]


def test_displacements_of_levels_are_summed_or_averaged_over_those_who_could_be_mapped(experiment):
    data = Dataset(torch.zeros(3, 4), torch.zeros(3, 1), (Protected("sex"),), FEATURES)
    by = [[0.5, -0.6, 0.4, 0.2], [1.5, -0.6, 0.4, 0.2], [90.0, 0.0, 0.0, 0.0]]
    found = experiment.displaced("shift", Shift(by, [False, False, True]), data)["shift"]
    assert found["sum"] == pytest.approx([1.0, 1.2])
    assert found["mean"] == pytest.approx([1.0, 0.4])


def test_a_map_that_maps_nobody_reports_nothing(experiment):
    data = Dataset(torch.zeros(2, 4), torch.zeros(2, 1), (Protected("sex"),), FEATURES)
    assert experiment.displaced("shift", Shift([[0.0] * 4] * 2, [True, True]), data) == {}


def test_agreement_is_the_mean_and_the_spread_over_retrainings(experiment):
    found = experiment.agreement([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], TRUTH)
    upside_down = (1 / log2(3) + 2 / log2(4)) / (2 + 1 / log2(3))  # gains 0, 1, 2 in this order, over 2, 1, 0
    assert found["retrainings"] == 2
    for name in ("paper", "own"):
        assert found[f"ndcg_{name}_mean"] == pytest.approx((1 + upside_down) / 2)
        assert found[f"ndcg_{name}_std"] == pytest.approx((1 - upside_down) / 2**0.5)
    assert found["spearman_own_mean"] == pytest.approx(0.0)
    assert experiment.agreement([[3.0, 2.0, 1.0]], TRUTH)["spearman_own_mean"] == pytest.approx(-1.0)


def test_reports_of_all_jobs_are_collected_by_method_and_aggregation(experiment):
    parts = [{"faux": {"mean": [1.0], "max": [2.0]}}, {"faux": {"mean": [3.0]}}, {}]
    assert experiment.together(parts) == {("faux", "mean"): [[1.0], [3.0]], ("faux", "max"): [[2.0]]}


def test_the_paper_s_numbers_stand_beside_the_mean_of_levels_only(experiment):
    assert experiment.printed("bank", "faux", "mean") == {"printed": [0.798, 0.047]}
    same = experiment.printed("adult", "faux+ig", "mean")
    assert experiment.printed("adult-without-relationship", "faux+ig (adversarial auxiliary)", "mean") == same
    for others in (("bank", "faux", "max"), ("bank", "rank", "mean"), ("bank", "faux, over c = 1", "mean")):
        assert experiment.printed(*others) == {}


def test_the_best_own_order_is_neither_a_peer_s_nor_a_yardstick_s(experiment):
    results = [result("rank", own=0.9, aggregation="sum"), result("faux", own=0.8), result("faux", own=1.0, table="x")]
    results += [result(name, own=0.99) for name in ("fliptest", "group distance", "faux (adversarial auxiliary)")]
    assert experiment.best(results, "adult") == {
        "method": "rank",
        "aggregation": "sum",
        "ndcg_own_mean": 0.9,
        "ndcg_own_std": 0.0,
    }


def test_what_has_to_be_shown_fails_beyond_two_printed_deviations_and_near_a_random_order(experiment):
    results = [result(name, paper=paper, printed=[0.8, 0.05]) for name, paper in (("faux", 0.89), ("faux+ng", 0.91))]
    results += [result("faux+ig", paper=0.69, printed=[0.8, 0.05]), result("fliptest", paper=0.1, printed=[0.8, 0.05])]
    found = experiment.bars(results, {"adult": {"ndcg_own_mean": 0.98}}, {"adult": {"own": 0.79}})
    assert [bar["holds"] for bar in found] == [True, False, False, True, False]
    assert found[0]["value"] == {"ours": 0.89, "paper": [0.8, 0.05]}
    assert found[-1]["value"] == pytest.approx(0.19)


def test_the_paper_s_ten_auxiliaries_and_the_shared_generators_are_in_the_full_run(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": "not run"})
    jobs = [job.name for job in experiment.jobs(replace(experiment.FULL, tables=("bank", "chicago")), 0)]
    assert len([name for name in jobs if name.startswith("auxiliary-bank-")]) == 10
    assert len([name for name in jobs if name.startswith("fliptest-bank-")]) == experiment.FULL.numbers
    assert not [name for name in jobs if "chicago" in name]
    assert experiment.EXPERIMENT.parts_with == "real_data"
    with pytest.raises(SystemExit, match="no table wdbc"):
        experiment.narrow(experiment.FULL, ["wdbc"])


def test_a_small_run_reports_every_method_and_says_what_was_not_run(experiment, tmp_path, capsys, monkeypatch):
    if any(find_file(file) is None for file in FILES):
        pytest.skip("Adult is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    monkeypatch.setitem(sys.modules["real_data"].TABLES, "adult", cache(load_adult))  # each job reads it again
    out, before = tmp_path / "transparency.json", torch.random.get_rng_state()
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    found = json.loads(out.read_text(encoding="utf-8"))
    own = [one for one in found["results"] if one["table"] == "adult"]
    methods = {one["method"] for one in own}
    assert methods >= {
        *experiment.OWN,
        "fliptest",
        "group difference",
        "group distance",
        "faux (adversarial auxiliary)",
    }
    assert len(own) == len({(one["method"], one["aggregation"]) for one in own})
    assert all(0 < one[f"ndcg_{truth}_mean"] <= 1 for one in own for truth in experiment.TRUTHS)
    assert {one["retrainings"] for one in own if one["method"] in experiment.FAMILY} == {2}
    assert len(found["truths"]["adult"]["features"]) == 12
    # the groups' own distance ranks features much better than chance does, whatever the sample
    (distance,) = (one["ndcg_own_mean"] for one in own if one["method"] == "group distance")
    assert distance > found["random"]["adult"]["own"] + 0.2
    assert "chicago" in found["not_run"]
    assert not [one for one in found["results"] if one["table"] == "chicago"]
    shown = capsys.readouterr().out
    assert "**Chicago SSL**: not run: file not available" in shown
    assert shown.count("random order") == 1
    for kind in ("png", "svg"):
        assert Path(tmp_path / f"transparency.{kind}").stat().st_size > 1_000
