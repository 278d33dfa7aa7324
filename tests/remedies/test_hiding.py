"""train_fair: what is hidden and what is kept, what the leak measures say, and how the model is used."""

import logging
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import fairfox
from fairfox.auxiliary.adversarial import HidingSettings, train_hiding, train_networks
from fairfox.auxiliary.training import label_task, protected_task
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import ColumnError, DataError, FileError, OptionError
from fairfox.models.torch import save_mlp
from fairfox.remedies.hiding import Leak, Measures, _warnings, load_fair, measure

SHORT = HidingSettings(width=8, epochs=1)
AGE = Protected("age", "continuous", ())
RACE = Protected("race", "categorical", ("a", "b", "c"))


def applicants(count=2000, *, seed=0):
    """Return people: men earn more and work in other jobs, and loans went by income, merit and job."""
    rng = np.random.default_rng(seed)
    male = rng.random(count) < 0.5
    income = rng.normal(2000 + 700 * male, 500)
    merit = rng.normal(0, 1, count)
    smith = rng.random(count) < np.where(male, 0.7, 0.2)
    score = (income - 2350) / 500 + 1.5 * merit + 0.8 * (smith - 0.45) + 0.5 * rng.normal(size=count)
    return pd.DataFrame(
        {
            "sex": np.where(male, "male", "female"),
            "income": income.round(2),
            "merit": merit,
            "job": np.where(smith, "smith", "nurse"),
            "urban": rng.random(count) < 0.5,
            "loan": np.where(score > 0, "yes", "no"),
        }
    )


def quickly(data, **options):
    return fairfox.train_fair(data, **({"label": "loan", "protected": "sex", "settings": SHORT} | options))


@pytest.fixture(scope="module")
def fair():
    return fairfox.train_fair(applicants(), label="loan", protected="sex", floor=10.0, compare=True)


def test_the_group_is_hidden_and_the_label_is_kept(fair):
    plain, hidden = fair.plain.leaks[0], fair.held_out.leaks[0]
    assert plain.auc > 0.7
    assert hidden.auc < 0.6
    assert hidden.gap < plain.gap / 3
    assert fair.held_out.auc > 0.8
    assert fair.held_out.accuracy < fair.plain.accuracy
    assert fair.held_out.rows == 400
    assert not any("still reveals" in text for text in fair.warnings)


def test_predictions_on_new_tables_are_those_that_were_measured(fair):
    people = applicants(1500, seed=1)
    predicted = fair.predict(people)
    assert predicted.shape == (1500,)
    assert ((predicted > 0.5) == (people.loan == "yes")).mean() == pytest.approx(fair.held_out.accuracy, abs=0.06)
    gap = predicted[people.sex == "male"].mean() - predicted[people.sex == "female"].mean()
    assert abs(gap) == pytest.approx(fair.held_out.leaks[0].gap, abs=0.06)


def test_tables_of_every_kind_and_files_are_read(fair, tmp_path):
    people = applicants(50, seed=2)
    people.to_csv(tmp_path / "people.csv", index=False)
    expected = fair.predict(people)
    for other in (pl.from_pandas(people), tmp_path / "people.csv", people[people.columns[::-1]]):
        np.testing.assert_allclose(fair.predict(other), expected, atol=1e-6)
    one, other = (quickly(table).predict(people) for table in (people, tmp_path / "people.csv"))
    np.testing.assert_allclose(other, one, atol=1e-6)


def test_the_model_does_not_take_the_protected_column(fair):
    people = applicants(50, seed=2)
    assert [f.name for f in fair.features] == ["income", "merit", "job", "urban"]
    np.testing.assert_array_equal(fair.predict(people.drop(columns="sex")), fair.predict(people))
    with pytest.raises(ColumnError, match="income"):
        fair.predict(people.drop(columns="income"))


def test_an_audit_takes_the_model_as_it_is(fair):
    people = applicants(200, seed=3)
    result = fairfox.audit(fair, people, protected="sex", label="loan", options={"refits": 1, "folds": 2})
    np.testing.assert_allclose(result.predictions, fair.predict(people), atol=1e-6)
    assert len(result) == 200


def test_a_saved_model_is_the_same_again(tmp_path):
    people = applicants(300)
    people["rooms"] = np.arange(300) % 2 + 1  # levels of every kind: numbers, booleans, text, missing
    people.loc[:20, "job"] = None
    people.loc[10:30, "merit"] = np.nan
    fair = quickly(people, compare=True)
    fair.save(tmp_path / "fair.safetensors")
    loaded = load_fair(tmp_path / "fair.safetensors")
    np.testing.assert_array_equal(loaded.predict(people), fair.predict(people))
    assert replace(loaded, net=fair.net) == fair


def test_a_network_without_its_columns_is_no_fair_model(tmp_path):
    save_mlp(nn.Sequential(nn.Linear(2, 1)), tmp_path / "net.safetensors")
    with pytest.raises(FileError, match="without its columns"):
        load_fair(tmp_path / "net.safetensors")


def test_the_chosen_class_is_predicted():
    people = applicants(400)
    learning = HidingSettings(width=8, batch_size=16, epochs=10, start=0.0)
    usual, opposite = (quickly(people, positive=one, floor=0.0, settings=learning) for one in (None, "no"))
    assert (usual.positive, opposite.positive) == ("yes", "no")
    assert np.corrcoef(usual.predict(people), people.loan == "yes")[0, 1] > 0.5
    assert np.corrcoef(opposite.predict(people), people.loan == "no")[0, 1] > 0.5
    people["loan"] = np.where(people.merit > 1, "maybe", people.loan)
    assert quickly(people, positive="maybe").positive == "maybe"
    with pytest.raises(DataError, match="3 class"):
        quickly(people)


def test_several_protected_variables_are_hidden_at_once():
    people = applicants(400)
    people["age"] = np.random.default_rng(0).integers(18, 80, 400)
    people["race"] = np.resize(["a", "b", "c"], 400)
    found = quickly(people, protected=["sex", "age", "race"]).held_out
    assert [leak.variable for leak in found.leaks] == ["sex", "age", "race"]
    assert [len(leak.means) for leak in found.leaks] == [2, 2, 3]


def test_people_without_a_label_are_left_out():
    people = applicants(400)
    people.loc[people.index % 2 == 0, "loan"] = None
    assert quickly(people).held_out.rows == 40  # a fifth of 200


def test_a_dataset_trains_a_model_over_its_own_rows():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())
    fair = fairfox.train_fair(data, settings=SHORT)
    torch.testing.assert_close(fair.model(x)[:, 0].numpy(), fair.predict(x.numpy()), check_dtype=False)


def test_columns_that_must_not_enter_do_not():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    x[:, 2] = 1.0  # never varies
    data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())
    data = replace(data, withheld=torch.tensor([True, False, False]))
    (net,) = train_networks(data, settings=SHORT)
    moved = x + torch.tensor([5.0, 0.0, 5.0])
    assert torch.equal(net(moved), net(x))
    assert not torch.equal(net(x + torch.tensor([0.0, 5.0, 0.0])), net(x))


def test_a_dead_network_is_trained_again_and_the_living_stay_as_they_were(caplog):
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())
    fragile = HidingSettings(width=4, batch_size=16, epochs=20, rate=1e-2)  # few units, long steps: a quarter dies
    floors, seeds = [3.0] * 5, list(range(5))
    first = train_hiding(x, label_task(data), protected_task(data), floors=floors, seeds=seeds, settings=fragile)
    dead = [bool(one.max() == one.min()) for one in first(x)]
    assert 0 < sum(dead) < 5
    with caplog.at_level(logging.INFO, logger="fairfox"):
        nets = train_networks(data, floors=floors, seeds=seeds, settings=fragile)
    assert f"{sum(dead)} of 5 networks predict the same for everyone" in caplog.text
    for m, net in enumerate(nets):
        assert net(x).std() > 0.1
        kept = all(map(torch.equal, net.parameters(), first.member(m).parameters()))
        assert kept is not dead[m]
        assert measure(net(x)[:, 0].sigmoid(), data).auc > 0.8


# --- measures ------------------------------------------------------------------------------------------------------


def measured(out, c, *, y=None, protected=None, weights=None):
    out, c = torch.tensor(out), torch.tensor(c)
    y = torch.tensor([0.0, 1.0] * (len(out) // 2)) if y is None else torch.tensor(y)
    data = Dataset.from_arrays(torch.zeros(len(out), 1), c, y, protected=protected)
    return measure(out, data if weights is None else replace(data, weights=torch.tensor(weights)))


def test_measures_of_two_groups_are_those_worked_by_hand():
    # c=0: ten at 0.2, ten at 0.6; c=1: twenty at 0.6. Pairs: 10 · 20 above, 10 · 20 tied: AUC (200 + 100) / 400 = 0.75
    out = [0.2] * 10 + [0.6] * 30
    y = [0.0] * 10 + [1.0] * 20 + [0.0] * 10
    found = measured(out, [0.0] * 20 + [1.0] * 20, y=y)
    assert found.leaks[0].auc == pytest.approx(0.75)
    assert found.leaks[0].means == pytest.approx({"0": 0.4, "1": 0.6})
    assert found.leaks[0].gap == pytest.approx(0.2)
    assert found.accuracy == pytest.approx(0.75)
    assert found.auc == pytest.approx((20 * 10 + 0.5 * 20 * 10) / (20 * 20))


def test_of_many_classes_the_one_that_is_told_best_counts():
    out = [0.1] * 10 + [0.5] * 10 + [0.5] * 10
    leak = measured(out, [0.0] * 10 + [1.0] * 10 + [2.0] * 10, protected=[RACE]).leaks[0]
    assert leak.auc == pytest.approx(1.0)  # class a is below all others
    assert leak.gap == pytest.approx(0.4)


def test_a_number_is_cut_at_its_median():
    leak = measured([0.2] * 10 + [0.8] * 10, [*map(float, range(20))], protected=[AGE]).leaks[0]
    assert leak.auc == pytest.approx(1.0)
    assert leak.means == pytest.approx({"up to 9.5": 0.2, "above 9.5": 0.8})


def test_weights_count_as_repeated_people():
    rng = np.random.default_rng(0)
    out, c, y = rng.random(40), np.resize([0.0, 0.0, 1.0], 40), np.resize([1.0, 0.0, 0.0, 1.0], 40)
    times = rng.integers(1, 4, 40)
    weighted = measured(out, c, y=y, weights=times.astype(float))
    repeated = measured(*(np.repeat(part, times) for part in (out, c)), y=np.repeat(y, times))
    assert weighted.auc == pytest.approx(repeated.auc)
    assert weighted.accuracy == pytest.approx(repeated.accuracy)
    assert weighted.leaks[0].auc == pytest.approx(repeated.leaks[0].auc)
    assert weighted.leaks[0].means == pytest.approx(repeated.leaks[0].means)


def test_people_of_unknown_group_and_tiny_groups_are_not_looked_at():
    out = [0.2] * 10 + [0.4] * 10 + [0.9] * 4
    unknown = measured(out, [0.0] * 10 + [1.0] * 10 + [math.nan] * 4, protected=[Protected("c")]).leaks[0]
    assert unknown.means == pytest.approx({"0": 0.2, "1": 0.4})
    tiny = measured(out, [0.0] * 20 + [1.0] * 4).leaks[0]
    assert math.isnan(tiny.auc)
    assert tiny.means == pytest.approx({"0": 0.3})


# --- warnings ------------------------------------------------------------------------------------------------------


def found_with(*, auc=0.9, leak=0.52, gap=0.01):
    return Measures(100, 0.8, auc, (Leak("sex", leak, gap, {}),))


@pytest.mark.parametrize(
    ("found", "plain", "words"),
    [
        (found_with(leak=0.71, gap=0.19), None, r"still reveals 'sex' \(AUC 0.710.* differ by up to 0.190"),
        (found_with(auc=0.55), None, "hardly predicts the label"),
        (found_with(auc=0.75), found_with(auc=0.9), r"costs much accuracy \(AUC 0.750, 0.900"),
        (found_with(leak=math.nan, gap=math.nan), None, "could not be measured"),
    ],
)
def test_what_leaks_is_lost_or_could_not_be_measured_is_warned_of(found, plain, words):
    (text,) = _warnings(found, plain)
    assert re.search(words, text)


def test_warnings_are_logged_and_kept(caplog):
    people = applicants(400)
    people["copy"] = people.sex  # told by the output as soon as anything is
    with caplog.at_level(logging.WARNING, logger="fairfox"):
        fair = quickly(people, settings=replace(SHORT, adversary_steps=0, start=0.0, epochs=20), floor=0.0)
    assert any("still reveals 'sex'" in text for text in fair.warnings)
    assert tuple(record.getMessage() for record in caplog.records) == fair.warnings


# --- doors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"floor": -1.0}, "floor is -1.0"),
        ({"floor": None}, "floor is None"),
        ({"held_out": 1.0}, "held_out is 1.0"),
        ({"merge_rare": 0.5}, "merge_rare is 0.5"),
        ({"label": None}, "label is None"),
        ({"protected": ()}, r"protected is \(\)"),
        ({"protected": 3}, "protected is 3"),
        ({"positive": "perhaps"}, "'perhaps' is not a class"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        quickly(applicants(50), **options)


def test_a_label_of_numbers_is_refused():
    with pytest.raises(DataError, match="'merit' holds numbers; expected two classes"):
        quickly(applicants(50), label="merit")


def test_a_dataset_takes_no_options_of_tables():
    data = Dataset.from_arrays([[0.0]] * 4, c=[0, 1, 0, 1], y=[0, 1, 0, 1])
    with pytest.raises(OptionError, match="leave out label, drop"):
        fairfox.train_fair(data, label="loan", drop=["job"])


@pytest.mark.parametrize(
    ("c", "y", "words"),
    [
        ([0, 1, 0, 1], None, "no labels y"),
        ([0, 1, 0, 1], [1, 1, 1, 1], "labels y hold 1"),
        ([0, 1, 0, 1], [0, 1, 2, 1], "expected both 0 and 1"),
        (None, [0, 1, 0, 1], "nothing to hide"),
        ([0, 0, 0, 1], [0, 1, 0, 1], "too few people"),
    ],
)
def test_people_from_whom_nothing_can_be_learnt_are_refused(c, y, words):
    y = None if y is None else [float(one) for one in y]
    with pytest.raises(DataError, match=words):
        fairfox.train_fair(Dataset.from_arrays([[0.0]] * 4, c=c, y=y))
