"""The people that a run is settled on: some from across all parts of the tables, before any worker starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fairfox.errors import FairfoxError, FileError
from fairfox.scale.job import plain
from fairfox.scale.places import Part, Source, first_line, read_batches

_SPREAD = 8  # parts that a pilot is read from, unless they are small


def read_pilot(
    parts: Sequence[Part],
    columns: Sequence[str],
    needed: Sequence[str],
    rows: int,
    check: Callable[[pa.Table], object] = len,
) -> pa.Table:
    """Return people from across all parts, everyone where there are no more than `rows`.

    Parts that cannot be read, lack one of the needed columns or have other types than those before them are left out
    where others can, and those that `check` refuses where it refuses the whole: they are told when they are scored.
    """
    try:
        whole = _pilot(parts, columns, needed, rows, len)
        check(whole)
    except FairfoxError:
        return _pilot(parts, columns, needed, rows, check)
    return whole


def _pilot(
    parts: Sequence[Part],
    columns: Sequence[str],
    needed: Sequence[str],
    rows: int,
    check: Callable[[pa.Table], object],
) -> pa.Table:
    """Return people from across the parts that `check` lets pass one by one."""
    everyone = sum(part.rows for part in parts) <= rows
    tables: dict[int, pa.Table] = {}
    lacking: pa.Table | None = None
    fault: FairfoxError | None = None
    schema = pa.schema([])
    for n in spread_order(len(parts)):
        if not everyone and sum(map(len, tables.values())) >= rows:
            break
        try:
            quota = parts[n].rows if everyone else -(-rows // min(len(parts), _SPREAD))
            table = _first(parts[n], columns, quota)
            if not set(needed) <= set(table.column_names):
                lacking = table
                continue
            check(table)
            schema = pa.unify_schemas([schema, table.schema], promote_options="permissive")
            tables[n] = table
        except FairfoxError as error:
            fault = fault or _of_file(parts[n].source, error)
        except pa.ArrowException as error:  # a number in one file and a text in another
            fault = fault or _of_file(parts[n].source, FileError(first_line(error)))
    if tables:
        return pa.concat_tables([tables[n] for n in sorted(tables)], promote_options="permissive")
    if lacking is not None:
        return lacking
    raise fault or FileError("The tables have column names and no rows; give at least one row per individual")


def spread_order(count: int) -> list[int]:
    """Return all places, some that are spread over the whole first.

    Example:
        >>> spread_order(10)
        [0, 1, 2, 3, 5, 6, 7, 8, 4, 9]
    """
    first = [n * count // _SPREAD for n in range(_SPREAD)]
    return list(dict.fromkeys([*(first if count else []), *range(count)]))


def _first(part: Part, columns: Sequence[str], rows: int) -> pa.Table:
    batches, found = [], 0
    for batch in read_batches(part, columns, min(rows, 8192)):
        batches.append(batch.slice(0, rows - found))
        found += len(batches[-1])
        if found >= rows:
            break
    return plain(pa.Table.from_batches(batches))


def _of_file(source: Source, error: FairfoxError) -> FairfoxError:
    return error if source.name in str(error) else type(error)(f"'{source.name}': {error}")
