from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import people, table_of

from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import ModelError
from fairfox.models.adapters import BlackBoxModel
from fairfox.models.protocol import Output

TABLE = load_table(people())
ENCODING = fit_encoding(TABLE, protected=["sex"], dtype=torch.float64)
X = ENCODING.encode(TABLE).x
JOBS = fit_encoding(table_of(job=["a", "b", "c"], v=[1, 2, 3]), protected=["c"], dtype=torch.float64)


def on_tables(predict: Any, encoding: Encoding = ENCODING, **options: Any) -> BlackBoxModel:
    return BlackBoxModel(predict, decoder=encoding, kind="table", **options)


def test_a_table_is_what_its_owner_had():
    seen: list[pd.DataFrame] = []
    model = on_tables(lambda table: seen.append(table) or table["income"])
    torch.testing.assert_close(model(X)[:, 0], torch.tensor(people()["income"]))
    pd.testing.assert_frame_equal(seen[0], people().drop(columns=["sex"]), rtol=1e-14)


def test_a_distribution_over_categories_gives_the_expected_prediction():
    model = on_tables(lambda t: t["job"].map({"a": 0.0, "b": 1.0, "c": 4.0}) ** 2, JOBS)
    x = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]]).double()
    assert model(x)[:, 0].tolist() == [4.25, 1.0]  # 1/4 + 16/4; a whole category


def test_the_logit_is_averaged_not_the_probability():
    model = on_tables(lambda t: np.where(t["job"] == "a", 0.5, 0.9), JOBS, output=Output("probability", "logit"))
    found = model(torch.tensor([[0.5, 0.5, 0.0, 0.0]]).double())
    torch.testing.assert_close(found, torch.logit(torch.tensor([[0.9]]).double()) / 2)


def test_many_rows_come_in_several_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairfox.models.adapters._ROWS_A_CALL", 50)
    calls: list[int] = []
    model = on_tables(lambda t: calls.append(len(t)) or t["income"])
    assert model(X)[:, 0].tolist() == people()["income"].tolist()
    assert calls == [50, 50, 20]


def raising(table: pd.DataFrame) -> np.ndarray:
    raise KeyError("wealth")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, r"failed on a table of 120 rows \(income, age, debt, job\): KeyError: 'wealth'"),
        (lambda t: t["job"], r"returned (object|str|<U\d+).* values such as \['\w+'\]; .*not a class name"),
        (lambda t: np.array(["yes"] * len(t)), r"values such as \['yes'\]; expected numbers: return a probability"),
        (lambda t: t["income"][1:], "returned 119 predictions for 120 individuals; return one row each, in order"),
        (lambda t: 0.5, "returned a single number for 120 individuals; return one row each, in order"),
        (lambda t: None, "returned object values"),
    ],
    ids=["raises", "text column", "class names", "a row less", "one number", "nothing"],
)
def test_what_is_no_prediction_is_refused(function: Any, message: str):
    with pytest.raises(ModelError, match=message):
        on_tables(function)(X)
