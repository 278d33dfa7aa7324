"""Every kind of bad input: exit 2, one sentence, nothing written."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from tests.support import ended, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

MODEL = """
import numpy as np
import torch

def score(frame):
    return 1 / (1 + np.exp(-(frame["income"] - 50) / 10))

def nothing(frame):
    return np.full(len(frame), np.nan)

def short(frame):
    return np.full(len(frame) - 1, 0.5)

def names(frame):
    return np.array(["yes"] * len(frame))

def network(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x.sum(1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 120)
    income = 50 + 5 * sex + rng.normal(0, 5, 120)
    rows = [
        f"{'FM'[s]},{i:.2f},{j},{y}" for s, i, j, y in zip(sex, income, rng.choice(["a", "b"], 120), sex, strict=True)
    ]
    (tmp_path / "people.csv").write_text("\n".join(["sex,income,job,paid", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["audit", *arguments, "--out", "out"])


def refused(result: Result) -> str:
    """Return the one sentence, having checked that nothing was written."""
    assert not Path("out").exists()
    return refusal_of(result)


def lines_of(folder: Path) -> list[str]:
    return (folder / "people.csv").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"", "empty"),
        ("bad.csv", b"sex,income\n" + b"F,1\n" * 4 + b"F", "line 6"),
        ("bad.csv", "sex,income\nFémale,1\n".encode("latin-1"), "UTF-8"),
        ("bad.csv", b"sex,income,income\nF,1,2\nM,2,3\n", "income"),
        ("bad.parquet", b"PAR1" + b"\x00" * 64 + b"PAR1", "bad.parquet"),
        ("bad.csv.gz", gzip.compress(b"sex,income\nF,1\n" * 50)[:-12], "bad.csv.gz"),
    ],
    ids=["empty", "ragged", "no UTF-8", "a name twice", "no Parquet", "cut off"],
)
def test_a_broken_file_is_refused(folder: Path, name: str, content: bytes, message: str):
    (folder / name).write_bytes(content)
    assert message in refused(run("model.py:score", name, "--protected", "sex"))


@pytest.mark.parametrize(
    ("model", "table", "protected", "message"),
    [
        ("score", "poeple.csv", "sex", "poeple.csv"),
        ("score", "people.csv", "sexx", "Did you mean 'sex'"),
        ("nothing", "people.csv", "sex", "NaN"),
        ("short", "people.csv", "sex", "119 predictions for 120"),
        ("names", "people.csv", "sex", "numbers"),
        ("network", "people.csv", "sex", "'job'"),  # it needs numbers, and job is text
    ],
)
def test_a_name_or_an_answer_that_cannot_be_is_refused(
    folder: Path, model: str, table: str, protected: str, message: str
):
    assert message in refused(run(f"model.py:{model}", table, "--protected", protected))


def test_a_column_without_values_is_refused(folder: Path):
    first, *rows = lines_of(folder)
    (folder / "gap.csv").write_text("\n".join([first + ",void", *[row + "," for row in rows]]))
    message = refused(run("model.py:score", "gap.csv", "--protected", "sex"))
    assert "'void'" in message
    assert "--drop void" in message


def test_an_unknown_kind_of_model_is_refused(folder: Path):
    (folder / "model.xyz").write_text("?")
    assert "model.xyz" in refused(run("model.xyz", "people.csv", "--protected", "sex"))


@pytest.mark.parametrize("where", ["import", "call"])
def test_a_model_that_ends_the_program_does_not_set_the_exit_code(folder: Path, where: str):
    code = "import sys\nsys.exit(0)\n" if where == "import" else ""
    (folder / "quitter.py").write_text(code + "def score(frame):\n    raise SystemExit(0)\n")
    assert "SystemExit" in refused(run("quitter.py:score", "people.csv", "--protected", "sex"))


def test_whole_numbers_too_large_for_floats_are_rounded(folder: Path):
    first, *rows = lines_of(folder)
    numbered = [f"{row},{10**17 + i}" for i, row in enumerate(rows)]
    (folder / "large.csv").write_text("\n".join([first + ",account", *numbered]) + "\n")
    ended(run("model.py:score", "large.csv", "--protected", "sex", "--label", "paid", "--refits", "1"))
