"""The case of an audit: which tables are read, which columns a model gets, and what it is seen to return."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from test_question import asked
from torch import nn

from fairfox.case import Case, _columns_of, read_tables
from fairfox.errors import FairfoxError, OptionError
from fairfox.models.description import Description

PEOPLE = pd.DataFrame(
    {
        "name": [f"p{i}" for i in range(40)],
        "sex": ["Female", "Male"] * 20,
        "income": np.linspace(1000, 5000, 40),
        "age": np.resize(np.arange(20, 60, 3), 40),
    }
)

MANY = PEOPLE.loc[np.resize(np.arange(40), 1200)].reset_index(drop=True).drop(columns="name").assign(name=range(1200))


def case_of(model: object, people: object = PEOPLE, *, reference: object = None, **options: Any) -> Case:
    question = asked(**({"id": "name"} | options))
    return Case.of(model, question, read_tables(people, reference, None, question))


def by_income(table: Any) -> np.ndarray:
    return np.asarray(table["income"]) / 5000


def late(table: Any) -> np.ndarray:
    """Return probabilities for the first thousand people, and other numbers for the rest."""
    return np.where(np.arange(len(table)) < 1000, 0.5, 2.0)


def test_a_function_is_asked_about_the_table_in_double_precision():
    case = case_of(by_income)
    assert (case.model, case.kind, case.unit) == ("function", "table", "probability")
    assert case.data.x.dtype == torch.float64
    np.testing.assert_allclose(case.predictions.numpy(), PEOPLE["income"] / 5000)
    assert case.known is None


def test_a_module_is_asked_for_gradients_in_single_precision():
    case = case_of(nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()))
    assert case.target.differentiable
    assert case.data.x.dtype == case.predictions.dtype == torch.float32


def test_a_model_gets_its_own_columns_in_its_own_order():
    model = LogisticRegression().fit(PEOPLE[["age", "income"]], PEOPLE["income"] > 3000)
    assert list(case_of(model).encoding.columns) == ["age", "income"]
    assert list(case_of(by_income).encoding.columns) == ["income", "age"]
    assert list(case_of(by_income, columns=["income"]).encoding.columns) == ["income"]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (["f1", "x", "f0"], ["f0", "f1"]),
        (["Column_0", "Column_1"], ["Column_0", "Column_1"]),
        (["income", "age"], None),
    ],
)
def test_counted_columns_are_a_model_s_own_where_the_table_has_them(table: list[str], columns: list[str] | None):
    assert _columns_of(Description(by_income, "matrix", width=2), table) == columns


def test_a_reference_is_encoded_as_the_people_are():
    case = case_of(by_income, PEOPLE[:10], reference=PEOPLE)
    assert case.known is not None
    assert (len(case.data), len(case.known)) == (10, 40)
    torch.testing.assert_close(case.known.x[:10], case.data.x)


def test_protected_values_of_another_table_are_joined_and_counted():
    question = asked(on="name")
    tables = read_tables(PEOPLE.drop(columns="sex"), None, PEOPLE[["name", "sex"]][:30], question)
    assert tables.matched == 30
    case = Case.of(by_income, question, tables)
    assert int(case.data.c.isnan().sum()) == 10
    assert "name" not in case.encoding.columns


def test_numbers_of_single_groups_go_by_their_full_names():
    case = case_of(by_income, deltas={"Female": 0.03}, limits={"": 0.1, "sex=Male": 0.2})
    assert case.deltas == {"sex=Female": 0.03}
    assert case.limits == {"": 0.1, "sex=Male": 0.2}
    with pytest.raises(OptionError, match="The group 'sex=Male' is given twice, once as 'sex=Male'; give it once"):
        case_of(by_income, limits={"Male": 0.1, "sex=Male": 0.2})


def test_what_is_said_to_be_returned_is_not_guessed():
    with pytest.raises(OptionError, match="The first 1000 predictions"):
        case_of(late, MANY)
    assert case_of(late, MANY, returns="value").unit == "value"


@pytest.mark.parametrize(
    ("legitimate", "message"),
    [
        ("agee", r"'agee' is none that the model takes. Did you mean 'age'\?"),
        ("sex", "'sex' cannot be legitimate: the protected variable 'sex' is read from it"),
        ("name", "'name' is none that the model takes"),
        (["age", "income"], "All columns of the model are legitimate"),
    ],
)
def test_columns_that_cannot_be_legitimate_are_refused(legitimate: Any, message: str):
    with pytest.raises(FairfoxError, match=message):
        case_of(by_income, legitimate=legitimate)


def test_the_column_a_cut_goes_through_cannot_be_legitimate():
    with pytest.raises(
        OptionError, match="'age' cannot be legitimate: the protected variable 'age<30' is read from it"
    ):
        case_of(by_income, protected="age<30", legitimate="age")
