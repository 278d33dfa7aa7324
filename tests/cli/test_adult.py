"""Adult, audited for sex, race and age at once by the command: the real file where it is, made-up people elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairfox.cli.main import cli
from tests.support import assert_ended

skops_io = pytest.importorskip("skops.io")

LABEL, RICH = "income-per-year", ">50K"
CATEGORIES = ["workclass", "marital-status", "occupation", "relationship"]
NUMBERS = ["education-num", "capital-gain", "capital-loss", "hours-per-week"]
RACES = {"Amer-Indian-Eskimo": 0.01, "Asian-Pac-Islander": 0.03, "Black": 0.096, "Other": 0.009, "White": 0.855}


def made_up(people: int) -> pd.DataFrame:
    """Return people with the columns of Adult: men, White and older people have more of what is well paid."""
    rng = np.random.default_rng(0)
    # of every race as many as its share says, so that also the smallest has enough
    race = np.resize(np.repeat(list(RACES), [round(1000 * share) for share in RACES.values()]), people)
    male, age = rng.random(people) < 0.67, rng.gamma(6.0, 4.0, people).round() + 17
    ahead = 0.8 * male + 0.5 * (race == "White") + 0.04 * (age - 40) + rng.normal(0, 1, people)
    married = rng.random(people) < 1 / (1 + np.exp(-ahead))
    spouse = np.where(male, "Husband", "Wife")
    manager, school = rng.normal(0, 1, people) + 0.5 * ahead > 0.5, rng.normal(10 + 0.3 * ahead, 2.5).round()
    worth = 1.5 * married + 1.0 * manager + 0.3 * (school - 10) - 2.5
    columns = {
        "age": age.astype(int),
        "workclass": rng.choice(["Private", "State-gov", "Self-emp-inc", None], people, p=[0.7, 0.14, 0.1, 0.06]),
        "fnlwgt": rng.integers(10_000, 500_000, people),
        "education-num": school.clip(1, 16).astype(int),
        "marital-status": np.where(married, "Married-civ-spouse", rng.choice(["Never-married", "Divorced"], people)),
        "occupation": np.where(manager, "Exec-managerial", rng.choice(["Sales", "Craft-repair"], people)),
        "relationship": np.where(married, spouse, rng.choice(["Not-in-family", "Unmarried"], people)),
        "race": race,
        "sex": np.where(male, "Male", "Female"),
        "capital-gain": np.where(rng.random(people) < 0.08, rng.gamma(1.0, 7000.0, people).round(), 0).astype(int),
        "capital-loss": np.where(rng.random(people) < 0.05, rng.normal(1900, 300, people).round(), 0).astype(int),
        "hours-per-week": rng.normal(40 + 2 * ahead, 9).round().clip(5, 99).astype(int),
        LABEL: np.where(rng.random(people) < 1 / (1 + np.exp(-worth)), RICH, "<=50K"),
    }
    return pd.DataFrame(columns).sample(frac=1.0, random_state=0, ignore_index=True)


class Audit(NamedTuple):
    """What an audit printed and wrote."""

    printed: str
    warned: str
    fields: dict[str, Any]
    scores: pa.Table
    report: str

    def groups(self, variable: str) -> dict[str, dict[str, Any]]:
        (found,) = (one for one in self.fields["variables"] if one["name"] == variable)
        return {group["level"]: group for group in found["groups"]}


def audit_of(people: pd.DataFrame, table: Path, folder: Path, *, sample: int) -> Audit:
    """Train a model of income on some of the people, without their sex, race and age, and audit it on the table."""
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), NUMBERS)),
        LogisticRegression(max_iter=500),
    )
    past = people.sample(min(len(people), 8000), random_state=1)
    model.fit(past[[*CATEGORIES, *NUMBERS]], past[LABEL])
    skops_io.dump(model, folder / "model.skops")
    options = ["--label", LABEL, "--columns", ",".join([*CATEGORIES, *NUMBERS]), "--positive", RICH, "--refits", "2"]
    named = [str(folder / "model.skops"), str(table), "-c", "sex", "-c", "race", "-c", "age"]
    done = CliRunner().invoke(cli, ["audit", *named, *options, "--sample", str(sample), "--out", str(folder / "out")])
    assert_ended(done)
    return Audit(
        done.stdout,
        done.stderr,
        json.loads((folder / "out/summary.json").read_text()),
        pq.read_table(folder / "out/scores.parquet"),
        (folder / "out/report.html").read_text(),
    )


def check_variables(audit: Audit, people: int) -> None:
    """Check that sex, race and age were audited, each as what it is, and that everyone's worst case has a name."""
    kinds = {variable["name"]: variable["kind"] for variable in audit.fields["variables"]}
    assert list(kinds.items()) == [("sex", "binary"), ("race", "categorical"), ("age", "continuous")]
    assert list(audit.groups("race")) == list(RACES)
    assert all(0 <= variable["alignment_share"] <= 1 for variable in audit.fields["variables"])
    assert audit.scores.num_rows == audit.fields["counts"]["judged"] == people
    assert set(audit.scores["variable"].to_pylist()) == {"sex", "race", "age"}
    assert {"effect[race=Black]", "effect[race=White]"} <= set(audit.scores.column_names)
    for race in RACES:
        assert f"race={race}" in audit.report
    assert "for sex, race and age, test rank" in audit.printed
    for small in ("Amer-Indian-Eskimo", "Other"):
        assert f"'{small}' (" in audit.warned


def check_directions(audit: Audit) -> None:
    """Check who would be predicted to earn more: women as men, and people who were older."""
    sex, age = audit.groups("sex"), audit.scores.to_pandas().filter(like="effect[age ")
    assert sex["Female"]["mean_effect"] > 0.02
    assert sex["Male"]["mean_effect"] < -0.02
    assert age.shape[1] == 2
    assert (age.mean() > 0.02).all()  # of both the sign is that of going up


def test_made_up_people_are_audited_for_sex_race_and_age(tmp_path: Path):
    people = made_up(1500)
    people.to_csv(tmp_path / "people.csv", index=False)
    audit = audit_of(people, tmp_path / "people.csv", tmp_path, sample=1400)
    check_variables(audit, 1400)
    check_directions(audit)


def test_adult_is_audited_for_sex_race_and_age(tmp_path: Path, data_file: Callable[[str], Path]):
    table = data_file("adult.csv.gz")
    audit = audit_of(pd.read_csv(table), table, tmp_path, sample=2000)
    check_variables(audit, 2000)
    check_directions(audit)
