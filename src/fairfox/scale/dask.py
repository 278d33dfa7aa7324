"""Scores on Dask: of a DataFrame, partition by partition, or of Parquet files part by part."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fairfox.extras import require
from fairfox.scale.batches import BATCH_ROWS, BatchScorer, scorer_for
from fairfox.scale.engines import arrived, gave_up, lost, unfit
from fairfox.scale.job import Job, columns_of, job_for
from fairfox.scale.parts import Outcome, Task, Tick, run_task
from fairfox.scale.pilot import spread_order
from fairfox.scale.places import first_line
from fairfox.scale.settled import PILOT, Settled
from fairfox.scale.sketches import Sketch, merge, sketch_of
from fairfox.scale.summary import numbers_of

_RETRIES = 2  # of a task that failed with an error that was not expected


def score(
    df: Any,
    test: Any,
    model: object,
    *,
    delta: float | None = None,
    trust: bool = False,
    settled: Settled | None = None,
    **options: Any,
) -> Any:
    """Return a Dask DataFrame with one row per person of another, with its index, computed when it is asked for.

    What is given is that of `fairfox.scale.job.job_for`; what is not settled yet is settled on some partitions.
    `row_id` is the id column of the test, else the place within the partition; the index is as it was.
    """
    dask = require("dask", extra="dask", why="to score a Dask DataFrame")
    dumps = require("cloudpickle", extra="dask").dumps

    def some(columns: Sequence[str]) -> pa.Table:
        return _some(df[[name for name in columns if name in df.columns]])

    job = job_for(test, model, some, dumps=dumps, delta=delta, trust=trust, settled=settled, **options)
    scorer = BatchScorer(job)
    people = df[[name for name in columns_of(scorer.fitted) if name in df.columns]]
    meta = _frame(scorer.schema.empty_table())
    meta.index = people._meta.index[:0]
    return people.map_partitions(_scored, dask.delayed(job, traverse=False), meta, meta=meta)


def _some(df: Any) -> pa.Table:
    """Return people of some partitions, from across all of them, until there are enough."""
    tables: dict[int, pa.Table] = {}
    for n in spread_order(df.npartitions):
        table = pa.Table.from_pandas(df.partitions[n].compute(), preserve_index=False)
        if len(table):
            tables[n] = table
        if sum(map(len, tables.values())) >= PILOT:
            break
    if not tables:
        return pa.Table.from_pandas(df._meta, preserve_index=False)
    return pa.concat_tables([tables[n] for n in sorted(tables)], promote_options="permissive")


def _scored(frame: Any, job: Job, meta: Any) -> Any:
    """Return the scores of a partition."""
    if not len(frame):
        return meta
    worker = scorer_for(job)
    people = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
    batches = people.to_batches(max_chunksize=BATCH_ROWS)
    found, first = [], 0
    for batch in batches:
        found.append(worker.score(batch, numbers=pa.array(range(first, first + len(batch)), pa.int64())))
        first += len(batch)
    out = _frame(pa.Table.from_batches(found))
    out.index = frame.index
    return out


def _frame(table: pa.Table) -> Any:
    """Return a table as pandas with Arrow's own types, which are the same in every partition."""
    pandas = require("pandas", extra="dask")
    return table.to_pandas(types_mapper=pandas.ArrowDtype)


def summary(scores: Any) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of a DataFrame that `score` returned."""
    dask = require("dask", extra="dask", why="to sum up a Dask DataFrame")
    parts = [dask.delayed(_sketched)(part) for part in scores.to_delayed()]
    return numbers_of(merge(dask.compute(*parts)))


def _sketched(frame: Any) -> Sketch:
    return sketch_of(pa.Table.from_pandas(frame, preserve_index=False)) if len(frame) else {}


# --- files ---------------------------------------------------------------------------------------------------------


def run_dask(job: Job, tasks: Sequence[Task], workers: int, tick: Tick) -> Iterator[Outcome]:
    """Yield the outcomes of tasks as Dask's workers do them, each again where one is lost.

    Workers write the parts themselves, so that they must see the tables and the folder under the same names.
    """
    distributed = require("distributed", extra="dask", why="for --engine dask")
    with _client(distributed, workers) as client:
        shared = client.submit(pickle.loads, pickle.dumps(job.shipped()), pure=False)
        futures = client.map(run_task, [shared] * len(tasks), tasks, retries=_RETRIES, pure=False)
        task_of = {future.key: task for future, task in zip(futures, tasks, strict=True)}
        for future in distributed.as_completed(futures):
            task = task_of[future.key]
            tick(task.part.rows)
            outcome = _outcome(distributed, future, task)
            future.release()  # else it is done once more, and its part written anew, where its worker is lost later
            yield arrived(outcome)


def _outcome(distributed: Any, future: Any, task: Task) -> Outcome:
    """Return what came of a task, or raise what is no fault of the task."""
    try:
        found: Outcome = future.result()
    except distributed.KilledWorker:
        return lost(task)
    except distributed.CancelledError as error:  # the scheduler was restarted, or somebody has cancelled everything
        raise gave_up("Dask", first_line(error)) from error
    except ImportError as error:
        raise unfit("Dask", first_line(error)) from error
    return found


def _client(distributed: Any, workers: int) -> Any:
    """Return a client of the cluster that Dask's configuration names, else of processes on this machine."""
    dask = require("dask", extra="dask")
    address = dask.config.get("scheduler-address", None)
    if not address:
        processes = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
        quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}  # a part that fails is told in the end
        with dask.config.set({"distributed.scheduler.worker-saturation": 1.0}):  # none waits at a worker that may die
            return distributed.Client(**processes, **quiet)
    try:
        return distributed.Client()
    except (OSError, ValueError) as error:
        raise gave_up("Dask", f"no scheduler at '{address}': {first_line(error)}") from error
