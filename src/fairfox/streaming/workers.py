"""Parts of a stream, from Parquet to Parquet (read, score, write under a temporary name, rename), and their workers.

Processes of this machine are here; Spark and Dask run the same `run_task` elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import ShutdownExecutorError

from fairfox.data.files import ENDING, file_sha256, written_whole
from fairfox.errors import DataError, FairfoxError, FileError, MissingExtraError
from fairfox.streaming.batches import BatchScorer, Job, scorer_for
from fairfox.streaming.sources import RECORD, RowGroups, decoded, read_batches
from fairfox.streaming.summary import add_totals, totals_of

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_POLL = 0.5  # seconds between two looks at whether the parent is alive
Tick = Callable[[int], None]  # called with how many more people are scored


@dataclass(frozen=True)
class PartTask:
    """Row groups, and the file their scores go to."""

    people: RowGroups
    path: str
    run: str = ""  # the key of the manifest it belongs to

    def __str__(self) -> str:
        first = self.people.first_row
        return f"'{self.people.file.name}', rows {first} to {first + self.people.rows - 1}"


@dataclass(frozen=True)
class PartRecord:
    """The record of a part, in its file's footer, so that both appear together."""

    people: Mapping[str, Any]  # the identity of their row groups
    run: str = ""  # the key of the manifest it belongs to
    totals: Mapping[str, Any] = field(default_factory=dict, repr=False)  # columns of `summary.TOTALS`
    seconds: Mapping[str, float] = field(default_factory=dict)  # that reading, scoring and writing took
    sha256: str = ""  # of the part file itself; not in its footer


@dataclass(frozen=True)
class PartResult:
    """The result of a task: a record or an error."""

    task: PartTask
    record: PartRecord | None = None
    error: str = ""
    fatal: bool = False  # every other part would fail as well


# --- one part ------------------------------------------------------------------------------------------------------


def run_task(job: Job, task: PartTask, tick: Tick = lambda rows: None) -> PartResult:
    """Return the record of a written part, or why it was not written; other errors are bugs."""
    name = task.people.file.name
    where = f"'{name}', rows from {task.people.first_row}: "
    try:
        return PartResult(task, _write(job, task, tick))
    except FairfoxError as error:
        return PartResult(task, error=f"{'' if name in str(error) else where}{error}")
    except torch.OutOfMemoryError as error:
        line = str(error).partition(". ")[0]
        return PartResult(task, error=f"{where}the device has too little memory ({line}); use fewer --workers")
    except pa.ArrowException as error:  # ids that are texts here and numbers in the files that were read first
        line = str(error).partition("\n")[0]
        return PartResult(task, error=f"{where}a column has different types or values than in other files ({line})")
    except OSError as error:
        return PartResult(task, error=f"'{task.path}' cannot be written ({error.strerror or error})", fatal=True)


def _write(job: Job, task: PartTask, tick: Tick) -> PartRecord:
    scorer, people = scorer_for(job), task.people
    schema = scorer.coded_schema.insert(0, pa.field("file", pa.string()))
    plain = decoded(schema.empty_table()).schema  # what readers of the file shall find
    texts = [f.name for f in plain if pa.types.is_string(f.type)]
    numbers = [name for name in plain.names if name not in texts]  # extremes of texts would take longer than the rest
    batches = read_batches(people, scorer.fitted.encoding.needed, scorer.batch_rows)
    seconds, totals, done, mark = {"read": 0.0, "score": 0.0, "write": 0.0}, [], 0, perf_counter()

    def lap(what: str) -> None:
        nonlocal mark
        before, mark = mark, perf_counter()
        seconds[what] += mark - before

    with written_whole(Path(task.path)) as temporary, temporary.open("wb") as handle:
        how: dict[str, Any] = {"use_dictionary": texts, "write_statistics": numbers, "store_schema": False}
        writer = pq.ParquetWriter(handle, schema, **how)
        try:
            for batch in batches:
                lap("read")
                scores = _score(scorer, people, done, batch)
                totals.append(totals_of(scores))
                lap("score")
                writer.write_table(pa.Table.from_batches([scores]).cast(schema))
                lap("write")
                done += len(batch)
                tick(len(batch))
            record = PartRecord(people.identity, task.run, add_totals(totals).to_pydict(), seconds)
            footer = {name: value for name, value in vars(record).items() if name != "sha256"}
            own = {RECORD: json.dumps(footer).encode(), "ARROW:schema": b64encode(plain.serialize().to_pybytes())}
            writer.add_key_value_metadata(own)
        finally:
            writer.close()
        handle.flush()
        os.fsync(handle.fileno())
    return replace(record, sha256=file_sha256(task.path) or "")


def _score(scorer: BatchScorer, people: RowGroups, done: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the scores of a batch, with the file and, unless there are ids, the row in it."""
    name = scorer.id_column
    if name is not None and (name in batch.schema.names) != (name in scorer.example.column_names):
        has = "has" if name in batch.schema.names else "has no"
        raise DataError(f"The table {has} column '{name}' of ids, unlike the tables read first; score it separately")
    rows = people.first_row + done + np.arange(len(batch))
    try:
        scores = scorer.coded(batch, row_numbers=pa.array(rows))
    except DataError as error:  # which counts the rows of the batch
        raise DataError(f"'{people.file.name}', rows from {rows[0]}: {error}") from error
    return scores.add_column(0, "file", pa.repeat(people.file.name, len(batch)))


# --- processes of this machine -------------------------------------------------------------------------------------


def run_here(job: Job, tasks: Sequence[PartTask], tick: Tick) -> Iterator[PartResult]:
    """Yield the result of each task, done in this process with one thread."""
    threads = torch.get_num_threads()
    try:
        for task in tasks:
            yield run_task(job, task, tick)
    finally:
        torch.set_num_threads(threads)


def run_pool(job: Job, tasks: Sequence[PartTask], workers: int, tick: Tick) -> Iterator[PartResult]:
    """Yield the results of all tasks as they come, from worker processes with one thread each.

    Every worker is its own pool, so one that dies loses only its task. A new worker repeats it; if that dies too, the
    task has failed.
    """
    crew = [_start_worker(job) for _ in range(workers)]
    idle: SimpleQueue[int] = SimpleQueue()  # positions in the crew
    for n in range(workers):
        idle.put(n)
    stopped = Event()

    def attempt(task: PartTask) -> PartResult:
        n = idle.get()
        try:
            for _ in range(2):
                try:
                    result: PartResult = crew[n].submit(_run_in_worker, task).result()
                    return result
                except (BrokenExecutor, ShutdownExecutorError):
                    if stopped.is_set():
                        break
                    crew[n] = _start_worker(job)
            return lost(task, "the worker process died twice", "--part-rows, --workers")
        finally:
            idle.put(n)

    with ThreadPoolExecutor(workers) as threads:
        futures = [threads.submit(attempt, task) for task in tasks]
        try:
            for future in as_completed(futures):
                result = future.result()
                tick(result.task.people.rows)
                yield result
        finally:
            stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in crew:
                worker.shutdown(kill_workers=True)


def _start_worker(job: Job) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, initializer=_begin, initargs=(job, os.getpid()), env=_ONE_THREAD, timeout=60)


_JOB: list[Job] = []  # of a worker process


def _begin(job: Job, parent: int) -> None:
    """Make a worker of this process: it has a job, leaves signals to the parent, and ends when that does."""
    _JOB[:] = [job]
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        sleep(_POLL)
    os._exit(1)  # parents that are killed cannot stop their workers


def _run_in_worker(task: PartTask) -> PartResult:
    return run_task(_JOB[0], task)


# --- workers that are lost, or lack something ----------------------------------------------------------------------


def lost(task: PartTask, how: str, options: str) -> PartResult:
    """Return the result of a task that killed its workers."""
    advice = f"give it more memory, or fewer people at a time ({options})"
    return PartResult(task, error=f"{task}: {how} (out of memory, or the model ended it); {advice}")


def arrived(result: PartResult) -> PartResult:
    """Return the result, or an error where a worker wrote to a folder that is not this one."""
    path = result.task.path
    if result.record is None or os.path.exists(path):
        return result
    error = f"A worker wrote '{path}', which is not visible here; choose a folder that all workers share with it"
    return replace(result, record=None, error=error, fatal=True)


def unfit_workers(engine: str, reason: str) -> FairfoxError:
    """Return the error of an engine whose workers cannot start."""
    return MissingExtraError(
        f"{engine}'s workers cannot run fairfox ({reason}); give all of them the same Python, with fairfox and the "
        "model's packages"
    )


def stopped_engine(engine: str, reason: str) -> FairfoxError:
    """Return the error of an engine that does not start, or ends before the work does."""
    return FileError(f"{engine} has stopped ({reason}); fix that and run the same command again to resume")
