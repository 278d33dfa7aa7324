"""Every test on targets that hide c and on targets that do not."""

import json
import math
import sys
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from fairfox.data.adult import FILES as ADULT
from fairfox.data.adult import load_adult
from fairfox.data.catalog import find_file
from fairfox.data.contrasts import Contrast
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import FileError
from fairfox.fairtests.protocol import combine
from fairfox.models.torch_model import TorchModel
from fairfox.nets.adversarial import HidingSettings
from fairfox.nets.wgan import GanSettings

EXPERIMENT = "fair_vs_unfair"
FLOORS = ("plain", "0", "0.5", "1", "3", "10")
PAPER = {"fta", "fta+linear", "unfair_map", "fliptest", "faux", "faux+ng", "faux+ig"}
SCALED = ("rank", "move", "move-direct", "fliptest", "transport")
ADVERSARIAL = " (adversarial auxiliary)"
LEVELS = ("Husband", "Own-child", "Wife")


# --- one small run of everything ------------------------------------------------------------------------------------


def made_up():
    """Return two hundred people whose first number tells their group, and no `relationship`."""
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    x[:, 0] += torch.arange(200) % 2
    return Dataset.from_arrays(x, c=(torch.arange(200) % 2).float(), y=(x[:, 0] + x[:, 1] > 0.5).float())


def no_file():
    raise FileError("the list is not on this machine")


@pytest.fixture(scope="module")
def found(experiment, tmp_path_factory):
    """Return the results of a small run on people of Adult and on made-up ones."""
    if any(find_file(file) is None for file in ADULT):
        pytest.skip("Adult is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path_factory.mktemp("run") / "comparison.json"
    plan = replace(
        experiment.QUICK,
        tables=("adult", "bank", "chicago"),
        rows=500,
        hiding=HidingSettings(epochs=2, batch_size=64),
        gan=GanSettings(steps=5),
    )
    tables, before = sys.modules["real_data"].TABLES, torch.random.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        for name, load in {"adult": cache(load_adult), "bank": made_up, "chicago": no_file}.items():
            patch.setitem(tables, name, load)
        own = replace(experiment.EXPERIMENT, quick=plan, draw=None)  # pictures have a test of their own
        assert own.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def results_of(found, table):
    return {(one["test"], one["target"]): one for one in found["results"] if one["table"] == table}


def test_every_test_is_told_of_every_target(found):
    for table in ("adult", "bank"):
        own = results_of(found, table)
        tests = {test for test, _ in own}
        assert tests >= PAPER | {*SCALED, *(f"{name}/a" for name in SCALED)}
        assert tests >= {f"{name}{after}" for name in ("faux", "faux+ng", "faux+ig") for after in ("/s", ADVERSARIAL)}
        assert own.keys() == {(test, target) for test in tests for target in ("plain", "3")}
    for one in found["results"]:
        assert 0 <= one["auc"][0] <= 1
        assert one["auc_each"] == [one["auc"][0]]
        assert one["box"] == sorted(one["box"])
        for name in ("paired_share", "paired_median", "mean"):
            value, low, high = one[name]
            assert low <= high
            assert math.isfinite(value)


def test_the_plain_target_is_not_above_itself(found):
    for one in found["results"]:
        if one["target"] == "plain":
            assert one["auc"] == [0.5, 0.0]
            assert one["paired_share"] == [0.5, 0.5, 0.5]
            assert one["paired_median"] == [0.0, 0.0, 0.0]


def test_aligned_effects_are_effects_times_the_alignment_share(found):
    for target in found["targets"]:
        own, (share, _) = results_of(found, target["table"]), target["alignment_share"]
        for name in SCALED:
            effect, aligned = own[name, target["target"]], own[f"{name}/a", target["target"]]
            assert aligned["box"] == pytest.approx([share * one for one in effect["box"]], rel=1e-3, abs=1e-6)
            assert aligned["towards_1"] == pytest.approx([share * one for one in effect["towards_1"]], rel=1e-3)
            assert aligned["abstained"] == effect["abstained"]


def test_only_tests_with_a_direction_have_signed_readings(found):
    signed = {one["test"] for one in found["results"] if "towards_1" in one}
    assert {one["test"] for one in found["results"]} - signed == {"fta", "fta+linear", "unfair_map"}


def test_targets_are_told_with_what_their_output_gives_away(found):
    assert [(one["table"], one["target"]) for one in found["targets"]] == [
        (table, target) for table in ("adult", "bank") for target in ("plain", "3")
    ]
    for one in found["targets"]:
        assert one["people"] == (100 if one["table"] == "adult" else 40)
        assert all(0 <= one[name][0] <= 1 for name in ("accuracy", "auc", "c_auc", "gap", "alignment_share"))
        assert abs(one["gap_towards_1"][0]) == pytest.approx(one["gap"][0])
    for table in ("adult", "bank"):
        assert found["auxiliary_auc"][table]["plain"][0] > 0.6  # c can be told here
        assert found["generators"][table]["ks"][0] > 0


def test_husbands_are_swapped_only_where_a_table_knows_them(found):
    assert list(found["swap"]) == ["adult"]
    assert [one["target"] for one in found["swap"]["adult"]] == ["plain", "3"]
    assert all(len(one[who]) == 3 for one in found["swap"]["adult"] for who in ("husbands", "wives"))


def test_a_table_without_its_file_has_no_number(found):
    assert found["not_run"] == {"chicago": "not run: file not available"}
    told = {name: value for name, value in found.items() if name not in ("not_run", "settings")}
    assert "chicago" not in json.dumps(told)


def test_the_text_has_every_section(experiment, found):
    text = experiment.show(found)
    assert set(sys.modules["fair_vs_unfair_report"].PANELS) == PAPER
    assert experiment.SECTIONS.keys() == {
        "targets",
        "auc",
        "generators",
        "paired",
        "signed",
        "swap",
        "bars",
    }  # on pages
    for name, section in experiment.SECTIONS.items():
        assert len(section(found).splitlines()) > 3, name
        assert section(found) in text, name
    assert "| Chicago SSL | not run: file not available |" in text
    assert "| Adult | `fliptest/a` | 0." in text


def test_pictures_lie_beside_the_results(experiment, found, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    adult = {part: [one for one in found[part] if one["table"] == "adult"] for part in ("targets", "results")}
    experiment.EXPERIMENT.draw(found | adult, tmp_path / "comparison")
    for name in ("comparison", "comparison-compensation"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{name}.svg").read_bytes()


def test_without_the_packages_that_draw_there_is_no_picture(experiment, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    experiment.draw({}, tmp_path / "comparison")
    assert list(tmp_path.iterdir()) == []


# --- readings of one target -----------------------------------------------------------------------------------------


def standing(experiment, models, people):
    return experiment.Stand(experiment.Ground("made", 0, 0), (None, 3.0), 1, 8, models, people, people)


@pytest.fixture
def couples():
    """Return two husbands, a wife and two children of theirs, with their ages."""
    kinds = torch.eye(3)[[0, 0, 2, 1, 1]]
    x = torch.cat([torch.tensor([[1.0], [2.0], [0.5], [-1.0], [-2.0]]), kinds], dim=1)
    features = (Feature("age", "continuous", 0, 1), Feature("relationship", "categorical", 1, 4, levels=LEVELS))
    return Dataset(x, torch.tensor([1.0, 1, 0, 0, 1])[:, None], (Protected("sex"),), features)


def linear(weights, bias):
    layer = nn.Linear(len(weights), 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights]))
        layer.bias.fill_(bias)
    return TorchModel(nn.Sequential(layer, nn.Sigmoid()).eval())


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_the_swap_changes_one_word_and_nothing_else(experiment, couples):
    # age counts 0.5, a husband +1, a wife -2, a child 7
    first, second = experiment.swapped(
        standing(experiment, [linear([0.5, 1, 7, -2], 0.25), linear([0.5, 0, 7, 0], 0)], couples)
    )
    husbands = [sigmoid(0.5 * age - 2 + 0.25) - sigmoid(0.5 * age + 1 + 0.25) for age in (1, 2)]
    assert first["husbands"]["value"] == pytest.approx(sum(husbands) / 2, abs=1e-6)
    assert first["wives"]["value"] == pytest.approx(sigmoid(0.25 + 1.25) - sigmoid(0.25 - 1.75), abs=1e-6)
    assert len(first["husbands"]["replicates"]) == 8
    assert {who: one["value"] for who, one in second.items()} == {"husbands": 0.0, "wives": 0.0}


def test_where_nobody_is_a_wife_there_is_no_number_and_without_relationship_no_swap(experiment, couples):
    models = [linear([0.5, 1, 7, -2], 0)]
    (own,) = experiment.swapped(standing(experiment, models, couples[torch.tensor([0, 3])]))
    assert own["wives"] == {"value": None, "replicates": []}
    plain = Dataset.from_arrays(couples.x, c=couples.c)
    assert experiment.swapped(standing(experiment, models, plain)) is None


class Told:
    """A test that says what it was given for each model; the last person is abstained from."""

    def __init__(self, signed):
        self.signed = signed  # of each model

    def measure(self, model, data):
        values = torch.tensor([*self.signed[model], float("nan")])
        return combine(values[None, :, None], data, contrasts=[Contrast(0)], signed=True)


def test_scores_are_told_in_comparison_with_the_first_target(experiment):
    people = Dataset.from_arrays(torch.zeros(5, 1), c=[0.0, 0.0, 1.0, 1.0, 1.0])
    test = Told({"plain": [0.4, 0.2, -0.3, 0.1], "fair": [0.1, 0.2, -0.1, 0.5]})
    plain, fair = standing(experiment, ["plain", "fair"], people).told(test)
    assert (plain["auc"], plain["abstained"], fair["abstained"]) == (0.5, 1, 1)
    # 0.4, 0.2, 0.3, 0.1 against 0.1, 0.2, 0.1, 0.5
    assert fair["auc"] == pytest.approx((3 + 2.5 + 3 + 1) / 16)
    assert fair["paired_share"]["value"] == pytest.approx((2 + 0.5) / 4)
    assert fair["paired_median"]["value"] == pytest.approx(0.1)  # of 0.3, 0, 0.2, -0.4
    assert fair["mean"]["value"] == pytest.approx(0.225)
    assert fair["signed_median_0"]["value"] == pytest.approx(0.15)
    assert fair["signed_median_1"]["value"] == pytest.approx(0.2)
    assert fair["towards_1"]["value"] == pytest.approx((0.1 + 0.2 + 0.1 - 0.5) / 4)
    _, half = standing(experiment, ["plain", "fair"], people).told(test, [1.0, 0.5])
    assert half["box"] == pytest.approx([0.5 * one for one in fair["box"]])
    assert half["auc"] == pytest.approx((4 + 3 + 4 + 2.5) / 16)  # 0.05, 0.1, 0.05, 0.25


def test_jobs_come_after_the_targets_and_generators_of_their_ground(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {"chicago": "not run"})
    jobs = {job.name: job for job in experiment.jobs(experiment.FULL, 0)}
    assert len(jobs) == 4 * 5 * 4  # tables, numbers; generators and three kinds of tests
    assert [job.name for job in jobs["pairs-bank-3"].after] == ["targets-bank-3", "gan-bank-3"]
    assert [job.name for job in jobs["with-bank-3"].after] == ["targets-bank-3"]
    assert jobs["without-bank-3"].after[0].arguments[1] == (None, 0.0, 0.5, 1.0, 3.0, 10.0)
    assert experiment.EXPERIMENT.parts_with == "real_data"
    assert experiment.narrow(experiment.FULL, ["bank"]).tables == ("bank",)
    with pytest.raises(SystemExit, match="no table wdbc"):
        experiment.narrow(experiment.FULL, ["wdbc"])


def jobs_found(number):
    """Return what the jobs of one number on Bank returned: targets plain and of floor 3."""

    def told(value):
        drawn = {"value": value, "replicates": [value - 0.1, value + 0.1]}
        one = {"auc": value, "box": [value] * 5, "abstained": number, "mean": drawn, "towards_1": drawn}
        return [one, one]

    leak = {"auc": 0.7, "gap": 0.2, "means": {"not age>=25": 0.3, "age>=25": 0.1}}
    target = {"rows": 9, "accuracy": 0.8 + 0.1 * number, "auc": 0.9, "leaks": [leak]}
    effects = {name: told(0.4 + 0.2 * number) for name in ("rank", "rank/a", "move/a", "faux+ng/s")}
    aucs = {"plain": 0.8, "adversarial": 0.6}
    return {
        f"targets-bank-{number}": [target, target],
        f"gan-bank-{number}": {"ks": 0.25, "mse": None if number else 0.5},
        f"with-bank-{number}": {"tests": effects, "alignment_share": [0.5, 0.1], "auxiliary_auc": aucs},
        f"pairs-bank-{number}": {"tests": {"fliptest": told(0.5)}},
        f"without-bank-{number}": {"tests": {"fta": told(0.5)}, "swap": None},
    }


def test_numbers_are_means_over_all_trainings(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {})
    plan = replace(experiment.FULL, tables=("bank",), numbers=2, floors=(None, 3.0))
    found = experiment.gather(plan, jobs_found(0) | jobs_found(1), {})
    plain, fair = found["targets"]
    assert plain["accuracy"] == pytest.approx([0.85, 0.005**0.5], abs=1e-5)  # of 0.8 and 0.9
    assert plain["gap_towards_1"] == pytest.approx([-0.2, 0.0])  # class 1 has the lower mean
    assert (plain["alignment_share"], fair["alignment_share"]) == ([0.5, 0.0], [0.1, 0.0])
    rank = results_of(found, "bank")["rank", "3"]
    assert rank["auc"] == pytest.approx([0.5, 0.02**0.5], abs=1e-5)
    assert (rank["auc_each"], rank["box"], rank["abstained"]) == ([0.4, 0.6], [0.5] * 5, 0.5)
    assert rank["mean"] == pytest.approx([0.5, 0.405, 0.595])  # of replicates 0.4 and 0.6
    assert found["generators"]["bank"] == {"ks": [0.25, 0.0], "mse": [0.5, 0.0]}  # where it did not diverge
    assert found["swap"] == {}
    assert [bar["holds"] for bar in found["bars"] if "sign" in bar["bar"]] == [False]


def test_trainings_of_which_a_test_says_nothing_do_not_count(experiment, monkeypatch):
    monkeypatch.setattr(experiment, "lacking", lambda tables: {})
    plan = replace(experiment.FULL, tables=("bank",), numbers=2, floors=(None, 3.0))
    nothing = {"value": None, "replicates": []}
    silent = {"auc": None, "box": None, "abstained": 9, "mean": nothing, "towards_1": nothing}
    once = jobs_found(0) | jobs_found(1)
    once["pairs-bank-1"] = {"tests": {"fliptest": [silent, silent]}}
    fliptest = results_of(experiment.gather(plan, once, {}), "bank")["fliptest", "3"]
    assert (fliptest["auc"], fliptest["auc_each"], fliptest["box"]) == ([0.5, 0.0], [0.5, None], [0.5] * 5)
    never = once | {"pairs-bank-0": {"tests": {"fliptest": [silent, silent]}}}
    fliptest = results_of(experiment.gather(plan, never, {}), "bank")["fliptest", "3"]
    assert (fliptest["auc"], fliptest["auc_each"], fliptest["box"], fliptest["mean"]) == (None, [None] * 2, None, None)


# --- what has to be shown -------------------------------------------------------------------------------------------


def sections(*tables, floors=FLOORS):
    """Return results of which every bar holds."""
    targets, results = [], []
    for table in tables:
        for place, name in enumerate(floors):
            fall = 0.8 - 0.1 * place
            numbers = {"accuracy": 0.91, "c_auc": 0.55, "gap": 0.2 if name == "plain" else 0.05, "gap_towards_1": 0.05}
            about = {"table": table, "target": name}
            targets.append(about | {n: [v, 0.0] for n, v in (numbers | {"alignment_share": fall}).items()})
            direct = 0.1 if name == "plain" else -0.1
            effects = {"rank": 0.1, "move-direct": direct}
            for test in ("rank", "rank/a", "move/a", "move-direct", "faux+ng", "faux+ng/s"):
                own = {"auc": [0.9, 0.0], "mean": [fall, 0, 1], "towards_1": [effects.get(test, 0.1), 0, 1]}
                results.append(about | {"test": test} | own)
    swap = {"adult": [{"target": name, "husbands": [-0.1, 0, 0], "wives": [0.1, 0, 0]} for name in floors]}
    return {"targets": targets, "results": results, "swap": swap}


def change(found, name, value, *, test=None, table=None, target=None):
    """Return sections with another number in what is named."""
    out = deepcopy(found)
    for one in out["targets"] if test is None else out["results"]:
        asked = {"test": test, "table": table, "target": target}
        if all(wanted is None or one[key] == wanted for key, wanted in asked.items()):
            one[name] = [value, *one[name][1:]]
    return out


@pytest.fixture
def failing(experiment):
    """Return the bars that fail, by a function."""
    return lambda found: [bar["bar"] for bar in experiment.bars(found) if not bar["holds"]]


def test_all_bars_hold_where_everything_is_as_it_should_be(experiment, failing):
    found = sections("adult", "adult-without-relationship", "bank", "bank-without-duration")
    assert failing(found) == []
    assert len(experiment.bars(found)) == 2 + 4 + 4 + 4 + 3 + 1
    assert all(bar["holds"] is True for bar in experiment.bars(found))


def test_of_a_run_without_floor_3_only_some_bars_are_judged(experiment):
    found = sections("adult", "bank", floors=("plain", "0"))
    words = [bar["bar"] for bar in experiment.bars(found)]
    assert len(words) == 4
    assert not [bar for bar in words if "floor 3" in bar or "faux+ng" in bar]
    assert experiment.bars({"targets": [], "results": [], "swap": {}}) == []


@pytest.mark.parametrize(
    ("table", "name", "at", "beyond"),
    [
        ("adult", "accuracy", 0.835, 0.834),
        ("adult", "c_auc", 0.60, 0.601),
        ("adult", "gap", 0.08, 0.081),
        ("bank", "accuracy", 0.905, 0.904),
        ("bank", "gap", 0.2 * 2 / 3, 0.134),
    ],
)
def test_a_target_hides_at_a_small_cost(failing, table, name, at, beyond):
    found = sections(table)
    assert failing(change(found, name, at, target="3")) == []
    (fails,) = failing(change(found, name, beyond, target="3"))
    assert fails.startswith(f"floor 3 on {table.capitalize()}")
    assert failing(change(found, "accuracy", 0.5, target="10")) == []  # that of floor 3 counts


@pytest.mark.parametrize(
    ("table", "title", "least"),
    [
        ("adult", "Adult", 0.85),
        ("adult-without-relationship", "Adult without relationship", 0.85),
        ("bank", "Bank", 0.75),
        ("bank-without-duration", "Bank without duration", 0.75),
    ],
)
def test_the_best_of_three_tests_has_to_tell_the_targets_apart(failing, table, title, least):
    found = sections(table)
    for test in ("rank/a", "move/a"):
        found = change(found, "auc", 0.1, test=test)
    assert failing(change(found, "auc", least, test="faux+ng/s", target="3")) == []
    (fails,) = failing(change(found, "auc", least - 0.001, test="faux+ng/s", target="3"))
    assert f"{title}: the best of faux+ng/s, rank/a, move/a has AUC >= {least}" in fails


@pytest.mark.parametrize(
    ("values", "falls"),
    [
        ([1.0, 0.8, 0.5], True),
        ([1.0, 0.8, 0.84, 0.5], True),  # a rise of 0.04 of the first value
        ([1.0, 0.8, 0.8, 0.5], True),
        ([1.0, 0.8, 0.86, 0.5], False),
        ([0.1, 0.08, 0.12], False),  # small, but so is the first
        ([1.0, 0.8, 0.8, 0.5, 0.5], False),  # one tie is allowed
        ([1.0, 1.01, 0.9, 0.91], False),
        ([1.0], True),
    ],
)
def test_values_fall_but_for_one_near_tie(experiment, values, falls):
    assert sys.modules["fair_vs_unfair_bars"].falls(values) is falls


def test_both_the_share_and_the_effect_have_to_fall(failing):
    found = sections("bank")
    share = change(found, "alignment_share", 0.75, target="3")  # 0.5 at floor 1
    effect = change(found, "mean", 0.75, test="rank", target="3")
    for one in (share, effect):
        (fails,) = failing(one)
        assert "fall with the floor" in fails
    assert failing(change(found, "mean", 0.75, test="rank/a", target="3")) == []


@pytest.mark.parametrize("effect", [-0.01, 0.0])
def test_effects_have_to_point_where_the_gap_does_for_every_target(failing, effect):
    found = sections("bank")
    (fails,) = failing(change(found, "towards_1", effect, test="rank", target="10"))
    assert fails == "Bank: the mean signed rank effect has the sign of the group gap for every target"
    both = change(change(found, "towards_1", -0.01, test="rank"), "gap_towards_1", -0.2)
    assert failing(both) == []


def test_the_papers_order_is_asked_of_the_floors_that_show_it(failing):
    found = sections("adult", "adult-without-relationship", "bank")
    assert failing(change(found, "auc", 0.65, test="faux+ng", table="bank")) == []
    for target in ("0", "0.5", "1", "3"):
        below = change(found, "auc", 0.649, test="faux+ng", table="bank", target=target)
        assert failing(below) == ["Bank: faux+ng has AUC >= 0.65 at floors 0 to 3"]
    assert failing(change(found, "auc", 0.1, test="faux+ng", table="bank", target="10")) == []
    without = {"test": "faux+ng", "table": "adult-without-relationship"}
    assert failing(change(found, "auc", 0.849, **without, target="0")) == [
        "Adult without relationship: faux+ng has AUC >= 0.85 at floor 0"
    ]
    assert failing(change(found, "auc", 0.1, **without, target="3")) == []
    assert failing(change(found, "auc", 0.1, test="faux+ng", table="adult")) == []  # the other way round in the paper


def test_compensation_is_a_change_of_sign_with_the_swap_beside_it(experiment, failing):
    found = sections("adult", "adult-without-relationship")
    (bar,) = [bar for bar in experiment.bars(found) if "changes its sign" in bar["bar"]]
    assert bar["value"]["husbands called wives"] == {"plain": -0.1, "3": -0.1}
    for same in (0.01, 0.0):
        (fails,) = failing(change(found, "towards_1", same, test="move-direct", target="3"))
        assert fails.startswith("Adult: the direct reading")


def test_tells_is_the_mean_auc_over_auxiliaries(experiment):
    people = Dataset.from_arrays(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), c=[0.0, 1.0, 0.0, 1.0])

    class Auxiliaries:
        members = (lambda x: x, lambda x: -x)

    assert experiment.tells(Auxiliaries, people) == pytest.approx((0.75 + 0.25) / 2)
    assert np.isclose(experiment.tells(type("A", (), {"members": Auxiliaries.members[:1]}), people), 0.75)
