"""From a table of one's own to what a generator learns from: columns of numbers and a label."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from fairfox.data.columns import Series, Table, column, levels_of, missing, numbers, places_of
from fairfox.data.dataset import Dataset
from fairfox.data.table import load_table
from fairfox.errors import DataError, OptionError

_log = logging.getLogger("fairfox")


def source_of(table: object, *, label: str, columns: Sequence[str] | None = None) -> Dataset:
    """Return a table as a source of `SyntheticBias`: its columns of numbers as x, its label as y.

    Numbers stay in their own units. A label of texts becomes class numbers in alphabetical order; of two classes, the
    second is 1.

    Args:
        table: a CSV, Parquet or Arrow file, a pandas, polars or pyarrow table, or a 2-D array.
        label: the column with each row's class.
        columns: the columns to learn from; by default all that hold numbers, others are left out.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"age": [31, 45, 28], "town": ["Ulm", "Bonn", "Ulm"], "paid": ["yes", "no", "yes"]})
        >>> source = source_of(table, label="paid")
        >>> source.names, source.y.tolist()
        (('age',), [1.0, 0.0, 1.0])
    """
    frame = load_table(table)
    y = _label(column(frame, label), label)
    names = _numeric(frame, label) if columns is None else _chosen(columns, label)
    x = np.column_stack([_complete(column(frame, name), name) for name in names])
    return Dataset.from_arrays(x, None, y, names=names)


def _numeric(frame: Table, label: str) -> list[str]:
    """Return the columns of numbers, and log those that are left out."""
    others = [name for name in frame.columns if name != label]
    names = [name for name in others if frame.schema[name].is_numeric()]
    if not names:
        raise DataError(f"The table has no column of numbers beside the label '{label}'; a source needs at least one")
    if left_out := [name for name in others if name not in names]:
        _log.info("Columns that hold no numbers are left out: %s", ", ".join(left_out))
    return names


def _chosen(columns: Sequence[str], label: str) -> list[str]:
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or label in names or len(set(names)) < len(names):
        raise OptionError(f"columns is {names!r}; name one or more, none twice, and not the label '{label}'")
    return names


def _complete(series: Series, name: str) -> np.ndarray:
    """Return a column of numbers (N,) without a gap."""
    if not series.dtype.is_numeric():
        raise DataError(f"Column '{name}' holds no numbers ({series.dtype}); a source learns from columns of numbers")
    _refuse_gaps(series, name)
    return numbers(series)


def _label(series: Series, name: str) -> np.ndarray:
    """Return the label (N,) as floats: numbers as they are, anything else as class numbers."""
    _refuse_gaps(series, name)
    if series.dtype.is_numeric():
        return numbers(series).copy()  # a frame's own values are read-only
    return places_of(series, levels_of(series)).astype(float)


def _refuse_gaps(series: Series, name: str) -> None:
    if gaps := int(missing(series).sum()):
        raise DataError(f"Column '{name}' misses {gaps} value(s); drop those rows or fill them in first")
