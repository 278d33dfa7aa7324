"""Scores on Dask: everyone once, as on one machine, also where a worker is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfox.errors import ColumnError, DataError, FileError, MissingExtraError
from fairfox.streaming.dask import _result, score_dask, summarise_dask
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource, RowGroups, TableFile
from fairfox.streaming.workers import PartTask
from tests.streaming.world import (
    assert_parts_are_those_of_the_manifest,
    assert_same_people,
    assert_same_verdict,
    lending,
    make_world,
    model_of,
    poisoned,
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
PEOPLE = 4000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a test, a model, people, and everyone's scores from one machine."""
    folder = make_world(tmp_path_factory.mktemp("dask"), people=PEOPLE, row_group=500, id="name")
    score_files(folder / "test.fox", model_of(folder), [str(folder / "in")], folder / "local", workers=1)
    return folder


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
    out = world / "delta"
    local = score_files(world / "test.fox", model_of(world), [str(world / "in")], out, workers=1, delta=0.1)
    assert_same_verdict(found.record, local.record)


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

    model, given = write_deadly(world), {"part_rows": 1000, "engine": "dask", "workers": 2}
    with dask.config.set({"scheduler-address": cluster.scheduler.address}):
        found = score_files(world / "test.fox", model, [str(world / "in")], world / "out", **given)
    assert (world / "died").exists()
    assert found.record.tally.people == PEOPLE
    assert len(list((world / "out/scores.parquet").iterdir())) == 4
    assert_parts_are_those_of_the_manifest(world / "out")
    assert_same_people(scores_of(world / "out"), scores_of(world / "local"))


def test_a_part_that_ends_every_worker_is_named_and_the_others_are_done(world: Path, tmp_path: Path):
    import dask

    poison = pq.read_table(world / "in/b.parquet")["income"][500].as_py()
    (tmp_path / "poisoned.py").write_text(poisoned(tmp_path / "asked_first", poison))
    model = ModelSource(str(tmp_path / "poisoned.py:predict"))
    given = {"part_rows": 500, "engine": "dask", "workers": 1}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        pytest.raises(FileError, match=r"b.parquet', rows 500 to 999: its workers died .* 7 of 8 parts"),
    ):
        score_files(world / "test.fox", model, [str(world / "in")], tmp_path / "out", **given)
    assert len(scores_of(tmp_path / "out")) == PEOPLE - 500
    assert_parts_are_those_of_the_manifest(tmp_path / "out")


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
