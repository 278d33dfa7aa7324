import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fairfox.data.frames import Template, as_categories
from fairfox.data.table import load_table
from fairfox.errors import DataError

NAN = float("nan")


def filled(native: object, values: object) -> object:
    dtype = object if isinstance(values, list) else None
    return Template.of(load_table(native)).fill({"v": np.array(values, dtype=dtype)})


@pytest.mark.parametrize(
    ("dtype", "values", "kept"),
    [
        ("int64", np.array([1.0, 2.5]), "float64"),  # a person between two ages
        ("int64", np.array([1.0, NAN]), "float64"),
        ("uint8", np.array([1.0, 300.0]), "float64"),  # does not fit
        ("Int64", np.array([1.5, NAN]), "Float64"),
        ("bool", [True, NAN], "object"),
    ],
)
def test_pandas_columns_get_another_dtype_where_their_own_does_not_fit(dtype: str, values: object, kept: str):
    template = Template(pd.DataFrame({"v": pd.Series([], dtype=dtype)}), {"v": np.nan})
    out = template.fill({"v": np.array(values, dtype=object if isinstance(values, list) else None)})
    assert str(out["v"].dtype) == kept
    expected = pd.Series(values, dtype=kept)
    pd.testing.assert_series_equal(out["v"], expected, check_names=False)


@pytest.mark.parametrize("hole", [None, NAN, pd.NA])
def test_a_missing_text_is_what_it_was_in_the_users_frame(hole: object):
    out = filled(pd.DataFrame({"v": pd.Series(["a", hole], dtype=object)}), ["a", None])
    assert out["v"].dtype == object
    assert out["v"][1] is hole or (out["v"][1] != out["v"][1] and hole != hole)


@pytest.mark.parametrize(
    ("native", "values", "expected"),
    [
        (pl.Series([1, 2], dtype=pl.Int8), np.array([1.0, 2.5]), pl.Series([1.0, 2.5])),
        (pl.Series([1.0, None]), np.array([1.0, NAN]), pl.Series([1.0, None])),
        (pl.Series([1.0, NAN]), np.array([1.0, NAN]), pl.Series([1.0, NAN])),
    ],
    ids=["fraction", "null", "nan"],
)
def test_polars_columns_become_fractions_and_keep_their_nulls(native: pl.Series, values: object, expected: pl.Series):
    out = filled(pl.DataFrame({"v": native}), values)
    assert isinstance(out, pl.DataFrame)
    assert out["v"].equals(expected, check_dtypes=True, null_equal=True)


# --- categories of a model -----------------------------------------------------------------------------------------


def codes(values: object, levels: list[object], **options: object) -> list[int]:
    return as_categories(pd.DataFrame({"v": pd.Series(values, **options)}), {"v": levels})["v"].cat.codes.tolist()


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (["b", "a", None, "b"], ["a", "b"]),
        ([11, 10, NAN, 11], [10, 11]),
        (["11", "10", None, "11"], [10, 11]),
        ([11, 10, NAN, 11], ["10", "11"]),
        ([True, False, None, True], [False, True]),
        ([1, 0, NAN, 1], [False, True]),
        (["True", "False", None, "True"], [False, True]),
    ],
    ids=["texts", "numbers", "numbers as texts", "texts as numbers", "booleans", "0 and 1", "booleans as texts"],
)
def test_values_take_the_places_of_the_levels_they_are_written_like(values: list[object], levels: list[object]):
    assert codes(values, levels) == [1, 0, -1, 1]


def test_what_the_model_has_not_seen_is_a_further_category():
    out = as_categories(pl.DataFrame({"v": ["z", "a", "z"]}), {"v": ["a", "b"]})
    assert out["v"].cat.categories.tolist() == ["a", "b", "z"]
    assert out["v"].cat.codes.tolist() == [2, 0, 2]


def test_a_number_between_two_codes_is_no_category():
    with pytest.raises(DataError, match=r"Column 'v' is a category for the model but was read as a number; pass "):
        codes([10.5, 11.0], [10, 11])


def test_texts_of_the_fitting_rows_go_into_a_column_without_any_value_here():
    assert filled(pd.DataFrame({"v": [NAN, NAN]}), ["a", None])["v"].tolist()[0] == "a"


def test_categories_of_a_file_get_the_levels_of_the_fitting_rows():
    table = load_table(pa.table({"v": pa.array(["a", "b"]).dictionary_encode()}))
    out = Template.of(table, {"v": ("a", "b", "c", None)}).fill({"v": np.array(["c", None], dtype=object)})
    assert list(out["v"].cat.categories) == ["a", "b", "c"]
    assert out["v"].tolist()[0] == "c"
