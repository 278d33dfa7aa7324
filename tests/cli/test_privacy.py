"""What an audit writes holds nobody's raw values, unless rows are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli

WORD, NUMBER = "Zyzzyvologist", 9876.5432
FILES = ("report.html", "summary.json", "summary.md", "junit.xml")
MODEL = """
def score(table):
    return 1 / (1 + 2.72 ** ((3200 - table["income"] + 200 * (table["job"] == "clerk")) / 3000))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with people, of whom one has a job and one an income that nobody else has."""
    out = tmp_path_factory.mktemp("privacy")
    rng = np.random.default_rng(0)
    male = np.arange(40) % 2 == 1
    income = (3000 + 400 * male + rng.normal(0, 300, 40)).round(2)
    job = np.where(rng.random(40) < 0.5, "clerk", "smith").astype(object)
    income[4], job[7] = NUMBER, WORD
    columns = {"sex": np.where(male, "Male", "Female"), "income": income, "job": job, "approved": (income > 3200) * 1}
    pyarrow.csv.write_csv(pa.table(columns), out / "people.csv")
    (out / "model.py").write_text(MODEL)
    return out


def written(folder: Path, *options: str) -> str:
    """Return everything that people read of an audit."""
    given = [str(folder / "model.py:score"), str(folder / "people.csv"), "-c", "sex", "--columns", "income,job"]
    out = ["--out", str(folder / "out"), "--refits", "2"]
    done = CliRunner().invoke(cli, ["audit", *given, *out, *options], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.stderr
    return "\n".join((folder / "out" / name).read_text("utf-8") for name in FILES)


@pytest.mark.parametrize(
    "options",
    [
        ("--label", "approved", "--max-flagged", "0", "--abstain", "0", "--next-steps", "--delta", "0.0001"),
        ("--test", "fta", "--reference", "people.csv", "--delta", "0"),
        ("--test", "move", "--decision-threshold", "0.5"),
    ],
)
def test_nobody_s_values_are_in_what_is_written(folder: Path, options: tuple[str, ...]):
    text = written(folder, *(str(folder / each) if each == "people.csv" else each for each in options))
    assert WORD not in text
    assert str(NUMBER) not in text
    assert "9876" not in text
    assert "9,876" not in text


def test_rows_that_are_asked_for_are_in_the_page_alone(folder: Path):
    text = written(folder, "--include-rows", "--delta", "0")
    assert WORD in text
    assert str(NUMBER) in text
    for name in FILES[1:]:
        alone = (folder / "out" / name).read_text("utf-8")
        assert WORD not in alone
        assert "9876" not in alone
