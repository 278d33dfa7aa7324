"""Scores on Dask: of a DataFrame, partition by partition, or of Parquet files part by part."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fairfox.errors import DataError
from fairfox.extras import require
from fairfox.scale.batches import BATCH_ROWS, BatchScorer, scorer_for
from fairfox.scale.job import Job, ModelSource, columns_of, prepared
from fairfox.scale.parts import Outcome, Task, Tick, run_task
from fairfox.scale.places import spread_order
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

    Args:
        df: the people.
        test: a fitted test, or the path of a file that `fairfox fit` wrote.
        model: what `fairfox score` takes (a file goes to the workers with the job), or a model that pickles.
        delta: people with a score above it are flagged; by default the test's own.
        trust: load model files that could run code.
        settled: what was settled before on other people; by default it is settled on some partitions.
        options: positive, output, returns and kind, as for `fairfox.audit`.

    `row_id` is the id column of the test, else the place within the partition; the index is as it was.
    """
    dask = require("dask", extra="dask", why="to score a Dask DataFrame")

    def some(columns: Sequence[str]) -> pa.Table:
        return _some(df[[name for name in columns if name in df.columns]])

    job = prepared(test, _source(model, trust), some, delta=delta, settled=settled, options=options)
    scorer = BatchScorer(job)
    people = df[[name for name in columns_of(scorer.fitted) if name in df.columns]]
    meta = _frame(scorer.schema.empty_table())
    meta.index = people._meta.index[:0]
    return people.map_partitions(_scored, dask.delayed(job, traverse=False), meta, meta=meta)


def summary(scores: Any) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of a DataFrame that `score` returned."""
    dask = require("dask", extra="dask", why="to sum up a Dask DataFrame")
    parts = [dask.delayed(_sketched)(part) for part in scores.to_delayed()]
    return numbers_of(merge(dask.compute(*parts)))


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
            try:
                yield future.result()
            except distributed.KilledWorker:
                yield Outcome(task, error=f"'{task.part.source.name}': the workers that had it died again and again")


def _client(distributed: Any, workers: int) -> Any:
    """Return a client of the cluster that Dask's configuration names, else of processes on this machine."""
    dask = require("dask", extra="dask")
    if dask.config.get("scheduler-address", None):
        return distributed.Client()
    return distributed.Client(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)


def _source(model: object, trust: bool) -> ModelSource:
    if isinstance(model, str):
        return ModelSource(model, trust).shipped()
    cloudpickle = require("cloudpickle", extra="dask")
    return ModelSource(type(model).__name__, pickled=cloudpickle.dumps(model))


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
        raise DataError("The table has column names and no rows; give at least one row per individual")
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


def _sketched(frame: Any) -> Sketch:
    return sketch_of(pa.Table.from_pandas(frame, preserve_index=False)) if len(frame) else {}
