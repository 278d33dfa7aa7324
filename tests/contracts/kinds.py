"""Every kind of model that fairfox takes, each with what its own library answers on the raw table.

A new kind is covered by adding a line to KINDS, here or in a file `kinds_<name>.py` beside this one, which has a
KINDS of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch
from populations import people, weighing
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

PEOPLE = people(160).round({"debt": 2})  # few decimals: trees that split at a value find it again in float32 too
NUMBERS = PEOPLE[["income", "age", "debt"]]
GRANTED = (PEOPLE["income"] + 400 * (PEOPLE["job"] == "smith") - PEOPLE["debt"] / 2 > 2700).to_numpy()


@dataclass(frozen=True)
class Kind:
    """A fitted model, the people it is asked about, and the probabilities it must give them."""

    model: object  # what `fairfox.audit` takes
    expected: np.ndarray  # (N,) what the library itself answers on the raw table
    table: pd.DataFrame = field(default_factory=lambda: PEOPLE[["sex", *NUMBERS]])  # "sex" and the model's columns
    same_rule: bool = False  # whether it is the logistic rule of `pipeline`
    exact: bool = True  # whether predictions must be equal to the last digit, or to 1e-6


@cache
def pipeline() -> Any:
    """Return a logistic rule on three numbers; `rule` has it as weights, for kinds that can express it."""
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS, GRANTED)


@cache
def rule() -> tuple[np.ndarray, float]:
    """Return the rule of the pipeline as weights of the columns, in their units, and an intercept."""
    scaler, model = pipeline()[0], pipeline()[1]
    weights = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def same_rule(model: object, **fields: Any) -> Kind:
    """Return a model that expresses the pipeline's rule as a Kind."""
    return Kind(model, pipeline().predict_proba(NUMBERS)[:, 1], same_rule=True, exact=False, **fields)


def module() -> nn.Module:
    weights, bias = rule()
    return weighing(nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()).requires_grad_(False), weights[None], bias)


def on_tensors(x: Tensor) -> Tensor:
    weights, bias = rule()
    return torch.sigmoid(x @ torch.tensor(weights).to(x) + bias)


def on_tables(table: pd.DataFrame) -> np.ndarray:
    weights, bias = rule()
    return 1 / (1 + np.exp(-(table[["income", "age", "debt"]].to_numpy() @ weights + bias)))


# --- scikit-learn --------------------------------------------------------------------------------------------------


@cache
def mixed() -> pd.DataFrame:
    """Return people with numbers (some missing), a boolean, a text that is a category and a code that is one."""
    rng = np.random.default_rng(2)
    member = rng.random(len(PEOPLE)) < np.where(PEOPLE["sex"] == "male", 0.7, 0.4)
    return PEOPLE[["sex", "income", "age", "debt"]].assign(
        debt=PEOPLE["debt"].mask(rng.random(len(PEOPLE)) < 0.1),
        member=member,
        job=PEOPLE["job"].astype("category"),
        code=pd.Categorical(np.where(member[::-1], 30, 10 * rng.integers(1, 4, len(PEOPLE)))),
    )


def numeric() -> pd.DataFrame:
    return mixed()[["income", "age", "debt", "member"]]


def categories() -> pd.DataFrame:
    return mixed().drop(columns=["sex"])


def on_array() -> Kind:
    fitted = LogisticRegression(max_iter=5000).fit(NUMBERS.to_numpy(), GRANTED)
    return Kind(fitted, fitted.predict_proba(NUMBERS.to_numpy())[:, 1], exact=False)


def on_frame(model: Any, frame: pd.DataFrame) -> Kind:
    fitted = model.fit(frame, GRANTED)
    return Kind(fitted, fitted.predict_proba(frame)[:, 1], mixed()[["sex", *frame]])


# --- boosted trees -------------------------------------------------------------------------------------------------


def xgboost_native(frame: pd.DataFrame) -> Kind:
    xgb = import_module("xgboost")
    rows = xgb.DMatrix(frame, GRANTED, enable_categorical=True)
    booster = xgb.train({"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, rows, 12)
    return Kind(booster, booster.predict(rows), mixed()[["sex", *frame]])


def xgboost_rule() -> Kind:
    """Return the pipeline's rule as XGBoost's linear booster, its weights written into a model file."""
    xgb = import_module("xgboost")
    options = {"objective": "binary:logistic", "booster": "gblinear", "base_score": 0.5, "nthread": 1}
    booster = xgb.train(options, xgb.DMatrix(NUMBERS, GRANTED), 1)
    content = json.loads(booster.save_raw("json"))
    weights, bias = rule()
    content["learner"]["gradient_booster"]["model"]["weights"] = [*weights, bias]
    return same_rule(xgb.Booster(model_file=bytearray(json.dumps(content).encode())))


def lightgbm_native(frame: pd.DataFrame) -> Kind:
    lgb = import_module("lightgbm")
    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "min_data_per_group": 5}
    booster = lgb.train(options, lgb.Dataset(frame, GRANTED), 12)
    return Kind(booster, booster.predict(frame), mixed()[["sex", *frame]])


def catboost_native(frame: pd.DataFrame) -> Kind:
    cb = import_module("catboost")
    rows = cb.Pool(frame, GRANTED.astype(int), cat_features=list(frame.select_dtypes("category")))
    model = cb.CatBoost(CATBOOST | {"loss_function": "Logloss"}).fit(rows)
    return Kind(model, model.predict(rows, prediction_type="Probability")[:, 1], mixed()[["sex", *frame]])


CATBOOST = {"iterations": 12, "depth": 3, "thread_count": 1, "verbose": 0, "allow_writing_files": False}


def xgb_classifier() -> Any:
    return import_module("xgboost").XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1)


def lgbm_classifier() -> Any:
    return import_module("lightgbm").LGBMClassifier(
        n_estimators=12, min_child_samples=5, min_data_per_group=5, n_jobs=1, verbose=-1
    )


def catboost_classifier() -> Any:
    return import_module("catboost").CatBoostClassifier(**CATBOOST)


def hist_boosting() -> Any:
    return HistGradientBoostingClassifier(max_iter=12, min_samples_leaf=5, categorical_features="from_dtype")


# --- the registry --------------------------------------------------------------------------------------------------


KINDS: dict[str, Callable[[], Kind]] = {
    "torch module": lambda: same_rule(module()),
    "torch function": lambda: same_rule(on_tensors),
    "scikit-learn Pipeline": lambda: same_rule(pipeline()),
    "scikit-learn estimator on a matrix": on_array,
    "callable on a table": lambda: same_rule(on_tables),
    "random forest": lambda: on_frame(RandomForestClassifier(12, max_depth=5, random_state=0), numeric()),
    "HistGradientBoosting": lambda: on_frame(hist_boosting(), numeric()),
    "HistGradientBoosting on categories": lambda: on_frame(hist_boosting(), categories()),
}
BOOSTING: dict[str, dict[str, Callable[[], Kind]]] = {
    "xgboost": {
        "XGBoost linear booster": xgboost_rule,
        "XGBoost booster": lambda: xgboost_native(numeric()),
        "XGBoost booster on categories": lambda: xgboost_native(categories()),
        "XGBClassifier": lambda: on_frame(xgb_classifier(), numeric()),
    },
    "lightgbm": {
        "LightGBM booster": lambda: lightgbm_native(numeric()),
        "LightGBM booster on categories": lambda: lightgbm_native(categories()),
        "LGBMClassifier": lambda: on_frame(lgbm_classifier(), numeric()),
    },
    "catboost": {
        "CatBoost": lambda: catboost_native(numeric()),
        "CatBoost on categories": lambda: catboost_native(categories()),
        "CatBoostClassifier": lambda: on_frame(catboost_classifier(), numeric()),
    },
}
for library, kinds in BOOSTING.items():
    if find_spec(library):
        KINDS |= kinds


def every_kind() -> dict[str, Callable[[], Kind]]:
    """Return the kinds of this file and of the files beside it, each built at most once."""
    beside = [f"contracts.kinds_{name}" for name in ("onnx", "http")]
    found = [import_module(name).KINDS for name in beside if find_spec(name)]
    return {name: cache(build) for kinds in (KINDS, *found) for name, build in kinds.items()}
