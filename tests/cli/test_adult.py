"""Adult, audited for sex, race and age at once by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairfox.cli.main import cli
from tests.support import assert_ended

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

skops_io = pytest.importorskip("skops.io")

LABEL, RICH = "income-per-year", ">50K"
CATEGORIES = ["workclass", "marital-status", "occupation", "relationship"]
NUMBERS = ["education-num", "capital-gain", "capital-loss", "hours-per-week"]
RACES = ["Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"]


def test_adult_is_audited_for_sex_race_and_age(tmp_path: Path, data_file: Callable[[str], Path]):
    """A model of income, trained on some of the people without their sex, race and age, is audited on others."""
    table = data_file("adult.csv.gz")
    past = pd.read_csv(table).sample(8000, random_state=1)
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), NUMBERS))
    model = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(past[[*CATEGORIES, *NUMBERS]], past[LABEL])
    skops_io.dump(model, tmp_path / "model.skops")
    options = ["--label", LABEL, "--columns", ",".join([*CATEGORIES, *NUMBERS]), "--positive", RICH]
    few = ["--sample", "2000", "--refits", "2", "--folds", "2", "--out", str(tmp_path / "out")]
    named = [str(tmp_path / "model.skops"), str(table), "-c", "sex", "-c", "race", "-c", "age"]
    done = CliRunner().invoke(cli, ["audit", *named, *options, *few])
    assert_ended(done)
    fields, scores = (
        json.loads((tmp_path / "out/summary.json").read_text()),
        pq.read_table(tmp_path / "out/scores.parquet"),
    )
    sex, race, age = fields["variables"]
    assert [each["kind"] for each in (sex, race, age)] == ["binary", "categorical", "continuous"]
    assert [group["level"] for group in race["groups"]] == RACES
    assert scores.num_rows == fields["counts"]["judged"] == 2000
    assert set(scores["variable"].to_pylist()) == {"sex", "race", "age"}
    assert all(f"'{small}' (" in done.stderr for small in ("Amer-Indian-Eskimo", "Other"))
    women, men = (group["mean_effect"] for group in sex["groups"])
    assert women > 0.02 > -0.02 > men  # as members of the other group
    older = scores.to_pandas().filter(like="effect[age ")
    assert older.shape[1] == 2
    assert (older.mean() > 0.02).all()  # of both the sign is that of going up
