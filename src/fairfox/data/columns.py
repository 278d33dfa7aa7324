"""Columns of a table as arrays: their values, what is missing, and which values are the same category."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfox.data.dataset import Level
from fairfox.data.table import check_column

Table = nw.DataFrame[Any]
Series = nw.Series[Any]


def column(table: Table, name: str) -> Series:
    """Return a column, or raise a ColumnError that suggests the closest name."""
    check_column(table, name)
    return table.get_column(name)


def missing(series: Series) -> np.ndarray:
    """Return which values are missing (N,): null, None and NaN alike."""
    gone = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if series.dtype.is_float():
        gone = gone | np.asarray(series.is_nan().fill_null(True).to_numpy(), dtype=bool)
    return gone


def numbers(series: Series) -> np.ndarray:
    """Return a numeric column as floats (N,), NaN where a value is missing; whole numbers above 2^53 are rounded."""
    if series.dtype.is_integer():  # numpy rounds where Arrow refuses to
        gone = np.asarray(series.is_null().to_numpy(), dtype=bool)
        values = np.asarray((series.fill_null(0) if gone.any() else series).to_numpy()).astype(float)
        values[gone] = np.nan
        return values
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=float)


def objects(series: Series) -> np.ndarray:
    """Return the values as Python objects (N,), None where one is missing."""
    out = np.empty(len(series), dtype=object)
    out[:] = series.to_list()
    out[missing(series)] = None
    return out


def levels_of(*columns: Series) -> list[Level]:
    """Return the distinct values of one or several columns in a fixed order: numbers by size, text by alphabet."""
    return sorted_levels(value for series in columns for value in objects(series.unique()))


def sorted_levels(values: Iterable[Any]) -> list[Level]:
    """Return the distinct values that are not missing in a fixed order: numbers by size, text by alphabet."""
    found = {level_key(v): v for v in values if v is not None and v == v}
    return sorted(found.values(), key=lambda v: (isinstance(v, str), v))


def level_key(value: object) -> object:
    """Return what makes two category values the same: 1, 1.0 and True are one level."""
    return float(value) if isinstance(value, bool | int | float | np.number | np.bool_) else value


def level_name(value: object) -> str:
    """Return how a category value is called: 1 and 1.0 are both "1", as a column with gaps holds floats."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def listed(names: Iterable[str], *, most: int = 3) -> str:
    """Return names as one phrase: "A, B", or "A, B, C and 4 more" where there are more than `most`."""
    words = list(names)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def places_of(series: Series, levels: Iterable[Level]) -> np.ndarray:
    """Return the place of every value among the levels (N,), -1 where it is not among them."""
    place = {level_key(level): j for j, level in enumerate(levels)}
    native = series.to_native()
    if isinstance(native, pa.ChunkedArray) and _is_plain(native.type):  # without an object for everyone
        coded = native.combine_chunks().dictionary_encode()
        codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
        own = [*coded.dictionary.to_pylist(), None]
        return np.asarray(np.take([place.get(level_key(value), -1) for value in own], codes))
    values = objects(series)
    found = {value: place.get(level_key(value), -1) for value in set(values)}  # a column has few different ones
    return np.fromiter(map(found.__getitem__, values), dtype=int, count=len(values))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether Arrow tells values of this type apart as Python does: NaN, for one, is none it knows of."""
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer))


def same_text(value: object, text: str) -> bool:
    """Return whether a value is what was written on a command line: 25 is "25.0", True is "true"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).casefold() == text.casefold()
    if isinstance(value, int | float | np.number):
        try:
            return float(value) == float(text)
        except ValueError:
            return False
    return str(value) == text
