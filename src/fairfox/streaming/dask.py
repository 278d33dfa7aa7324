"""Scores on Dask, of a DataFrame by partition or of Parquet files by part."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fairfox.errors import first_line, require
from fairfox.result import AuditResult
from fairfox.streaming.batches import BATCH_ROWS, PILOT, BatchScorer, Job, job_for, scorer_for, some_people
from fairfox.streaming.sources import SPREAD, spread_order
from fairfox.streaming.summary import TOTALS, add_totals, summarise, totals_of
from fairfox.streaming.workers import PartResult, PartTask, Tick, arrived, lost, run_task, stopped_engine, unfit_workers

_RETRIES = 2  # of a task that failed with an error that was not expected


def score_dask(df: Any, test: Any, model: object, **options: Any) -> Any:
    """Return a lazy Dask DataFrame of scores, one row per person of another, with its index.

    Test, model and options are those of `fairfox.streaming.batches.job_for`; the population constants are those of
    some partitions. `row_id` is the id column of the test, else the position within the partition.
    """
    dask = require("dask", extra="dask", why="to score a Dask DataFrame")
    dumps = require("cloudpickle", extra="dask").dumps

    def pilot(columns: Sequence[str]) -> pa.Table:
        return _read_pilot(df[[name for name in columns if name in df.columns]])

    job = job_for(test, model, pilot, dumps=dumps, **options)
    scorer = BatchScorer(job)
    people = df[[name for name in scorer.fitted.encoding.needed if name in df.columns]]
    meta = _frame(scorer.schema.empty_table())
    meta.index = people._meta.index[:0]
    return people.map_partitions(_score_partition, dask.delayed(job, traverse=False), meta, meta=meta)


def summarise_dask(scores: Any, df: Any, test: Any, model: object, **options: Any) -> AuditResult:
    """Return the audit of everyone in a DataFrame: verdict, groups, list and page.

    `scores` is what `score_dask` returned; the other arguments are the same as there. Everything but the verdict, the
    counts and the groups comes from a random sample.
    """
    dask = require("dask", extra="dask", why="to sum up a Dask DataFrame")
    added = add_totals(dask.compute(*(dask.delayed(_totals)(part) for part in scores.to_delayed())))

    def sample(columns: Sequence[str], share: float) -> pa.Table:
        own = df[[name for name in columns if name in df.columns]]
        drawn = own if share == 1 else own.sample(frac=share, random_state=0)
        return pa.Table.from_pandas(drawn.compute(), preserve_index=False)

    return summarise(added, test, model, sample, **options)


def _read_pilot(df: Any) -> pa.Table:
    """Return people drawn from partitions across the whole, until there are enough."""
    tables: dict[int, pa.Table] = {}
    for place, n in enumerate(spread_order(df.npartitions)):
        if place >= SPREAD and sum(map(len, tables.values())) >= PILOT:
            break
        table = pa.Table.from_pandas(df.partitions[n].compute(), preserve_index=False)
        if len(table):
            tables[n] = some_people(table)
    if not tables:
        return pa.Table.from_pandas(df._meta, preserve_index=False)
    return some_people(pa.concat_tables([tables[n] for n in sorted(tables)], promote_options="permissive"))


def _score_partition(frame: Any, job: Job, meta: Any) -> Any:
    if not len(frame):
        return meta
    worker, batches, first = scorer_for(job), [], 0
    people = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
    for batch in people.to_batches(max_chunksize=BATCH_ROWS):
        numbers = pa.array(range(first, first + len(batch)), pa.int64())
        batches.append(worker.score(batch, row_numbers=numbers))
        first += len(batch)
    out = _frame(pa.Table.from_batches(batches))
    out.index = frame.index
    return out


def _frame(table: pa.Table) -> Any:
    """Return a table as pandas with Arrow's own types, which are the same in every partition."""
    return table.to_pandas(types_mapper=require("pandas", extra="dask").ArrowDtype)


def _totals(frame: Any) -> pa.Table:
    people = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    return totals_of(people) if len(people) else TOTALS.empty_table()


# --- files ---------------------------------------------------------------------------------------------------------


def run_dask(job: Job, tasks: Sequence[PartTask], workers: int, tick: Tick) -> Iterator[PartResult]:
    """Yield the results of tasks from Dask's workers; lost tasks are repeated.

    Workers write the parts themselves, so they must see the tables and the folder under the same names.
    """
    distributed = require("distributed", extra="dask", why="for --engine dask")
    with _client(distributed, workers) as client:
        shared = client.submit(pickle.loads, pickle.dumps(replace(job, model=job.model.shipped())), pure=False)
        futures = client.map(run_task, [shared] * len(tasks), tasks, retries=_RETRIES, pure=False)
        task_of = {future.key: task for future, task in zip(futures, tasks, strict=True)}
        for future in distributed.as_completed(futures):
            task = task_of[future.key]
            tick(task.people.rows)
            result = _result(distributed, future, task)
            future.release()  # else it is done once more, and its part written anew, where its worker is lost later
            yield arrived(result)


def _result(distributed: Any, future: Any, task: PartTask) -> PartResult:
    """Return what came of a task, or raise what is no fault of the task."""
    try:
        result: PartResult = future.result()
    except distributed.KilledWorker:
        return lost(task, "its workers died repeatedly", "--part-rows")
    except distributed.CancelledError as error:  # the scheduler was restarted, or somebody has cancelled everything
        raise stopped_engine("Dask", first_line(error)) from error
    except ImportError as error:
        raise unfit_workers("Dask", first_line(error)) from error
    return result


def _client(distributed: Any, workers: int) -> Any:
    """Return a client of the cluster that Dask's configuration names, else of processes on this machine."""
    dask = require("dask", extra="dask")
    address = dask.config.get("scheduler-address", None)
    if not address:
        processes = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
        quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}  # parts that fail are named at the end
        with dask.config.set({"distributed.scheduler.worker-saturation": 1.0}):  # none waits at a worker that may die
            return distributed.Client(**processes, **quiet)
    try:
        return distributed.Client()
    except (OSError, ValueError) as error:
        raise stopped_engine("Dask", f"no scheduler at '{address}': {first_line(error)}") from error
