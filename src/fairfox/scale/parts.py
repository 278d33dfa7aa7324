"""One part from Parquet to Parquet: read, score, write under a temporary name, rename."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from fairfox.data.files import written_whole
from fairfox.errors import DataError, FairfoxError
from fairfox.scale.batches import BatchScorer, scorer_for
from fairfox.scale.job import Job, columns_of, plain
from fairfox.scale.manifest import Record
from fairfox.scale.places import RECORD, Part, read_batches
from fairfox.scale.sketches import Sketch, merge, sketch_of

_SCHEMA = "ARROW:schema"  # where readers look for types: words, not the dictionaries they were written from
Tick = Callable[[int], None]  # told how many more people are scored


@dataclass(frozen=True)
class Task:
    """A part, and the file its scores go to."""

    part: Part
    path: str
    run: str = ""  # the key of the manifest it belongs to


@dataclass(frozen=True)
class Outcome:
    """What came of a task: a record, or what went wrong."""

    task: Task
    record: Record | None = None
    error: str = ""
    fatal: bool = False  # it would hit every other part as well


def run_task(job: Job, task: Task, tick: Tick | None = None, *, ahead: bool = False) -> Outcome:
    """Return the record of a part whose scores were written, or why they were not; other errors are bugs.

    With `ahead` people are read while those before them are scored, where another core has nothing to do.
    """
    part = task.part
    try:
        return Outcome(task, _write(job, task, tick or (lambda rows: None), ahead))
    except FairfoxError as error:
        where = "" if part.source.name in str(error) else f"'{part.source.name}', rows from {part.first_row}: "
        return Outcome(task, error=f"{where}{error}")
    except torch.OutOfMemoryError as error:
        where, line = f"'{part.source.name}', rows from {part.first_row}", str(error).partition(". ")[0]
        return Outcome(task, error=f"{where}: the device has too little memory ({line}); give fewer --workers")
    except pa.ArrowException as error:  # ids that are texts here and numbers in the files that were read first
        where, line = f"'{part.source.name}', rows from {part.first_row}", str(error).partition("\n")[0]
        return Outcome(task, error=f"{where}: a column has other types or values than in other files ({line})")
    except OSError as error:
        return Outcome(task, error=f"'{task.path}' cannot be written ({error.strerror or error})", fatal=True)


def _write(job: Job, task: Task, tick: Tick, ahead: bool) -> Record:
    scorer, part = scorer_for(job), task.part
    schema = scorer.coded_schema.insert(0, pa.field("file", pa.dictionary(pa.int32(), pa.string())))
    clock, sketch = _Clock(), Sketch()
    with written_whole(Path(task.path)) as temporary, temporary.open("wb") as handle:
        hashed = _Hashed(handle)
        texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]
        writer = pq.ParquetWriter(pa.PythonFile(hashed, mode="w"), schema, use_dictionary=texts, store_schema=False)
        try:
            batches = read_batches(part, columns_of(scorer.fitted), scorer.batch_rows)
            for first, batch in _numbered(clock.reading(read_ahead(batches) if ahead else batches)):
                with clock.of("score"):
                    scores = _scored(scorer, part, first, batch)
                    sketch = merge([sketch, sketch_of(scores)])
                with clock.of("write"):
                    writer.write_table(pa.Table.from_batches([scores]).cast(schema))
                tick(len(batch))
            record = Record.of(part, sketch, clock.seconds, task.run)
            as_words = b64encode(plain(schema.empty_table()).schema.serialize())
            writer.add_key_value_metadata({RECORD: record.to_bytes(), _SCHEMA: as_words})
        finally:
            writer.close()
        handle.flush()
        os.fsync(handle.fileno())
    return replace(record, sha256=hashed.digest.hexdigest())


def read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches; the next one is read while the last one is worked on."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


def _scored(scorer: BatchScorer, part: Part, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    name = scorer.id_column
    if name is not None and (name in batch.schema.names) != (name in scorer.example.column_names):
        has = "has" if name in batch.schema.names else "has no"
        raise DataError(f"The table {has} column '{name}' of ids, unlike the tables read first; score it apart")
    rows = part.first_row + first + np.arange(len(batch))
    scores = scorer.coded(batch, numbers=pa.array(rows))
    files = pa.DictionaryArray.from_arrays(np.zeros(len(batch), np.int32), pa.array([part.source.name], pa.string()))
    return scores.add_column(0, "file", files)


class _Clock:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds = {"read": 0.0, "score": 0.0, "write": 0.0}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Count the time until the end."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += perf_counter() - start

    def reading(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches and count the time it takes to get them."""
        while True:
            with self.of("read"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class _Hashed:
    """A file that hashes what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest, self.closed = file, sha256(), False

    def write(self, data: Any) -> int:
        """Write, and hash."""
        content = bytes(data)
        self.digest.update(content)
        return self.file.write(content)

    def tell(self) -> int:
        """Return where the file ends."""
        return self.file.tell()

    def flush(self) -> None:
        """Write what is held back."""
        self.file.flush()

    def close(self) -> None:
        """Do nothing: who opened the file closes it."""
