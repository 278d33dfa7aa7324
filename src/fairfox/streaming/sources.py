"""Sources of people and models: Parquet files anywhere, in runs of row groups; models by file, name or URL."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from fairfox.data.files import file_sha256
from fairfox.data.table import VIEWS
from fairfox.errors import DataError, FairfoxError, FileError, first_line, redacted, require, url_digest
from fairfox.models.http import is_url, load_endpoint
from fairfox.models.loading import load_model

RECORD = b"fairfox"  # the key, in the footer of a file of scores, of what these are the scores of
PART_ROWS = 500_000  # people of a part, about: what a worker does at a time, and what a killed run loses
_ENDINGS = (".parquet", ".pq")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_BUFFER = 2**18  # bytes read at a time from each column
_FOOTERS_AT_ONCE = 16
SPREAD = 8  # row-group runs that a pilot is read from, unless they are small
_AT_ONCE = 16_384  # people
_BYTES = 200  # of memory that an audit needs for a cell of its table, about


# --- tables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableFile:
    """One Parquet file, and how to tell whether it has changed."""

    root: str  # the path or URL that was given, which says how its file system is reached
    path: str  # within that file system
    size: int
    stamp: str | None  # when it was changed, where the file system says so
    keys: tuple[tuple[str, int | str | None], ...] = ()  # hive partitions: the columns that its folders name

    @property
    def name(self) -> str:
        """A local path or a URL: unique among all files, without passwords."""
        if _scheme(self.root) == "file":
            return self.path
        if "://" in self.path:
            return redacted(self.path) + (f"#{digest}" if (digest := url_digest(self.path)[:12]) else "")
        url, path = urlsplit(self.root), self.path.lstrip("/")
        host = url.netloc.rpartition("@")[2]
        endpoint = parse_qs(url.query).get("endpoint_override", [""])[0]  # buckets of one name at two addresses
        location = path if path.split("/")[0] == host else f"{host}/{path}".lstrip("/")
        return f"{_scheme(self.root)}://{location}" + (f"?endpoint_override={endpoint}" if endpoint else "")


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a file that are scored together, as one part."""

    file: TableFile
    groups: tuple[int, int]  # the first, and the one after the last
    first_row: int  # within the file, from 0
    rows: int

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change between two runs, as JSON holds it."""
        file = {"file": self.file.name, "size": self.file.size, "stamp": self.file.stamp}
        return {**file, "row_groups": list(self.groups), "first_row": self.first_row, "rows": self.rows}


def is_parquet(table: str) -> bool:
    """Return whether a table is streamed: Parquet, a folder, a pattern or a URL, and not one file of another kind."""
    return "://" in table or _is_pattern(table) or os.path.isdir(table) or table.lower().endswith(_ENDINGS)


def must_stream(table: str) -> bool:
    """Return whether people must be streamed: Parquet in several files, or in one too large for memory."""
    if not is_parquet(table) or not os.path.exists(table):
        return False
    if not os.path.isfile(table) or not hasattr(os, "sysconf"):
        return not os.path.isfile(table)
    with _open(find_tables([table])[0]) as content:
        cells = content.metadata.num_rows * content.metadata.num_columns
    return bool(cells * _BYTES > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def find_tables(tables: Sequence[str]) -> list[TableFile]:
    """Return the Parquet files of all tables, each once, those of a folder or a pattern in the order of their names."""
    files: dict[str, TableFile] = {}
    for table in tables:
        try:
            infos = _listed(*file_system(table))
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"'{table}' cannot be reached: {first_line(error)}; check the path") from error
        if not infos:
            raise FileError(f"There is no Parquet file at '{table}'; give a file, a folder, a pattern or a URL")
        for info in infos:
            stamp = None if info.mtime_ns is None else str(info.mtime_ns)
            file = TableFile(table, info.path, info.size, stamp)
            files.setdefault(file.name, file)
    keys = _hive_keys([file.path for file in files.values()])
    return [replace(file, keys=own) for file, own in zip(files.values(), keys, strict=True)]


def file_system(table: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path within it; fsspec where Arrow has none."""
    if "://" not in table:
        return pa.fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(table))
    if _scheme(table) == "file":
        return pa.fs.LocalFileSystem(), unquote(table.removeprefix("file://"))
    try:
        base = _before_pattern(table) if _is_pattern(table) else table
        filesystem, path = pa.fs.FileSystem.from_uri(base)
        return filesystem, path.rstrip("/") + "/" + table[len(base) :] if base != table else path
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        fsspec = require("fsspec", why=f"to reach '{table}'")
        try:
            filesystem, path = fsspec.core.url_to_fs(table)
        except (ValueError, ImportError) as error:
            raise FileError(f"'{table}' cannot be reached: {first_line(error)}; check the URL") from error
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem)), path


def _listed(filesystem: Any, path: str) -> list[Any]:
    """Return the Parquet files at a path; in folders, names that begin with "." or "_" are no data."""
    pattern = path.split("/") if _is_pattern(path) else None
    info = filesystem.get_file_info(_before_pattern(path) if pattern else path)
    if info.type == pa.fs.FileType.File:
        return [info]
    if info.type == pa.fs.FileType.NotFound:
        return []
    infos = filesystem.get_file_info(pa.fs.FileSelector(info.path, recursive=True))
    files = [info for info in infos if info.type == pa.fs.FileType.File and info.path.lower().endswith(_ENDINGS)]
    shown = [file for file in files if not re.search(r"(^|/)[._]", file.path[len(info.path) :])]
    matching = [file for file in shown if pattern is None or _matches(file.path.split("/"), pattern)]
    return sorted(matching, key=lambda file: file.path)


def _before_pattern(path: str) -> str:
    """Return the folders before the first name with * or the like."""
    return re.split(r"[^/]*[*?\[]", path, maxsplit=1)[0]


def _is_pattern(path: str) -> bool:
    marks = "*[" if "://" in path else "*?["  # in a URL, options follow a question mark
    return any(mark in path for mark in marks) and not os.path.exists(path)


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of a path match those of a pattern one by one; ** stands for any folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(path[n:], pattern[1:]) for n in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _hive_keys(paths: Sequence[str]) -> list[tuple[tuple[str, int | str | None], ...]]:
    """Return the columns that folders name, `year=2024/`, whole numbers where all of them are."""
    each = [dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part) for path in paths]
    texts = {
        name for keys in each for name, text in keys.items() if not re.fullmatch(rf"{_NO_VALUE}|-?\d{{1,18}}", text)
    }

    def value(name: str, text: str) -> int | str | None:
        return None if text == _NO_VALUE else unquote(text) if name in texts else int(text)

    return [tuple((name, value(name, text)) for name, text in keys.items()) for keys in each]


def split_tables(files: Sequence[TableFile], part_rows: int) -> tuple[list[RowGroups], dict[str, str]]:
    """Return the row groups of all files that can be opened, and what is wrong with each other file, by name.

    Runs of row groups have at least `part_rows` people each, except the last of a file. Files of scores that fairfox
    wrote have none.
    """

    failed: dict[str, str] = {}

    def runs_of(file: TableFile) -> list[RowGroups]:
        try:
            with _open(file) as content:
                footer = content.metadata
        except FileError as error:
            failed[file.name] = str(error)
            return []
        rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        return [] if RECORD in (footer.metadata or {}) else list(_runs(file, rows, part_rows))

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        runs = [run for each in pool.map(runs_of, files) for run in each]
    return runs, {file.name: failed[file.name] for file in files if file.name in failed}


def _runs(file: TableFile, row_counts: Sequence[int], part_rows: int) -> Iterator[RowGroups]:
    begin = first = rows = 0
    for group, count in enumerate(row_counts):
        rows += count
        if rows and (rows >= part_rows or group + 1 == len(row_counts)):
            yield RowGroups(file, (begin, group + 1), first, rows)
            begin, first, rows = group + 1, first + rows, 0


def _open(file: TableFile) -> pq.ParquetFile:
    """Return a file that is read a little at a time: no memory map, nothing ahead of time."""
    try:
        content = file_system(file.root)[0].open_input_file(file.path)
        return pq.ParquetFile(content, pre_buffer=False, buffer_size=_BUFFER)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from error


def read_batches(groups: RowGroups, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of people, with those of the columns that the file or the names of its folders have.

    None: all columns.
    """
    with _open(groups.file) as content:
        here = set(content.schema_arrow.names)
        read = None if columns is None else [name for name in columns if name in here]
        keys = {n: value for n, value in groups.file.keys if (columns is None or n in columns) and n not in here}
        batches = content.iter_batches(rows, row_groups=range(*groups.groups), columns=read, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(groups.file, error) from error
            if batch is None:
                return
            for name, value in keys.items():
                kind = pa.int64() if isinstance(value, int) else pa.string()
                batch = batch.append_column(name, pa.array([value] * len(batch), kind))
            yield batch


def _unreadable(file: TableFile, error: BaseException) -> FileError:
    if isinstance(error, FileNotFoundError):
        return FileError(
            f"'{file.name}' is gone or not visible to this worker; all workers must see the tables under the same names"
        )
    return FileError(f"'{file.name}' cannot be read and may be damaged: {first_line(error)}")


def read_pilot(
    runs: Sequence[RowGroups], columns: Sequence[str] | None, rows: int, check: Callable[[pa.Table], object]
) -> pa.Table:
    """Return people drawn at random from across all row groups, everyone where there are no more than `rows`.

    Row groups that cannot be read, have other types than those before them or fail `check` are left out; scoring them
    will report why.
    """
    everyone = sum(run.rows for run in runs) <= rows
    order = spread_order(len(runs))
    across = sum(runs[n].rows for n in order[:SPREAD])
    tables: dict[int, pa.Table] = {}
    fault: FairfoxError | None = None
    schema = pa.schema([])
    for n in order:
        if not everyone and sum(map(len, tables.values())) >= rows:
            break
        name = runs[n].file.name
        try:
            wanted = runs[n].rows if everyone else -(-rows * runs[n].rows // across)
            drawn = np.random.default_rng(n).choice(runs[n].rows, min(wanted, runs[n].rows), replace=False)
            table = _people_at(runs[n], columns, np.sort(drawn))
            check(table)
            schema = pa.unify_schemas([schema, table.schema], promote_options="permissive")
            tables[n] = table
        except FairfoxError as error:
            fault = fault or (error if name in str(error) else type(error)(f"'{name}': {error}"))
        except pa.ArrowException as error:  # a number in one file and a text in another
            fault = fault or FileError(f"'{name}': {first_line(error)}")
    if not tables:
        raise fault or FileError("The tables have column names but no rows; give one row per individual")
    return pa.concat_tables([tables[n] for n in sorted(tables)], promote_options="permissive")


def spread_order(count: int) -> list[int]:
    """Return all positions, starting with a few spread over the whole.

    Example:
        >>> spread_order(10)
        [0, 1, 2, 3, 5, 6, 7, 8, 4, 9]
    """
    first = [n * count // SPREAD for n in range(SPREAD)]
    return list(dict.fromkeys([*(first if count else []), *range(count)]))


def read_sample(table: str, size: int, *, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Return people of Parquet files drawn at random, in their order, and their places among all rows."""
    runs, failed = split_tables(find_tables([table]), PART_ROWS)
    if failed or not runs:
        raise FileError(next(iter(failed.values()), f"The Parquet files in '{table}' have no rows of people"))
    ends = np.cumsum([0, *(run.rows for run in runs)])
    rows = np.sort(np.random.default_rng(seed).choice(ends[-1], min(size, ends[-1]), replace=False))
    parts = np.split(rows, np.searchsorted(rows, ends[1:-1]))
    tables = [_people_at(run, None, own - first) for run, own, first in zip(runs, parts, ends, strict=False)]
    try:
        return pa.concat_tables(tables, promote_options="permissive"), rows
    except pa.ArrowException as error:  # a number in one file and a text in another
        raise FileError(f"'{table}': {first_line(error)}") from error


def _people_at(groups: RowGroups, columns: Sequence[str] | None, places: np.ndarray) -> pa.Table:
    """Return the people of some row groups at these places, which are in order."""
    batches, first = [], 0
    for batch in read_batches(groups, columns, _AT_ONCE):
        own = places[np.searchsorted(places, first) : np.searchsorted(places, first + len(batch))] - first
        batches.append(decoded(pa.Table.from_batches([batch])).take(pa.array(own)))
        first += len(batch)
    return pa.concat_tables(batches)


def decoded(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries as their values, and views as copies.

    Each batch would have its own dictionary, and Arrow takes no rows from views.
    """
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema]
    fields = [f.with_type(VIEWS.get(kind, kind)) for f, kind in zip(table.schema, types, strict=True)]
    return table.cast(pa.schema(fields))


def _scheme(table: str) -> str:
    return table.partition("://")[0] if "://" in table else "file"


def ids_of(table: pa.Table, column: str, kind: pa.DataType) -> pa.Array:
    """Return everyone's id in the type of those read first; raise where the cast would change an id."""
    ids = table[column].combine_chunks()

    def family(each: pa.DataType) -> object:  # of types that Arrow casts to one another without a change, or refuses
        if pa.types.is_integer(each) or pa.types.is_floating(each):
            return "number"
        return pa.string() if each == pa.large_string() else each

    if ids.type != pa.null() and family(ids.type) != family(kind):
        raise DataError(f"The ids '{column}' are {ids.type} here and {kind} in tables read first; give ids of one type")
    return ids.cast(kind)


# --- models --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelSource:
    """The source of a worker's model: its name, and the file's content where workers may not see the file."""

    spec: str
    trust: bool = False
    endpoint: Mapping[str, Any] = field(default_factory=dict)  # options of a model behind a URL
    content: bytes | None = field(default=None, repr=False)
    pickled: bytes | None = field(default=None, repr=False)  # a model that was given as an object

    def shipped(self) -> ModelSource:
        """Return a copy with the file's content, where it names one file."""
        path = file_of(self.spec)[0] if self.content is None and self.pickled is None else None
        return self if path is None else replace(self, content=path.read_bytes())

    @property
    def identity(self) -> dict[str, str]:
        """The name, and a hash of its file, folder or module, or of the keys in a URL.

        What a module imports is not in its hash.
        """
        content = self.pickled or self.content
        digest = hash_of(self.spec) if content is None else sha256(content).hexdigest()
        is_file = content is not None or file_of(self.spec)[0] is not None
        name = Path(self.spec).name if is_file else redacted(self.spec)
        return {"name": name, **({"sha256": digest} if digest else {})}

    def load(self) -> object:
        """Return the model."""
        if self.pickled is not None:
            return pickle.loads(self.pickled)  # of the caller's own making, sent to the caller's own workers
        if is_url(self.spec):
            return load_endpoint(self.spec, **self.endpoint)
        if self.content is None:
            return load_model(self.spec, trust=self.trust)
        path, rest = file_of(self.spec)
        with TemporaryDirectory(prefix="fairfox-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / (Path(self.spec.removesuffix(rest)) if path is None else path).name
            copy.write_bytes(self.content)
            return load_model(f"{copy}{rest}", trust=self.trust)


def file_of(spec: str) -> tuple[Path | None, str]:
    """Return the named file and what follows its name: "#output" of an ONNX file, ":function" of code."""
    if os.path.isfile(spec):  # unlike Path.is_file, also for names the system does not allow
        return Path(spec), ""
    for ending, mark in ((".onnx", "#"), (".py", ":")):
        stem, separator, rest = spec.partition(ending + mark)
        if separator:
            path = Path(stem + ending)
            return (path if os.path.isfile(path) else None), mark + rest
    return None, ""


def hash_of(spec: str) -> str | None:
    """Return a hash of the named file, folder or module, or of keys in a URL; None where there are none."""
    if is_url(spec):
        return url_digest(spec) or None
    path, folder = file_of(spec)[0], Path(spec)
    if path is not None:
        return file_sha256(path)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        lines = [f"{path.relative_to(folder).as_posix()}:{file_sha256(path)}" for path in files]
        return sha256("\n".join(lines).encode()).hexdigest()
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as models are imported
    try:
        module = find_spec(spec.rpartition(":")[0])
    except Exception:  # of a package that fails to import; loading the model says it
        return None
    return None if module is None or module.origin is None else file_sha256(module.origin)
