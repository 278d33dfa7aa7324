"""The folder of an audit: six files, all or none, and the page made again from one of them."""

from __future__ import annotations

import json
import math
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fairfox.comparison import compare
from fairfox.errors import FileError, OptionError, ShapeError
from fairfox.report.ci import junit_xml, summary_markdown
from fairfox.report.files import scores_table, stored_page, write_outputs
from fairfox.report.html import render
from fairfox.report.view import view
from fairfox.result import AuditResult
from tests.report.helpers import named_audit
from tests.support import (
    PEOPLE,
    RACES,
    example_certificates,
    example_result,
    example_table,
    many_result,
    nameless,
    with_finding,
    without_sign,
)

NAMES = ["junit.xml", "report.html", "report.json", "scores.parquet", "summary.json", "summary.md"]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_six_files_are_written(tmp_path: Path):
    paths = write_outputs(example_result(), tmp_path / "new" / "out")
    assert sorted(path.name for path in paths) == files(tmp_path / "new" / "out") == NAMES
    assert json.loads((tmp_path / "new/out/summary.json").read_text())["test"] == "rank"
    assert pq.read_table(tmp_path / "new/out/scores.parquet").equals(scores_table(example_result()))
    shown = json.loads((tmp_path / "new/out/report.json").read_text("utf-8"))
    assert shown == view(example_result())
    assert (tmp_path / "new/out/report.html").read_text("utf-8") == render(shown)
    assert (tmp_path / "new/out/junit.xml").read_text("utf-8") == junit_xml(example_result())
    assert (tmp_path / "new/out/summary.md").read_text("utf-8") == summary_markdown(example_result())


def test_raw_rows_are_written_only_when_asked_for(tmp_path: Path):
    result, table = example_result(), example_table()
    write_outputs(result, tmp_path / "without", table=table)
    write_outputs(result, tmp_path / "with", table=table, include_rows=True)
    assert pq.read_table(tmp_path / "without/scores.parquet").column_names == scores_table(result).column_names
    rows = pq.read_table(tmp_path / "with/scores.parquet")["row.income"]
    assert rows.null_count == int((~result.flagged).sum())
    flagged = int(result.flagged.nonzero()[0])
    assert rows[flagged] == table["income"][flagged]
    income = str(table["income"][flagged].as_py())
    for name in ("report.html", "report.json"):
        assert income in (tmp_path / "with" / name).read_text()
        assert income not in (tmp_path / "without" / name).read_text()


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


@pytest.mark.parametrize("result", [example_result(), many_result()])
def test_the_page_of_an_audit_is_the_same_again(result: Any, tmp_path: Path):
    write_outputs(result, tmp_path)
    assert stored_page(tmp_path) == (tmp_path / "report.html").read_text("utf-8")


WROTE, AUDIT, COMPARE = (
    "run the command again that wrote it",
    *(f"run `fairfox {command}` again" for command in ("audit", "compare")),
)


@pytest.mark.parametrize(
    ("content", "message", "advice"),
    [
        ("{", "cannot be read", WROTE),
        ("[1]", "is not a report of fairfox", WROTE),
        ('{"kind": "poem", "format": 2}', "expected one of the kinds audit, compare", WROTE),
        ('{"kind": "audit", "view_version": 1}', "has no format and this fairfox reads format 2", AUDIT),
        ('{"kind": "audit", "format": "2"}', "has format '2' and this fairfox reads format 2", AUDIT),
        ('{"kind": "compare", "format": 1}', "has format 1 and this fairfox reads format 2", COMPARE),
        ('{"kind": "audit", "format": 99}', "has format 99 and this fairfox reads format 2", "update fairfox"),
        ('{"kind": "audit", "format": 2}', "is damaged", AUDIT),
        ('{"kind": "compare", "format": 2}', "is damaged", COMPARE),
    ],
)
def test_a_report_that_no_page_can_be_made_of_is_refused_with_what_to_run(
    tmp_path: Path, content: str, message: str, advice: str
):
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(FileError, match=message) as caught:
        stored_page(tmp_path)
    assert str(caught.value).endswith(f"; {advice}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["sides", "outcome"])
def test_a_page_that_lacks_a_part_is_refused(tmp_path: Path, name: str):
    compare(AuditResult(named_audit()), AuditResult(named_audit(times=3.0))).write(tmp_path)
    shown = json.loads((tmp_path / "report.json").read_text())
    (tmp_path / "report.json").write_text(json.dumps({key: value for key, value in shown.items() if key != name}))
    with pytest.raises(FileError, match="is damaged"):
        stored_page(tmp_path)


def test_abstained_people_have_no_numbers_and_no_flags_in_the_table():
    table = scores_table(example_result())
    assert table.column_names == [
        *("row_id", "score", "effect", "direct", "lower", "upper", "sampling_lower", "sampling_upper"),
        *("flagged", "confident", "p_value", "significant"),
        *("variable", "towards", "group_inferred", "abstained", "reason"),
    ]
    for name in set(table.column_names[1:14]) - {"p_value", "significant"}:
        assert table[name].null_count == 2
        assert table[name][38].as_py() is None
    assert table["abstained"].to_pylist() == [False] * 38 + [True] * 2
    assert table["reason"][39].as_py() == "no evidence about sex"
    assert table["row_id"].to_pylist() == list(range(PEOPLE))


def test_columns_keep_their_types_when_a_test_has_no_sign():
    with_sign, without = scores_table(example_result()), scores_table(without_sign())
    assert with_sign.schema == without.schema
    assert without["effect"].null_count == without["confident"].null_count == PEOPLE


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([f"p{k}" for k in range(PEOPLE)]), "p1"),
        (np.array([f"p{k}" for k in range(PEOPLE)], dtype=object), "p1"),
        (np.arange(PEOPLE) + 100, 101),
        (np.array([0, math.nan, *range(2, PEOPLE)]), None),
        (np.array([None, 1] + ["x"] * (PEOPLE - 2), dtype=object), "1"),  # several types: as text
    ],
)
def test_ids_name_people(ids: np.ndarray, expected: object):
    assert scores_table(example_result(ids=ids))["row_id"][1].as_py() == expected


def test_the_worst_case_of_each_person_is_named():
    table, result = scores_table(many_result()), many_result()
    assert table["variable"][6].as_py() == "race"
    assert table["towards"][6].as_py() == "White"
    assert table["variable"][199].as_py() is None
    assert table["group_inferred"].to_pylist() == [n < 20 for n in range(200)]
    for n in (3, 50, 120):
        finding = result.findings[int(result.worst[n])]
        assert table[f"score[{finding.name}]"][n].as_py() == table["score"][n].as_py()
        assert table[f"towards[{finding.name}]"][n].as_py() == table["towards"][n].as_py()


def test_every_contrast_has_a_column_where_there_is_a_choice():
    result = many_result()
    table = scores_table(result)
    assert [name for name in table.column_names if "race" in name] == [
        *("score[race]", "effect[race]", "flagged[race]", "towards[race]"),
        *(f"effect[race={race}]" for race in RACES),
    ]
    assert table.column_names[-2:] == ["effect[age + 13.6]", "effect[age - 13.6]"]
    assert table["effect[race=Black]"][1].as_py() is None  # their own class
    assert table["effect[race=White]"][1].as_py() == pytest.approx(float(result.findings[1].effects[1, 4]))
    assert table["score[age]"].null_count == table["effect[age]"].null_count == 8  # age or everything unknown
    assert table["towards[age]"][50].as_py() is None
    assert table["flagged[age]"][50].as_py() is None


def test_only_contrasts_that_concern_anybody_have_a_column():
    result = with_finding(many_result(), 1, reference="White", second="Black")
    names = [name for name in scores_table(result).column_names if name.startswith("effect[race=")]
    assert names == ["effect[race=Black]", "effect[race=White]"]


def test_columns_whose_names_read_the_same_are_both_kept():
    result = many_result()
    twin = replace(result.findings[2], contrasts=("race=White", "age - 13.6"))
    names = scores_table(replace(result, findings=(*result.findings[:2], twin))).column_names
    assert len(set(names)) == len(names) == len(scores_table(result).column_names)
    assert "effect[race=White]'" in names


def test_a_test_that_knows_no_variable_names_none():
    table = scores_table(nameless(many_result()))
    assert table["variable"].null_count == table["towards"].null_count == 200
    effects = [name for name in table.column_names if name.startswith("effect[")]
    assert effects == ["effect[sex]", "effect[race]", "effect[age]"]  # and none of a contrast
    assert nameless(many_result()).worst_case == {}


def test_certificates_are_two_columns_where_they_were_asked_for():
    result = example_result()
    plain, table = (scores_table(replace(result, certificates=c)) for c in (None, example_certificates(result)))
    assert table.column_names == [*plain.column_names, "certificate", "certificate_reason"]
    assert table["certificate"][0].as_py() == pytest.approx(float(result.scores[0]) + 0.06)
    assert [row for row, value in enumerate(table["certificate"].to_pylist()) if value is None] == [5, 38, 39]
    assert table["certificate_reason"].to_pylist() == [None] * 5 + ["a category changes on the way"] + [None] * 34
