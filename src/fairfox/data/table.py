"""Tables as they come: files, frames and plain arrays, all through one door."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fairfox.errors import ColumnError, DataError, FileError, ShapeError, did_you_mean
from fairfox.extras import require

# What `pandas.read_csv` takes as missing, so that a model sees what its owner saw, and the "?" of the UCI files.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
BOOLEANS = ("true", "True", "TRUE", "false", "False", "FALSE")
DELIMITERS = ",;\t|"


def load_table(source: object) -> nw.DataFrame[Any]:
    """Return the table behind a path, a pandas, polars or pyarrow table, or a 2-D array, as a narwhals frame.

    Files are recognised by their extension: CSV (`.csv`, `.tsv`, `.txt`, each also `.gz`; separated by comma,
    semicolon, tab or bar, which is found out), Parquet (`.parquet`, `.pq`), Arrow and Feather (`.arrow`, `.feather`,
    `.ipc`). In a CSV a column holds numbers, or true and false, when every value in the whole file is one; all else,
    dates too, stays text. Empty cells, the words pandas takes as missing and "?" are missing. The columns of an array
    are named x0, x1, and so on. An index that pandas stored without a name is left out.

    Example:
        >>> load_table(np.eye(2)).columns
        ['x0', 'x1']
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return _checked(_read_file(path), f"'{path}'")
    try:
        frame = nw.from_native(source, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        _check_names(column_names(source), "The table")
        raise
    if isinstance(frame, nw.DataFrame):
        return _checked(frame.to_native(), "The table")
    if hasattr(source, "__array__"):
        return _checked(_from_array(source), "The array")
    hint = "; call .collect() on it first" if hasattr(source, "collect") else ""
    raise DataError(
        f"A {type(source).__name__} is no table fairfox can read; "
        f"give a file, a pandas, polars or pyarrow table, or a 2-D array{hint}"
    )


def column_names(table: Any) -> list[str]:
    """Return the column names of any kind of frame, in order, repeated ones included."""
    return list(table.column_names if isinstance(table, pa.Table) else getattr(table, "columns", ()))


def check_column(table: nw.DataFrame[Any], name: str, *, role: str = "column") -> None:
    """Raise a ColumnError that suggests the closest name when `name` is no column of the table."""
    native = table.to_native()
    if isinstance(native, pa.Table) and native.schema.get_field_index(name) >= 0:  # it writes down no list of all names
        return
    if name not in table.columns:
        raise ColumnError(f"The table has no {role} '{name}'.{did_you_mean(name, table.columns)}")


def to_native_frame(table: nw.DataFrame[Any]) -> Any:
    """Return the frame a model on tables receives: the user's own kind; pandas for tables read from files or arrays.

    In the pandas frame text is object, missing values are NaN, whole numbers and booleans stay so where none is
    missing.
    """
    native = table.to_native()
    if not isinstance(native, pa.Table):
        return native
    pandas = require("pandas", why="to hand the model its table")
    columns = zip(native.column_names, native.columns, strict=True)
    return pandas.DataFrame({name: _pandas_column(pandas, column) for name, column in columns})


def _pandas_column(pandas: ModuleType, column: pa.ChunkedArray) -> Any:
    """Return the column as a pandas Series with NaN for what is missing: scikit-learn does not look for None."""
    if not (_is_text(column.type) or (pa.types.is_boolean(column.type) and column.null_count)):
        return column.to_pandas()
    values = column.to_numpy(zero_copy_only=False).astype(object)
    values[column.is_null().to_numpy()] = np.nan
    return pandas.Series(values, dtype=object)


# --- checks every table passes -------------------------------------------------------------------------------------


def _checked(native: Any, what: str) -> nw.DataFrame[Any]:
    """Return the table as a narwhals frame, or say why it cannot be audited."""
    _check_names(column_names(native), what)
    if isinstance(native, pa.Table):
        native = _plain_types(native)
    table: nw.DataFrame[Any] = nw.from_native(native, eager_only=True)
    if not table.columns:
        raise DataError(f"{what} has no columns; give one row per individual and one column per feature")
    if len(table) == 0:
        raise DataError(f"{what} has column names and no rows; give at least one row per individual")
    nested = [name for name, dtype in table.schema.items() if dtype.is_nested()]
    if nested:
        raise DataError(f"{what} has lists or records in column '{nested[0]}'; give one value per cell")
    return table


def _check_names(names: Sequence[object], what: str) -> None:
    """Raise unless column names are texts, none empty and none twice."""
    for place, name in enumerate(names, start=1):
        if not isinstance(name, str):
            raise DataError(f"{what} has the column name {name!r}; column names must be texts, so rename it")
        if not name.strip():
            raise DataError(
                f"{what} has no name for column {place}; name it, or leave it out if it is "
                "a row index (pandas: index=False)"
            )
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"{what} has more than one column '{repeated[0]}'; give every column a name of its own")


def _plain_types(table: pa.Table) -> pa.Table:
    """Return the table without pandas' unnamed index, with decimals and all-missing columns as floats."""
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    fields = [
        field.with_type(pa.float64()) if pa.types.is_null(field.type) or pa.types.is_decimal(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
        raise DataError(f"The array holds values of kind {array.dtype}; give numbers, booleans or texts") from error
    return pa.table(columns, names=[f"x{j}" for j in range(array.shape[1])])


# --- files ---------------------------------------------------------------------------------------------------------


def _read_file(path: Path) -> pa.Table:
    """Return the table in a file, or say why it cannot be read."""
    try:
        return _find_reader(path)(path)
    except FileError:
        raise
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise FileError(f"'{path}' cannot be read and may be damaged: {_first_line(error)}") from error


def _find_reader(path: Path) -> Callable[[Path], pa.Table]:
    """Return what reads the file, by its extension."""
    if not os.path.exists(path):  # unlike Path.exists, also for names the system does not allow
        raise FileError(_missing(path))
    if path.is_dir():
        raise FileError(f"'{path}' is a folder; give one CSV, Parquet, Arrow or Feather file")
    reader = _reader(path)
    if reader is None:
        raise FileError(f"'{path}' is of no kind fairfox reads; give a file that ends in {', '.join(_READERS)}")
    return reader


def _missing(path: Path) -> str:
    """Return what to say of a file that does not exist."""
    if not os.path.isdir(path.parent):
        return f"There is no file '{path}': its folder does not exist either; check the path"
    others = sorted(p.name for p in path.parent.iterdir() if _reader(p) and p.is_file())
    return f"There is no file '{path}'." + (did_you_mean(path.name, others) if others else " Check the path.")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(". ")


def _read_parquet(path: Path) -> pa.Table:
    _refuse_empty(path, path.stat().st_size == 0)
    with pa.OSFile(str(path)) as file:  # a path alone would have its folders' names read as columns
        return pyarrow.parquet.ParquetFile(file).read()


def _read_arrow(path: Path) -> pa.Table:
    _refuse_empty(path, path.stat().st_size == 0)
    with pa.OSFile(str(path)) as file:
        is_file_format = file.read(6) == b"ARROW1"
        file.seek(0)
        return (pa.ipc.open_file(file) if is_file_format else pa.ipc.open_stream(file)).read_all()


def _refuse_empty(path: Path, empty: bool) -> None:
    if empty:
        raise FileError(f"'{path}' is empty; give a table with a row of column names and one row per individual")


def _read_csv(path: Path) -> pa.Table:
    """Return a delimited text file as a table, every column typed by all of its values."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        content = file.read().removeprefix(BOM_UTF8)
    _refuse_empty(path, not content or content.isspace())
    delimiter = ","
    try:
        delimiter, names = _sniff(content, "\t" if ".tsv" in path.name.lower() else DELIMITERS)
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' {_fault(content, delimiter) or _first_line(error)}") from error
    _refuse_open_quote(path, content, table)
    return pa.table([_typed(column) for column in table.columns], names=table.column_names)


def _records(content: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line each record starts on and its fields, blank lines left out."""
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline=""), delimiter=delimiter)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:  # a cell of more than 128 KiB: enough was seen
        return


def _sniff(content: bytes, delimiters: str) -> tuple[str, list[str]]:
    """Return the delimiter and the column names: most columns wins, if the first rows have as many."""
    best: tuple[bool, int] = (False, 0)
    found: tuple[str, list[str]] = (delimiters[0], [])
    for delimiter in delimiters:
        rows = [fields for _, fields in islice(_records(content, delimiter), 20)] or [[]]
        rank = (len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows), len(rows[0]))
        if rank > best:
            best, found = rank, (delimiter, rows[0])
    return found


def _fault(content: bytes, delimiter: str) -> str | None:
    """Return what is wrong with a CSV that could not be parsed, and on which line."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        kind = " (it looks like UTF-16)" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else ""
        return f"is not UTF-8 text{kind}: byte 0x{content[error.start]:02x} on line {line}; save it again as UTF-8"
    width = 0
    for line, fields in _records(content, delimiter):
        width = width or len(fields)
        if len(fields) != width:
            return f"has {len(fields)} field(s) on line {line} and {width} in its header; give every line as many"
    return None


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


def _reader(path: Path) -> Callable[[Path], pa.Table] | None:
    name = path.name.lower()
    return next((reader for extension, reader in _READERS.items() if name.endswith(extension)), None)
