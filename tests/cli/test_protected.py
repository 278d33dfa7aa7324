"""Any protected variables from the command line: several, crossed, held, from elsewhere, weighted, limited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from tests.support import ended, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

RACES = {"Asian": 60, "Black": 100, "Other": 40, "White": 200}
PEOPLE = 400
BEHIND = {"Asian": 0.0, "Black": 500.0, "Other": 250.0, "White": 0.0}
MODEL = """
def score(table):
    return 1 / (1 + 2.72 ** ((3000 - table["income"] - 20 * table["tenure"]) / 400))
"""


def population(seed: int = 0) -> pa.Table:
    """Return people of whom women and Black people earn less, and older ones have been there for longer.

    Half of every race are women. Black people mostly live in the south and others in the north, which does nothing.
    """
    rng = np.random.default_rng(seed)
    race, male = np.repeat(list(RACES), list(RACES.values())), np.arange(PEOPLE) % 2 == 1
    black, age = race == "Black", rng.integers(20, 66, PEOPLE)
    behind = np.array([BEHIND[name] for name in race])
    columns = {
        "id": [f"{seed}-{n}" for n in range(PEOPLE)],
        "sex": np.where(male, "Male", "Female"),
        "race": race,
        "age": age,
        "home": np.where(black ^ (rng.random(PEOPLE) < 0.3), "south", "north"),
        "income": (3000 + 300 * male - behind + rng.normal(0, 300, PEOPLE)).round(1),
        "tenure": ((age - 20) / 3 + rng.uniform(0, 5, PEOPLE)).round(2),
        "weight": np.where(male, 1, 3),
    }
    return pa.table(columns).take(rng.permutation(PEOPLE))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A folder with a table of people, a panel of others like them, and a model of the user's own."""
    pyarrow.csv.write_csv(population(), tmp_path / "people.csv")
    pyarrow.csv.write_csv(population(seed=1), tmp_path / "panel.csv")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def run(folder: Path, *options: str, refits: int = 1) -> Result:
    named = [str(folder / "model.py:score"), str(folder / "people.csv")]
    given = ["--columns", "income,tenure", "--refits", str(refits), "--out", str(folder / "out")]
    return CliRunner().invoke(cli, ["audit", *named, *given, *options])


def finished(done: Result, folder: Path) -> dict[str, Any]:
    """Return summary.json of an audit that found no fault with its input."""
    ended(done)
    fields: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())
    return fields


def scores_of(folder: Path) -> pa.Table:
    return pq.read_table(folder / "out/scores.parquet")


# --- what is compared ----------------------------------------------------------------------------------------------


def test_scores_have_the_worst_case_and_columns_for_every_variable_and_class(people: Path):
    done = run(people, "-c", "sex", "-c", "race", "-c", "age", "--id", "id", "--contrasts", "all")
    fields, scores = finished(done, people), scores_of(people)
    kinds = [(variable["name"], variable["kind"]) for variable in fields["variables"]]
    assert kinds == [("sex", "binary"), ("race", "categorical"), ("age", "continuous")]
    assert all(name in done.stdout for name in ("sex=Female", "race=Black", "age=below "))
    told = ["variable", "towards", "group_inferred", "score[sex]", "score[race]", "score[age]"]
    effects = ["effect[sex=Female]", "effect[sex=Male]", *(f"effect[race={race}]" for race in RACES)]
    assert {*told, *effects} <= set(scores.column_names)
    assert sum(name.startswith("effect[age ") for name in scores.column_names) == 2  # up and down
    assert scores["row_id"].to_pylist() == population()["id"].to_pylist()
    for row, race in zip(scores.to_pylist(), population()["race"].to_pylist(), strict=True):
        each = {other: row[f"effect[race={other}]"] for other in RACES}
        assert each.pop(race) is None
        assert row["score[race]"] == pytest.approx(max(abs(effect) for effect in each.values()))
        assert row["score"] == pytest.approx(max(row[f"score[{name}]"] for name in ("sex", "race", "age")))
        assert row["score"] == row[f"score[{row['variable']}]"]
        assert row["towards"] == row[f"towards[{row['variable']}]"]
        assert row["group_inferred"] is False


# --- where protected values come from ------------------------------------------------------------------------------


def test_protected_values_come_from_another_table_by_id(people: Path):
    table = population()
    known = table.select(["id", "sex", "race"]).slice(0, 300).take(np.random.default_rng(2).permutation(300))
    pyarrow.csv.write_csv(known, people / "register.csv")
    pyarrow.csv.write_csv(table.drop_columns(["sex", "race"]), people / "people.csv")
    done = run(people, "-c", "sex", "-c", "race", "--protected-from", str(people / "register.csv"), "--on", "id")
    fields = finished(done, people)
    assert fields["settings"]["matched_rows"] == 300
    assert fields["counts"]["inferred"] == 100
    assert "own group inferred for 100 people" in done.stdout
    assert "'race' is unknown for 100 of 400 people" in done.stderr
    assert scores_of(people)["group_inferred"].to_pylist() == [False] * 300 + [True] * 100


# --- weights, deltas, limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "code"), [("0.1", 1), ("1", 0)])
def test_a_limit_for_one_group_is_part_of_the_verdict_beside_that_for_everyone(people: Path, limit: str, code: int):
    limits = ["--max-flagged", f"race=Black={limit}", "--max-flagged", "0.9"]
    panel = ["--reference", str(people / "panel.csv")]  # one fit where the table alone would be cross-fitted
    done = run(people, *panel, "-c", "race", "--delta", "0.25", *limits, refits=3)
    assert done.exit_code == code, done.stderr
    fields = finished(done, people)
    verdict = fields["verdict"]
    assert fields["settings"]["max_flagged"] == {"race=Black": float(limit), "": 0.9}
    assert verdict["word"] == ("fails" if code else "passes")
    assert (verdict["variable"], verdict["allowed"]) == (("race=Black", 0.1) if code else ("race", 0.9))


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reference-group", "race=Whit"], "Did you mean 'race=White'?"),
        (["--reference-group", "White", "--reference-group", "race=Black"], "two reference groups"),
        (["--delta", "Femal=0.03"], "Did you mean 'Female'?"),
        (["--delta", "Female=0.03", "--delta", "Female=0.05"], "Female was given twice"),
        (["--delta", "0.03", "--delta", "0.05"], "the one for everyone was given twice"),
        (["--delta", "Female=0.03", "--delta", "sex=Female=0.05"], "twice"),
        (["--max-flagged", "Black=1.5"], "'--max-flagged'"),
        (["--on", "id"], "--protected-from"),
        (["--protected-from", "panel.csv"], "--on"),
        (["--weights", "wieght"], "Did you mean 'weight'?"),
        (["-c", "race"], "'race' is given twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(people: Path, options: list[str], message: str):
    assert message in refusal_of(run(people, "-c", "sex", "-c", "race", *options))
    assert not (people / "out").exists()
