"""What holds on every engine, also where a worker is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairfox.errors import FileError
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource
from tests.streaming.world import (
    assert_parts_are_those_of_the_manifest,
    assert_same_people,
    poisoned,
    scores_of,
    write_deadly,
)

PEOPLE = 4000


def check_files_although_a_worker_dies(engine: str, world: Path) -> None:
    """Fail unless files are scored in the same parts as on one machine."""
    given = {"part_rows": 1000, "engine": engine, "workers": 2}
    found = score_files(world / "test.fox", write_deadly(world), [str(world / "in")], world / "out", **given)
    assert (world / "died").exists()
    assert found.record.tally.people == PEOPLE
    assert len(list((world / "out/scores.parquet").iterdir())) == 4
    assert_parts_are_those_of_the_manifest(world / "out")
    assert_same_people(scores_of(world / "out"), scores_of(world / "local"))


def check_a_part_that_ends_every_worker(engine: str, world: Path, folder: Path, *, workers: int) -> None:
    """Fail unless the part is named, and all others are done."""
    poison = pq.read_table(world / "in/b.parquet")["income"][500].as_py()
    (folder / "poisoned.py").write_text(poisoned(folder / "asked_first", poison))
    model = ModelSource(str(folder / "poisoned.py:predict"))
    given = {"part_rows": 500, "engine": engine, "workers": workers}
    with pytest.raises(FileError, match=r"b.parquet', rows 500 to 999: its workers died .* 7 of 8 parts"):
        score_files(world / "test.fox", model, [str(world / "in")], folder / "out", **given)
    assert len(scores_of(folder / "out")) == PEOPLE - 500
    assert_parts_are_those_of_the_manifest(folder / "out")
