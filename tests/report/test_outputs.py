import json
import resource
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairfox.errors import FileError, OptionError, ShapeError
from fairfox.report.html import render
from fairfox.report.junit import junit_xml
from fairfox.report.markdown import summary_markdown
from fairfox.report.outputs import write_outputs
from fairfox.report.view import view
from tests.support import example_result, example_table, without_sign

NAMES = ["junit.xml", "report.html", "report.json", "scores.parquet", "summary.json", "summary.md"]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_six_files_are_written(tmp_path: Path):
    paths = write_outputs(example_result(), tmp_path / "new" / "out")
    assert sorted(path.name for path in paths) == files(tmp_path / "new" / "out") == NAMES
    assert json.loads((tmp_path / "new/out/summary.json").read_text())["test"] == "rank"
    assert pq.read_table(tmp_path / "new/out/scores.parquet").equals(example_result().scores_table())
    shown = json.loads((tmp_path / "new/out/report.json").read_text("utf-8"))
    assert shown == view(example_result())
    assert (tmp_path / "new/out/report.html").read_text("utf-8") == render(shown)
    assert (tmp_path / "new/out/junit.xml").read_text("utf-8") == junit_xml(example_result())
    assert (tmp_path / "new/out/summary.md").read_text("utf-8") == summary_markdown(example_result())


def test_a_second_audit_replaces_the_first(tmp_path: Path):
    write_outputs(example_result(), tmp_path)
    write_outputs(without_sign(), tmp_path)
    assert files(tmp_path) == NAMES
    assert json.loads((tmp_path / "summary.json").read_text())["test"] == "fta"


def test_raw_rows_are_written_only_when_asked_for(tmp_path: Path):
    result, table = example_result(), example_table()
    write_outputs(result, tmp_path / "without", table=table)
    write_outputs(result, tmp_path / "with", table=table, include_rows=True)
    assert pq.read_table(tmp_path / "without/scores.parquet").column_names == result.scores_table().column_names
    rows = pq.read_table(tmp_path / "with/scores.parquet")["row.income"]
    assert rows.null_count == int((~result.flags).sum())
    flagged = int(result.flags.nonzero()[0])
    assert rows[flagged] == table["income"][flagged]
    income = str(table["income"][flagged].as_py())
    for name in ("report.html", "report.json"):
        assert income in (tmp_path / "with" / name).read_text()
        assert income not in (tmp_path / "without" / name).read_text()


def test_a_column_named_like_one_of_ours_keeps_apart(tmp_path: Path):
    table = example_table().rename_columns(["score", "row_id", "flag", "id"])
    write_outputs(example_result(), tmp_path, table=table, include_rows=True)
    names = pq.read_table(tmp_path / "scores.parquet").column_names
    assert len(set(names)) == len(names)
    assert names[-4:] == ["row.score", "row.row_id", "row.flag", "row.id"]


def test_rows_need_their_table(tmp_path: Path):
    with pytest.raises(OptionError, match="include_rows needs the audited table"):
        write_outputs(example_result(), tmp_path / "out", include_rows=True)
    assert files(tmp_path) == []


def test_nothing_is_written_when_a_file_cannot_be_rendered(tmp_path: Path):
    with pytest.raises(ShapeError):
        write_outputs(example_result(), tmp_path / "out", table=example_table().slice(1), include_rows=True)
    assert files(tmp_path) == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileError, match="cannot be written"):
        write_outputs(example_result(), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_leaves_the_others_alone(tmp_path: Path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        write_outputs(example_result(), tmp_path)
    assert files(tmp_path) == ["report.html"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))  # summary.json fits, scores.parquet does not
    try:
        with pytest.raises(FileError, match="cannot be written"):
            write_outputs(example_result(), tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == []
