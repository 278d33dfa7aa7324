"""Scores on Spark: everyone once, as on one machine, also where a worker is lost on the way."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairfox.streaming.batches import job_for
from fairfox.streaming.sources import find_tables, split_tables
from fairfox.streaming.spark import run_spark, score_spark, summarise_spark
from fairfox.streaming.workers import PartTask
from tests.engines.checks import PEOPLE, check_a_part_that_ends_every_worker, check_files_although_a_worker_dies
from tests.streaming.world import (
    assert_same_people,
    assert_same_verdict,
    lending,
    model_of,
    score_here,
    scores_of,
    write_deadly,
)

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    # of pyspark itself, about the pandas that is installed, and its sockets to Java
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """Spark on this machine, which tries a task four times."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    found = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


def test_a_dataframe_is_scored_although_a_worker_dies(world: Path, session: Any):
    model = write_deadly(world)
    people = session.read.parquet(str(world / "in")).repartition(4)
    found = score_spark(people, world / "test.fox", model.spec)
    (world / "deadly.py").unlink()  # the executors have their own copy
    table = found.toArrow()
    assert (world / "died").exists()
    assert_same_people(table, scores_of(world / "local"))


def test_the_summary_of_a_dataframe_is_that_of_one_machine(world: Path, session: Any):
    people = session.createDataFrame(lending(PEOPLE).to_pylist())
    scored = score_spark(people, world / "test.fox", model_of(world).load(), delta=0.1)
    found = summarise_spark(scored, people, world / "test.fox", model_of(world).load(), delta=0.1)
    assert_same_verdict(found.record, score_here(world, "delta", delta=0.1).record)


def test_files_are_scored_in_the_same_parts_although_a_worker_dies(world: Path, session: Any):
    check_files_although_a_worker_dies("spark", world)


def test_a_part_that_ends_every_worker_is_named_and_the_others_are_done(world: Path, session: Any, tmp_path: Path):
    check_a_part_that_ends_every_worker("spark", world, tmp_path, workers=2)


def test_results_come_one_by_one_and_people_are_counted(world: Path, session: Any, tmp_path: Path):
    parts, _ = split_tables(find_tables([str(world / "in")]), 1000)
    tasks = [PartTask(part, str(tmp_path / f"{n}.parquet")) for n, part in enumerate(parts)]
    job = job_for(world / "test.fox", f"{world}/model.py:predict", lending(50).select, dumps=pickle.dumps)
    counted: list[int] = []
    results = run_spark(job, tasks, 2, counted.append)
    found = [next(results)]
    assert counted == [1000]  # before the others are asked for
    found += list(results)
    assert counted == [1000] * 4
    assert {result.task for result in found} == set(tasks)
    assert [result.error for result in found] == [""] * 4
    assert session.range(3).count() == 3  # the session of the caller still works


def test_people_without_names_have_unique_numbers(world: Path, session: Any):
    people = session.createDataFrame(lending(50).drop_columns(["name"]).to_pylist()).repartition(2)
    table = score_spark(people, world / "test.fox", str(world / "model.py:predict")).toArrow()
    assert len(set(table["row_id"].to_pylist())) == 50


def test_the_command_scores_on_spark_without_an_activated_environment(world: Path, tmp_path: Path):
    outside = {"PATH": os.defpath, "HOME": str(tmp_path)} | {k: v for k, v in os.environ.items() if k == "JAVA_HOME"}
    model = write_deadly(world)
    arguments = [str(world / "test.fox"), model.spec, str(world / "in"), "-o", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fairfox.cli.main", "score", *arguments, "--engine", "spark", "--workers", "1"]
    done = subprocess.run(command, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (world / "died").exists()
    assert not re.search(r"org\.apache\.spark\.\S*Exception|\tat |\[Stage ", done.stderr)  # a worker lost is no news
    assert_same_people(scores_of(tmp_path / "out"), scores_of(world / "local"))
