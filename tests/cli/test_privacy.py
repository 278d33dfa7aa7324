"""What fairfox writes holds nobody's raw values, unless rows are asked for."""

from __future__ import annotations

import math
import re
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.support import ended

pytestmark = pytest.mark.brief

PEOPLE = 90
WORD, NUMBER = "Zyzzyvologist", 9876.5432
OLDEST, YOUNGEST = 98.7654321, 17.1234567  # ages, the largest and the smallest
WEIGHT, PAID, TOWN, LABEL, NOTE = 7.654321, 4321.9876, "Quixeramobim", "Abracadabra", "Xylophagous"  # one person's
ORIGIN = "Vandiemenslander"  # of one person too
NUMBERS = (NUMBER, OLDEST, YOUNGEST, WEIGHT, PAID)
FILES = ("report.html", "report.json", "summary.json", "summary.md", "junit.xml")
MODEL = """
import numpy as np

def score(table):
    return 1 / (1 + np.exp((3200 - table["income"] + 200 * (table["job"] == "clerk")) / 3000))

def gentle(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 9000))
"""


def people(*, seed: int) -> dict[str, np.ndarray]:
    """Return the columns of people each of whom has, somewhere, a value that nobody else has."""
    rng = np.random.default_rng(seed)
    male = np.arange(PEOPLE) % 2 == 1
    income = (3000 + 400 * male + rng.normal(0, 300, PEOPLE)).round(2)
    job = np.where(rng.random(PEOPLE) < 0.5, "clerk", "smith").astype(object)
    town = np.where(rng.random(PEOPLE) < 0.5, "Ghent", "Bruges").astype(object)
    grade = np.where(income > 3200, "yes", "no").astype(object)
    outcome, paid = grade.copy(), (income / 10).round(1)
    age, weight = rng.integers(20, 70, PEOPLE).astype(float), np.ones(PEOPLE)
    note, origin = np.full(PEOPLE, "none").astype(object), np.resize(np.array(["East", "West"], dtype=object), PEOPLE)
    income[4], job[7], town[9], age[11], age[12] = NUMBER, WORD, TOWN, OLDEST, YOUNGEST
    weight[14], note[16], outcome[18], paid[20] = WEIGHT, NOTE, LABEL, PAID
    origin[22] = ORIGIN
    return {
        "name": np.array([f"p{k}" for k in range(PEOPLE)]),
        "sex": np.where(male, "Male", "Female"),
        "age": age,
        "income": income,
        "job": job,
        "town": town,
        "note": note,
        "origin": origin,
        "approved": grade,
        "grade": outcome,
        "paid": paid,
        "weight": weight,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tables of people, one of them without what is rare, and two models."""
    out = tmp_path_factory.mktemp("privacy")
    columns = people(seed=0)
    pyarrow.csv.write_csv(pa.table(columns), out / "people.csv")
    common = np.isin(np.arange(PEOPLE), [4, 7, 9, 11, 12, 14, 16, 18, 20, 22], invert=True)
    pyarrow.csv.write_csv(pa.table({name: each[common] for name, each in columns.items()}), out / "common.csv")
    (out / "model.py").write_text(MODEL)
    return out


def run(folder: Path, command: str, *given: str, models: tuple[str, ...] = ("model.py:score",)) -> None:
    """Run a command on the people of the folder."""
    named = [str(folder / each) for each in (*models, "people.csv")]
    files = {"people.csv", "common.csv"}
    options = [str(folder / each) if each in files else each for each in given]
    arguments = [command, *named, *options, "--out", str(folder / "out"), "--refits", "2"]
    ended(CliRunner().invoke(cli, arguments, catch_exceptions=False))


def read(folder: Path, *names: str) -> str:
    """Return everything that people read of a result, without the scripts, which are the same on every page."""
    text = "\n".join((folder / "out" / name).read_text("utf-8") for name in names or FILES)
    return re.sub(r'<script(?! type="application/json").*?</script>', "", text, flags=re.DOTALL)


def rare(text: str) -> list[str]:
    """Return which of the rare values are in a text: as they are, or rounded or cut to four digits and more."""
    found = [word for word in (WORD, TOWN, LABEL, NOTE, ORIGIN) if word in text]
    for token in set(re.findall(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?", text)):
        number = token.replace(",", "")
        places = len(number.partition(".")[2])
        if len(number.replace(".", "")) >= 4:
            found += [token for value in NUMBERS if number in shortened(value, places)]
    return found


def shortened(value: float, places: int) -> tuple[str, str]:
    """Return a number with so many decimals, rounded and cut.

    Example:
        >>> shortened(98.7654, 2)
        ('98.77', '98.76')
    """
    scale = 10.0**places
    return f"{value:.{places}f}", f"{math.floor(value * scale) / scale:.{places}f}"


def test_a_rare_value_is_found_however_it_is_written():
    assert rare("age 17 to 98.8, [17.1208929, 9877.1], 7.65") == []
    for described in ("17.123456", "9,877", "9876.5", "98.76 to 99", "7.654", "[1,4322,3]", f"a {WORD}!"):
        assert len(rare(described)) == 1


USED = ("--columns", "income,job,town", "--drop", "note")
WITH_AGE = ("--columns", "income,job,town,age", "--drop", "note")  # the model takes what is protected
LABELLED = ("--label", "approved")
ASKED = [
    ("-c", "sex", *USED, *LABELLED, "--max-flagged", "0", "--delta", "1e-4"),
    ("-c", "sex", *USED, "--test", "fta", "--reference", "people.csv", "--delta", "0"),
    ("-c", "sex", *USED, "--test", "move", "--decision-threshold", "0.5"),
    ("-c", "sex", *USED, "--label", "grade", "--reference", "common.csv", "--delta", "0"),  # nothing rare to learn from
    ("-c", "age", "-c", "sex", *USED, "--label", "paid", "--weights", "weight", "--delta", "0"),
    ("-c", "age<45", "-c", "sex", *USED, "--intersections", "--delta", "0"),
    ("-c", "origin", "-c", "sex", *USED, "--intersections", "--merge-rare", "0.05", "--delta", "0"),
]


@pytest.mark.parametrize("options", ASKED, ids=" ".join)
def test_nobody_s_values_are_in_what_an_audit_writes(folder: Path, options: tuple[str, ...]):
    run(folder, "audit", *options)
    assert rare(read(folder)) == []


def test_nobody_s_values_are_in_what_a_comparison_writes(folder: Path):
    models = ("model.py:score", "model.py:gentle")
    run(folder, "compare", "-c", "age", *USED, "--weights", "weight", "--delta", "0", models=models)
    assert rare(read(folder)) == []


def test_nobody_s_values_are_in_a_comparison_of_audits_or_in_a_page_made_again(folder: Path):
    run(folder, "audit", "-c", "age", *WITH_AGE, "--id", "name", "--delta", "0")
    text = read(folder)
    assert rare(text) == []
    assert [value for value in people(seed=0)["income"].tolist() if str(value) in text] == []
    first, second = ((folder / "out").rename(folder / "first"), folder / "second")
    copytree(first, second)
    compared = ["compare", str(first), str(second), "--out", str(folder / "out")]
    assert CliRunner().invoke(cli, compared, catch_exceptions=False).exit_code in (0, 1)
    assert rare(read(folder)) == []
    assert CliRunner().invoke(cli, ["report", str(first)], catch_exceptions=False).exit_code == 0
    assert rare(read(folder, "../first/report.html")) == []


def test_rows_that_are_asked_for_are_in_the_page_alone(folder: Path):
    run(folder, "audit", "-c", "sex", *USED, "--include-rows", "--delta", "0")
    shown = {name: read(folder, name) for name in FILES}
    for name in ("report.html", "report.json"):  # the page, and what it is made from
        assert WORD in shown[name]
        assert str(NUMBER) in shown[name]
    for name in ("summary.json", "summary.md", "junit.xml"):
        assert rare(shown[name]) == []
