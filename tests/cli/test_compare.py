from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from tests.schemas import assert_valid_summary

MODEL = """
import numpy as np

def steep(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 300))

def gentle(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 900))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    male = np.arange(120) % 2 == 1
    income = (3000 + 400 * male + rng.normal(0, 300, 120)).round(2)
    columns = {"sex": np.where(male, "Male", "Female"), "income": income, "age": rng.integers(18, 80, 120)}
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "people.csv")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def run(folder: Path, *options: str, models: tuple[str, str] = ("model.py:steep", "model.py:gentle")) -> Result:
    named = [*(str(folder / model) if "://" not in model else model for model in models), str(folder / "people.csv")]
    return CliRunner().invoke(cli, ["compare", *named, "--out", str(folder / "out"), *options])


def test_a_comparison_prints_the_verdict_and_writes_its_files(folder: Path):
    done = run(folder, "--protected", "sex", "--refits", "2", "--sample", "100", "--columns-b", "income")
    assert done.exit_code == 0, done.stderr
    assert "Verdict: B is fairer. On the same 100 people" in done.stdout
    assert "Written: " in done.stderr
    fields = assert_valid_summary((folder / "out/summary.json").read_text(), "compare")
    assert fields["models"]["a"]["name"].endswith("model.py:steep")
    assert fields["models"]["a"]["columns"] == ["income", "age"]
    assert fields["models"]["b"]["columns"] == ["income"]
    rows = pq.read_table(folder / "out/people.parquet")["row_id"].to_pylist()
    assert len(rows) == 100
    assert max(rows) > 100  # of the table, not of the sample


@pytest.mark.parametrize(
    ("options", "models", "message"),
    [
        (("-c", "sex"), ("https://host/invocations", "model.py:gentle"), "use fairfox.compare with a fairfox.Endpoint"),
        (("-c", "sex"), ("model.py:steep", "model.py:none"), "none"),
        (("-c", "race"), ("model.py:steep", "model.py:gentle"), "race"),
        ((), ("model.py:steep", "model.py:gentle"), "--protected"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(folder: Path, options, models, message: str):
    done = run(folder, *options, models=models)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert not (folder / "out").exists()
