"""Protected columns that live in another table, brought to the people by their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from fairfox.data.columns import Series, Table, column, level_name, listed, objects
from fairfox.data.protected import column_of
from fairfox.data.table import check_column
from fairfox.errors import ColumnError, DataError, OptionError, did_you_mean


class Joined(NamedTuple):
    """The people with their protected columns, and how many of them were found in the other table."""

    table: Table
    matched: int


def join_protected(table: Table, other: Table, *, on: str, specs: Sequence[str]) -> Joined:
    """Return the people of `table`, in their order, with the protected columns that `other` has for their ids.

    `specs` are protected columns or cuts. Ids are compared as they are written: 7, 7.0 and "7" are one id, "007"
    is another. A person whose id is missing or not in `other` has missing values there.
    """
    check_column(table, on, role="id column")
    if on not in other.columns:
        raise ColumnError(
            f"The table with the protected columns has no id column '{on}'.{did_you_mean(on, list(other.columns))}"
        )
    names = _columns_to_take(table, other, specs)
    rows = _rows_of(_keys(column(table, on)), _keys(column(other, on)), on)
    new = [_taken(column(other, name), rows, table) for name in names]
    return Joined(table.with_columns(*new), int((rows >= 0).sum()))


def _columns_to_take(table: Table, other: Table, specs: Sequence[str]) -> list[str]:
    """Return the columns of the specs that the other table has, each once."""
    every = [*table.columns, *other.columns]
    wanted = list(dict.fromkeys(column_of(spec, every) for spec in specs))
    for name in wanted:
        if name in table.columns and name in other.columns:
            raise OptionError(
                f"The protected column '{name}' is in the audited table and in the one it should be read from; "
                "choose one: leave it out of the other"
            )
        if name not in every:
            raise ColumnError(
                f"The table with the protected columns has no column '{name}'.{did_you_mean(name, list(other.columns))}"
            )
    taken = [name for name in wanted if name in other.columns]
    if not taken:
        quoted = listed([repr(name) for name in wanted], most=5)
        raise OptionError(
            f"The table with the protected columns has none of {quoted}, which the audited table has; leave out "
            "protected_from (--protected-from), or name a column of that table"
        )
    return taken


def _keys(series: Series) -> list[str | None]:
    return [None if value is None else level_name(value).strip() for value in objects(series)]


def _rows_of(ids: Sequence[str | None], others: Sequence[str | None], on: str) -> np.ndarray:
    """Return the row of each id among the others (N,), -1 where it is not there."""
    known = [key for key in others if key is not None]
    place = {key: row for row, key in enumerate(others) if key is not None}
    if len(place) < len(known):
        key, times = Counter(known).most_common(1)[0]
        raise DataError(
            f"The id '{key}' stands in {times} rows of the table with the protected columns; "
            f"'{on}' must name every person there once"
        )
    rows = np.array([-1 if key is None else place.get(key, -1) for key in ids], dtype=int)
    if not (rows >= 0).any():
        here, there = (next((f"'{key}'" for key in keys if key is not None), "none") for keys in (ids, others))
        raise DataError(
            f"No id of the audited table is in the table with the protected columns: '{on}' is for example {here} "
            f"in the first and {there} in the second; write the ids alike"
        )
    return rows


def _taken(series: Series, rows: np.ndarray, table: Table) -> nw.Series[Any]:
    """Return the values at these rows as a column of the table's own kind, missing where the row is -1."""
    found = objects(series)
    values = [None if row < 0 else found[row] for row in rows.tolist()]
    dtype = nw.Float64() if all(value is None for value in values) else None
    return nw.new_series(series.name, values, dtype, backend=table.implementation)
