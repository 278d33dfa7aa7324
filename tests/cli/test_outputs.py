"""Outputs: never written over an input, as wide as the umask and the folder allow, whole or not there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fairfox.benchmark.worlds import LENDING
from fairfox.cli.main import cli
from fairfox.fairtests.storage import save_test
from tests.support import ended, fitted_on, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

MODEL = """
def predict(table):
    return table["income"] / 100_000
"""
COLUMNS = ("--columns", "income,debt_ratio", "--refits", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table, a model and a fitted test."""
    monkeypatch.chdir(tmp_path)
    people = LENDING.sample(80, seed=0).table
    pq.write_table(people, "scores.parquet")
    (tmp_path / "model.py").write_text(MODEL)
    save_test(fitted_on(people, protected="sex", columns=["income", "debt_ratio"], refits=1), tmp_path / "test.fox")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def audit(table: str, *more: str) -> Result:
    return run("audit", "model.py:predict", table, "-c", "sex", *COLUMNS, *more)


def assert_refused(done: Result, *said: str) -> None:
    sentence = refusal_of(done)
    assert all(words in sentence for words in said), sentence


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_an_audit_never_writes_over_its_table(folder: Path, link):
    before = (folder / "scores.parquet").read_bytes()
    if link is None:
        done = audit("scores.parquet", "--out", f"../{folder.name}")
    else:
        (folder / "out").mkdir()
        link(folder / "scores.parquet", folder / "out/scores.parquet")
        done = audit("scores.parquet", "--out", "out")
    assert_refused(done, "scores.parquet' is an input and would be overwritten; choose another --out")
    assert (folder / "scores.parquet").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir() if path.name != "out") == [
        "model.py",
        "scores.parquet",
        "test.fox",
    ]


@pytest.mark.parametrize("option", ["--reference", "--config", "--graph", "--protected-from"])
def test_an_audit_writes_over_no_other_input(folder: Path, option: str):
    people = (folder / "scores.parquet").rename(folder / "people.parquet")
    other = folder / {"--reference": "scores.parquet", "--protected-from": "scores.parquet"}.get(option, "summary.json")
    other.write_bytes(people.read_bytes() if other.suffix == ".parquet" else b"seed = 1\n")
    before = other.read_bytes()
    more = {"--protected-from": ("--on", "income"), "--graph": ("--test", "counterfactual")}.get(option, ())
    assert_refused(audit("people.parquet", option, other.name, *more, "--out", "."), "is an input")
    assert other.read_bytes() == before


def test_other_commands_write_over_no_input(folder: Path):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert_refused(run("fit", "scores.parquet", "-c", "sex", "-o", "scores.parquet"), "is an input")
    for engine in ("memory", "files"):
        scored = run("score", "test.fox", "model.py:predict", "scores.parquet", "-o", ".", "--engine", engine)
        assert_refused(scored, "is an input")
    models = ("model.py:predict", "model.py:predict")
    (folder / "people.parquet").symlink_to("scores.parquet")
    assert_refused(
        run("compare", *models, "scores.parquet", "-c", "sex", "--out", "."), "people.parquet' is an input and would be"
    )
    assert {path: path.read_bytes() for path in before} == before


def test_a_page_or_a_comparison_is_not_written_over_the_audit_it_is_of(folder: Path):
    ended(audit("scores.parquet", "--out", "a"))
    assert_refused(run("report", "a", "-o", "a/report.json"), "a/report.json' is an input and would be overwritten")
    assert_refused(run("compare", "a", "a", "--out", "a"), "summary.json' is an input and would be overwritten")


def test_overwriting_removes_what_the_manifest_names_and_nothing_else(folder: Path):
    score = ("score", "test.fox", "model.py:predict", "scores.parquet", "-o", "out", "--workers", "1")
    assert run(*score).exit_code == 0
    assert run(*score, "--delta", "0.3", "--overwrite").exit_code == 0
    for name in ("mine.parquet", "part-00007.parquet", ".notes"):
        mine = folder / "out/scores.parquet" / name
        mine.write_text("mine")
        before = sorted((folder / "out").rglob("*"))
        assert_refused(run(*score, "--overwrite"), f"{name}' is not in")
        assert sorted((folder / "out").rglob("*")) == before
        mine.unlink()
    (folder / "out/manifest.json").unlink()
    assert_refused(run(*score, "--overwrite"), "part-00000.parquet' is not in")


def test_a_manifest_that_names_a_file_elsewhere_is_refused(folder: Path):
    score = ("score", "test.fox", "model.py:predict", "scores.parquet", "-o", "out", "--workers", "1")
    assert run(*score).exit_code == 0
    manifest = folder / "out/manifest.json"
    manifest.write_text(manifest.read_text().replace("part-00000.parquet", "../../elsewhere"))
    assert_refused(run(*score), "manifest.json' is damaged")
    assert not (folder / "elsewhere").exists()


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def modes(folder: Path) -> set[str]:
    return {f"{path.stat().st_mode & 0o777:o}" for path in folder.rglob("*") if path.is_file()}


def test_files_are_as_wide_as_the_umask_allows(folder: Path, umask: None):
    ended(audit("scores.parquet", "--out", "out"))
    assert (
        run("score", "test.fox", "model.py:predict", "scores.parquet", "-o", "scored", "--workers", "1").exit_code == 0
    )
    assert run("fit", "scores.parquet", "-c", "sex", *COLUMNS, "-o", "out/new.fox").exit_code == 0
    assert modes(folder / "out") == modes(folder / "scored") == {"600"}


def test_files_are_no_wider_than_their_folder(folder: Path):
    (folder / "out").mkdir(mode=0o750)
    ended(audit("scores.parquet", "--out", "out"))
    assert modes(folder / "out") == {"640"}
