"""Tables of one's own as sources of generated people."""

import logging

import numpy as np
import pandas
import polars
import pytest
import torch

from fairfox.errors import ColumnError, DataError, FileError, OptionError
from fairfox.synthetic.generator import SyntheticBias
from fairfox.synthetic.source import SourceSettings
from fairfox.synthetic.tables import source_of

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


def test_the_columns_to_learn_from_can_be_chosen():
    assert source_of(pandas.DataFrame(COLUMNS), label="paid", columns=["income"]).names == ("income",)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([1, 2, 1, 2], [1, 2, 1, 2]), ([True, False, True, False], [1, 0, 1, 0]), ([0.5, 1.5, 2.5, 0.5],) * 2],
    ids=["whole numbers", "booleans", "numbers"],
)
def test_numbers_stay_labels_as_they_are(labels, expected):
    assert source_of(pandas.DataFrame(COLUMNS | {"paid": labels}), label="paid").y.tolist() == expected


def test_a_categorical_column_of_pandas_may_be_the_label():
    table = pandas.DataFrame(COLUMNS).astype({"paid": "category"})
    assert source_of(table, label="paid").y.tolist() == [1, 0, 1, 0]


def test_an_array_names_its_columns_by_number():
    assert source_of(np.array([[1.0, 0.0], [2.0, 1.0]]), label="x1").y.tolist() == [0, 1]


def test_columns_that_are_left_out_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="fairfox"):
        source_of(pandas.DataFrame(COLUMNS), label="paid")
    assert caplog.messages == ["Columns that hold no numbers are left out: town"]


@pytest.mark.parametrize(
    ("changed", "options", "error", "message"),
    [
        ({}, {"label": "payed"}, ColumnError, "no column 'payed'. Did you mean 'paid'"),
        ({}, {"label": "paid", "columns": ["aeg"]}, ColumnError, "Did you mean 'age'"),
        ({}, {"label": "paid", "columns": ["town"]}, DataError, "Column 'town' holds no numbers"),
        ({}, {"label": "paid", "columns": ["paid"]}, OptionError, "not the label 'paid'"),
        ({}, {"label": "paid", "columns": ["age", "age"]}, OptionError, "none twice"),
        ({}, {"label": "paid", "columns": []}, OptionError, "name one or more"),
        ({"age": [31, None, 28, 60]}, {"label": "paid"}, DataError, r"Column 'age' misses 1 value\(s\); drop"),
        ({"paid": ["yes", None, "no", None]}, {"label": "paid"}, DataError, r"Column 'paid' misses 2 value\(s\)"),
        ({"age": list("abcd"), "income": list("abcd")}, {"label": "paid"}, DataError, "no column of numbers beside"),
    ],
)
def test_tables_that_cannot_be_a_source_are_refused(changed, options, error, message):
    with pytest.raises(error, match=message):
        source_of(pandas.DataFrame(COLUMNS | changed), **options)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileError, match="There is no file"):
        source_of(tmp_path / "people.csv", label="paid")


def test_two_tables_of_ones_own_are_fused():
    generator = np.random.default_rng(0)
    clinic = pandas.DataFrame({"dose": generator.normal(size=120), "sex": generator.choice(["m", "f"], 120)})
    clinic["height"] = 165 + 12 * (clinic["sex"] == "m") + generator.normal(size=120)
    bank = polars.DataFrame({"debt": generator.normal(size=120), "repaid": generator.integers(0, 2, 120)})
    small = SourceSettings(modes=2, width=32, depth=1)
    fused = SyntheticBias(settings=(small, small))
    people = fused.fit(source_of(clinic, label="sex"), source_of(bank, label="repaid")).sample(50, bias=0.5)
    assert people.names == tuple(
        f"{side}: {name} mode {mode}"
        for side, name in (("c", "dose"), ("c", "height"), ("y", "debt"))
        for mode in (1, 2)
    )
    assert torch.isfinite(people.x).all()
