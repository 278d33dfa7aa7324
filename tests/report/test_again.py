"""Pages made again from report.json, and files that no page can be made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairfox.earlier import drift
from fairfox.errors import FileError
from fairfox.report.again import page_again
from fairfox.report.outputs import write_outputs
from tests.support import example_result, many_result
from tests.test_earlier import audited


@pytest.mark.parametrize("result", [example_result(), many_result()])
def test_the_page_of_an_audit_is_the_same_again(result: Any, tmp_path: Path):
    write_outputs(result, tmp_path)
    assert page_again(tmp_path) == (tmp_path / "report.html").read_text("utf-8")


def test_the_page_of_a_drift_is_the_same_again(tmp_path: Path):
    drift(audited(), audited(times=3.0), out=tmp_path)
    assert page_again(tmp_path) == (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[1]", "it holds a list"),
        ("{}", "it is of kind None, version None"),
        ('{"kind": "poem", "view_version": 1}', "it is of kind 'poem', version 1"),
        ('{"kind": "audit", "view_version": "1"}', "it is of kind 'audit', version '1'"),
        ('{"kind": ["audit"], "view_version": 1}', r"it is of kind \['audit'\]"),
        ('{"kind": "audit", "view_version": 99}', "version 99 and this fairfox reads up to 1; update fairfox"),
        ('{"kind": "compare", "view_version": 99}', "version 99 and this fairfox reads up to 1; update fairfox"),
        ('{"kind": "audit", "view_version": 1}', "is damaged"),
        ('{"kind": "drift", "view_version": 1}', "is damaged"),
    ],
)
def test_a_file_that_no_page_can_be_made_of_is_refused_in_one_sentence(tmp_path: Path, content: str, message: str):
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(FileError, match=message) as caught:
        page_again(tmp_path)
    assert str(caught.value).endswith("make the result anew")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["sides", "numbers", "scores", "verdict", "outcome"])
def test_a_page_that_lacks_a_part_is_refused(tmp_path: Path, name: str):
    drift(audited(), audited(times=3.0), out=tmp_path)
    shown = json.loads((tmp_path / "report.json").read_text())
    (tmp_path / "report.json").write_text(json.dumps({key: value for key, value in shown.items() if key != name}))
    with pytest.raises(FileError, match="is damaged"):
        page_again(tmp_path)


def test_a_folder_without_a_result_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match=r"There is no file '.*report.json'; give a folder that `fairfox audit`"):
        page_again(tmp_path)
