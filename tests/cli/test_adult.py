"""Adult, audited for sex, race and age at once by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

pytestmark = pytest.mark.brief

skops_io = pytest.importorskip("skops.io")

LABEL, RICH = "income-per-year", ">50K"
CATEGORIES = ["workclass", "marital-status", "occupation", "relationship"]
NUMBERS = ["education-num", "capital-gain", "capital-loss", "hours-per-week"]
RACES = {"Amer-Indian-Eskimo": 0.01, "Asian-Pac-Islander": 0.03, "Black": 0.096, "Other": 0.009, "White": 0.855}


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
    options = ["--label", LABEL, "--columns", ",".join([*CATEGORIES, *NUMBERS]), "--positive", RICH]
    few = ["--sample", str(sample), "--refits", "2", "--folds", "2"]
    named = [str(folder / "model.skops"), str(table), "-c", "sex", "-c", "race", "-c", "age"]
    done = CliRunner().invoke(cli, ["audit", *named, *options, *few, "--out", str(folder / "out")])
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


def test_adult_is_audited_for_sex_race_and_age(tmp_path: Path, data_file: Callable[[str], Path]):
    table = data_file("adult.csv.gz")
    audit = audit_of(pd.read_csv(table), table, tmp_path, sample=2000)
    check_variables(audit, 2000)
    check_directions(audit)
