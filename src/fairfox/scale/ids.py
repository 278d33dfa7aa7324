"""Who people are and how many each stands for, as an Arrow table has it: no Python object for everyone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fairfox.errors import DataError

_FAMILIES = (  # of ids that Arrow brings to another type as they are, or refuses
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    pa.types.is_decimal,
    (pa.string(), pa.large_string()).__contains__,
)


def ids_of(table: pa.Table, column: str, kind: pa.DataType) -> pa.Array:
    """Return everyone's id in the type of those read first, or refuse ids that would not stay what they are."""
    ids = _whole(table[column])
    if not _are_alike(ids.type, kind):
        raise DataError(
            f"The ids '{column}' are {ids.type} here and {kind} in the tables read first; score them apart, or give "
            "ids of one type"
        )
    return ids.cast(kind)


def weights_of(table: pa.Table, column: str) -> pa.Array:
    """Return how many people each row stands for, or say which row says none."""
    if column not in table.column_names:
        raise DataError(f"There is no column '{column}' with the weights, which the test was fitted with")
    weights = _whole(table[column])
    try:
        weights = weights.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise DataError(f"The weights '{column}' are no numbers ({error}); give numbers of at least 0") from error
    good = pc.fill_null(pc.and_(pc.is_finite(weights), pc.greater_equal(weights, 0.0)), False)
    if not pc.all(good).as_py():
        found = weights[good.index(False).as_py()].as_py()
        raise DataError(
            f"The weights '{column}' hold {'nothing' if found is None else f'{found:g}'}; give a finite number of at "
            "least 0 for everyone"
        )
    return weights


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether ids of one type stay what they are in another one."""
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return bool(one.tz == other.tz)
    return one in (other, pa.null()) or any(kind(one) and kind(other) for kind in _FAMILIES)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
