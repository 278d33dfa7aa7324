"""One suite over every kind of model; `kinds.py` lists them."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from contracts.kinds import GRANTED, PEOPLE, Kind, every_kind, module, on_tables, pipeline
from populations import weighing
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from support import audited
from torch import Tensor, nn

from fairfox.data.dataset import Dataset
from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.fairtests.registry import make_test
from fairfox.models.adapters import as_model, describe
from fairfox.models.protocol import Model, predict

pytestmark = pytest.mark.brief

KINDS = every_kind()
TESTS = ("rank", "move", "faux")


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]()


@pytest.fixture(scope="module")
def asked(kind: Kind) -> tuple[Model, Dataset]:
    """A kind as a Model, and the people it is asked about."""
    table, described = load_table(kind.table), describe(kind.model)
    columns = None if described is None else described.names
    encoding = fit_encoding(table, protected=["sex"], columns=columns, dtype=torch.float64)
    people = encoding.encode(table)
    return as_model(kind.model, encoding, example=people.x), people


def test_predictions_are_those_of_the_library_on_the_raw_table(kind: Kind, asked: tuple[Model, Dataset]):
    model, people = asked
    assert model(people.x).shape == (len(people), 1)
    found = predict(model, people.x).numpy()
    if kind.exact:
        np.testing.assert_array_equal(found, kind.expected.astype(float))
    else:
        np.testing.assert_allclose(found, kind.expected, atol=1e-6, rtol=0)


def test_predictions_do_not_depend_on_the_batch(asked: tuple[Model, Dataset]):
    model, people = asked
    whole = predict(model, people.x)
    for size in (1, 7):
        parts = torch.cat([model(part)[:, 0] for part in people.x[:21].split(size)])
        torch.testing.assert_close(parts, whole[:21], atol=1e-6, rtol=0)


def test_predictions_follow_the_dtype_of_x(asked: tuple[Model, Dataset]):
    model, people = asked
    out = predict(model, people.x.float())
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), predict(model, people.x), atol=1e-5, rtol=0)


def test_models_say_whether_autograd_sees_through_them(asked: tuple[Model, Dataset]):
    model, people = asked
    x = people.x.clone().requires_grad_()
    assert model(x).requires_grad is model.differentiable


# --- effects -------------------------------------------------------------------------------------------------------


def scores(model: object, table: pd.DataFrame, test: str, **options: Any) -> Tensor:
    given = {"protected": "sex", "test": test, "refits": 1, "folds": 2, "seed": 1, "gate": False} | options
    result = audited(model, table, **given)
    assert float(result.effect.abs().max()) > 1e-3  # there is something to agree on
    return result.effect.double()


@pytest.mark.parametrize("test", ["rank", "move"])
def test_predictions_move_with_what_differs_between_the_groups(asked: tuple[Model, Dataset], test: str):
    model, people = asked
    measured = make_test(test, refits=2, seed=0).fit(people).measure(model, people)
    assert torch.isfinite(measured.effect).all()
    assert float((measured.effect != 0).double().mean()) > 0.5
    women = people.c[:, 0] == 0
    if test == "rank":  # men earn more: as men, women would get more, and men less as women
        assert float(measured.effect[women].mean()) > 0.02
        assert float(measured.effect[~women].mean()) < -0.02


@cache
def expected_scores(test: str) -> Tensor:
    return scores(pipeline(), PEOPLE[["sex", "income", "age", "debt"]], test)


@pytest.mark.parametrize("test", ["rank", "move"])
def test_the_same_rule_gets_the_same_scores_whatever_kind_of_model_it_is(test: str):
    kinds = {name: build() for name, build in KINDS.items() if build().same_rule}
    found = {name: scores(kind.model, kind.table, test) for name, kind in kinds.items()}
    far = {name: float((one - expected_scores(test)).abs().max()) for name, one in found.items()}
    assert len(far) >= 5
    assert max(far.values()) < 1e-4, far


@pytest.mark.parametrize("test", ["move-direct", "faux"])
def test_a_rule_on_numbers_is_scored_alike_whether_or_not_autograd_sees_through_it(test: str):
    for model in (module(), on_tables):
        found = scores(model, PEOPLE[["sex", "income", "age", "debt"]], test)
        torch.testing.assert_close(found, expected_scores(test), atol=1e-4, rtol=0)


# --- rules over categories -----------------------------------------------------------------------------------------


@cache
def mixed() -> tuple[pd.DataFrame, Any]:
    """Return people with categories, and a logistic rule over them as a Pipeline on the raw table."""
    member = np.random.default_rng(1).random(len(PEOPLE)) < np.where(PEOPLE["sex"] == "male", 0.7, 0.4)
    table = PEOPLE[["sex", "income", "age", "job"]].assign(member=member, code=np.where(member[::-1], 3, 8))
    columns = make_column_transformer(
        (StandardScaler(), ["income", "age"]),
        (OneHotEncoder(), ["job", "member", "code"]),
        verbose_feature_names_out=False,
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table.drop(columns=["sex"]), GRANTED)
    return table, model


def encoded_module() -> nn.Module:
    """Return the same rule on fairfox's own encoding, whose columns are the Pipeline's."""
    weights = mixed()[1][-1]
    layer = nn.Linear(weights.coef_.shape[1], 1).requires_grad_(False)
    return weighing(layer, weights.coef_, weights.intercept_)


@pytest.mark.parametrize("test", TESTS)
def test_a_linear_rule_over_categories_is_scored_alike_on_its_logit(test: str):
    table, fitted = mixed()
    expected = scores(fitted, table, test, output="logit")
    on_raw_tables = scores(lambda t: fitted.decision_function(t), table, test, output="logit", returns="logit")
    torch.testing.assert_close(on_raw_tables, expected, atol=1e-4, rtol=0)
    on_tensors = scores(encoded_module(), table, test, output="logit", returns="logit", kind="encoded")
    torch.testing.assert_close(on_tensors, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("test", TESTS)
def test_codes_in_a_matrix_are_scored_like_codes_in_a_table(test: str):
    table = mixed()[0][["sex", "income", "code"]]
    layer = weighing(nn.Linear(2, 1).requires_grad_(False), [[1e-3, -0.2]], -2.0)

    def value(t: pd.DataFrame) -> pd.Series:
        return 1e-3 * t["income"] - 0.2 * t["code"] - 2.0

    expected = scores(value, table, test, returns="logit", output="logit")
    found = scores(layer, table, test, returns="logit", output="logit")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
