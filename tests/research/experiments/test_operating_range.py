"""The operating range: a quick run, and how cells are judged."""

import pytest
import torch

EXPERIMENT = "operating_range"
NEEDS = ("magic", "backache")  # one pair of tables, both fusions, two levels of bias


ALL = ("faux", "faux+ng", "faux+ig", "rank", "rank/a", "rank given y", "rank/a given y", "fta", "lic")


def test_every_cell_has_its_numbers(quick):
    names = [f"magic-backache-{fusion}-{bias}" for fusion in ("outer", "concat") for bias in ("0.25", "1")]
    assert [one["name"] for one in quick["cells"]] == names
    for one in quick["cells"]:
        assert set(one["ap"]) == set(one["rho"]) == set(ALL)
        assert all(0 <= ap <= 1 for ap in one["ap"].values())
        assert 0 < one["prevalence"] <= 0.5  # a fair target treats nobody unfairly
        assert one["ap"]["lic"] > 0.9 or one["bias"] < 1  # so few people show little at a small bias
        assert one["mean_gradient_norm"] > 0
        assert one["mean_ifs"] > 0
        assert one["auxiliary_balanced_accuracy"] > 0.6


def test_means_by_bias_are_those_of_the_cells(quick):
    own = [one["ap"]["rank"] for one in quick["cells"] if one["bias"] == 1.0]
    assert quick["by_bias"]["rank"]["1"]["ap"] == pytest.approx(sum(own) / 2)
    assert quick["by_bias"]["rank"]["1"]["n"] == 2
    curve = quick["curves"]["precision"]["lic"]["1"]
    assert len(curve) == len(quick["curves"]["recall"]) == 50
    assert curve[0] > 0.9


def test_where_nobody_or_everybody_is_treated_unfairly_there_is_no_ap(experiment):
    scores = {"rank": [torch.tensor([0.1, 0.2]), torch.tensor([0.0, 0.0])]}
    ifs = [torch.tensor([0.3, 0.4]), torch.tensor([0.0, 0.0])]
    nobody, some = experiment.judged(scores, ifs, 0.5), experiment.judged(scores, ifs, 0.35)
    assert (nobody["ap"], nobody["prevalence"], nobody["rho"]) == ({"rank": None}, 0.0, {"rank": pytest.approx(1.0)})
    assert (some["ap"], some["prevalence"]) == ({"rank": 1.0}, 0.25)
    constant = experiment.judged({"rank": [torch.zeros(2), torch.zeros(2)]}, ifs, 0.35)
    assert constant["rho"] == {"rank": None}


def test_precision_is_read_off_where_each_recall_is_first_reached(experiment):
    labels, scores = torch.tensor([1, 0, 1, 0]), torch.tensor([0.9, 0.8, 0.7, 0.1])
    found = experiment.curves_of(labels, scores)
    assert found[:25] == [1.0] * 25  # up to a recall of a half
    assert found[25:] == [0.6667] * 25


def cell(c, bias, accuracy, norm, ap, ig=0.0):
    aps = {"faux": ap, "faux+ng": ap, "faux+ig": ap + ig}
    place = {"c": c, "y": "y", "fusion": "outer", "bias": bias}
    numbers = {"auxiliary_balanced_accuracy": accuracy, "mean_gradient_norm": norm, "prevalence": 0.5}
    return {**place, **numbers, "ap": aps}


def test_claims_are_judged_by_means_and_slopes_and_their_errors(experiment):
    biases, worlds = (0.25, 0.5, 0.75, 1.0), [str(number) for number in range(12)]
    cells = [
        # AP grows with bias and accuracy, falls where the norm is 4; IG's lead falls with accuracy
        cell(c, bias, 0.6 + 0.03 * k, 1 + k % 4, 0.5 + 0.2 * bias + 0.01 * k - 0.1 * (k % 4 == 3), ig=-0.01 * k)
        for k, c in enumerate(worlds)
        for bias in biases
    ]
    found = experiment.claims(cells, cells)
    assert len(found) == 5
    gain, chance, _, integrated, norm = found
    # 0.75 and 1 against 0.25 and 0.5: 0.2 * 0.5
    assert gain["value"]["faux"] == "0.100 ± 0.000"
    assert gain["verdict"] == integrated["verdict"] == norm["verdict"] == "confirmed"
    assert chance["verdict"] == "faux refuted, faux+ng refuted, faux+ig confirmed"
    assert integrated["value"] == {"faux+ig": "0.333 ± 0.000"}  # 0.01 for each 0.03 of accuracy
    assert experiment.claims(cells[:8], cells[:8]) == []
