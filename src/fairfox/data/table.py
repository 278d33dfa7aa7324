"""Tables from files, data frames and plain arrays, and their columns as arrays."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fairfox.errors import ColumnError, DataError, FileError, ShapeError, did_you_mean, first_line

Table = nw.DataFrame[Any]
Series = nw.Series[Any]
Level = str | int | float | bool | None  # a category's value; None: missing
# What `pandas.read_csv` takes as missing, so that a model sees what its owner saw, and the "?" of the UCI files.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
LARGEST = 1e150  # of numbers: sums of squares of larger ones are infinite
BOOLEANS = ("true", "True", "TRUE", "false", "False", "FALSE")
VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # and what they are copied to
DELIMITERS = ",;\t|"


def load_table(source: object, *, needed: Collection[str] | None = None, ids: Collection[str | None] = ()) -> Table:
    """Return the table behind a path, a pandas, polars or pyarrow table, or a 2-D array, as a narwhals frame.

    Files are recognised by their extension: CSV (`.csv`, `.tsv`, `.txt`, each also `.gz`; comma, semicolon, tab or bar
    is detected as the separator), Parquet (`.parquet`, `.pq`), Arrow and Feather (`.arrow`, `.feather`, `.ipc`). In a
    CSV a column holds numbers, or booleans, when every value in the file is one; everything else, including dates,
    stays text, and so do `ids` with leading zeros. Empty cells, the words pandas takes as missing and "?" are missing.
    The columns of an array are named x0, x1, and so on. An unnamed index stored by pandas is left out. Lists and
    records are refused; in columns beside the `needed` ones, they are left out.

    Example:
        >>> load_table(np.eye(2)).columns
        ['x0', 'x1']
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return _checked(_read_file(path, ids), f"'{path}'", needed)
    try:
        frame = nw.from_native(source, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        _check_names(column_names(source), "The table")
        raise
    if isinstance(frame, nw.DataFrame):
        return _checked(frame.to_native(), "The table", needed)
    if hasattr(source, "__array__"):
        return _checked(_from_array(source), "The array", needed)
    hint = "; call .collect() on it first" if hasattr(source, "collect") else ""
    raise DataError(
        f"A {type(source).__name__} is not a table fairfox can read; "
        f"give a file, a pandas, polars or pyarrow table, or a 2-D array{hint}"
    )


def column_names(table: Any) -> list[str]:
    """Return the column names of any kind of frame, in order, repeated ones included."""
    return list(table.column_names if isinstance(table, pa.Table) else getattr(table, "columns", ()))


def check_column(table: Table, name: str, *, role: str = "column", where: str = "The table", advice: str = "") -> None:
    """Raise a ColumnError that suggests the closest name when `name` is no column of the table."""
    native = table.to_native()
    if isinstance(native, pa.Table) and native.schema.get_field_index(name) >= 0:  # it writes down no list of all names
        return
    if name not in table.columns:
        alone = " It has one column only: are commas, semicolons, tabs or pipes between its columns?"
        hint = alone if len(table.columns) == 1 else did_you_mean(name, table.columns)
        hint = " Name one column at a time." if {part.strip() for part in name.split(",")} <= {*table.columns} else hint
        raise ColumnError(f"{where} has no {role} '{name}'.{hint}{advice}")


# --- columns -------------------------------------------------------------------------------------------------------


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


def floats(series: Series) -> np.ndarray:
    """Return a numeric column as floats (N,), NaN where a value is missing; whole numbers above 2^53 are rounded."""
    if series.dtype.is_integer():  # numpy rounds where Arrow refuses to
        gone = np.asarray(series.is_null().to_numpy(), dtype=bool)
        values = np.asarray((series.fill_null(0) if gone.any() else series).to_numpy()).astype(float)
        values[gone] = np.nan
        return values
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=float)


def fitted_numbers(series: Series, what: str) -> np.ndarray:
    """Return a column that was numeric in the fitting rows as finite floats (N,), NaN where a value is missing."""
    if not series.dtype.is_numeric():
        if missing(series).all():
            return np.full(len(series), np.nan)
        raise DataError(
            f"{what} holds {'String' if is_text(series) else series.dtype} here but was numeric in the fitting rows; "
            "give numbers"
        )
    values = floats(series)
    bad = (np.abs(values) > LARGEST).nonzero()[0]
    if len(bad):
        more = f", and {len(bad) - 1} more like it" if len(bad) > 1 else ""
        raise DataError(
            f"{what} holds {values[bad[0]]:g} in row {bad[0]} (counted from 0){more}; values must be missing or at "
            f"most {LARGEST:g} in magnitude"
        )
    return values


def is_level(one: object, named: object) -> bool:
    """Return whether a class is the one that was named, if any was."""
    return named is not None and (one == named or str(one) == str(named))


def is_text(series: Series) -> bool:
    """Return whether a column holds text, also as categories."""
    categories = series.dtype in (nw.Categorical, nw.Enum)  # of pandas, also of numbers
    return series.dtype == nw.String or (categories and any(isinstance(level, str) for level in levels_of(series)))


def objects(series: Series) -> np.ndarray:
    """Return the values as Python objects (N,), None where one is missing."""
    out = np.empty(len(series), dtype=object)
    out[:] = series.to_list()
    out[missing(series)] = None
    return out


def levels_of(*columns: Series) -> list[Level]:
    """Return the distinct values of one or several columns in a fixed order: numbers by size, text by alphabet."""
    found = {level_key(v): v for series in columns for v in objects(series.unique()) if v is not None}
    return sorted(found.values(), key=lambda v: (isinstance(v, str), v))


def level_key(value: object) -> object:
    """Return what makes two category values the same: 1, 1.0 and True are one level."""
    return float(value) if isinstance(value, bool | int | float | np.number | np.bool_) else value


def level_name(value: object) -> str:
    """Return the name of a category value: 1 and 1.0 are both "1", as a column with missing values holds floats."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def listed(names: Iterable[str], *, most: int = 3) -> str:
    """Return names as one phrase: "A, B", or "A, B, C and 4 more" where there are more than `most`."""
    words = list(names)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def verb(count: int, one: str = "is", many: str = "are") -> str:
    """Return the verb that agrees with a count."""
    return one if count == 1 else many


def places_of(series: Series, levels: Iterable[Level]) -> np.ndarray:
    """Return the index of every value among the levels (N,), -1 where it is not one of them."""
    place = {level_key(level): j for j, level in enumerate(levels)}
    native = series.to_native()
    # without an object for everyone, where Arrow tells values apart as Python does: NaN, for one, is none it knows of
    plain = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)
    if isinstance(native, pa.ChunkedArray) and any(test(native.type) for test in plain):
        coded = native.combine_chunks().dictionary_encode()
        codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
        own = [*coded.dictionary.to_pylist(), None]
        return np.asarray(np.take([place.get(level_key(value), -1) for value in own], codes))
    values = objects(series)
    found = {value: place.get(level_key(value), -1) for value in set(values)}  # a column has few different ones
    return np.fromiter(map(found.__getitem__, values), dtype=int, count=len(values))


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


# --- columns of another table --------------------------------------------------------------------------------------


def join_columns(table: Table, other: Table, names: Sequence[str], *, on: str) -> tuple[Table, int]:
    """Return the rows of `table`, in order, with columns of `other` matched by id, and how many ids matched.

    Ids are compared as they are written: 7, 7.0 and "7" are one id, "007" is another. People without an id, or with
    one that is not in `other`, get missing values.
    """
    ids, others = (
        [None if value is None else level_name(value).strip() for value in objects(column(one, on))]
        for one in (table, other)
    )
    counted = Counter(key for key in others if key is not None)
    key, times = max(counted.items(), key=lambda item: item[1], default=("", 1))
    if times > 1:
        raise DataError(
            f"The id '{key}' is in {times} rows of the table with the protected columns; '{on}' must be unique there"
        )
    place = {key: row for row, key in enumerate(others) if key is not None}
    rows = [-1 if key is None else place.get(key, -1) for key in ids]
    matched = sum(row >= 0 for row in rows)
    if not matched:
        here, there = (next((f"'{key}'" for key in keys if key is not None), "none") for keys in (ids, others))
        raise DataError(
            f"No id of the audited table is in the table with the protected columns: '{on}' is, for example, {here} "
            f"in the first and {there} in the second; use the same format"
        )
    new = []
    for name in names:
        found = objects(column(other, name))
        values = [None if row < 0 else found[row] for row in rows]
        dtype = nw.Float64() if all(value is None for value in values) else None
        new.append(nw.new_series(name, values, dtype, backend=table.implementation))
    return table.with_columns(*new), matched


# --- checks every table passes -------------------------------------------------------------------------------------


def _checked(native: Any, what: str, needed: Collection[str] | None) -> Table:
    """Return the table as a narwhals frame, or say why it cannot be audited."""
    _check_names(column_names(native), what)
    if isinstance(native, pa.Table):
        native = _plain_types(native)
    table: Table = nw.from_native(native, eager_only=True)
    if not table.columns:
        raise DataError(f"{what} has no columns; give one row per individual and one column per feature")
    if len(table) == 0:
        raise DataError(f"{what} has column names but no rows; give one row per individual")
    nested = [name for name, dtype in table.schema.items() if dtype.is_nested()]
    for name in nested:
        if needed is None or name in needed:
            raise DataError(f"{what} has lists or records in column '{name}'; give one value per cell")
    return table.drop(nested) if nested else table


def _check_names(names: Sequence[object], what: str) -> None:
    """Raise unless column names are texts, none empty and none twice."""
    for place, name in enumerate(names, start=1):
        if not isinstance(name, str):
            raise DataError(f"{what} has the column name {name!r}; column names must be text; rename it")
        if not name.strip():
            raise DataError(
                f"{what} has no name for column {place}; name it, or leave it out if it is "
                "a row index (pandas: index=False)"
            )
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"{what} has more than one column '{repeated[0]}'; give every column a unique name")


def _plain_types(table: pa.Table) -> pa.Table:
    """Return the table without pandas' unnamed index; half floats, decimals and all-missing columns become floats.

    Dictionaries of anything but text become what they stand for, and views, of which Arrow takes no rows, copies.
    """
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            own = plain(kind.value_type)
            return kind if own in (pa.string(), pa.large_string()) else own
        others = (pa.types.is_null, pa.types.is_decimal, pa.types.is_float16)
        return pa.float64() if any(other(kind) for other in others) else VIEWS.get(kind, kind)

    return table.cast(pa.schema([f.with_type(plain(f.type)) for f in table.schema]))


# --- arrays --------------------------------------------------------------------------------------------------------


def _from_array(source: Any) -> pa.Table:
    """Return a 2-D array or tensor as a table with the columns x0, x1, ..."""
    import torch  # takes seconds, and a command that fails on its file should fail at once

    if isinstance(source, torch.Tensor):
        source = (source.float() if source.dtype == torch.bfloat16 else source).numpy(force=True)
    array = np.asarray(source)
    if array.ndim != 2:
        raise ShapeError(
            f"The array has {array.ndim} dimension(s); give two, one row per individual and one column per feature"
        )
    try:
        columns = [pa.array(array[:, j], from_pandas=True) for j in range(array.shape[1])]  # NaN is missing
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"The array holds values of type {array.dtype}; give numbers, booleans or text") from error
    return pa.table(columns, names=[f"x{j}" for j in range(array.shape[1])])


# --- files ---------------------------------------------------------------------------------------------------------


def _read_file(path: Path, ids: Collection[str | None]) -> pa.Table:
    """Return the table in a file, or say why it cannot be read."""
    if not os.path.exists(path):  # unlike Path.exists, also for names the system does not allow
        raise FileError(f"There is no file '{path}'; check the path")
    if path.is_dir():
        raise FileError(f"'{path}' is a folder; give one CSV, Parquet, Arrow or Feather file")
    name = path.name.lower()
    reader = next((reader for extension, reader in _READERS.items() if name.endswith(extension)), None)
    if reader is None:
        raise FileError(f"'{path}' is not a file fairfox can read; give one that ends in {', '.join(_READERS)}")
    try:
        return _read_csv(path, ids) if reader is _read_csv else reader(path)
    except FileError:
        raise
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise FileError(f"'{path}' cannot be read and may be damaged: {first_line(error)}") from error


def _read_parquet(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:  # a path alone would have its folders' names read as columns
        return pyarrow.parquet.ParquetFile(file).read()


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        is_file_format = file.read(6) == b"ARROW1"
        file.seek(0)
        return (pa.ipc.open_file(file) if is_file_format else pa.ipc.open_stream(file)).read_all()


def _read_csv(path: Path, ids: Collection[str | None] = ()) -> pa.Table:
    """Return a delimited text file as a table, every column typed by all of its values."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        content = file.read().removeprefix(BOM_UTF8)
    if not content.strip():
        raise FileError(f"'{path}' is empty; give a table with a row of column names and one row per individual")
    try:
        delimiter, names = _sniff(content, "\t" if ".tsv" in path.name.lower() else DELIMITERS)
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        try:
            content.decode()
        except UnicodeDecodeError as wrong:
            line = content.count(b"\n", 0, wrong.start) + 1
            raise DataError(f"'{path}' is not UTF-8 text on line {line}; save it again as UTF-8") from error
        reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter)
        with suppress(csv.Error):
            for fields in reader:
                if fields and len(fields) != len(names):
                    raise DataError(
                        f"'{path}' has {len(fields)} field(s) on line {reader.line_num} but {len(names)} in its header"
                        "; give every line the same number"
                    ) from error
        what = re.sub(r"(columns, got \d+).*", r"\1", first_line(error))  # what follows is somebody's row
        raise DataError(f"'{path}' cannot be read; check its quotes and separators ({what})") from error
    _refuse_open_quote(path, content, table)
    named = zip(table.column_names, table.columns, strict=True)
    zeros = {name for name, own in named if name in ids and pc.any(pc.match_substring_regex(own, "^0[0-9]")).as_py()}
    typed = [own if name in zeros else _typed(own) for name, own in zip(table.column_names, table.columns, strict=True)]
    return pa.table(typed, names=table.column_names)


def _sniff(content: bytes, delimiters: str) -> tuple[str, list[str]]:
    """Return the delimiter and the column names: most columns wins, if the first rows have as many."""
    best: tuple[bool, int] = (False, 0)
    found: tuple[str, list[str]] = (delimiters[0], [])
    for delimiter in delimiters:
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
        rows: list[list[str]] = []
        with suppress(csv.Error):  # a cell of more than 128 KiB: enough was read
            rows.extend(islice(filter(None, csv.reader(text, delimiter=delimiter)), 20))
        rows = rows or [[]]
        rank = (len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows), len(rows[0]))
        if rank > best:
            best, found = rank, (delimiter, rows[0])
    return found


def _refuse_open_quote(path: Path, content: bytes, table: pa.Table) -> None:
    """Raise when a quote that is never closed has swallowed the rest of the file."""
    last = table.column(table.num_columns - 1)[-1].as_py() if len(table) else None
    if last and "\n" in last and content.count(b'"') % 2:
        line = content.count(b"\n") - last.count("\n") + 1
        raise DataError(f"'{path}' opens a quote on line {line} and never closes it; close or remove it")


def _typed(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts as whole numbers, numbers or booleans where every value is one."""
    trimmed = pc.utf8_trim_whitespace(text)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING))
    known = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    try:
        numbers = known.cast(pa.float64())  # before whole numbers, among which Arrow counts 0x1F
    except pa.ArrowInvalid:
        boolean = pc.all(pc.is_in(known.drop_null(), value_set=pa.array(BOOLEANS))).as_py()
        return known.cast(pa.bool_()) if boolean else pc.if_else(missing, pa.scalar(None, pa.string()), text)
    try:
        return numbers if known.null_count == len(known) else known.cast(pa.int64())
    except pa.ArrowInvalid:
        return numbers


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"), _read_csv),
    **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _read_arrow),
}
