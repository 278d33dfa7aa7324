"""One suite over every kind of model: a new adapter is covered by adding a line to ADAPTERS or RULES."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import people
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor, nn

import fairfox
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model

FRAME = people(160)
NUMBERS = FRAME[["income", "age", "debt"]]
GRANTED = (FRAME["income"] + 400 * (FRAME["job"] == "smith") - FRAME["debt"] / 2 > 2700).to_numpy()
TESTS = ("rank", "move", "move-direct", "faux")


@cache
def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS, GRANTED)


@cache
def rule() -> tuple[np.ndarray, float]:
    """Return the same rule as the pipeline's as weights in the units of the columns."""
    scaler, model = pipeline()[0], pipeline()[1]
    weights = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def module(**options: Any) -> nn.Module:
    weights, bias = rule()
    layer = nn.Linear(3, 1, **options).requires_grad_(False)
    layer.weight.copy_(torch.tensor(weights[None]))
    layer.bias.fill_(bias)
    return nn.Sequential(layer, nn.Sigmoid()).eval()


def on_tensors(x: Tensor) -> Tensor:
    weights, bias = rule()
    return torch.sigmoid(x @ torch.tensor(weights).to(x) + bias)


def on_tables(table: pd.DataFrame) -> np.ndarray:
    weights, bias = rule()
    return 1 / (1 + np.exp(-(table[["income", "age", "debt"]].to_numpy() @ weights + bias)))


ADAPTERS: dict[str, Callable[[], Any]] = {
    "torch module": module,
    "torch module in float64": lambda: module(dtype=torch.float64),
    "torch function": lambda: on_tensors,
    "scikit-learn Pipeline": pipeline,
    "scikit-learn estimator on a matrix": lambda: LogisticRegression(max_iter=5000).fit(NUMBERS.to_numpy(), GRANTED),
    "callable on a table": lambda: on_tables,
}
SAME_RULE = [name for name in ADAPTERS if name != "scikit-learn estimator on a matrix"]
ENCODING = fit_encoding(load_table(FRAME), protected=["sex"], drop=["job"], dtype=torch.float64)
DATA = ENCODING.encode(load_table(FRAME))


@pytest.fixture(params=list(ADAPTERS))
def model(request: pytest.FixtureRequest) -> Model:
    return as_model(ADAPTERS[request.param](), ENCODING, example=DATA.x)


def test_everyone_gets_one_finite_number(model: Model):
    out = predict(model, DATA.x)
    assert out.shape == (len(FRAME),)
    assert out.dtype == DATA.x.dtype
    assert torch.isfinite(out).all()
    assert model(DATA.x).shape == (len(FRAME), 1)


def test_predictions_do_not_depend_on_the_batch(model: Model):
    whole = predict(model, DATA.x)
    for size in (1, 7):
        parts = torch.cat([model(part)[:, 0] for part in DATA.x[:21].split(size)])
        torch.testing.assert_close(parts, whole[:21], atol=1e-6, rtol=0)


def test_predictions_follow_their_rows(model: Model):
    order = torch.randperm(len(DATA), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(predict(model, DATA.x[order]), predict(model, DATA.x)[order], atol=1e-6, rtol=0)


def test_predictions_follow_the_dtype_of_x(model: Model):
    out = predict(model, DATA.x.float())
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), predict(model, DATA.x), atol=1e-5, rtol=0)


def test_the_same_seed_gives_the_same_scores(model: Model):
    first, second = (make_test("rank", refits=2, seed=3).fit(DATA).score(model, DATA) for _ in range(2))
    assert torch.equal(first, second)


def test_models_say_whether_autograd_sees_through_them(model: Model):
    x = DATA.x.clone().requires_grad_()
    assert model(x).requires_grad is model.differentiable


@pytest.mark.parametrize("name", SAME_RULE)
def test_predictions_are_those_of_the_model_itself(name: str):
    found = predict(as_model(ADAPTERS[name](), ENCODING, example=DATA.x), DATA.x)
    torch.testing.assert_close(found, torch.tensor(pipeline().predict_proba(NUMBERS)[:, 1]), atol=1e-6, rtol=0)


# --- the same rule gets the same scores ----------------------------------------------------------------------------


def scores(model: object, table: pd.DataFrame, test: str, **options: Any) -> Tensor:
    audited = {"protected": "sex", "test": test, "refits": 1, "folds": 2, "seed": 1} | options
    result = fairfox.audit(model, table, **audited)
    assert result.signed is not None
    assert float(result.signed.abs().max()) > 1e-3  # there is something to agree on
    return result.signed.double()


@pytest.mark.parametrize("test", TESTS)
def test_a_rule_on_numbers_is_scored_alike_whatever_kind_of_model_it_is(test: str):
    table = FRAME[["sex", "income", "age", "debt"]]
    expected = scores(pipeline(), table, test)
    for model in (module(), on_tables):
        torch.testing.assert_close(scores(model, table, test), expected, atol=1e-4, rtol=0)


@cache
def mixed() -> tuple[pd.DataFrame, Any]:
    """Return people with categories, and a logistic rule over them as a Pipeline on the raw table."""
    member = np.random.default_rng(1).random(len(FRAME)) < np.where(FRAME["sex"] == "male", 0.7, 0.4)
    table = FRAME[["sex", "income", "age", "job"]].assign(member=member, code=np.where(member[::-1], 3, 8))
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
    layer.weight.copy_(torch.tensor(weights.coef_))
    layer.bias.fill_(float(weights.intercept_[0]))
    return layer.eval()


@pytest.mark.parametrize("test", TESTS)
def test_a_linear_rule_over_categories_is_scored_alike_on_its_logit(test: str):
    table, fitted = mixed()
    expected = scores(fitted, table, test, output="logit")
    on_raw_tables = scores(lambda t: fitted.decision_function(t), table, test, output="logit", returns="logit")
    torch.testing.assert_close(on_raw_tables, expected, atol=1e-4, rtol=0)
    on_tensors = scores(encoded_module(), table, test, output="logit", returns="logit", kind="encoded")
    torch.testing.assert_close(on_tensors, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("test", ["rank", "move", "move-direct"])
def test_a_logistic_rule_over_categories_is_scored_almost_alike(test: str):
    # a module sees the mean of the categories, a table model gives the mean over them: the sigmoid bends between
    table, fitted = mixed()
    on_raw_tables = scores(fitted, table, test)
    on_tensors = scores(encoded_module(), table, test, returns="logit", kind="encoded")
    assert float((on_raw_tables - on_tensors).abs().mean()) < 0.02


@pytest.mark.parametrize("test", TESTS)
def test_codes_in_a_matrix_are_scored_like_codes_in_a_table(test: str):
    table = mixed()[0][["sex", "income", "code"]]
    layer = nn.Linear(2, 1).requires_grad_(False)
    layer.weight.copy_(torch.tensor([[1e-3, -0.2]]))
    layer.bias.fill_(-2.0)

    def value(t: pd.DataFrame) -> pd.Series:
        return 1e-3 * t["income"] - 0.2 * t["code"] - 2.0

    expected = scores(value, table, test, returns="logit", output="logit")
    found = scores(layer.eval(), table, test, returns="logit", output="logit")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
