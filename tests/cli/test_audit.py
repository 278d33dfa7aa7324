import pickle
from pathlib import Path

import pyarrow.csv
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.audit import sampled
from fairfox.cli.main import cli
from fairfox.data.table import load_table
from tests.support import PEOPLE, example_table

MODEL = """
def score(table):
    return (table["income"] > 3000) * 0.5 + 0.25
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A folder with a table of people and a model of the user's own."""
    pyarrow.csv.write_csv(example_table(), tmp_path / "people.csv")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def run(folder: Path, *options: str, model: str = "model.py:score", table: str = "people.csv") -> Result:
    named = [str(folder / model), str(folder / table)]
    return CliRunner().invoke(cli, ["audit", *named, "--out", str(folder / "out"), *options])


def assert_refused(done: Result, folder: Path, message: str) -> None:
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Missing option '-c' / '--protected'"),
        (["-c", "sex", "--label", "job", "--label", "age"], "'--label': it was given 2 times"),
        (["-c", "sex", "--delta", "-0.1"], "'--delta'"),
        (["-c", "sex", "--delta", "nan"], "'--delta'"),
        (["-c", "sex", "--max-flagged", "1.5"], "'--max-flagged'"),
        (["-c", "sex", "--max-flagged", "nan"], "'--max-flagged'"),
        (["-c", "sex", "--sample", "0"], "'--sample'"),
        (["-c", "sex", "--seed", "-1"], "'--seed'"),
        (["-c", "sex", "--refits", "0"], "'--refits'"),
        (["-c", "sex", "--output", "odds"], "'--output'"),
        (["-c", "sex", "--returns", "odds"], "'--returns'"),
        (["-c", "sex", "--kind", "rows"], "'--kind'"),
    ],
)
def test_nonsense_options_are_refused_in_one_sentence(people: Path, options: list[str], message: str):
    assert_refused(run(people, *options), people, message)


def test_a_missing_table_is_refused(people: Path):
    assert_refused(run(people, "-c", "sex", table="nobody.csv"), people, "nobody.csv")


def test_a_missing_model_is_refused(people: Path):
    assert_refused(run(people, "-c", "sex", model="nothing.safetensors"), people, "nothing.safetensors")


def test_a_pickled_model_needs_trust(people: Path):
    (people / "model.pkl").write_bytes(pickle.dumps(len))
    assert_refused(run(people, "-c", "sex", model="model.pkl"), people, "--trust-model")


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_audit(people: Path):
    (people / "taken").write_text("mine")
    done = CliRunner().invoke(cli, ["audit", "m", "t", "-c", "sex", "--out", str(people / "taken")])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "'--out'" in done.stderr


def test_a_sample_is_random_seeded_and_keeps_the_order_and_the_row_numbers():
    table = load_table(example_table())
    part, rows = sampled(table, 10, seed=1)
    assert len(part) == len(set(rows.tolist())) == 10
    assert rows.tolist() == sorted(rows.tolist())
    assert part["income"].to_list() == [table["income"].to_list()[row] for row in rows]
    assert sampled(table, 10, seed=1)[1].tolist() == rows.tolist()
    assert sampled(table, 10, seed=2)[1].tolist() != rows.tolist()


@pytest.mark.parametrize("size", [None, PEOPLE, PEOPLE + 1])
def test_a_sample_of_everybody_is_the_table(size: int | None):
    table = load_table(example_table())
    part, rows = sampled(table, size, seed=0)
    assert part is table
    assert rows is None
