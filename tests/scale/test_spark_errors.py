import pytest

from fairfox.errors import FileError, MissingExtraError
from fairfox.scale.spark_errors import lost_task, reason_of

JAVA = "\n\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:338)\n\tat java.base/java.lang.Thread.run(Thread.java:840)"
ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 12 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 12.3 in stage 3.0 (TID 11) (10.0.0.7 executor 2): "
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/opt/pyspark/worker.py", line 4327, in invoke_udf\n    run_process()\n'
)


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
    with pytest.raises(MissingExtraError, match=rf"^Spark's workers cannot run fairfox {reason}; give all .*needs$"):
        lost_task(RuntimeError(text))


def test_an_error_of_our_own_is_shown_with_the_place_it_is_from_and_without_java():
    text = f"{ABORTED}org.apache.spark.api.python.PythonException: {TRACEBACK}TypeError: two\nlines\n{JAVA}"
    with pytest.raises(RuntimeError) as caught:
        lost_task(ValueError(text))
    assert str(caught.value) == f"A worker failed in a way that was not expected:\n{TRACEBACK}TypeError: two\nlines"


def test_whatever_else_ends_spark_is_told_in_one_sentence():
    with pytest.raises(FileError, match=r"^Spark has given up \(org.apache.spark.SparkException: Job 0 cancelled\); "):
        lost_task(
            RuntimeError(
                f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job 0 cancelled{JAVA}"
            )
        )
    assert reason_of(RuntimeError("")) == "RuntimeError('')"
