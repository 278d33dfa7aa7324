"""Scores on Spark: of a DataFrame, batch by batch on its executors, or of Parquet files part by part."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fairfox.extras import require
from fairfox.scale.batches import BatchScorer, scorer_for
from fairfox.scale.job import Job, ModelSource, columns_of, prepared
from fairfox.scale.parts import Outcome, Task, run_task
from fairfox.scale.settled import PILOT, Settled
from fairfox.scale.sketches import merge, sketch_of
from fairfox.scale.summary import numbers_of

_ROW = "__fairfox_row"
_TOLD = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR")  # where somebody has said which cluster
_TRIES = 4  # of a task on a machine of one's own; on a cluster spark.task.maxFailures says it


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

    Args:
        df: the people.
        test: a fitted test, or the path of a file that `fairfox fit` wrote.
        model: what `fairfox score` takes (a file goes to the executors with the job), or a model that pickles.
        delta: people with a score above it are flagged; by default the test's own.
        trust: load model files that could run code.
        settled: what was settled before on other people; by default it is settled on the first ones.
        options: positive, output, returns and kind, as for `fairfox.audit`.

    `row_id` is the id column of the test, else a number that is unique among the people and not consecutive.
    """
    types = require("pyspark.sql.pandas.types", extra="spark", why="to score a Spark DataFrame")
    functions = require("pyspark.sql.functions", extra="spark")
    source = _source(model, trust)

    def first(columns: Sequence[str]) -> pa.Table:
        return df.select(*_quoted(columns, df)).limit(PILOT).toArrow()

    job = prepared(test, source, first, delta=delta, settled=settled, options=options)
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


def summary(scores: Any) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of a DataFrame that `score` returned, or of its Parquet files."""

    def sketches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = merge(sketch_of(batch) for batch in batches if len(batch))
        yield pa.RecordBatch.from_pydict({"sketch": [json.dumps(found)]})

    rows = scores.mapInArrow(sketches, "sketch string").collect()
    return numbers_of(merge(json.loads(row["sketch"]) for row in rows))


def run_spark(job: Job, tasks: Sequence[Task], workers: int) -> Iterator[Outcome]:
    """Yield the outcomes of tasks that Spark's executors do, each again where one is lost.

    Executors write the parts themselves, so that they must see the tables and the folder under the same names.
    """
    sql = require("pyspark.sql", extra="spark", why="for --engine spark")
    builder = sql.SparkSession.builder.appName("fairfox score")
    if not any(name in os.environ for name in _TOLD):
        builder = builder.master(f"local[{workers},{_TRIES}]")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 of the path, without fairfox
    session = builder.getOrCreate()
    shared = session.sparkContext.broadcast(job.shipped())
    rows = session.sparkContext.parallelize(list(tasks), len(tasks))
    yield from rows.map(lambda task: run_task(shared.value, task)).collect()


def _source(model: object, trust: bool) -> ModelSource:
    if isinstance(model, str):
        return ModelSource(model, trust).shipped()
    cloudpickle = require("pyspark.cloudpickle", extra="spark")
    return ModelSource(type(model).__name__, pickled=cloudpickle.dumps(model))


def _quoted(columns: Sequence[str], df: Any) -> list[str]:
    """Return the columns that a DataFrame has, as Spark reads names with dots in them."""
    return [f"`{name.replace('`', '``')}`" for name in columns if name in df.columns]
