from pathlib import Path

from fairfox.scale.engines import arrived, lost
from fairfox.scale.manifest import Record
from fairfox.scale.parts import Outcome, Task
from fairfox.scale.places import Part, Source

PART = Part(Source("in", "/in/a.parquet", 9, None), (2, 4), 100, 50)


def test_a_part_that_is_not_seen_here_stops_the_run(tmp_path: Path):
    task = Task(PART, str(tmp_path / "part-00000.parquet"))
    done = Outcome(task, Record.of(PART, {}, {}))
    found = arrived(done)
    assert found.fatal
    assert found.record is None
    assert f"A worker has written '{task.path}', which is not seen here; choose a folder" in found.error
    Path(task.path).touch()
    assert arrived(done) is done
    failed = Outcome(Task(PART, "nowhere"), error="a reason")
    assert arrived(failed) is failed


def test_a_part_whose_workers_are_lost_is_named_with_its_rows():
    found = lost(Task(PART, "p"))
    assert found.error.startswith("'/in/a.parquet', rows 100 to 149: workers died with it again and again")
    assert not found.fatal
