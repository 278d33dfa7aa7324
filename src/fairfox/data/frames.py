"""Data frames for models: of the user's own kind, with its dtypes and its marks for missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfox.data.table import Table, level_key, same_text
from fairfox.errors import DataError

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def to_native_frame(table: Table) -> Any:
    """Return the frame that a model receives: the user's own kind, or pandas for files and arrays.

    In pandas, text is object and missing values are NaN; integers and booleans keep their dtype where none is missing.
    """
    native = table.to_native()
    if not isinstance(native, pa.Table):
        return native
    import pandas  # where it is used: it is slow to import

    columns = zip(native.column_names, native.columns, strict=True)
    return pandas.DataFrame({name: _pandas_column(pandas, column) for name, column in columns})


def _pandas_column(pandas: ModuleType, column: pa.ChunkedArray) -> Any:
    """Return the column as a pandas Series with NaN for what is missing: scikit-learn does not look for None."""
    if not (any(test(column.type) for test in _TEXTS) or (pa.types.is_boolean(column.type) and column.null_count)):
        return column.to_pandas()
    values = column.to_numpy(zero_copy_only=False).astype(object)
    values[column.is_null().to_numpy()] = np.nan
    return pandas.Series(values, dtype=object)


@dataclass(frozen=True)
class Template:
    """An empty data frame with the model's columns, and the mark for missing values in each."""

    empty: Any  # the native frame
    holes: Mapping[str, Any]  # of the columns where dtypes leave it open: None, NaN or NA

    @classmethod
    def of(cls, table: Table, levels: Mapping[str, Sequence[Any]] | None = None) -> Template:
        """Return the template of a table; pandas for one that comes from a file.

        Its categories get all levels of the fitting rows, since people may be moved to any.
        """
        native, wider = to_native_frame(table), {}
        for name, own in (levels or {}).items():
            if hasattr(native[name], "cat") and hasattr(native[name].cat, "add_categories"):  # pandas
                known = {*native[name].cat.categories, None}
                wider[name] = native[name].cat.add_categories([level for level in own if level not in known])
        frame = nw.from_native(native.assign(**wider) if wider else native, eager_only=True)
        return cls(frame.head(0).to_native(), {name: _hole(frame, name) for name in frame.columns})

    def fill(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Return a native frame of these values (None or NaN: missing), in the template's dtypes where they fit."""
        frame = nw.from_native(self.empty, eager_only=True)
        if frame.implementation.is_pandas():
            pandas: Any = nw.get_native_namespace(frame)
            dtypes = self.empty.dtypes.to_dict()  # once: a look-up in a frame takes longer than a column
            series = {name: self._pandas(pandas, name, dtypes[name], values) for name, values in columns.items()}
            return type(self.empty)(series, copy=False)
        kept = {name: self._series(name, values, frame) for name, values in columns.items()}
        return nw.from_dict(kept, backend=frame.implementation).to_native()

    def _pandas(self, pandas: Any, name: str, dtype: Any, values: np.ndarray) -> Any:
        if not isinstance(dtype, np.dtype):  # these have a missing value of their own
            given = pandas.Series(values, dtype=values.dtype)
            return given.astype("Float64" if dtype.kind in "iu" and _fractional(values) else dtype)
        if dtype.kind in "iuf":
            with suppress(ValueError):  # texts, where the table has no value at all and the fitting rows have some
                return _fitted(values.astype(float, copy=False), dtype)  # an array: a Series would take longer
        gone = pandas.isna(values)
        if dtype.kind == "b" and not gone.any():
            return pandas.Series(values.astype(bool))
        out = values.astype(object)
        out[gone] = self.holes[name]
        return pandas.Series(out, dtype=object)

    def _series(self, name: str, values: np.ndarray, frame: Table) -> nw.Series[Any]:
        dtype: Any = frame.schema[name]
        levels = values.dtype == object
        gone = np.array([v is None for v in values], dtype=bool) if levels else np.isnan(values)
        content: Any = values
        if levels or gone.any():
            content = [self.holes[name] if hole else v for v, hole in zip(values.tolist(), gone, strict=True)]
        if dtype.is_integer() and _fractional(values):
            dtype = nw.Float64()
        return nw.new_series(name, content, backend=frame.implementation).cast(dtype)


def as_pandas(frame: Any) -> Any:
    """Return any kind of data frame as pandas, for libraries that take no other."""
    return nw.from_native(frame, eager_only=True).to_pandas()


def as_categories(frame: Any, levels: Mapping[str, Sequence[Any]]) -> Any:
    """Return a pandas frame in which these columns are categories, with a model's own levels in its order.

    A column that is a category already stays as it is. Values are matched by value, else by how they are written,
    since a file does not say whether 3 was a number or text. A value that matches no level becomes one more category,
    which the model's library treats as unseen.
    """
    import pandas

    frame = as_pandas(frame)
    plain = [name for name in levels if not isinstance(frame[name].dtype, pandas.CategoricalDtype)]
    known = {name: [level for level in levels[name] if not pandas.isna(level)] for name in plain}  # a gap is none
    return frame.assign(**{name: _category(pandas, frame[name], own) for name, own in known.items()})


def _category(pandas: Any, series: Any, levels: list[Any]) -> Any:
    codes, found = pandas.factorize(series)  # -1: missing
    place = {level_key(level): j for j, level in enumerate(levels)}
    known = len(levels)
    for value in found:
        near = (j for j, level in enumerate(levels[:known]) if same_text(value, str(level)))
        j = place.setdefault(level_key(value), next(near, len(levels)))
        if j == len(levels):
            if isinstance(value, float) and not value.is_integer():
                raise DataError(
                    f"Column '{series.name}' is a category for the model but was read as a number; "
                    f"pass categorical=['{series.name}'] (--categorical {series.name})"
                )
            levels.append(value)
    places = np.array([place[level_key(value)] for value in found] + [-1])
    return pandas.Categorical.from_codes(places[codes], categories=levels)


def _hole(frame: Table, name: str) -> Any:
    """Return what says "missing" in a column: what it holds there already, else what pandas or polars would write."""
    series = frame.get_column(name)
    if not frame.implementation.is_pandas():
        return np.nan if series.dtype.is_float() and series.is_nan().any() else None
    native = series.to_native()
    gone = native[native.isna()]
    return gone.iloc[0] if len(gone) else np.nan


def _fitted(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers in a dtype, or as they are where it cannot hold them (33.4 years, a missing whole number)."""
    if dtype.kind == "f":
        return values.astype(dtype, copy=False)
    with np.errstate(invalid="ignore"):
        whole = values.astype(dtype)
    return whole if bool((whole == values).all()) else values


def _fractional(values: np.ndarray) -> bool:
    found = values.astype(float)
    return bool((found != np.round(found))[~np.isnan(found)].any())
