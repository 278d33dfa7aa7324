"""Scores on Spark, of a DataFrame by batch on its executors, or of Parquet files by part."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fairfox.errors import FileError, require
from fairfox.result import AuditResult
from fairfox.streaming.batches import PILOT, BatchScorer, Job, job_for, scorer_for
from fairfox.streaming.summary import TOTALS, add_totals, summarise, totals_of
from fairfox.streaming.workers import PartResult, PartTask, Tick, arrived, lost, run_task, stopped_engine, unfit_workers

_ROW = "__fairfox_row"
_CONFIGURED = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR")  # variables that name a cluster
_TRIES = 4  # of a task on a machine of one's own; on a cluster spark.task.maxFailures says it
_POLL = 0.2  # seconds between two looks at what has come
_ENDING = 3.0  # seconds that workers have to end after Spark has ended their tasks, so that no two write the same part
_OURS = {
    "spark.ui.showConsoleProgress": "false",  # fairfox reports progress itself
    "spark.speculation": "false",  # two workers at one part would write it twice
}
_HERE = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}  # parts that fail are named at the end
_LOST = r"Task (\d+) in stage \S+ failed \d+ times.*(?:Python worker exited unexpectedly|ExecutorLostFailure)"
_UNFIT = r"ModuleNotFoundError|ImportError|PYTHON_VERSION_MISMATCH|Cannot run program"


def score_spark(df: Any, test: Any, model: object, **options: Any) -> Any:
    """Return a lazy DataFrame of scores, one row per person of a Spark DataFrame.

    Test, model and options are those of `fairfox.streaming.batches.job_for`; the population constants are those of
    the first people. `row_id` is the id column of the test, else a number that is unique and not consecutive.
    """
    types = require("pyspark.sql.pandas.types", extra="spark", why="to score a Spark DataFrame")
    functions = require("pyspark.sql.functions", extra="spark")
    dumps = require("pyspark.cloudpickle", extra="spark").dumps

    def pilot(columns: Sequence[str]) -> pa.Table:
        return df.select(*_quoted(columns, df)).limit(PILOT).toArrow()

    job = job_for(test, model, pilot, dumps=dumps, **options)
    scorer = BatchScorer(job)
    shared = df.sparkSession.sparkContext.broadcast(job)

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = scorer_for(shared.value)
        for batch in batches:
            if len(batch):
                yield worker.score(batch.drop_columns([_ROW]), row_numbers=batch[_ROW])

    number = functions.monotonically_increasing_id().alias(_ROW)
    people = df.select(*_quoted(scorer.fitted.encoding.needed, df), number)
    return people.mapInArrow(scored, types.from_arrow_schema(scorer.schema))


def _quoted(columns: Sequence[str], df: Any) -> list[str]:
    """Return the columns that a DataFrame has, as Spark reads names with dots in them."""
    return [f"`{name.replace('`', '``')}`" for name in columns if name in df.columns]


def summarise_spark(scores: Any, df: Any, test: Any, model: object, **options: Any) -> AuditResult:
    """Return the audit of everyone in a DataFrame: verdict, groups, list and page.

    `scores` is what `score_spark` returned, or its files; the other arguments are the same as there. Everything but the
    verdict, the counts and the groups comes from a random sample.
    """
    types = require("pyspark.sql.pandas.types", extra="spark", why="to sum up a Spark DataFrame")

    def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from add_totals(totals_of(batch) for batch in batches if len(batch)).to_batches()

    added = add_totals([scores.mapInArrow(totals, types.from_arrow_schema(TOTALS)).toArrow()])

    def sample(columns: Sequence[str], share: float) -> pa.Table:
        return df.select(*_quoted(columns, df)).sample(share, seed=0).toArrow()

    return summarise(added, test, model, sample, **options)


# --- files ---------------------------------------------------------------------------------------------------------


def run_spark(job: Job, tasks: Sequence[PartTask], workers: int, tick: Tick) -> Iterator[PartResult]:
    """Yield the results of tasks from Spark's executors; lost tasks are repeated.

    Executors write the parts themselves, so they must see the tables and the folder under the same names. A task that
    Spark gives up ends all others; these are submitted again.
    """
    with _context(workers) as context:
        shared = context.broadcast(replace(job, model=job.model.shipped()))
        left = {task.path: task for task in tasks}
        try:
            while left:
                for result in _submit(context, shared, list(left.values())):
                    del left[result.task.path]
                    tick(result.task.people.rows)
                    yield arrived(result)
        finally:
            shared.destroy()


def _submit(context: Any, shared: Any, tasks: Sequence[PartTask]) -> Iterator[PartResult]:
    """Yield the results of tasks, up to the first that Spark gives up."""
    group, results = f"fairfox-{uuid4()}", context.accumulator([], _Concatenation())

    def run() -> None:
        context.setJobGroup(group, "fairfox score", interruptOnCancel=True)
        rows = context.parallelize(list(tasks), len(tasks))
        rows.foreach(lambda task: results.add([run_task(shared.value, task)]))

    count = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            ended = False
            while not ended:
                ended = bool(wait([running], timeout=_POLL).done)
                new = list(results.value[count:])
                count += len(new)
                yield from new
        finally:
            if not running.done():
                context.cancelJobGroup(group)
    error = running.exception()
    if error is not None:
        yield lost(tasks[lost_task(error)], "its workers died repeatedly", "--part-rows")
        sleep(_ENDING)
    elif count < len(tasks):
        raise stopped_engine("Spark", f"with the results of {count} of {len(tasks)} parts")


class _Concatenation:
    """How Spark puts the results of tasks together: one list after the other."""

    def zero(self, value: list[PartResult]) -> list[PartResult]:
        """Return what a task begins with."""
        return []

    def addInPlace(self, one: list[PartResult], other: list[PartResult]) -> list[PartResult]:
        """Return the first with the second behind it."""
        one.extend(other)
        return one


@contextmanager
def _context(workers: int) -> Iterator[Any]:
    """Yield the SparkContext that runs already, else one of the cluster that is configured, or of this machine."""
    sql = require("pyspark.sql", extra="spark", why="for --engine spark")
    contexts = require("pyspark", extra="spark").SparkContext
    running = contexts._active_spark_context  # there is no public name for it
    if running is not None:
        yield running
        return
    settings = dict(_OURS)
    defaults = Path(os.environ.get("SPARK_HOME", ""), "conf", "spark-defaults.conf")
    has_defaults = "SPARK_HOME" in os.environ and defaults.is_file()
    if not has_defaults and not any(name in os.environ for name in _CONFIGURED):
        settings |= {"spark.master": f"local[{workers},{_TRIES}]", **_HERE}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 of the path, without fairfox
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")  # no other machine needs to find it
    try:
        session = sql.SparkSession.builder.appName("fairfox score").config(map=settings).getOrCreate()
    except Exception as error:  # of Java, of pyspark, of a cluster's
        raise FileError(
            f"Spark did not start ({reason_of(error)}); check that Java is installed, and check "
            "PYSPARK_SUBMIT_ARGS, SPARK_CONF_DIR and SPARK_HOME"
        ) from error
    try:
        yield session.sparkContext
    finally:
        session.stop()


# --- errors: pages of Java become the task, or the reason, that is in them ------------------------------------------


def lost_task(error: BaseException) -> int:
    """Return the task whose workers died until Spark gave up; raise where there is another reason.

    Example:
        >>> lost_task(RuntimeError("Task 3 in stage 1.0 failed 4 times: Python worker exited unexpectedly (crashed)"))
        3
    """
    text = str(error)
    match = re.search(_LOST, text)
    if match:
        return int(match[1])
    python = re.search(r"^.*?(Traceback \(most recent call last\):.*?)(?=\n\s+at |\Z)", text, re.DOTALL)
    traceback = python[1].rstrip() if python else ""
    raised = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit|Interrupt)\b.*)", traceback, re.MULTILINE)
    reason = raised[-1] if raised else reason_of(error)
    if re.search(_UNFIT, reason):
        raise unfit_workers("Spark", reason) from error
    if traceback:
        raise RuntimeError(f"A worker failed with an unexpected error:\n{traceback}") from error
    raise stopped_engine("Spark", reason) from error


def reason_of(error: BaseException) -> str:
    """Return the line with the reason: of the last try, without the call that failed.

    Example:
        >>> reason_of(ValueError("An error occurred while calling x.\\n: java.io.IOException: no such host\\n\\tat y"))
        'java.io.IOException: no such host'
    """
    last = re.search(r"most recent failure: Lost task .*?\): (.*)", str(error))
    if last:
        return last[1]
    lines = [line.lstrip(": ") for line in str(error).splitlines() if line.strip(": ")]
    return next((line for line in lines if not line.startswith("An error occurred while calling")), repr(error))
