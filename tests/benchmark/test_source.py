"""A table made into a source of generated people: its rows, its score, its refusals."""

import logging
from dataclasses import replace
from functools import cache

import numpy as np
import pandas
import polars
import pytest
import torch

from fairfox.benchmark.generator import SyntheticBias
from fairfox.benchmark.source import SourceModel, SourceSettings, generator_score, source_of
from fairfox.errors import ColumnError, DataError, OptionError
from tests.benchmark.tables import SHORT, SMALL, model, table

easy = cache(lambda: model(shift=6.0))


def test_sampled_rows_are_mode_probabilities_with_the_classes_of_the_table_and_as_easy_to_tell_apart():
    x, labels = easy().sample(4000, seed=1)
    torch.testing.assert_close(x.sum(1), torch.full((4000,), 3.0))  # three features
    torch.testing.assert_close(labels.double().mean(), table().y.double().mean(), atol=0.03, rtol=0)
    assert generator_score(easy(), pairs=2000) > 0.8 > 0.62 > generator_score(model(shift=0.0), pairs=2000)
    assert easy().columns == ("f0 mode 1", "f0 mode 2", "f1 mode 1", "f1 mode 2", "f2 mode 1", "f2 mode 2")


def test_a_collapsed_generator_is_refused_with_the_reason():
    with pytest.raises(DataError, match=r"collapsed: within a class .* lower kl_weight \(50\)"):
        model(replace(SMALL, kl_weight=50.0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (replace(table(), y=None), "no label"),
        (replace(table(), y=torch.full((400,), float("nan"))), "missing"),
        (replace(table(), y=torch.zeros(400)), "1 value"),
        (replace(table(), y=torch.arange(400)), "rarest in 1 row"),
    ],
    ids=["no label", "missing label", "one class", "a class per row"],
)
def test_tables_that_cannot_be_a_source_are_refused(data, message):
    with pytest.raises(DataError, match=message):
        SourceModel.fit(data, SMALL, training=SHORT)


def test_categories_are_refused():
    data = table()
    category = replace(data.features[0], kind="categorical", levels=("a",))
    with pytest.raises(DataError, match="'f0' is a category"):
        SourceModel.fit(replace(data, features=(category, *data.features[1:])), SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth is 0; expected a whole number of at least 1"),
        ({"depth": 1.5}, r"depth is 1\.5"),
        ({"width": "64"}, "width is '64'"),
        ({"latent": True}, "latent is True"),
        ({"kl_weight": 0}, "kl_weight is 0; expected a number above 0"),
        ({"kl_weight": float("inf")}, "kl_weight is inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        SourceSettings(**options)


# --- any table as a source ------------------------------------------------------------------------------------------

COLUMNS = {
    "age": [31, 45, 28, 60],
    "town": ["Ulm", "Bonn", "Ulm", "Kiel"],
    "income": [2.5, 3.0, 1.5, 4.0],
    "paid": ["yes", "no", "yes", "no"],
}


def csv(folder):
    path = folder / "people.csv"
    pandas.DataFrame(COLUMNS).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", [pandas.DataFrame, polars.DataFrame, None], ids=["pandas", "polars", "csv"])
def test_numbers_become_features_and_texts_classes_by_alphabet(kind, tmp_path):
    source = source_of(kind(COLUMNS) if kind else csv(tmp_path), label="paid")
    assert source.names == ("age", "income")
    assert source.x.tolist() == [[31, 2.5], [45, 3.0], [28, 1.5], [60, 4.0]]  # in their own units
    assert source.y.tolist() == [1, 0, 1, 0]
    assert source.c.shape == (4, 0)


def test_columns_that_are_left_out_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="fairfox"):
        source_of(pandas.DataFrame(COLUMNS), label="paid")
    assert caplog.messages == ["Columns without numbers are left out: town"]


@pytest.mark.parametrize(
    ("changed", "label", "error", "message"),
    [
        ({}, "payed", ColumnError, "no column 'payed'. Did you mean 'paid'"),
        ({"age": [31, None, 28, 60]}, "paid", DataError, r"Column 'age' has 1 missing value\(s\); drop"),
        ({"paid": ["yes", None, "no", None]}, "paid", DataError, r"Column 'paid' has 2 missing value\(s\)"),
        ({"age": list("abcd"), "income": list("abcd")}, "paid", DataError, "no column of numbers beside"),
    ],
)
def test_what_cannot_be_read_as_a_source_is_refused(changed, label, error, message):
    with pytest.raises(error, match=message):
        source_of(pandas.DataFrame(COLUMNS | changed), label=label)


def test_two_tables_of_ones_own_are_fused():
    generator = np.random.default_rng(0)
    clinic = pandas.DataFrame({"dose": generator.normal(size=120), "sex": generator.choice(["m", "f"], 120)})
    clinic["height"] = 165 + 12 * (clinic["sex"] == "m") + generator.normal(size=120)
    bank = polars.DataFrame({"debt": generator.normal(size=120), "repaid": generator.integers(0, 2, 120)})
    small = SourceSettings(width=32, depth=1)
    fused = SyntheticBias(modes=(2, 3), settings=(small, replace(small, width=24)))
    people = fused.fit(source_of(clinic, label="sex"), source_of(bank, label="repaid")).sample(50, bias=0.5)
    assert people.names == tuple(
        f"{side}: {name} mode {mode}"
        for side, name, modes in (("c", "dose", 2), ("c", "height", 2), ("y", "debt", 3))
        for mode in range(1, modes + 1)
    )
    assert fused.settings == (replace(small, modes=2), replace(small, modes=3, width=24))
    assert torch.isfinite(people.x).all()
