"""Every kind of bad input: exit 2, one sentence, nothing written."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from tests.support import assert_ended

pytestmark = pytest.mark.brief

MODEL = """
import numpy as np
import torch

def score(frame):
    return 1 / (1 + np.exp(-(frame["income"] - 50) / 10))

def constant(frame):
    return np.full(len(frame), 0.5)

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
    """Return the one sentence, having checked that it is all there is."""
    assert result.exit_code == 2, result.output
    assert not Path("out").exists()
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in result.output
    return lines[0]


def lines_of(folder: Path) -> list[str]:
    return (folder / "people.csv").read_text().splitlines()


def corrupt_parquet(folder: Path) -> None:
    (folder / "bad.parquet").write_bytes(b"PAR1" + b"\x00" * 64 + b"PAR1")


def empty(folder: Path) -> None:
    (folder / "bad.csv").write_text("")


def ragged(folder: Path) -> None:
    (folder / "bad.csv").write_text("\n".join([*lines_of(folder)[:5], "F,1"]))


def not_utf8(folder: Path) -> None:
    (folder / "bad.csv").write_bytes("sex,income\nFémale,1\n".encode("latin-1"))


def duplicate_names(folder: Path) -> None:
    (folder / "bad.csv").write_text("sex,income,income\nF,1,2\nM,2,3\n")


def damaged_gzip(folder: Path) -> None:
    (folder / "bad.csv.gz").write_bytes(gzip.compress(b"sex,income\nF,1\n" * 50)[:-12])


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (empty, "bad.csv", "empty"),
        (ragged, "bad.csv", "line 6"),
        (not_utf8, "bad.csv", "UTF-8"),
        (duplicate_names, "bad.csv", "income"),
        (corrupt_parquet, "bad.parquet", "bad.parquet"),
        (damaged_gzip, "bad.csv.gz", "bad.csv.gz"),
    ],
)
def test_a_broken_file_is_refused(folder: Path, make: Callable[[Path], None], name: str, message: str):
    make(folder)
    assert message in refused(run("model.py:score", name, "--protected", "sex"))


def test_a_missing_table_is_refused(folder: Path):
    assert "poeple.csv" in refused(run("model.py:score", "poeple.csv", "--protected", "sex"))


def test_a_mistyped_protected_column_gets_a_suggestion(folder: Path):
    assert "Did you mean 'sex'" in refused(run("model.py:score", "people.csv", "--protected", "sexx"))


def test_a_protected_column_with_one_value_is_refused(folder: Path):
    rows = [line for line in lines_of(folder) if not line.startswith("M")]
    (folder / "women.csv").write_text("\n".join(rows))
    assert "one value" in refused(run("model.py:score", "women.csv", "--protected", "sex"))


def test_a_column_without_values_is_refused(folder: Path):
    first, *rows = lines_of(folder)
    (folder / "gap.csv").write_text("\n".join([first + ",void", *[row + "," for row in rows]]))
    message = refused(run("model.py:score", "gap.csv", "--protected", "sex"))
    assert "'void'" in message
    assert "--drop void" in message


def test_text_for_a_model_that_needs_numbers_is_refused(folder: Path):
    assert "'job'" in refused(run("model.py:network", "people.csv", "--protected", "sex"))


def test_an_unknown_kind_of_model_is_refused(folder: Path):
    (folder / "model.xyz").write_text("?")
    assert "model.xyz" in refused(run("model.xyz", "people.csv", "--protected", "sex"))


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        import os

        return os.system, ("touch ran",)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.bin"])
def test_a_pickled_model_is_refused_and_nothing_runs(folder: Path, name: str):
    (folder / name).write_bytes(pickle.dumps(Canary()))
    assert "--trust-model" in refused(run(name, "people.csv", "--protected", "sex"))
    assert not (folder / "ran").exists()


def test_a_model_that_returns_nan_is_refused(folder: Path):
    assert "NaN" in refused(run("model.py:nothing", "people.csv", "--protected", "sex"))


def test_a_model_that_returns_too_few_rows_is_refused(folder: Path):
    assert "119 predictions for 120" in refused(run("model.py:short", "people.csv", "--protected", "sex"))


def test_a_model_that_returns_names_is_refused(folder: Path):
    assert "numbers" in refused(run("model.py:names", "people.csv", "--protected", "sex"))


def test_a_constant_model_is_fair_and_warned_about(folder: Path):
    result = run("model.py:constant", "people.csv", "--protected", "sex", "--label", "paid")
    assert result.exit_code == 0, result.output
    assert "constant" in result.stderr
    assert (folder / "out" / "summary.json").exists()


@pytest.mark.parametrize("where", ["import", "call"])
def test_a_model_that_ends_the_program_does_not_set_the_exit_code(folder: Path, where: str):
    code = "import sys\nsys.exit(0)\n" if where == "import" else ""
    (folder / "quitter.py").write_text(code + "def score(frame):\n    raise SystemExit(0)\n")
    assert "SystemExit" in refused(run("quitter.py:score", "people.csv", "--protected", "sex"))


def test_whole_numbers_too_large_for_floats_are_rounded(folder: Path):
    first, *rows = lines_of(folder)
    numbered = [f"{row},{10**17 + i}" for i, row in enumerate(rows)]
    (folder / "large.csv").write_text("\n".join([first + ",account", *numbered]) + "\n")
    result = run("model.py:score", "large.csv", "--protected", "sex", "--label", "paid", "--refits", "1")
    assert_ended(result)
