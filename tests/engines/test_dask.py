"""Scores on Dask: everyone once, as on one machine, also where a worker is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fairfox.scale import dask as on_dask
from fairfox.scale.files import score_files
from fairfox.scale.job import ModelSource
from tests.scale.world import deadly, lending, make_world, model_of, scores_of

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
    """Two worker processes, and a model that ends one of them once."""
    from distributed import Client

    for name in ("driver", "died"):
        (world / name).unlink(missing_ok=True)
    (world / "deadly.py").write_text(deadly(world))
    with Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as client:
        yield client


def assert_same_people(found: pa.Table, folder: Path) -> None:
    """Fail unless everyone is there once with the scores from one machine."""
    wanted = ["row_id", "score", "lower", "flag", "towards", "group[sex]"]
    one, other = (table.select(wanted).sort_by("row_id") for table in (found, scores_of(folder / "local")))
    assert len(one) == PEOPLE
    assert one["row_id"].to_pylist() == other["row_id"].to_pylist()
    for name in ("score", "lower"):
        assert one[name].to_pylist() == pytest.approx(other[name].to_pylist(), abs=1e-6)
    for name in ("flag", "towards", "group[sex]"):
        assert one[name].to_pylist() == other[name].to_pylist()


def test_a_dataframe_is_scored_although_a_worker_dies(world: Path, cluster: Any):
    import dask.dataframe

    people = dask.dataframe.read_parquet(str(world / "in")).repartition(npartitions=4)
    found = on_dask.score(people, world / "test.fox", str(world / "deadly.py:predict"))
    frame = found.compute()
    assert (world / "died").exists()
    assert frame.dtypes.equals(found.dtypes)
    assert_same_people(pa.Table.from_pandas(frame, preserve_index=False), world)


def test_the_summary_of_a_dataframe_is_that_of_one_machine(world: Path):
    import dask.dataframe

    frame = lending(PEOPLE).to_pandas()
    frame.index = frame.index + 10
    people = dask.dataframe.from_pandas(frame, npartitions=3)
    scores = on_dask.score(people, world / "test.fox", model_of(world).load(), delta=0.1)
    assert scores.compute(scheduler="threads").index.tolist() == list(range(10, PEOPLE + 10))
    found = on_dask.summary(scores)
    out = world / "delta"
    local = score_files(world / "test.fox", model_of(world), [str(world / "in")], out, workers=1, delta=0.1)
    assert found["counts"] == local["counts"]
    assert found["mean_score"] == pytest.approx(local["mean_score"], abs=1e-9)
    assert found["quantiles"] == local["quantiles"]


def test_files_are_scored_in_the_same_parts_although_a_worker_dies(world: Path, cluster: Any):
    import dask

    model = ModelSource(str(world / "deadly.py:predict"))
    given = {"part_rows": 1000, "engine": "dask", "workers": 2}
    with dask.config.set({"scheduler-address": cluster.scheduler.address}):
        found = score_files(world / "test.fox", model, [str(world / "in")], world / "out", **given)
    assert (world / "died").exists()
    assert found["counts"]["people"] == PEOPLE
    assert len(list((world / "out/scores.parquet").iterdir())) == 4
    assert_same_people(scores_of(world / "out"), world)
