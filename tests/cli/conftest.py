"""A folder with people and models, as a user of the commands has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

MODELS = """
import numpy as np


def score(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 300))


def gentle(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 900))


def alike(table):
    return 0.5 + table["age"] / 10000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table of people, in which men earn more, and models of the user's own."""
    rng = np.random.default_rng(0)
    male = np.arange(200) % 2 == 1
    income = (3000 + 400 * male + rng.normal(0, 300, 200)).round(2)
    columns = {"sex": np.where(male, "Male", "Female"), "income": income, "age": rng.integers(18, 80, 200)}
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "people.csv")
    (tmp_path / "model.py").write_text(MODELS)
    return tmp_path
