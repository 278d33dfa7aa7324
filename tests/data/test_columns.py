import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.data.table import (
    column,
    floats,
    level_key,
    level_name,
    levels_of,
    load_table,
    missing,
    objects,
    places_of,
    same_text,
)


def series_of(values: object):
    return column(load_table(pd.DataFrame({"v": values})), "v")


@pytest.mark.parametrize(
    "values",
    [
        [1.5, np.nan],
        pd.array([1, None], dtype="Int64"),
        pd.array([True, None], dtype="boolean"),
        pd.array(["x", None], dtype="string"),
        pd.Series(["x", None], dtype=object),
        pd.Series(["x", np.nan], dtype=object),
        pd.Categorical(["x", None]),
    ],
    ids=["float", "Int64", "boolean", "string", "none", "nan", "category"],
)
def test_what_is_missing_is_found_in_every_dtype(values: object):
    assert missing(series_of(values)).tolist() == [False, True]
    assert objects(series_of(values))[1] is None


def test_levels_come_in_a_fixed_order_without_what_is_missing():
    assert levels_of(series_of(["b", None, "a", "b"])) == ["a", "b"]
    assert levels_of(series_of([10, 9, 10])) == [9, 10]
    assert levels_of(series_of(["b"]), series_of(["a"])) == ["a", "b"]
    assert levels_of(series_of(pd.Series(["x", 2, np.nan, None, 1], dtype=object))) == [1, 2, "x"]


def test_one_and_true_are_the_same_level():
    assert level_key(1) == level_key(True) == level_key(1.0) == level_key(np.bool_(True)) == level_key(np.int64(1))
    assert level_key("1") != level_key(1)
    assert levels_of(series_of([1]), series_of([True]), series_of([1.0])) == [1]


@pytest.mark.parametrize(
    ("value", "name"),
    [(1, "1"), (1.0, "1"), (np.float64(3.0), "3"), (1.5, "1.5"), (True, "True"), ("1.0", "1.0"), (10**17, f"{10**17}")],
)
def test_a_level_is_called_as_it_is_written_without_gaps(value: object, name: str):
    assert level_name(value) == name


def test_whole_numbers_with_gaps_are_floats_also_beyond_what_floats_hold():
    values = [2**53 + 1, None, -3]
    for frame in (pa.table({"v": values}), pl.DataFrame({"v": values}), pd.DataFrame({"v": pd.array(values, "Int64")})):
        found = floats(column(load_table(frame), "v"))
        np.testing.assert_array_equal(found, [float(2**53), np.nan, -3.0])


def frames_of(values: object):
    """Yield the tables that can hold the values in a column v."""
    yield pd.DataFrame({"v": pd.Series(values, dtype=object)})
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and not any(issubclass(kind, np.generic) for kind in kinds):
        yield pd.DataFrame({"v": values})
        yield pl.DataFrame({"v": values}, strict=False)
        yield pa.table({"v": values})
        yield pd.DataFrame({"v": pd.Categorical(values)})


ANY_LEVEL = st.one_of(
    st.none(),
    st.just(math.nan),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([2**53, 2**53 + 1, 2**60]),
    st.floats(-2, 2, width=16),
    st.sampled_from(["", "1", "1.0", "True", "a"]),
    st.sampled_from([np.float32(0.1), np.float64(1.0), np.int8(1), np.int64(2), np.bool_(True)]),
)
ONE_KIND = st.sampled_from([st.booleans(), st.integers(-2, 2), st.floats(-2, 2), st.sampled_from("abc")])


@given(
    values=st.lists(ANY_LEVEL, min_size=1) | ONE_KIND.flatmap(lambda kind: st.lists(kind | st.none(), min_size=1)),
    levels=st.lists(ANY_LEVEL, unique_by=level_key),
)
def test_places_are_those_found_value_by_value(values: list[object], levels: list[object]):
    place = {level_key(level): j for j, level in enumerate(levels)}
    for frame in frames_of(values):
        series = column(load_table(frame), "v")
        assert places_of(series, levels).tolist() == [place.get(level_key(value), -1) for value in objects(series)]


@pytest.mark.parametrize(
    ("value", "text", "same"),
    [
        (25, "25", True),
        (25.0, "25", True),
        (25, "25.0", True),
        (25, "young", False),
        (True, "true", True),
        (np.bool_(False), "False", True),
        (True, "1", False),
        ("White", "White", True),
        ("White", "white", False),
    ],
)
def test_a_value_is_compared_with_what_was_written(value: object, text: str, same: bool):
    assert same_text(value, text) is same
