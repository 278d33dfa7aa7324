from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from fairfox.report.files import write_outputs
from tests.report.helpers import named_audit
from tests.support import ended, refusal_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    write_outputs(named_audit(), out / "first")
    write_outputs(named_audit(times=3.0), out / "second")
    return out


def run(folder: Path, *given: str) -> Result:
    return CliRunner().invoke(cli, ["report", *(each if each == "-o" else str(folder / each) for each in given)])


def test_the_page_is_made_again_where_it_was(folder: Path):
    page = folder / "first/report.html"
    before = page.read_text("utf-8")
    page.unlink()
    done = ended(run(folder, "first"), 0)
    assert done.stderr == f"Written: {page}\n"
    assert page.read_text("utf-8") == before


def test_the_page_goes_where_it_is_sent_and_the_old_one_stays(folder: Path, tmp_path: Path):
    before = (folder / "second/report.html").stat().st_mtime_ns
    ended(run(folder, "second", "-o", str(tmp_path / "new/page.html")), 0)
    assert (tmp_path / "new/page.html").read_bytes() == (folder / "second/report.html").read_bytes()
    assert (folder / "second/report.html").stat().st_mtime_ns == before


def test_the_page_of_two_audits_is_made_again(folder: Path, tmp_path: Path):
    named = [str(folder / "first"), str(folder / "second"), "--out", str(tmp_path / "two")]
    assert CliRunner().invoke(cli, ["compare", *named]).exit_code == 1
    ended(run(folder, str(tmp_path / "two"), "-o", str(tmp_path / "again.html")), 0)
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "two/report.html").read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["nowhere"], "There is no file"),
        (["."], "There is no file"),
        (["first", "-o", "second"], "is a folder; give a file name"),
        (["first", "-o", "first/report.html/page.html"], "cannot be written"),
        ([], "RESULT"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(folder: Path, given: list[str], message: str):
    assert message in refusal_of(run(folder, *given))
    assert not (folder / "page.html").exists()
