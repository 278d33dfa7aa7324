from pathlib import Path

import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.test_earlier import audited, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(audited(), tmp_path / "first")
    write(audited(times=3.0), tmp_path / "second")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "code", "word"), [("first", "second", 1, "worse"), ("second", "first", 0, "not worse")]
)
def test_the_exit_code_says_whether_the_second_is_worse(folder: Path, first: str, second: str, code: int, word: str):
    done = CliRunner().invoke(cli, ["drift", str(folder / first), str(folder / second)])
    assert done.exit_code == code, done.stderr
    assert done.stdout.startswith(f"Verdict: {word}. Of the same 38 people the mean score went from 0.")
    assert "\nFlagged: " in done.stdout


def test_a_wide_margin_lets_a_rise_pass(folder: Path):
    done = CliRunner().invoke(cli, ["drift", str(folder / "first"), str(folder / "second"), "--margin", "1"])
    assert done.exit_code == 0
    assert "surely no more than the 1 that would count" in done.stdout


@pytest.mark.parametrize("options", [["nowhere"], ["first", "--margin", "-1"]])
def test_bad_input_is_one_sentence(folder: Path, options: list[str]):
    named = [str(folder / "first"), str(folder / options[0]), *options[1:]]
    done = CliRunner().invoke(cli, ["drift", *named])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
