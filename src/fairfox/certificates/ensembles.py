"""Fitted tree ensembles read into one form: scikit-learn's, XGBoost's, LightGBM's."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from fairfox.certificates.forest import LEAF, Ensemble, Tree, gathered, rounded_to_float32
from fairfox.errors import OptionError
from fairfox.extras import require
from fairfox.models.boosting import library_of

_CATEGORIES = (
    "This {kind} splits on categories, which have no order to move along; certificates along the way need trees that "
    "split numbers only"
)


def read_trees(model: object, column: int | None) -> Ensemble:
    """Return the trees of a fitted model, or say what stands in the way; `column` is the audited class."""
    library = library_of(model)
    if library == "xgboost":
        return _read_xgboost(model)
    if library == "lightgbm":
        return _read_lightgbm(model)
    if type(model).__module__.startswith("sklearn."):
        found = _read_sklearn(model, column)
        if found is not None:
            return found
    raise OptionError(
        f"This is a {type(model).__name__}; certificates along the way are for ReLU networks (torch) and for tree "
        "ensembles on numbers: scikit-learn's trees, forests and gradient boosting, XGBoost, LightGBM"
    )


# --- scikit-learn --------------------------------------------------------------------------------------------------


def _read_sklearn(model: Any, column: int | None) -> Ensemble | None:
    from sklearn import ensemble, tree

    forests = (
        ensemble.RandomForestClassifier,
        ensemble.RandomForestRegressor,
        ensemble.ExtraTreesClassifier,
        ensemble.ExtraTreesRegressor,
    )
    single = (
        tree.DecisionTreeClassifier,
        tree.DecisionTreeRegressor,
        tree.ExtraTreeClassifier,
        tree.ExtraTreeRegressor,
    )
    if getattr(model, "n_outputs_", 1) != 1:
        raise OptionError(f"This {type(model).__name__} has {model.n_outputs_} outputs; certificates need one")
    if type(model) in forests + single:
        grown = model.estimators_ if type(model) in forests else [model]
        return gathered([_sklearn_tree(one.tree_, column) for one in grown])
    if type(model) in (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor):
        return _gradient_boosting(model)
    if type(model) in (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor):
        if model.is_categorical_ is not None and np.any(model.is_categorical_):
            raise OptionError(_CATEGORIES.format(kind=type(model).__name__))
        stages = model._predictors  # (rounds, classes): scikit-learn has no public way to them
        trees = [_hist_tree(one.nodes) for stage in stages for one in stage]
        return gathered(trees, comparable=len(stages[0]) == 1)
    return None


def _sklearn_tree(tree: Any, column: int | None, factor: float = 1.0) -> Tree:
    """Return a tree whose leaves hold one value, or the share of each class."""
    values = tree.value[:, 0, :]
    if column is not None and values.shape[1] > 1:
        values = values[:, column, None] / values.sum(1, keepdims=True)
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, dtype=np.uint8))
    return Tree(
        np.where(tree.children_left == -1, LEAF, tree.feature).astype(np.int64),
        rounded_to_float32(tree.threshold),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        np.asarray(missing, dtype=bool),
        factor * values[:, 0],
    )


def _gradient_boosting(model: Any) -> Ensemble:
    if model.init not in (None, "zero"):
        raise OptionError(
            f"This {type(model).__name__} begins with a {type(model.init).__name__}, which may change along the way; "
            "certificates need init=None or 'zero'"
        )
    grown = model.estimators_  # (rounds, classes)
    trees = [_sklearn_tree(one.tree_, None, model.learning_rate) for one in grown.ravel()]
    return gathered(trees, comparable=grown.shape[1] == 1)


def _hist_tree(nodes: np.ndarray) -> Tree:
    leaf = nodes["is_leaf"].astype(bool)
    return Tree(
        np.where(leaf, LEAF, nodes["feature_idx"]).astype(np.int64),
        nodes["num_threshold"].astype(np.float64),
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["missing_go_to_left"].astype(bool),
        nodes["value"].astype(np.float64),
    )


# --- XGBoost -------------------------------------------------------------------------------------------------------


def _read_xgboost(model: Any) -> Ensemble:
    native = isinstance(model, require("xgboost").Booster)
    if not native and not np.isnan(model.missing):
        raise OptionError(
            f"This {type(model).__name__} takes {model.missing} for missing, so that numbers have no order to move "
            "along; certificates need missing=nan"
        )
    booster = model if native else model.get_booster()
    content = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    weights = content.get("weight_drop")
    inner = content.get("gbtree", content).get("model", {})
    if "trees" not in inner:
        raise OptionError("This XGBoost model is linear, not of trees; give it as a torch module to certify it")
    count = len(inner["trees"])
    if not native and "best_iteration" in booster.attributes():  # a wrapper stops there
        count = inner["iteration_indptr"][booster.best_iteration + 1]
    factors = [1.0] * count if weights is None else weights[:count]
    trees = [_xgboost_tree(one, factor) for one, factor in zip(inner["trees"], factors, strict=False)]
    return gathered(trees, precision=np.float32, comparable=len(set(inner["tree_info"][:count])) == 1)


def _xgboost_tree(tree: dict[str, Any], factor: float) -> Tree:
    if any(tree["split_type"]):
        raise OptionError(_CATEGORIES.format(kind="XGBoost model"))
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise OptionError("This XGBoost model has several outputs in each leaf; certificates need one output per tree")
    left = np.array(tree["left_children"], dtype=np.int64)
    limits = np.array(tree["split_conditions"], dtype=np.float32)  # of a leaf: its value
    below = np.nextafter(limits, np.float32(-np.inf))  # a number goes left where it is smaller, not where equal
    return Tree(
        np.where(left == -1, LEAF, np.array(tree["split_indices"], dtype=np.int64)),
        rounded_to_float32(below.astype(np.float64)),
        left,
        np.array(tree["right_children"], dtype=np.int64),
        np.array(tree["default_left"], dtype=bool),
        factor * limits.astype(np.float64),
    )


# --- LightGBM ------------------------------------------------------------------------------------------------------

_CATEGORICAL, _DEFAULT_LEFT, _ZERO_MISSING, _NAN_MISSING = 1, 2, 4, 8  # bits of a node's decision_type
_ZERO = float(np.float32(1e-35))  # numbers no further from zero are zero to LightGBM


def _read_lightgbm(model: Any) -> Ensemble:
    booster = model if isinstance(model, require("lightgbm").Booster) else model.booster_
    text = booster.model_to_string()
    parts = re.split(r"^Tree=\d+$", text.partition("end of trees")[0], flags=re.MULTILINE)[1:]
    trees = [_lightgbm_tree(dict(line.split("=", 1) for line in part.split("\n") if "=" in line)) for part in parts]
    return gathered(trees, comparable=booster.num_model_per_iteration() == 1)


def _lightgbm_tree(lines: dict[str, str]) -> Tree:
    """Return a tree from its lines; a negative child -k is the leaf k - 1."""
    if lines.get("is_linear", "0") != "0":
        raise OptionError("This LightGBM model has linear trees; certificates need leaves with one value")
    values = np.array(lines["leaf_value"].split(), dtype=np.float64)
    feature = np.array(lines.get("split_feature", "").split(), dtype=np.int64)
    kinds = np.array(lines.get("decision_type", "").split(), dtype=np.int64)[: len(feature)]
    if (kinds & _CATEGORICAL).any():
        raise OptionError(_CATEGORIES.format(kind="LightGBM model"))
    if (kinds & _ZERO_MISSING).any():
        raise OptionError(
            "This LightGBM model takes zero for missing, so that numbers have no order to move along; certificates "
            "need zero_as_missing=false"
        )
    threshold = np.array(lines.get("threshold", "").split(), dtype=np.float64)[: len(feature)]
    about_zero = np.where(threshold >= 0, _ZERO, np.nextafter(-_ZERO, -np.inf))
    threshold = np.where(np.abs(threshold) <= _ZERO, about_zero, threshold)
    if len(values) == 1:
        feature, kinds, threshold = feature[:0], kinds[:0], threshold[:0]
    splits, leaves = len(feature), np.zeros(len(values))
    children = [np.array(lines.get(f"{side}_child", "").split(), dtype=np.int64)[:splits] for side in ("left", "right")]
    left, right = (np.where(child < 0, splits - child - 1, child) for child in children)
    # where nothing was missing in training, NaN counts as zero
    missing_left = np.where(kinds & _NAN_MISSING, (kinds & _DEFAULT_LEFT) > 0, threshold >= 0)
    return Tree(
        np.concatenate([feature, np.full(len(values), LEAF)]),
        np.concatenate([threshold, leaves]),
        np.concatenate([left, leaves.astype(np.int64)]),
        np.concatenate([right, leaves.astype(np.int64)]),
        np.concatenate([missing_left.astype(bool), leaves.astype(bool)]),
        np.concatenate([np.zeros(splits), values]),
    )
