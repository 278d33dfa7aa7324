"""Tree ensembles along a straight path: piecewise constant in t, with every step exact to the last bit of t.

A column's rounded number is monotone along the path, so each split is passed at one exact float64: the first t on its
other side. Between these the leaves stay. Numbers t are held as the integers with the same bits: for t >= 0 both have
the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairfox.certificates.path import PathChange, PathNumbers, path_numbers, point_at, worst_points
from fairfox.errors import ModelError, OptionError, require
from fairfox.models.adapters import BlackBoxModel
from fairfox.models.boosting import library_of
from fairfox.models.protocol import predict

LEAF = -1
_CATEGORIES = (
    "This {kind} splits on categories, which have no order; certificates along the path need trees that split "
    "only on numbers"
)
_ONE = int(np.float64(1.0).view(np.int64))
_PAST = _ONE + 1  # the integer behind t = 1
_EPS = float(np.finfo(np.float64).eps)
_AGREE = 1e-6  # a library that sums in float32 is within it of the true sum


# --- Trees of every library in one form ------------------------------------------------------------------------------
# A split sends the number v to the left where v <= threshold, in float64.


class Tree(NamedTuple):
    """One tree; nodes are numbered from its root 0."""

    feature: np.ndarray  # (Z,) the column a node splits; LEAF at leaves
    threshold: np.ndarray  # (Z,) float64
    left: np.ndarray  # (Z,)
    right: np.ndarray  # (Z,)
    missing_left: np.ndarray  # (Z,) bool
    value: np.ndarray  # (Z,) what a leaf adds


@dataclass(frozen=True)
class Ensemble:
    """Trees one after the other in shared arrays.

    The audited output rises or falls with the sum of the leaves. `slack` is how far a sum may be from the
    library's own; where several sums are within it of the largest, the model decides. It is infinite where sums say
    nothing (several classes).
    """

    nodes: Tree
    roots: np.ndarray  # (T,)
    slack: float

    @property
    def columns(self) -> np.ndarray:
        """The columns that the trees split on."""
        return np.unique(self.nodes.feature[self.nodes.feature != LEAF])


def gather_trees(
    trees: Sequence[Tree], *, precision: type[np.floating] = np.float64, comparable: bool = True
) -> Ensemble:
    """Return trees as one ensemble; `precision` is what the library sums in."""
    sizes = np.array([len(tree.feature) for tree in trees], dtype=np.int64)
    roots = np.cumsum(sizes) - sizes
    shifted = [
        tree._replace(left=tree.left + root, right=tree.right + root)
        for tree, root in zip(trees, roots.tolist(), strict=True)
    ]
    kinds = (np.int64, np.float64, np.int64, np.int64, np.bool_, np.float64)
    nodes = Tree(*(np.concatenate(part).astype(kind) for kind, *part in zip(kinds, *shifted, strict=True)))
    leaves = np.where(nodes.feature == LEAF, np.abs(nodes.value), 0.0)
    scale = float(np.maximum.reduceat(leaves, roots).sum())
    rounding = max(len(trees) * float(np.finfo(precision).eps), 1e-9)
    return Ensemble(nodes, roots, rounding * scale if comparable else np.inf)


def rounded_to_float32(thresholds: np.ndarray) -> np.ndarray:
    """Return the largest float64 v for which float32(v) <= threshold, for each."""
    with np.errstate(over="ignore"):
        below = thresholds.astype(np.float32)
        below = np.where(below > thresholds, np.nextafter(below, np.float32(-np.inf)), below)
        middle = (below.astype(np.float64) + np.nextafter(below, np.float32(np.inf)).astype(np.float64)) / 2
        goes_down = middle.astype(np.float32) <= below  # ties go to the even neighbour
    return np.where(goes_down, middle, np.nextafter(middle, -np.inf))


def seen_in_float32(ensemble: Ensemble, columns: np.ndarray) -> Ensemble:
    """Return the ensemble for numbers of which some columns (C,) bool are first rounded to float32."""
    if not columns.any():
        return ensemble
    split = ensemble.nodes.feature != LEAF
    rounded = split & columns[np.where(split, ensemble.nodes.feature, 0)]
    threshold = np.where(rounded, rounded_to_float32(ensemble.nodes.threshold), ensemble.nodes.threshold)
    return replace(ensemble, nodes=ensemble.nodes._replace(threshold=threshold))


# --- Along a path ----------------------------------------------------------------------------------------------------


class Stretches(NamedTuple):
    """Intervals of paths: from t `first` up to, but not including, `past`, both as integers; and the node of each."""

    person: np.ndarray  # (P,)
    node: np.ndarray  # (P,)
    first: np.ndarray  # (P,)
    past: np.ndarray  # (P,)


def trees_on_path(ensemble: Ensemble, model: BlackBoxModel, here: Tensor, there: Tensor) -> PathChange:
    """Return the largest change of an ensemble's output on each path between rows (N, D) without `reasons_against`."""
    people = len(here)
    if not people:
        return worst_points(here[:, 0], here[:, 0], here[:, 0], torch.zeros(0, dtype=torch.long), here[:, 0])
    stretches = leaf_stretches(ensemble, path_numbers(model, here, there))
    owner, t = (torch.as_tensor(part).to(here.device) for part in _candidates(ensemble, stretches, people))
    ends = here, there, point_at(here, there, torch.ones_like(here[:, 0]))
    # all in one call: a tree ensemble takes as long for few rows as for many
    rows = torch.cat([*ends, point_at(here[owner], there[owner], t)])
    f_here, f_there, f_last, found = predict(model, rows).split([people, people, people, len(owner)])
    if np.isfinite(ensemble.slack):
        _check_reading(torch.stack([f_here, f_last]), found, owner)
    return worst_points(f_here, f_there, found, owner, t)


def leaf_stretches(ensemble: Ensemble, numbers: PathNumbers) -> Stretches:
    """Return the intervals of everyone's path in the leaves of every tree."""
    people, nodes = len(numbers.start), ensemble.nodes
    ends = numbers.all_at(0.0), numbers.all_at(1.0)
    now = Stretches(
        np.repeat(np.arange(people), len(ensemble.roots)),
        np.tile(ensemble.roots, people),
        np.zeros(people * len(ensemble.roots), dtype=np.int64),
        np.full(people * len(ensemble.roots), _PAST, dtype=np.int64),
    )
    done = []
    while len(now.node):
        leaf = nodes.feature[now.node] == LEAF
        done.append(_taken(now, leaf))
        now = _through_splits(ensemble, numbers, ends, _taken(now, ~leaf))
    return Stretches(*(np.concatenate(part) for part in zip(*done, strict=True)))


def _through_splits(
    ensemble: Ensemble, numbers: PathNumbers, ends: tuple[np.ndarray, np.ndarray], now: Stretches
) -> Stretches:
    """Return the stretches one node further down; one that passes the split becomes two."""
    nodes = ensemble.nodes
    column, limit, default = nodes.feature[now.node], nodes.threshold[now.node], nodes.missing_left[now.node]
    values = (end[now.person, column] for end in ends)
    before, after = (np.where(np.isnan(value), default, value <= limit) for value in values)  # who goes left
    passed = np.where(before == after, _PAST, 0)
    turn = (before != after).nonzero()[0]
    passed[turn] = _passing(numbers, ends, _taken(now, turn), column[turn], limit[turn])
    left, right = nodes.left[now.node], nodes.right[now.node]
    first, second = passed > now.first, passed < now.past
    head = now._replace(node=np.where(before, left, right), past=np.minimum(now.past, passed))
    tail = now._replace(node=np.where(after, left, right), first=np.maximum(now.first, passed))
    return Stretches(*(np.concatenate(pair) for pair in zip(_taken(head, first), _taken(tail, second), strict=True)))


def _taken(stretches: Stretches, rows: np.ndarray) -> Stretches:
    return Stretches(*(part[rows] for part in stretches))


def _passing(
    numbers: PathNumbers, ends: tuple[np.ndarray, np.ndarray], now: Stretches, column: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """Return the first t (as integers) at which a number is on the other side of the limit than at t = 0.

    Of limits that are passed far from the stretch only the side of it is right.
    """
    v0, v1 = (end[now.person, column] for end in ends)
    guess = (limit - v0) / (v1 - v0)
    size = np.abs(v0) + np.abs(v1) + np.abs(numbers.mean[column])
    doubt = 64 * _EPS * (1 + size / np.abs(v1 - v0))  # rounding moves a passing no further
    # abs: -0.0 has other bits than 0.0
    low, high = (np.abs(np.clip(guess + sign * doubt, 0.0, 1.0)).view(np.int64) for sign in (-1, 1))
    far = (high < now.first) | (low >= now.past)
    out = np.where(high < now.first, 0, _PAST)
    near = (~far).nonzero()[0]
    person, column, limit, up = now.person[near], column[near], limit[near], (v1 > v0)[near]

    def beyond(t: np.ndarray) -> np.ndarray:
        return np.asarray((numbers.at(person, column, t.view(np.float64)) > limit) == up)

    first = np.where(beyond(low[near]), 0, low[near])  # t = 0 is not beyond, and t = 1 is
    last = np.where(beyond(high[near]), high[near], _ONE)
    while bool((last - first > 1).any()):
        middle = first + (last - first) // 2
        over = beyond(middle)
        first, last = np.where(over, first, middle), np.where(over, middle, last)
    out[near] = last
    return out


def _candidates(ensemble: Ensemble, stretches: Stretches, people: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whose each stretch is and its first t, of those whose sum of leaves is among the largest or smallest."""
    person, t, total = _sums(stretches, ensemble.nodes.value[stretches.node])
    begin = np.searchsorted(person, np.arange(people))
    highest, lowest = (part.reduceat(total, begin)[person] for part in (np.maximum, np.minimum))
    extreme = (total >= highest - ensemble.slack) | (total <= lowest + ensemble.slack)
    return person[extreme], t[extreme].view(np.float64)


def _sums(stretches: Stretches, value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where sums over all trees change, by person and t: whose each is (E,), its t, the sum from there on."""
    person = np.concatenate([stretches.person, stretches.person])
    t = np.concatenate([stretches.first, stretches.past])
    change = np.concatenate([value, -value])
    order = np.lexsort((t, person))
    person, t, total = person[order], t[order], np.cumsum(change[order])  # back to 0 at everyone's end
    last = np.append((np.diff(person) != 0) | (np.diff(t) != 0), True) & (t < _PAST)
    return person[last], t[last], total[last]


def _check_reading(ends: Tensor, found: Tensor, owner: Tensor) -> None:
    """Raise unless the model's answers at t = 0 and 1 (2, N) lie within those at the points found to be extreme."""
    edge = torch.full_like(ends[0], torch.inf)
    highest, lowest = (-edge).scatter_reduce(0, owner, found, "amax"), edge.scatter_reduce(0, owner, found, "amin")
    if bool(((ends > highest + _AGREE) | (ends < lowest - _AGREE)).any()):
        raise ModelError(
            "The trees that were read rank people differently from the model's own predictions, so nothing can be "
            "certified; give the fitted model that makes these predictions, unchanged"
        )


# --- Reading a fitted model ------------------------------------------------------------------------------------------


def read_trees(model: object, column: int | None) -> Ensemble:
    """Return the trees of a fitted model; raise where they cannot be read. `column` is the audited class."""
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
        f"This is a {type(model).__name__}; certificates along the path are for ReLU networks (torch) and for tree "
        "ensembles on numbers: scikit-learn's trees, forests and gradient boosting, XGBoost, LightGBM"
    )


# --- scikit-learn --------------------------------------------------------------------------------------------------


def _read_sklearn(model: Any, column: int | None) -> Ensemble | None:
    kind = type(model).__name__
    if getattr(model, "n_outputs_", 1) != 1:
        raise OptionError(f"This {kind} has {model.n_outputs_} outputs; certificates need one")
    if kind.startswith(("DecisionTree", "ExtraTree", "RandomForest")):  # ExtraTrees is a forest, ExtraTree one of it
        grown = getattr(model, "estimators_", [model])
        return gather_trees([_sklearn_tree(one.tree_, column) for one in grown])
    if kind.startswith("GradientBoosting"):
        if model.init not in (None, "zero"):
            raise OptionError(
                f"This {kind} begins with a {type(model.init).__name__}, which may change along the path; "
                "certificates need init=None or 'zero'"
            )
        stages = model.estimators_  # (rounds, classes)
        trees = [_sklearn_tree(one.tree_, None, model.learning_rate) for one in stages.ravel()]
    elif kind.startswith("HistGradientBoosting"):
        if model.is_categorical_ is not None and np.any(model.is_categorical_):
            raise OptionError(_CATEGORIES.format(kind=kind))
        stages = model._predictors  # (rounds, classes): scikit-learn does not publish them
        trees = [_hist_tree(one.nodes) for stage in stages for one in stage]
    else:
        return None
    return gather_trees(trees, comparable=len(stages[0]) == 1)


def _sklearn_tree(tree: Any, column: int | None, factor: float = 1.0) -> Tree:
    """Return a tree whose leaves hold one value, or the share of each class."""
    values = tree.value[:, 0, :]
    if column is not None and values.shape[1] > 1:
        values = values[:, column, None] / values.sum(1, keepdims=True)
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, dtype=np.uint8))
    left, right, feature = (
        tree.children_left,
        tree.children_right,
        np.where(tree.children_left == -1, LEAF, tree.feature),
    )
    return Tree(feature, rounded_to_float32(tree.threshold), left, right, np.asarray(missing), factor * values[:, 0])


def _hist_tree(nodes: np.ndarray) -> Tree:
    others = (nodes[name] for name in ("num_threshold", "left", "right", "missing_go_to_left", "value"))
    return Tree(np.where(nodes["is_leaf"].astype(bool), LEAF, nodes["feature_idx"]), *others)


# --- XGBoost -------------------------------------------------------------------------------------------------------


def _read_xgboost(model: Any) -> Ensemble:
    native = isinstance(model, require("xgboost").Booster)
    if not native and not np.isnan(model.missing):
        raise OptionError(
            f"This {type(model).__name__} treats {model.missing} as missing, so numbers have no order; "
            "certificates need missing=nan"
        )
    booster = model if native else model.get_booster()
    content = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    weights = content.get("weight_drop")
    inner = content.get("gbtree", content).get("model", {})
    if "trees" not in inner:
        raise OptionError("This XGBoost model is linear and has no trees; give it as a torch module to certify it")
    count = len(inner["trees"])
    if not native and "best_iteration" in booster.attributes():  # a wrapper stops there
        count = inner["iteration_indptr"][booster.best_iteration + 1]
    factors = [1.0] * count if weights is None else weights[:count]
    trees = [_xgboost_tree(one, factor) for one, factor in zip(inner["trees"], factors, strict=False)]
    return gather_trees(trees, precision=np.float32, comparable=len(set(inner["tree_info"][:count])) == 1)


def _xgboost_tree(tree: dict[str, Any], factor: float) -> Tree:
    if any(tree["split_type"]):
        raise OptionError(_CATEGORIES.format(kind="XGBoost model"))
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise OptionError("This XGBoost model has several outputs in each leaf; certificates need one output per tree")
    names = ("split_indices", "left_children", "right_children", "default_left")
    feature, left, right, missing_left = (np.array(tree[name], dtype=np.int64) for name in names)
    limits = np.array(tree["split_conditions"], dtype=np.float32)  # of a leaf: its value
    below = np.nextafter(limits, np.float32(-np.inf))  # a number goes left where it is smaller, not where equal
    threshold, value = rounded_to_float32(below.astype(np.float64)), factor * limits.astype(np.float64)
    return Tree(np.where(left == -1, LEAF, feature), threshold, left, right, missing_left, value)


# --- LightGBM ------------------------------------------------------------------------------------------------------

_CATEGORICAL, _DEFAULT_LEFT, _ZERO_MISSING, _NAN_MISSING = 1, 2, 4, 8  # bits of a node's decision_type
_ZERO = float(np.float32(1e-35))  # numbers no further from zero are zero to LightGBM


def _read_lightgbm(model: Any) -> Ensemble:
    booster = model if isinstance(model, require("lightgbm").Booster) else model.booster_
    text = booster.model_to_string()
    parts = re.split(r"^Tree=\d+$", text.partition("end of trees")[0], flags=re.MULTILINE)[1:]
    trees = [_lightgbm_tree(dict(line.split("=", 1) for line in part.split("\n") if "=" in line)) for part in parts]
    return gather_trees(trees, comparable=booster.num_model_per_iteration() == 1)


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
            "This LightGBM model treats zero as missing, so numbers have no order; certificates need "
            "zero_as_missing=false"
        )
    threshold = np.array(lines.get("threshold", "").split(), dtype=np.float64)[: len(feature)]
    about_zero = np.where(threshold >= 0, _ZERO, np.nextafter(-_ZERO, -np.inf))
    threshold = np.where(np.abs(threshold) <= _ZERO, about_zero, threshold)
    if len(values) == 1:
        feature, kinds, threshold = feature[:0], kinds[:0], threshold[:0]
    splits, zeros = len(feature), np.zeros(len(values), dtype=np.int64)
    children = [np.array(lines.get(f"{side}_child", "").split(), dtype=np.int64)[:splits] for side in ("left", "right")]
    left, right = (np.where(child < 0, splits - child - 1, child) for child in children)
    # where nothing was missing in training, NaN counts as zero
    missing_left = np.where(kinds & _NAN_MISSING, (kinds & _DEFAULT_LEFT) > 0, threshold >= 0)
    inner = (feature, threshold, left, right, missing_left, np.zeros(splits))
    leaves = (zeros + LEAF, zeros, zeros, zeros, zeros, values)
    return Tree(*(np.concatenate(both) for both in zip(inner, leaves, strict=True)))
