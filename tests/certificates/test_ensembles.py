"""Trees of every library, read: their sums are the libraries' own, and certificates equal brute force."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import ensemble, tree
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fairfox.certificates.certify import largest_on_path
from fairfox.certificates.trees import LEAF, Ensemble, read_trees
from fairfox.errors import OptionError
from fairfox.models.adapters import as_model
from tests.certificates.brute import GRID, at_points

X = np.random.default_rng(0).normal(size=(400, 4)).round(2)
X[:, 3] = np.round(X[:, 3])
NOISE = np.random.default_rng(1).normal(size=400)
VALUE = X[:, 0] * X[:, 1] + X[:, 3] + 0.3 * NOISE
CLASS = (VALUE > 0).astype(int)
THREE = np.digitize(VALUE, [-0.5, 0.5])


def sums(found: Ensemble, rows: np.ndarray) -> np.ndarray:
    """Return the sum of the leaves that rows reach, node by node."""
    nodes, out = found.nodes, np.zeros(len(rows))
    for i, row in enumerate(rows):
        for node in found.roots:
            while nodes.feature[node] != LEAF:
                value = row[nodes.feature[node]]
                left = nodes.missing_left[node] if np.isnan(value) else value <= nodes.threshold[node]
                node = nodes.left[node] if left else nodes.right[node]
            out[i] += nodes.value[node]
    return out


def xgboost(**options: Any) -> Any:
    xgb = pytest.importorskip("xgboost")
    return xgb.XGBClassifier(**{"n_estimators": 12, "max_depth": 3, "n_jobs": 1, **options})


def xgboost_stopped() -> Any:
    return xgboost(early_stopping_rounds=1, learning_rate=1.0, n_estimators=60).fit(
        X[:200], CLASS[:200], eval_set=[(X[200:], CLASS[200:])], verbose=False
    )


def lightgbm(**options: Any) -> Any:
    lgb = pytest.importorskip("lightgbm")
    return lgb.LGBMClassifier(**{"n_estimators": 12, "num_leaves": 6, "verbose": -1, "n_jobs": 1, **options})


def predictions(model: Any, rows: np.ndarray) -> np.ndarray:
    return model.predict(rows)


def decisions(model: Any, rows: np.ndarray) -> np.ndarray:
    return model.decision_function(rows)


def margins(model: Any, rows: np.ndarray) -> np.ndarray:
    return model.predict(rows, output_margin=True)


def raw_scores(model: Any, rows: np.ndarray) -> np.ndarray:
    return model.booster_.predict(rows, raw_score=True)


# a model, and what the library itself makes of its leaves before any link, up to a constant
MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any, np.ndarray], np.ndarray]]] = {
    "tree": (
        lambda: tree.DecisionTreeClassifier(max_depth=4).fit(X, CLASS),
        lambda model, rows: model.predict_proba(rows)[:, 1],
    ),
    "tree of values": (lambda: tree.ExtraTreeRegressor(max_depth=5, random_state=0).fit(X, VALUE), predictions),
    "forest": (
        lambda: ensemble.RandomForestClassifier(9, random_state=0).fit(X, CLASS),
        lambda model, rows: 9 * model.predict_proba(rows)[:, 1],
    ),
    "extra trees": (
        lambda: ensemble.ExtraTreesRegressor(7, random_state=0).fit(X, VALUE),
        lambda model, rows: 7 * model.predict(rows),
    ),
    "boosting": (lambda: ensemble.GradientBoostingClassifier(n_estimators=9).fit(X, CLASS), decisions),
    "boosted values": (lambda: ensemble.GradientBoostingRegressor(n_estimators=9).fit(X, VALUE), predictions),
    "histograms": (lambda: ensemble.HistGradientBoostingClassifier(max_iter=9).fit(X, CLASS), decisions),
    "histograms of values": (lambda: ensemble.HistGradientBoostingRegressor(max_iter=9).fit(X, VALUE), predictions),
    "xgboost": (lambda: xgboost().fit(X, CLASS), margins),
    "xgboost, stopped early": (xgboost_stopped, margins),
    "xgboost with dropout": (lambda: xgboost(booster="dart", rate_drop=0.5).fit(X, CLASS), margins),
    "lightgbm": (lambda: lightgbm().fit(X, CLASS), raw_scores),
    "lightgbm forest": (
        lambda: lightgbm(boosting_type="rf", subsample=0.5, subsample_freq=1).fit(X, CLASS),
        raw_scores,
    ),
}


@cache
def made(name: str) -> Any:
    return MODELS[name][0]()


def check_sums(name: str, rows: np.ndarray) -> None:
    """Compare the sums of leaves with the library's own, up to a constant."""
    found, expected = sums(read_trees(made(name), 1), rows), np.asarray(MODELS[name][1](made(name), rows), dtype=float)
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_sums_of_leaves_are_the_librarys_own_up_to_a_constant(name: str):
    rows = np.concatenate([X[:40], X[:40].astype(np.float32).astype(float)])
    rows[:4], rows[4:8] = np.nextafter(rows[:4], np.inf), np.nextafter(rows[4:8], -np.inf)
    zero = float(np.float32(1e-35))  # LightGBM's own zero goes so far
    rows[8:13, 3] = 0.0, zero, -zero, np.nextafter(zero, 1.0), np.nextafter(-zero, -1.0)
    check_sums(name, rows)


@pytest.mark.parametrize("name", MODELS)
def test_certificates_equal_brute_force(name: str):
    model = made(name)
    here, there = torch.tensor(X[:5]), torch.tensor(X[5:10])
    path = largest_on_path(model, here, there)
    t = torch.cat([GRID[::5], path.at])
    brute = at_points(as_model(model), here, there, t)
    # a float32 sum may differ in its last digits between two points of one leaf each
    assert bool((path.largest >= brute - (1e-6 if "xgboost" in name else 1e-12)).all())
    torch.testing.assert_close(path.largest, brute, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: ensemble.HistGradientBoostingClassifier(max_iter=5).fit(X, THREE),
        lambda: ensemble.GradientBoostingClassifier(n_estimators=5).fit(X, THREE),
        lambda: ensemble.RandomForestClassifier(5, random_state=0).fit(X, THREE),
        lambda: xgboost().fit(X, THREE),
        lambda: lightgbm().fit(X, THREE),
    ],
)
def test_of_several_classes_the_audited_one_is_certified(fit: Callable[[], Any]):
    model = fit()
    target = as_model(model, positive=1)
    here, there = torch.tensor(X[:4]), torch.tensor(X[4:8])
    path = largest_on_path(model, here, there, target=target)
    brute = at_points(target, here, there, torch.cat([GRID[::5], path.at]))
    torch.testing.assert_close(path.largest, brute, atol=1e-6, rtol=0)


def test_missing_numbers_go_the_same_way():
    rows = X[:60].copy()
    rows[::3, 0], rows[1::3, 3] = np.nan, np.nan
    for name in ("xgboost", "lightgbm", "histograms"):
        check_sums(name, rows)


def test_native_boosters_are_read_too():
    for name, attribute in (("xgboost", "get_booster"), ("lightgbm", "booster_")):
        model = made(name)
        booster = getattr(model, attribute)
        booster = booster() if callable(booster) else booster
        np.testing.assert_array_equal(sums(read_trees(booster, 1), X[:9]), sums(read_trees(model, 1), X[:9]))


def categories() -> Any:
    return pd.DataFrame({"n": X[:, 0], "k": pd.Categorical(X[:, 3].astype(int).astype(str))})


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: LogisticRegression().fit(X, CLASS), "is a LogisticRegression; .* ReLU networks .* tree"),
        (lambda: make_pipeline(tree.DecisionTreeClassifier()).fit(X, CLASS), "is a Pipeline"),
        (lambda: tree.DecisionTreeRegressor().fit(X, X[:, :2]), "has 2 outputs"),
        (
            lambda: ensemble.GradientBoostingClassifier(init=LogisticRegression(), n_estimators=2).fit(X, CLASS),
            "begins with a LogisticRegression",
        ),
        (
            lambda: ensemble.HistGradientBoostingClassifier(categorical_features=[3]).fit(np.abs(X), CLASS),
            "HistGradientBoostingClassifier splits on categories",
        ),
        (lambda: xgboost(booster="gblinear", max_depth=None).fit(X, CLASS), "is linear"),
        (lambda: xgboost(missing=0.0).fit(X, CLASS), "treats 0.0 as missing"),
        (lambda: xgboost(enable_categorical=True).fit(categories(), CLASS), "XGBoost model splits on categories"),
        (lambda: lightgbm(min_data_per_group=5).fit(categories(), CLASS), "LightGBM model splits on categories"),
        (lambda: lightgbm(zero_as_missing=True).fit(X, CLASS), "treats zero as missing"),
        (lambda: lightgbm(linear_tree=True).fit(X, CLASS), "linear trees"),
    ],
)
def test_what_cannot_be_certified_says_why(fit: Callable[[], Any], message: str):
    with pytest.raises(OptionError, match=message):
        read_trees(fit(), 1)


def test_a_tree_without_splits_is_one_leaf():
    model = lightgbm(min_child_samples=300).fit(X, CLASS)
    found = read_trees(model, 1)
    assert len(found.columns) == 0
    path = largest_on_path(model, torch.tensor(X[:3]), torch.tensor(X[3:6]))
    assert path.largest.tolist() == [0.0, 0.0, 0.0]
