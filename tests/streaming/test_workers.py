"""Workers that die, lack something or write elsewhere: on this machine, on Spark and on Dask."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairfox.errors import FileError, MissingExtraError
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource, RowGroups, TableFile
from fairfox.streaming.spark import lost_task, reason_of
from fairfox.streaming.workers import PartRecord, PartResult, PartTask, arrived
from tests.streaming.world import (
    assert_parts_are_those_of_the_manifest,
    make_world,
    model_of,
    poisoned,
    scores_of,
    write_deadly,
)

PART = RowGroups(TableFile("in", "/in/a.parquet", 9, None), (2, 4), 100, 50)
JAVA = "\n\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:338)\n\tat java.base/java.lang.Thread.run(Thread.java:840)"
ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 12 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 12.3 in stage 3.0 (TID 11) (10.0.0.7 executor 2): "
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/opt/pyspark/worker.py", line 4327, in invoke_udf\n    run_process()\n'
)


@pytest.mark.slow
def test_processes_give_the_same_scores_also_where_one_dies_and_a_part_that_ends_two_of_them_is_named(tmp_path: Path):
    folder = make_world(tmp_path)
    given = {"tables": [str(folder / "in")], "part_rows": 500}
    one = score_files(folder / "test.fox", model_of(folder), out=folder / "one", workers=1, **given).record
    two = score_files(folder / "test.fox", write_deadly(folder), out=folder / "two", workers=2, **given).record
    assert (folder / "died").exists()
    assert (two.tally, two.groups, two.verdict) == (one.tally, one.groups, one.verdict)
    assert_parts_are_those_of_the_manifest(folder / "two")  # and nothing half-written
    assert scores_of(folder / "two").equals(scores_of(folder / "one"))

    income = pq.read_table(folder / "in/b.parquet")["income"][0].as_py()
    (folder / "poisoned.py").write_text(poisoned(folder / "asked_first", income))
    model = ModelSource(str(folder / "poisoned.py:predict"))
    with pytest.raises(FileError, match=r"b.parquet', rows 0 to 499: the worker process died twice .* 1 of 2 parts"):
        score_files(folder / "test.fox", model, out=folder / "three", workers=2, **given)
    assert scores_of(folder / "three").equals(scores_of(folder / "one").slice(0, 500))


def test_a_part_that_is_not_seen_here_stops_the_run(tmp_path: Path):
    task = PartTask(PART, str(tmp_path / "part-00000.parquet"))
    done = PartResult(task, PartRecord(PART.identity))
    elsewhere = arrived(done)
    assert elsewhere.fatal
    assert elsewhere.record is None
    assert f"A worker wrote '{task.path}', which is not visible here; choose a folder" in elsewhere.error
    Path(task.path).touch()
    assert arrived(done) is done
    failed = PartResult(PartTask(PART, "nowhere"), error="a reason")
    assert arrived(failed) is failed


@pytest.mark.parametrize(
    "why",
    [
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Container killed by YARN",
    ],
)
def test_the_task_that_lost_its_workers_is_found(why: str):
    assert lost_task(RuntimeError(ABORTED + why + JAVA)) == 12


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}"
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.12\nPlease check environment variables.",
            r"\(PySparkRuntimeError: \[PYTHON_VERSION_MISMATCH\] Python in worker has different version: 3.12\)",
        ),
        (
            f"{ABORTED}org.apache.spark.api.python.PythonException: {TRACEBACK}"
            f"ModuleNotFoundError: No module named 'fairfox'\n{JAVA}",
            r"\(ModuleNotFoundError: No module named 'fairfox'\)",
        ),
        (
            f'{ABORTED}java.io.IOException: Cannot run program "/env/bin/python": error=2, No such file{JAVA}',
            r'\(java.io.IOException: Cannot run program "/env/bin/python": error=2, No such file\)',
        ),
    ],
)
def test_workers_without_fairfox_are_told_in_one_sentence(text: str, reason: str):
    with pytest.raises(MissingExtraError, match=rf"^Spark's workers cannot run fairfox {reason}; give all .*packages$"):
        lost_task(RuntimeError(text))


def test_an_error_of_our_own_is_shown_with_the_place_it_is_from_and_without_java():
    text = f"{ABORTED}org.apache.spark.api.python.PythonException: {TRACEBACK}TypeError: two\nlines\n{JAVA}"
    with pytest.raises(RuntimeError) as caught:
        lost_task(ValueError(text))
    assert str(caught.value) == f"A worker failed with an unexpected error:\n{TRACEBACK}TypeError: two\nlines"


def test_whatever_else_ends_spark_is_told_in_one_sentence():
    with pytest.raises(FileError, match=r"^Spark has stopped \(org.apache.spark.SparkException: Job 0 cancelled\); "):
        lost_task(
            RuntimeError(
                f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job 0 cancelled{JAVA}"
            )
        )
    assert reason_of(RuntimeError("")) == "RuntimeError('')"
