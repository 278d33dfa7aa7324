from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import linear, people
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from support import audited
from torch import Tensor, nn

from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, OptionError
from fairfox.models.adapters import BlackBoxModel, as_model
from fairfox.models.protocol import predict
from fairfox.models.torch import TorchModel

pytestmark = pytest.mark.brief

FRAME = people()[["sex", "income", "age"]]
COLUMNS = FRAME[["income", "age"]]
TABLE = load_table(FRAME)
ENCODING = fit_encoding(TABLE, protected=["sex"], dtype=torch.float64)
X = ENCODING.encode(TABLE).x
RICH = (FRAME["income"] > 3200).to_numpy()
CLASS = np.select([FRAME["income"] < 2800, FRAME["income"] < 3400], ["low", "middle"], "high")


def wrapped(obj: object, **options: Any) -> Any:
    return as_model(obj, ENCODING, example=X, **options)


def classifier(y: np.ndarray, data: Any = COLUMNS) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(data, y)


def test_a_module_and_a_function_of_tensors_are_seen_through():
    def on_tensors(x: Tensor) -> Tensor:
        return torch.sigmoid(x[:, :1] / 1000)

    def in_quotes(x: "torch.Tensor") -> "Tensor":
        return torch.sigmoid(x[:, :1] / 1000)

    for obj in (nn.Linear(2, 1), on_tensors, in_quotes):
        model = wrapped(obj)
        assert isinstance(model, TorchModel)
        assert model.differentiable
        assert not model.encoded


def test_a_function_of_arrays_takes_the_table_and_is_a_black_box():
    def on_arrays(x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x))

    for obj in (
        lambda t: np.zeros(len(t)),
        on_arrays,
        type("Rule", (), {"__call__": lambda self, t: np.zeros(len(t))})(),
    ):
        model = wrapped(obj)
        assert isinstance(model, BlackBoxModel)
        assert (model.kind, model.differentiable) == ("table", False)


def test_estimators_take_what_they_were_fitted_on():
    assert wrapped(classifier(RICH)).kind == "table"
    assert wrapped(classifier(RICH, COLUMNS.to_numpy())).kind == "matrix"
    assert wrapped(LogisticRegression().fit(COLUMNS, RICH)).kind == "table"
    assert wrapped(LinearRegression().fit(COLUMNS.to_numpy(), COLUMNS["age"])).kind == "matrix"


class Ages:
    """A step of the user's own, which keeps no column names."""

    def fit(self, table: pd.DataFrame, y: object = None) -> "Ages":
        return self

    def transform(self, table: pd.DataFrame) -> np.ndarray:
        return table[["age"]].to_numpy()


def test_a_pipeline_that_begins_with_a_step_of_ones_own_takes_the_table():
    fitted = make_pipeline(Ages(), LogisticRegression()).fit(COLUMNS, RICH)
    assert wrapped(fitted).kind == "table"


def test_the_kind_can_be_chosen():
    seen: list[object] = []

    def note(rows: object) -> np.ndarray:
        seen.append(rows)
        return np.zeros(len(X))

    for kind in ("table", "matrix", "encoded"):
        wrapped(note, kind=kind)
    assert isinstance(seen[0], pd.DataFrame)
    np.testing.assert_array_equal(seen[1], COLUMNS)
    np.testing.assert_array_equal(seen[2], X)
    assert wrapped(nn.Linear(2, 1), kind="encoded").encoded


def test_without_an_encoding_the_model_receives_x():
    model = as_model(lambda rows: rows[:, 0])
    assert torch.equal(predict(model, X), X[:, 0])
    assert as_model(nn.Linear(2, 1)).encoded


def test_a_model_of_ones_own_is_called_as_it_is_and_has_a_unit_and_a_kind():
    model = as_model(linear(1.0, 2.0))
    assert (model.unit, model.kind) == ("value", "encoded")
    assert torch.equal(model(X), linear(1.0, 2.0)(X))
    assert as_model(model) is model
    adapted = wrapped(nn.Linear(2, 1))
    assert as_model(adapted) is adapted


def test_a_class_of_several_is_chosen_by_its_name():
    fitted = classifier(CLASS)
    for place, name in enumerate(("high", "low", "middle")):
        model = wrapped(fitted, positive=name)
        torch.testing.assert_close(predict(model, X), torch.tensor(fitted.predict_proba(COLUMNS)[:, place]))
    with pytest.raises(OptionError, match=r"The model has 3 classes \(high, low, middle\); choose one"):
        wrapped(fitted)
    with pytest.raises(OptionError, match="'huge' is not a class of the model; its classes are: high, low, middle"):
        wrapped(fitted, positive="huge")


def test_a_decision_function_turns_round_for_the_first_class():
    fitted = make_pipeline(StandardScaler(), LinearSVC()).fit(COLUMNS, np.where(RICH, "rich", "poor"))
    decision = torch.tensor(fitted.decision_function(COLUMNS))
    torch.testing.assert_close(predict(wrapped(fitted, output="logit"), X), decision)
    torch.testing.assert_close(predict(wrapped(fitted, output="logit", positive="rich"), X), decision)
    torch.testing.assert_close(predict(wrapped(fitted, output="logit", positive="poor"), X), -decision)


def test_the_class_is_found_without_example_rows_too():
    fitted = classifier(np.where(RICH, "rich", "poor"))
    for positive, column in ((None, 1), ("poor", 0), ("rich", 1)):
        model = as_model(fitted, ENCODING, positive=positive)
        torch.testing.assert_close(predict(model, X), torch.tensor(fitted.predict_proba(COLUMNS)[:, column]))
    with pytest.raises(OptionError, match="positive is 'yes', but the model has no class names; give a column number"):
        as_model(nn.Linear(2, 2), positive="yes")


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ("model.bin", "This is a str, not a model; give a torch module, a scikit-learn estimator or Pipeline"),
        (LogisticRegression, "This is the class LogisticRegression, not a model"),
        ({"weights": [1, 2]}, "This is a dict, not a model"),
        (LogisticRegression(), "This LogisticRegression is not fitted"),
    ],
)
def test_what_is_no_model_is_refused(obj: object, message: str):
    with pytest.raises(OptionError, match=message):
        audited(obj, FRAME, protected="sex")
    with pytest.raises(OptionError, match="kind is 'frame'; expected 'table', 'matrix' or 'encoded'"):
        wrapped(obj, kind="frame")


@pytest.mark.parametrize("library", ["xgboost.XGBClassifier", "lightgbm.LGBMClassifier", "catboost.CatBoostClassifier"])
def test_boosted_trees_without_names_must_get_as_many_columns_too(library: str):
    package, _, name = library.partition(".")
    options = {"allow_writing_files": False, "verbose": 0} if package == "catboost" else {"verbosity": 0}
    model = getattr(pytest.importorskip(package), name)(n_estimators=2, **options)
    model.fit(COLUMNS.to_numpy(), RICH)
    assert wrapped(model).kind == "matrix"
    with pytest.raises(ColumnError, match="trained on 2 columns without names, but gets 3: income, age, debt"):
        audited(model, people()[["sex", "income", "age", "debt"]], protected="sex")
