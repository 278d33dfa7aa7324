"""scikit-learn estimators and Pipelines: which function predicts, on what, and what it returns."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from fairfox.data.frames import as_categories
from fairfox.errors import FileError, OptionError, UntrustedModelError, first_line, require
from fairfox.models.boosting import is_tree
from fairfox.models.protocol import Description, Kind, Returns, Wanted

_NAMES = [line.split() for line in Path(__file__).with_name("skops_names.txt").read_text("utf-8").splitlines()]
_ALLOWED = {tuple(words) for words in _NAMES if words and words[0] != "#"}  # kind of node, name
_DRAWS = {"RandomStateNode", "RandomGeneratorNode"}  # no prediction draws random numbers: None takes their place
_NONE = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "null"}
_INFLATED = 2**28  # bytes a small file may unpack to
_SCHEMA, _NODES = 2**26, 10**6  # bytes of a schema, and its lists and objects: some thousand trees


def is_estimator(obj: object) -> bool:
    """Return whether this looks like a scikit-learn estimator (any object with get_params and predict)."""
    return not isinstance(obj, type) and hasattr(obj, "predict") and hasattr(obj, "get_params")


def describe_estimator(obj: Any, *, wanted: Wanted) -> Description:
    """Return how to call a fitted estimator for probabilities, or for values if it is a regressor."""
    from sklearn.base import is_classifier  # not needed before a scikit-learn object is at hand
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(obj)
    except NotFittedError as error:
        raise OptionError(f"This {type(obj).__name__} is not fitted; call its fit before the audit") from error
    names = getattr(obj, "feature_names_in_", None)
    columns = None if names is None else tuple(map(str, names))
    # an estimator without column names was fitted on an array, unless it is a Pipeline that counted no columns
    on_array = columns is None and (not hasattr(obj, "named_steps") or hasattr(obj, "n_features_in_"))
    kind: Kind = "matrix" if on_array else "table"
    returns: Returns
    if not is_classifier(obj):
        ask, returns = obj.predict, "value"
    elif hasattr(obj, "predict_proba"):
        ask, returns = obj.predict_proba, "probability"
    elif wanted == "logit" and hasattr(obj, "decision_function"):
        ask, returns = obj.decision_function, "logit"
    else:
        raise OptionError(
            f"This {type(obj).__name__} has no predict_proba; wrap it in CalibratedClassifierCV, "
            "or audit its decision function with output='logit' (--output logit)"
        )
    classes, levels = None if returns == "value" else list(obj.classes_), _category_levels(obj)

    def predict(rows: Any) -> Any:
        return ask(as_categories(rows, levels) if levels and not isinstance(rows, np.ndarray) else rows)

    width = getattr(obj, "n_features_in_", None)
    cut = _threshold(obj, classes) if returns == "probability" else None
    return Description(predict, kind, returns, classes, columns, frozenset(levels), width, cut)


def _threshold(obj: Any, classes: list[Any] | None) -> float | None:
    """Return the probability of the second class from which on a model with a threshold of its own says yes."""
    cut, positive = getattr(obj, "best_threshold_", getattr(obj, "threshold", None)), getattr(obj, "pos_label", None)
    by_probability = getattr(obj, "response_method", None) in ("auto", "predict_proba")
    if not by_probability or not isinstance(cut, Real) or classes is None:
        return None
    return float(cut) if positive in (None, classes[-1]) else 1 - float(cut)


def load_skops(path: Path) -> Any:
    """Return the estimator in a skops file; raise where it holds a type that is not on the safe list."""
    io = require("skops.io", extra="skops")
    try:
        content = BytesIO(path.read_bytes())  # what is checked is what is loaded
        with zipfile.ZipFile(content, "a") as archive, warnings.catch_warnings(action="ignore"):
            schema, foreign = _checked_schema(archive, path)
            archive.writestr("schema.json", json.dumps(schema))  # of two entries with one name the last is read
        if not foreign:
            made = io.loads(content.getvalue(), trusted=sorted({name for _, name in _ALLOWED}))
            with warnings.catch_warnings(action="ignore"):  # of columns without names
                _check_arrays(made)
            return made
    except FileError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise FileError(
            f"'{path.name}' could not be read as a skops file: {type(error).__name__}: {first_line(error)[:200]}; "
            "save it again"
        ) from error
    names = sorted(re.sub(r"[^\w.]", "?", name)[:100] for name in foreign)[:5]
    raise UntrustedModelError(
        f"'{path.name}' holds types that are not on fairfox's safe list: {', '.join(names)}; if you trust its "
        "source, load it in a Python file of your own and give that as file.py:function"
    )


def _checked_schema(archive: zipfile.ZipFile, path: Path) -> tuple[Any, set[str]]:
    """Return what a skops file says is to be made, nothing in it shared, and the names in it that are not allowed."""
    sizes, limit = {e.filename: e.file_size for e in archive.infolist()}, max(_INFLATED, 20 * path.stat().st_size)
    total, named, foreign = sum(sizes.values()), 0, set()
    text = archive.read("schema.json") if total <= limit and sizes.get("schema.json", 0) <= _SCHEMA else b""
    if not text or text.count(b"{") + text.count(b"[") > _NODES:
        raise _too_large(path, total)
    ahead = [schema := json.loads(text)]
    while ahead:
        node = ahead.pop()
        if isinstance(node, dict) and "__loader__" in node:
            loader, name = str(node["__loader__"]), f"{node['__module__']}.{node['__class__']}"
            node.pop("__id__", None)  # skops would take another node of the same number in its place
            if loader in _DRAWS:
                node.clear()
                node.update(_NONE)
            elif (loader, name) not in _ALLOWED:
                foreign.add(f"{name}.{node['content']['func']}" if loader == "MethodNode" else name)
            elif not _as_written(node, loader, archive):
                raise ValueError(f"a {loader} in it is not what skops writes")
            named += sizes[node["file"]] if "file" in node else 0  # an array counts as often as it is named
        ahead.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    if named > limit:
        raise _too_large(path, named)
    return schema, foreign


def _too_large(path: Path, size: int) -> FileError:
    unpacked = f"{size / 2**20:,.0f} MiB"
    return FileError(f"'{path.name}' would unpack to {unpacked} or too many objects; save the model again with skops")


def _as_written(node: dict[str, Any], loader: str, archive: zipfile.ZipFile) -> bool:
    """Return whether a node is as skops writes it: one that calls no keys, and makes no arrays larger than files."""
    if loader == "DictNode":
        kinds = node["key_types"]
        return bool(kinds["__loader__"] == "ListNode" and all(k["__loader__"] == "TypeNode" for k in kinds["content"]))
    if loader == "PartialNode":
        return bool(node["content"]["func"]["__loader__"] == "FunctionNode")
    if loader == "FunctionNode":
        return "content" not in node  # where the oldest files have another name
    if loader == "NdArrayNode" and node["type"] == "numpy":
        with archive.open(node["file"]) as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        return math.prod(shape) * max(dtype.itemsize, 1) <= archive.getinfo(node["file"]).file_size
    if loader == "TreeNode":
        parts = node["__reduce__"]["args"]["content"]
        classes = np.load(BytesIO(archive.read(parts[1]["file"])), allow_pickle=False)
        right = [part["__loader__"] for part in parts] == ["JsonNode", "NdArrayNode", "JsonNode"]
        return bool(right and classes.shape == (int(parts[2]["content"]),) and (classes > 0).all())
    return True


def _category_levels(obj: Any) -> dict[str, list[Any]]:
    """Return the columns that are categories to HistGradientBoosting, alone or in a search, and their levels."""
    obj = getattr(obj, "best_estimator_", obj)
    if hasattr(obj, "named_steps") and all(step in (None, "passthrough") for _, step in obj.steps[:-1]):
        obj = obj.steps[-1][1]
    names, which = getattr(obj, "feature_names_in_", None), getattr(obj, "is_categorical_", None)
    if names is None or which is None:
        return {}
    encoders = getattr(getattr(obj, "_preprocessor", None), "named_transformers_", {})
    known = [list(levels) for levels in getattr(encoders.get("encoder"), "categories_", [])]
    return dict(zip(map(str, names[np.asarray(which, dtype=bool)]), known, strict=False))


# --- arrays that compiled code follows -----------------------------------------------------------------------------


def _check_arrays(model: Any) -> None:
    """Refuse a model whose arrays would make compiled code read or write beside them: it does not look itself."""
    parts = list(_parts(model))
    for kind, attribute, fits in _CHECKS:
        for part in parts:
            known = any(base.__name__ == kind for base in type(part).__mro__)
            if known and attribute in vars(part) and not fits(part):  # without it nothing is predicted
                raise ValueError(f"a {type(part).__name__} in it points outside its own arrays")


def _parts(model: Any) -> Iterator[Any]:
    """Yield the objects that a model consists of, none of which hides a method of its class."""
    ahead = [model]
    while ahead:
        part = ahead.pop()
        if isinstance(part, dict | list | tuple | set):
            ahead.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, np.ndarray) and part.dtype == object:
            ahead.extend(part.ravel().tolist())
        elif type(part).__module__.startswith("sklearn.") and hasattr(part, "__dict__"):
            hidden = [name for name in vars(part) if name == "_impl" or callable(getattr(type(part), name, None))]
            if hidden:
                raise ValueError(f"a {type(part).__name__} in it overrides '{hidden[0][:100]}'")
            if type(vars(part).get("n_jobs")) is int:
                part.n_jobs = min(part.n_jobs, os.cpu_count() or 1)
            ahead.extend(vars(part).values())
            yield part


def _inside(values: Any, stop: int) -> bool:
    return bool(((values >= 0) & (values < stop)).all())


def _tree_fits(own: Any) -> bool:
    tree, nodes = own.tree_, own.tree_.__getstate__()["nodes"]
    inner = nodes["left_child"] != -1
    there = tree.node_count == len(nodes) and tree.n_features == own.n_features_in_
    linked = is_tree(len(nodes), nodes["left_child"][inner], nodes["right_child"][inner])
    return there and linked and _inside(nodes["feature"][inner], tree.n_features)


def _widths_fit(own: Any) -> bool:
    trees = np.ravel(own.estimators_).tolist()
    return all("tree_" in vars(tree) and tree.n_features_in_ == own.n_features_in_ for tree in trees)


def _stages_fit(own: Any) -> bool:
    if type(own.init_).__name__ not in ("DummyClassifier", "DummyRegressor", "str") or not _widths_fit(own):
        return False
    first = own._raw_predict_init(np.zeros((1, own.n_features_in_), dtype=np.float32))
    return bool(first.shape[1:] == own.estimators_.shape[1:])


def _predictors_fit(own: Any) -> bool:
    width, coded = own._n_features, np.flatnonzero(own._bin_mapper.is_categorical_)
    prepared = own._preprocess_X(np.full((1, width), None), reset=False)
    known = all(_inside(np.asarray(own._bin_mapper.bin_thresholds_[column]), 256) for column in coded)
    if not (prepared.shape == (1, own.n_features_in_) == (1, own._bin_mapper.is_categorical_.size) and known):
        return False
    for tree in (tree for trees in own._predictors for tree in trees):
        nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
        inner = nodes["is_leaf"] == 0
        looked_up = inner & (nodes["is_categorical"] != 0)
        coding = np.isin(nodes["feature_idx"][looked_up], coded).all() and bits.shape == (len(bits), 8)
        linked = is_tree(len(nodes), nodes["left"][inner], nodes["right"][inner])
        placed = _inside(nodes["feature_idx"][inner], width) and _inside(nodes["bitset_idx"][looked_up], len(bits))
        if not (linked and placed and coding):
            return False
    return True


def _vectors_fit(own: Any) -> bool:
    classes, vectors = len(own._n_support), len(own.support_)
    pairs = classes * (classes - 1) // 2
    return bool(
        (own._sparse, classes > 1, own.kernel in ("linear", "poly", "rbf", "sigmoid")) == (False, True, True)
        and (own._n_support >= 0).all()
        and own.support_vectors_.shape == (vectors, own.n_features_in_)
        and (own._dual_coef_.shape, own._intercept_.shape) == ((classes - 1, vectors), (pairs,))
        and {own._probA.size, own._probB.size} <= {0, pairs}
    )


def _levels_fit(own: Any) -> bool:
    gone, outs = own._drop_idx_after_grouping, own._n_features_outs
    for j, levels in enumerate(own.categories_):
        drop = None if gone is None else gone[j]
        group = own._default_to_infrequent_mappings[j] if own._infrequent_enabled else None
        rare = own._infrequent_indices[j] if own._infrequent_enabled else None
        most = outs[j] + (drop is not None)
        ordered = levels.dtype.kind in "OUS" or (np.diff(levels[~np.isnan(levels)]) > 0).all()
        grouped = group is None or (len(group) == len(levels) and _inside(np.asarray(group), most))
        if not (ordered and grouped and (group is None) == (rare is None) and (drop is None or 0 <= drop < most)):
            return False
    return bool(outs == own._compute_n_features_outs())


_CHECKS = (  # in this order: the later ones predict with what the earlier ones have seen
    ("OneHotEncoder", "categories_", _levels_fit),
    ("object", "tree_", _tree_fits),
    ("BaseForest", "estimators_", _widths_fit),
    ("BaseGradientBoosting", "estimators_", _stages_fit),
    ("BaseHistGradientBoosting", "_predictors", _predictors_fit),
    ("BaseLibSVM", "support_", _vectors_fit),
)
