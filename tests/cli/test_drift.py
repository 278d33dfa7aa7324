from pathlib import Path

import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.schemas import assert_valid_summary
from tests.test_earlier import DAMAGES, SETTINGS, audited, spoil, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(audited(), tmp_path / "first")
    write(audited(times=3.0), tmp_path / "second")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "code", "word"), [("first", "second", 1, "worse"), ("second", "first", 0, "not worse")]
)
def test_the_exit_code_says_whether_the_second_is_worse(folder: Path, first: str, second: str, code: int, word: str):
    means = {"first": "6.1 points", "second": "18.3 points"}
    done = CliRunner().invoke(cli, ["drift", str(folder / first), str(folder / second)])
    assert done.exit_code == code, done.stderr
    went = f"the mean score went from {means[first]} to {means[second]}, by "
    assert done.stdout.startswith(f"Verdict: {word}. Of the same 38 people {went}")
    assert "\nFlagged: " in done.stdout


def test_files_are_written_where_a_folder_is_named(folder: Path):
    named = [str(folder / "first"), str(folder / "second"), "--out", str(folder / "out")]
    done = CliRunner().invoke(cli, ["drift", *named])
    assert done.exit_code == 1, done.stderr
    assert done.stderr == f"Written: {folder / 'out'}\n"
    assert {path.name for path in (folder / "out").iterdir()} == {
        *("report.html", "report.json", "summary.json", "summary.md", "junit.xml"),
    }
    fields = assert_valid_summary((folder / "out/summary.json").read_text(), "drift")
    assert (fields["word"], fields["audits"]["first"]["name"]) == ("worse", str(folder / "first"))


def test_a_wide_margin_lets_a_rise_pass(folder: Path):
    done = CliRunner().invoke(cli, ["drift", str(folder / "first"), str(folder / "second"), "--margin", "1"])
    assert done.exit_code == 0
    assert "surely no more than the 100 points that would count" in done.stdout


def test_a_share_without_an_interval_is_printed_without(tmp_path: Path):
    for times in (1.0, 3.0):
        write(audited(times=times, settings={**SETTINGS, "decision_threshold": 0.5}), tmp_path / f"{times:g}")
    done = CliRunner().invoke(cli, ["drift", str(tmp_path / "1"), str(tmp_path / "3")])
    assert done.exit_code == 1, done.stderr
    assert done.stdout.splitlines()[1] == "Flagged: 60.5 % before, 89.5 % now; a difference of +28.9 points."


@pytest.mark.parametrize("command", ["drift", "plan"])
@pytest.mark.parametrize(("keys", "value"), DAMAGES[::4])
def test_a_damaged_audit_is_one_sentence(folder: Path, command: str, keys, value):
    spoil(folder / "first", keys, value)
    named = [str(folder / "first"), *([str(folder / "second")] if command == "drift" else [])]
    done = CliRunner().invoke(cli, [command, *named])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [["nowhere"], ["first", "--margin", "-1"]])
def test_bad_input_is_one_sentence(folder: Path, options: list[str]):
    named = [str(folder / "first"), str(folder / options[0]), *options[1:]]
    done = CliRunner().invoke(cli, ["drift", *named])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
