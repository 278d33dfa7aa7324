from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import torch
from populations import table_of

from fairfox.data.dataset import Feature, FeatureKind
from fairfox.data.encoding import codes_of, continuous_values, decode_feature, encode_feature, fit_feature
from fairfox.data.table import Series, column
from fairfox.errors import DataError

NAN = float("nan")


def series_of(values: object) -> Series:
    return column(table_of(v=values), "v")


def fitted(values: object, *, also: object = None, forced: FeatureKind | None = None) -> Feature:
    return fit_feature("v", series_of(values), None if also is None else series_of(also), 0, forced)


def encoded(f: Feature, values: object) -> np.ndarray:
    x = np.zeros((len(series_of(values)), f.stop))
    encode_feature(f, series_of(values), x)
    return x


@pytest.mark.parametrize(
    ("values", "kind", "levels"),
    [
        ([1.5, 2.5, 3.5], "continuous", ()),
        ([1, 2, 3], "continuous", ()),
        ([0, 1, 1], "categorical", (0, 1)),
        ([0.0, 1.0, NAN], "categorical", (0.0, 1.0, None)),
        ([5, 5, 5], "categorical", (5,)),
        ([True, False, True], "categorical", (False, True)),
        (["b", "a", "b"], "categorical", ("a", "b")),
        (["b", None, "b"], "categorical", ("b", None)),
        (pd.Categorical(["b", "a", "b"]), "categorical", ("a", "b")),
        (pd.Categorical([3, 1, 2]), "categorical", (1, 2, 3)),
    ],
    ids=["float", "int", "two", "two and missing", "one", "bool", "text", "text and missing", "category", "codes"],
)
def test_kinds_are_detected(values: object, kind: str, levels: tuple[object, ...]):
    f = fitted(values)
    assert (f.kind, f.levels) == (kind, levels)
    assert f.stop == (1 if kind == "continuous" else len(levels))


def test_kinds_can_be_overruled():
    assert fitted([1, 2, 3], forced="categorical").levels == (1, 2, 3)
    assert fitted([0, 1, 1], forced="continuous").kind == "continuous"


def test_gaps_in_numbers_of_further_rows_are_known_too_and_categories_are_not():
    assert fitted(["a", "b"], also=["c", None]).levels == ("a", "b")
    f = fitted([1.5, 2.5, 3.5], also=[NAN, 1.0, 2.0])
    assert (f.kind, f.has_missing) == ("continuous", True)


def test_a_missing_number_is_the_mean_and_marked():
    f = fitted([10.0, 20.0, 40.0, NAN])
    x = encoded(f, [NAN, 40.0])
    np.testing.assert_array_equal(x[:, 1], [1, 0])
    assert x[0, 0] == 0
    np.testing.assert_array_equal(decode_feature(f, torch.as_tensor(x)), [NAN, 40.0])


def test_a_constant_number_is_not_divided_by_its_spread():
    f = fitted([7.0, 7.0, 7.0], forced="continuous")
    assert (f.mean, f.scale) == (7.0, 1.0)
    np.testing.assert_array_equal(encoded(f, [7.0, 8.0])[:, 0], [0, 1])
    assert fitted([1e9 + 0.1] * 3, forced="continuous").scale == 1.0


def test_a_category_nobody_knows_is_an_empty_block_that_decodes_to_missing():
    f = fitted(["a", "b"])
    x = encoded(f, ["b", "z", None])
    np.testing.assert_array_equal(x, [[0, 1], [0, 0], [0, 0]])
    assert decode_feature(f, torch.as_tensor(x)).tolist() == ["b", None, None]


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([1, 2, 300], 0),
        ([0.5, 1.25, 3.0], 2),
        ([0.1, 0.35, 0.7], 2),
        ([1 / 3, 2.0, 0.5], None),
        ([2.0**60, 1, 3], None),
    ],
)
def test_decimals_are_counted(values: list[float], decimals: int | None):
    assert fitted(values).decimals == decimals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", [1, 0.01])
def test_numbers_with_few_decimals_come_back_exactly(dtype: torch.dtype, step: float):
    rng = np.random.default_rng(0)
    values = np.round(2000 + 50 * step * rng.normal(size=500), 0 if step == 1 else 2)
    f = fitted(values)
    x = torch.as_tensor(encoded(f, values)).to(dtype)
    np.testing.assert_array_equal(decode_feature(f, x), values)


def test_numbers_between_the_decimals_stay_where_they_are():
    f = fitted([1, 2, 3, 4])
    x = torch.as_tensor(encoded(f, [1.5, 2.0001, 3.0]))
    np.testing.assert_allclose(continuous_values(f, x), [1.5, 2.0001, 3.0], rtol=1e-14)


@pytest.mark.parametrize(
    ("values", "forced", "message"),
    [
        ([NAN, NAN], None, r"Column 'v' has no values; drop it \(drop=\['v'\], --drop v\)"),
        (pd.to_datetime(["2020-01-01", "2021-01-01"]), None, "Column 'v' holds dates or times; convert it to a number"),
        ([timedelta(1), timedelta(2)], None, "Column 'v' holds dates or times"),
        (
            [1.0, np.inf, 3.0, -np.inf],
            None,
            r"Column 'v' holds inf in row 1 \(counted from 0\), and 1 more like it; values must be .* at most 1e\+150",
        ),
        ([1.0, 2.0, -1e160], None, r"Column 'v' holds -1e\+160 in row 2 \(counted from 0\); values must be missing"),
        ([1.0, np.inf], None, r"Column 'v' holds inf in row 1 \(counted from 0\); values"),
        (["a", "b"], "continuous", "Column 'v' is given as continuous but holds String; give numbers"),
        (
            [f"name {i}" for i in range(60)],
            None,
            "Column 'v' has 60 different values in 60 rows, too many for categories; drop it .*, or name it as the id",
        ),
        ([f"{k},5" for k in range(60)], None, "Column 'v' holds numbers with commas, such as '0,5', so it is read as"),
        ([f"1,{k:03}.25" for k in range(60)], None, "with commas, such as '1,000.25', .* as a number such as 1234.5"),
        ([*map(str, range(60)), "n/a?"], None, "Column 'v' holds 'n/a[?]' among numbers, so it is read as text; write"),
        (
            [f"2024-01-31 9:{k:02}" for k in range(60)],
            None,
            "Column 'v' holds dates such as '2024-01-31 9:00'; convert",
        ),
    ],
)
def test_columns_that_cannot_be_encoded_are_refused(values: object, forced: FeatureKind | None, message: str):
    with pytest.raises(DataError, match=message):
        fitted(values, forced=forced)


def test_fifty_categories_are_always_allowed_and_more_in_longer_tables():
    assert len(fitted([f"name {i}" for i in range(50)]).levels) == 50
    assert len(fitted([f"name {i % 60}" for i in range(120)]).levels) == 60


def test_rows_that_do_not_fit_the_encoding_are_refused():
    f = fitted([1.5, 2.5, 3.5])
    with pytest.raises(DataError, match="Column 'v' holds String here but was numeric in the fitting rows"):
        encoded(f, ["a", "b"])
    with pytest.raises(
        DataError, match=r"Column 'v' has 1 missing value\(s\) here but none in the fitting rows; fill them in"
    ):
        encoded(f, [NAN, 1.0])
    with pytest.raises(DataError, match=r"Column 'v' holds inf in row 0 \(counted from 0\); values must be missing"):
        encoded(f, [np.inf, 1.0])
    with pytest.raises(DataError, match=r"holds 1e\+30 in row 1 .* too far from the fitting rows, whose mean is 2.5"):
        encoded(f, [1.0, 1e30])
    with pytest.raises(DataError, match="Column 'v' holds Int64 here but text in the fitting rows; use one type"):
        encoded(fitted(["a", "b"]), [1, 2])
    assert encoded(fitted(pd.Categorical([1, 2])), pd.Categorical([2, 1])).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(DataError, match="Column 'v' holds String here but no text in the fitting rows; use one type"):
        encoded(fitted([True, False]), ["a", "b"])


def test_text_has_no_code_and_a_gap_is_none_of_the_numbers():
    with pytest.raises(
        DataError, match=r"Column 'v' holds text such as 'a', but the model takes a matrix .*--drop v\)"
    ):
        codes_of(fitted(["a", "b"]))
    assert codes_of(fitted([1.0, 5.0, NAN])).tolist() == [1.0, 5.0, 0.0]  # a matrix has NaN there
