"""A small world for streams: a fitted test, a model in a file, people in Parquet, and everyone's scores at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fairfox.benchmark.worlds import LENDING
from fairfox.data.files import file_sha256
from fairfox.fairtests.fitted import FittedTest
from fairfox.fairtests.storage import save_test, to_bytes
from fairfox.findings import AuditRecord
from fairfox.models.loading import load_model
from fairfox.pipeline import score
from fairfox.result import AuditResult
from fairfox.streaming.batches import Job, prepare_job
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource
from tests.support import fitted_on

COLUMNS = ["income", "debt_ratio"]
MODEL = """
def predict(table):
    return 1 / (1 + 2.72 ** (3 - table["income"] / 10_000))
"""


def deadly(folder: Path) -> str:
    """Return a model that ends its process once, unless that is the one which asked first, and leaves a mark."""
    return f"""
import os, signal
from pathlib import Path
driver, died = Path({str(folder / "driver")!r}), Path({str(folder / "died")!r})
def predict(table):
    if not driver.exists():
        driver.write_text(str(os.getpid()))
    elif driver.read_text() != str(os.getpid()) and len(table) > 100 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 / (1 + 2.72 ** (3 - table["income"] / 10_000))
"""


def poisoned(driver: Path, income: float) -> str:
    """Return a model that ends its process, unless that asked first, whenever somebody with this income comes first."""
    return f"""
import os, signal
from pathlib import Path
driver = Path({str(driver)!r})
def predict(table):
    if not driver.exists():
        driver.write_text(str(os.getpid()))
    elif driver.read_text() != str(os.getpid()) and float(list(table["income"])[0]) == {income!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 / (1 + 2.72 ** (3 - table["income"] / 10_000))
"""


def lending(people: int, seed: int = 1) -> pa.Table:
    """Return people of a lending world, each with a name."""
    table = LENDING.sample(people, seed=seed).table
    return table.append_column("name", pa.array([f"p{n}" for n in range(people)]))


def make_world(folder: Path, *, people: int = 1000, row_group: int = 100, **options: Any) -> Path:
    """Write test.fox, model.py, and people in two files of the folder `in`; return the folder."""
    given = {"protected": "sex", "columns": COLUMNS, "refits": 2, **options}
    save_test(fitted_on(lending(200, seed=0), **given), folder / "test.fox")
    (folder / "model.py").write_text(MODEL)
    (folder / "in").mkdir()
    table = lending(people)
    pq.write_table(table.slice(0, people // 2), folder / "in" / "a.parquet", row_group_size=row_group)
    pq.write_table(table.slice(people // 2), folder / "in" / "b.parquet", row_group_size=row_group)
    return folder


def model_of(folder: Path) -> ModelSource:
    return ModelSource(str(folder / "model.py:predict"))


def score_here(folder: Path, out: str, **options: Any) -> AuditResult:
    """Return the audit of everyone in the folder `in`, by one process of this machine."""
    return score_files(folder / "test.fox", model_of(folder), [str(folder / "in")], folder / out, workers=1, **options)


def job_of(fitted: FittedTest, people: pa.Table, folder: Path, **options: Any) -> Job:
    """Return the job of scoring such people."""
    (folder / "model.py").write_text(MODEL)
    delta = options.pop("delta", None)
    return prepare_job((fitted, to_bytes(fitted)), model_of(folder), people, delta=delta, options=options)


def at_once(fitted: FittedTest, people: pa.Table, folder: Path, **options: Any) -> AuditRecord:
    """Return everyone's scores from memory."""
    return score(fitted, load_model(str(folder / "model.py:predict")), people, **options).record


def scores_of(out: Path) -> pa.Table:
    """Return all scores that a run has written."""
    return pq.read_table(out / "scores.parquet")


def assert_parts_are_those_of_the_manifest(out: Path) -> None:
    """Fail unless every part that is done is there, and is the file whose hash the manifest has."""
    hashes = {part["name"]: part["sha256"] for part in json.loads((out / "manifest.json").read_text())["parts"]}
    found = {path.name: file_sha256(path) for path in (out / "scores.parquet").glob("part-*")}
    assert found == {name: digest for name, digest in hashes.items() if digest}


def assert_same_columns(found: pa.Table, expected: pa.Table, *, within: float = 1e-12) -> None:
    """Fail unless the columns that both tables have agree: numbers within a bound, all else exactly."""
    shared = [name for name in expected.column_names if name in found.column_names and name != "row_id"]
    ends = {"lower", "upper", "sampling_lower", "sampling_upper"}
    assert {*ends, "score", "effect", "flagged", "confident", "p_value", "towards"} <= set(shared)
    for name in shared:
        one, other = found[name].combine_chunks(), expected[name].combine_chunks()
        if pa.types.is_floating(other.type):
            assert one.is_null().equals(other.is_null()), name
            far = pc.max(pc.abs(pc.subtract(one, other))).as_py()
            assert far is None or far <= within, name
        else:
            assert one.equals(other), name


def assert_same_people(found: pa.Table, expected: pa.Table) -> None:
    """Fail unless everyone is there once with the scores of another run, in whatever order."""
    wanted = ["row_id", "score", "lower", "flagged", "towards", "group[sex]"]
    one, other = (table.select(wanted).sort_by("row_id").to_pydict() for table in (found, expected))
    for name in wanted:
        assert one[name] == (pytest.approx(other[name], abs=1e-6) if name in ("score", "lower") else other[name]), name


def assert_same_verdict(found: AuditRecord, expected: AuditRecord) -> None:
    """Fail unless two audits of the same people say the same about everyone, numbers within rounding."""
    close = partial(pytest.approx, abs=1e-9)
    one, other = (asdict(each.tally) for each in (found, expected))
    assert one == {name: close(value) if isinstance(value, float) else value for name, value in other.items()}
    assert (found.verdict.word, found.verdict.reason) == (expected.verdict.word, expected.verdict.reason)
    assert (found.verdict.significant, found.verdict.possible) == (
        expected.verdict.significant,
        expected.verdict.possible,
    )
    assert found.listed == expected.listed
    for group, wanted in zip(found.groups, expected.groups, strict=True):
        assert (group.name, group.people) == (wanted.name, wanted.people)
        assert (group.mean_effect, group.share_flagged) == close((wanted.mean_effect, wanted.share_flagged))


def write_deadly(folder: Path) -> ModelSource:
    """Return a model that ends the process of one worker, once more."""
    for name in ("driver", "died"):
        (folder / name).unlink(missing_ok=True)
    (folder / "deadly.py").write_text(deadly(folder))
    return ModelSource(str(folder / "deadly.py:predict"))
