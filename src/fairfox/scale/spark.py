"""Scores on Spark: of a DataFrame, batch by batch on its executors, or of Parquet files part by part."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fairfox.errors import FileError
from fairfox.extras import require
from fairfox.scale.batches import BatchScorer, scorer_for
from fairfox.scale.engines import arrived, gave_up, lost
from fairfox.scale.job import Job, columns_of, job_for
from fairfox.scale.parts import Outcome, Task, Tick, run_task
from fairfox.scale.settled import PILOT, Settled
from fairfox.scale.sketches import merge, sketch_of
from fairfox.scale.spark_errors import lost_task, reason_of
from fairfox.scale.summary import numbers_of

_ROW = "__fairfox_row"
_TOLD = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR")  # where somebody has said which cluster
_TRIES = 4  # of a task on a machine of one's own; on a cluster spark.task.maxFailures says it
_POLL = 0.2  # seconds between two looks at what has come
_ENDING = 3.0  # seconds that workers have to end after Spark has ended their tasks, so that no two write the same part
_OURS = {
    "spark.ui.showConsoleProgress": "false",  # fairfox tells how far it is
    "spark.speculation": "false",  # two workers at one part would write it twice
}
_HERE = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}  # nobody else looks on; what fails is told in the end


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
    """Return a DataFrame with one row per person of a Spark DataFrame, computed when it is asked for.

    What is given is that of `fairfox.scale.job.job_for`; what is not settled yet is settled on the first people.
    `row_id` is the id column of the test, else a number that is unique among the people and not consecutive.
    """
    types = require("pyspark.sql.pandas.types", extra="spark", why="to score a Spark DataFrame")
    functions = require("pyspark.sql.functions", extra="spark")
    dumps = require("pyspark.cloudpickle", extra="spark").dumps

    def first(columns: Sequence[str]) -> pa.Table:
        return df.select(*_quoted(columns, df)).limit(PILOT).toArrow()

    job = job_for(test, model, first, dumps=dumps, delta=delta, trust=trust, settled=settled, **options)
    scorer = BatchScorer(job)
    shared = df.sparkSession.sparkContext.broadcast(job)

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = scorer_for(shared.value)
        for batch in batches:
            if len(batch):
                yield worker.score(batch.drop_columns([_ROW]), numbers=batch[_ROW])

    number = functions.monotonically_increasing_id().alias(_ROW)
    people = df.select(*_quoted(columns_of(scorer.fitted), df), number)
    return people.mapInArrow(scored, types.from_arrow_schema(scorer.schema))


def _quoted(columns: Sequence[str], df: Any) -> list[str]:
    """Return the columns that a DataFrame has, as Spark reads names with dots in them."""
    return [f"`{name.replace('`', '``')}`" for name in columns if name in df.columns]


def summary(scores: Any) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of a DataFrame that `score` returned, or of its Parquet files."""

    def sketches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = merge(sketch_of(batch) for batch in batches if len(batch))
        yield pa.RecordBatch.from_pydict({"sketch": [json.dumps(found)]})

    rows = scores.mapInArrow(sketches, "sketch string").collect()
    return numbers_of(merge(json.loads(row["sketch"]) for row in rows))


# --- files ---------------------------------------------------------------------------------------------------------


def run_spark(job: Job, tasks: Sequence[Task], workers: int, tick: Tick = lambda rows: None) -> Iterator[Outcome]:
    """Yield the outcomes of tasks as Spark's executors do them, each again where one is lost.

    Executors write the parts themselves, so that they must see the tables and the folder under the same names. A task
    that Spark gives up ends all others with it; these are asked for anew.
    """
    with _context(workers) as context:
        shared = context.broadcast(job.shipped())
        left = {task.path: task for task in tasks}
        try:
            while left:
                for outcome in _asked(context, shared, list(left.values())):
                    del left[outcome.task.path]
                    tick(outcome.task.part.rows)
                    yield arrived(outcome)
        finally:
            shared.destroy()


def _asked(context: Any, shared: Any, tasks: Sequence[Task]) -> Iterator[Outcome]:
    """Yield what comes of tasks, up to the first that Spark gives up."""
    group, came = f"fairfox-{uuid4()}", context.accumulator([], _Together())

    def run() -> None:
        context.setJobGroup(group, "fairfox score", interruptOnCancel=True)
        rows = context.parallelize(list(tasks), len(tasks))
        rows.foreach(lambda task: came.add([run_task(shared.value, task)]))

    told = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            ended = False
            while not ended:
                ended = bool(wait([running], timeout=_POLL).done)
                found = list(came.value[told:])
                told += len(found)
                yield from found
        finally:
            if not running.done():
                context.cancelJobGroup(group)
    error = running.exception()
    if error is not None:
        yield lost(tasks[lost_task(error)])
        sleep(_ENDING)
    elif told < len(tasks):
        raise gave_up("Spark", f"it has told what came of {told} of {len(tasks)} parts")


class _Together:
    """How Spark puts together what tasks have come to: one list after the other."""

    def zero(self, value: list[Outcome]) -> list[Outcome]:
        """Return what a task begins with."""
        return []

    def addInPlace(self, one: list[Outcome], other: list[Outcome]) -> list[Outcome]:
        """Return the first with the second behind it."""
        one.extend(other)
        return one


@contextmanager
def _context(workers: int) -> Iterator[Any]:
    """Yield the SparkContext that runs already, else one of the cluster that is configured, or of this machine."""
    sql = require("pyspark.sql", extra="spark", why="for --engine spark")
    contexts = require("pyspark", extra="spark").SparkContext
    running = contexts._active_spark_context  # no public name tells whether there is one
    if running is not None:
        yield running
        return
    settings = dict(_OURS)
    if not _is_told():
        settings |= {"spark.master": f"local[{workers},{_TRIES}]", **_HERE}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 of the path, without fairfox
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")  # nobody else needs to find it
    try:
        session = sql.SparkSession.builder.appName("fairfox score").config(map=settings).getOrCreate()
    except Exception as error:  # of Java, of pyspark, of a cluster's
        raise FileError(
            f"Spark does not start ({reason_of(error)}); check that there is Java, and what PYSPARK_SUBMIT_ARGS, "
            "SPARK_CONF_DIR or SPARK_HOME say"
        ) from error
    try:
        yield session.sparkContext
    finally:
        session.stop()


def _is_told() -> bool:
    """Return whether somebody has said which cluster to use."""
    defaults = Path(os.environ.get("SPARK_HOME", ""), "conf", "spark-defaults.conf")
    return any(name in os.environ for name in _TOLD) or ("SPARK_HOME" in os.environ and defaults.is_file())
