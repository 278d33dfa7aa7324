"""Scores on Dask: everyone once, as on one machine, also where a worker is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fairfox.errors import ColumnError, DataError, FileError, MissingExtraError
from fairfox.streaming.dask import _result, score_dask, summarise_dask
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import RowGroups, TableFile
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

pytest.importorskip("dask.dataframe")
pytestmark = [
    pytest.mark.dask,
    # of Dask itself, about pandas' next version
    pytest.mark.filterwarnings("ignore:The inplace keyword"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of workers that are killed
]


@pytest.fixture
def cluster(world: Path) -> Iterator[Any]:
    """Two worker processes."""
    from distributed import Client

    with Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as client:
        yield client


def test_a_dataframe_is_scored_although_a_worker_dies(world: Path, cluster: Any):
    import dask.dataframe

    people = dask.dataframe.read_parquet(str(world / "in")).repartition(npartitions=4)
    found = score_dask(people, world / "test.fox", write_deadly(world).spec)
    frame = found.compute()
    assert (world / "died").exists()
    assert frame.dtypes.equals(found.dtypes)
    assert_same_people(pa.Table.from_pandas(frame, preserve_index=False), scores_of(world / "local"))


def test_the_summary_of_a_dataframe_is_that_of_one_machine(world: Path):
    import dask.dataframe

    frame = lending(PEOPLE).to_pandas()
    frame.index = frame.index + 10
    people = dask.dataframe.from_pandas(frame, npartitions=3)
    scores = score_dask(people, world / "test.fox", model_of(world).load(), delta=0.1)
    assert scores.compute(scheduler="threads").index.tolist() == list(range(10, PEOPLE + 10))
    found = summarise_dask(scores, people, world / "test.fox", model_of(world).load(), delta=0.1)
    assert_same_verdict(found.record, score_here(world, "delta", delta=0.1).record)


def test_a_dataframe_without_people_or_columns_is_refused(world: Path):
    import dask.dataframe

    frame = lending(10).to_pandas()
    for people, kind, said in (
        (frame[:0], DataError, "no rows"),
        (frame[["tenure_years"]], ColumnError, "none of the test's columns"),
        (frame[["income", "sex"]], ColumnError, "has no column 'debt_ratio'"),
    ):
        with pytest.raises(kind, match=said):
            score_dask(dask.dataframe.from_pandas(people, npartitions=2), world / "test.fox", model_of(world).spec)


def test_files_are_scored_in_the_same_parts_although_a_worker_dies(world: Path, cluster: Any):
    import dask

    with dask.config.set({"scheduler-address": cluster.scheduler.address}):
        check_files_although_a_worker_dies("dask", world)


def test_a_part_that_ends_every_worker_is_named_and_the_others_are_done(world: Path, tmp_path: Path):
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        check_a_part_that_ends_every_worker("dask", world, tmp_path, workers=1)


def test_a_scheduler_that_is_not_there_is_told_in_one_sentence(world: Path, tmp_path: Path):
    import dask

    nowhere = {"scheduler-address": "tcp://127.0.0.1:9", "distributed.comm.timeouts.connect": "1s"}
    with (
        dask.config.set(nowhere),
        pytest.raises(FileError, match=r"^Dask has stopped \(no scheduler at 'tcp://127.0.0.1:9': .*\); fix that"),
    ):
        score_files(world / "test.fox", model_of(world), [str(world / "in")], tmp_path / "out", engine="dask")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            ModuleNotFoundError("No module named 'xgboost'"),
            MissingExtraError,
            r"Dask's workers cannot run fairfox \(No mod",
        ),
        (CancelledError("run_task-1"), FileError, r"Dask has stopped \(run_task-1\)"),
    ],
)
def test_what_is_no_fault_of_a_part_stops_the_run_with_one_sentence(error: Exception, kind: type, said: str):
    import distributed

    class Failed:
        def result(self) -> None:
            raise error

    part = RowGroups(TableFile("in", "/in/a.parquet", 9, None), (0, 1), 0, 50)
    with pytest.raises(kind, match=said):
        _result(distributed, Failed(), PartTask(part, "p"))
