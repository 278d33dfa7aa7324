"""Parquet wherever it lies: files, folders, patterns and URLs become parts of about the same size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from fairfox.errors import FileError
from fairfox.extras import require

RECORD = b"fairfox"  # in the footer of a file that holds scores: what of
ENDINGS = (".parquet", ".pq")
PART_ROWS = 500_000  # people of a part, about: what a worker does at a time, and what a killed run loses
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_BUFFER = 2**18  # bytes read at a time from each column
_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True)
class Source:
    """One Parquet file, and what tells whether it is still the same."""

    root: str  # the path or URL that was given, which says how its file system is reached
    path: str  # within that file system
    size: int
    stamp: str | None  # when it was changed, where that is known
    keys: tuple[tuple[str, int | str | None], ...] = ()  # hive partitions: the columns that its folders name

    @property
    def name(self) -> str:
        """What tells it from all other files: the path here, a URL elsewhere, without what is secret in that."""
        if _scheme(self.root) == "file" or "://" in self.path:
            return self.path
        url, path = urlsplit(self.root), self.path.lstrip("/")
        host = url.netloc.rpartition("@")[2]
        behind = parse_qs(url.query).get("endpoint_override", [""])[0]  # buckets of one name at two addresses
        place = path if path.split("/")[0] == host else f"{host}/{path}".lstrip("/")
        return f"{_scheme(self.root)}://{place}" + (f"?endpoint_override={behind}" if behind else "")

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change between two runs."""
        return {"file": self.name, "size": self.size, "stamp": self.stamp}


@dataclass(frozen=True)
class Part:
    """Some row groups of a file, scored together."""

    source: Source
    groups: tuple[int, int]  # from, to (not among them)
    first_row: int  # of the file, counted from 0
    rows: int


def is_parquet(table: str) -> bool:
    """Return whether a table is streamed: Parquet, a folder, a pattern or a URL, and not one file of another kind."""
    return "://" in table or _is_pattern(table) or os.path.isdir(table) or table.lower().endswith(ENDINGS)


def find_sources(tables: Sequence[str]) -> list[Source]:
    """Return the Parquet files of all tables, each once, those of a folder or a pattern in the order of their names."""
    found: dict[str, Source] = {}
    for table in tables:
        for source in _sources_of(table):
            found.setdefault(source.name, source)
    keys = _hive_keys([source.path for source in found.values()])
    return [replace(source, keys=own) for source, own in zip(found.values(), keys, strict=True)]


def _sources_of(table: str) -> list[Source]:
    filesystem, path = file_system(table)
    try:
        infos = _listed(filesystem, path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"'{table}' cannot be reached: {first_line(error)}; check the path") from error
    if not infos:
        raise FileError(f"There is no Parquet file at '{table}'; give a file, a folder, a pattern or a URL")
    return [
        Source(table, info.path, info.size, None if info.mtime_ns is None else str(info.mtime_ns)) for info in infos
    ]


def file_system(table: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path within it; fsspec knows what Arrow does not."""
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
        except (ValueError, ImportError, OSError) as error:
            raise FileError(f"'{table}' cannot be reached: {first_line(error)}; check the URL") from error
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem)), path


def _listed(filesystem: Any, path: str) -> list[Any]:
    """Return the Parquet files at a path, in the order of their names."""
    if _is_pattern(path):
        base, wanted = _before_pattern(path), path.split("/")
        return [info for info in _below(filesystem, base) if _matches(info.path.split("/"), wanted)]
    info = filesystem.get_file_info(path)
    if info.type == pa.fs.FileType.File:
        return [info]
    return [] if info.type == pa.fs.FileType.NotFound else _below(filesystem, path)


def _before_pattern(path: str) -> str:
    """Return the folders before the first name with * or the like."""
    return re.split(r"[^/]*[*?\[]", path, maxsplit=1)[0]


def _below(filesystem: Any, folder: str) -> list[Any]:
    """Return the Parquet files in a folder and those below; names that begin with "." or "_" are no data."""
    infos = filesystem.get_file_info(pa.fs.FileSelector(folder, recursive=True))
    files = [info for info in infos if info.type == pa.fs.FileType.File and info.path.lower().endswith(ENDINGS)]
    shown = [info for info in files if not re.search(r"(^|/)[._]", info.path[len(folder) :])]
    return sorted(shown, key=lambda info: info.path)


def _is_pattern(path: str) -> bool:
    marks = "*[" if "://" in path else "*?["  # a URL may say more behind a question mark
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
    names = dict.fromkeys(name for keys in each for name in keys)
    whole = {
        name: all(re.fullmatch(r"-?\d{1,18}", keys[name]) for keys in each if keys.get(name, _NO_VALUE) != _NO_VALUE)
        for name in names
    }
    return [tuple((name, _key(text, whole[name])) for name, text in keys.items()) for keys in each]


def _key(text: str, whole: bool) -> int | str | None:
    return None if text == _NO_VALUE else int(text) if whole else unquote(text)


def open_file(source: Source) -> pq.ParquetFile:
    """Return a file that is read a little at a time: no memory map, nothing ahead of time."""
    try:
        filesystem, _ = file_system(source.root)
        return pq.ParquetFile(filesystem.open_input_file(source.path), pre_buffer=False, buffer_size=_BUFFER)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(source, error) from error


def split(sources: Sequence[Source], part_rows: int) -> tuple[list[Part], dict[str, str]]:
    """Return the parts of all files that can be opened, and what is wrong with each of the others, by its name.

    Files with scores that an earlier run wrote have no parts.
    """

    def parts_of(source: Source) -> list[Part] | FileError:
        try:
            with open_file(source) as file:
                scores = RECORD in (file.metadata.metadata or {})
                return [] if scores else list(_parts(source, file.metadata, part_rows))
        except FileError as error:
            return error

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        found = list(zip(sources, pool.map(parts_of, sources), strict=True))
    parts = [part for _, each in found if not isinstance(each, FileError) for part in each]
    return parts, {source.name: str(each) for source, each in found if isinstance(each, FileError)}


def _parts(source: Source, metadata: pq.FileMetaData, part_rows: int) -> Iterator[Part]:
    """Yield runs of row groups with at least so many people, but for the last."""
    begin = first = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        last = group + 1 == metadata.num_row_groups
        if rows and (rows >= part_rows or last):
            yield Part(source, (begin, group + 1), first, rows)
            begin, first, rows = group + 1, first + rows, 0


def read_batches(part: Part, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the people of a part, so many at a time, with those of the columns that the file or its folders have."""
    with open_file(part.source) as file:
        here = set(file.schema_arrow.names)
        read = [name for name in columns if name in here]
        keys = {name: value for name, value in part.source.keys if name in columns and name not in here}
        batches = file.iter_batches(batch_size=rows, row_groups=range(*part.groups), columns=read, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(part.source, error) from error
            if batch is None:
                return
            for name, value in keys.items():
                kind = pa.int64() if isinstance(value, int) else pa.string()
                batch = batch.append_column(name, pa.array([value] * len(batch), kind))
            yield batch


def _damaged(source: Source, error: BaseException) -> FileError:
    if isinstance(error, FileNotFoundError):
        return FileError(
            f"'{source.name}' is no longer there, or not for this worker; all workers must see the tables, under the "
            "same names"
        )
    return FileError(f"'{source.name}' cannot be read and may be damaged: {first_line(error)}")


def _scheme(table: str) -> str:
    return table.partition("://")[0] if "://" in table else "file"


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(". ")
