"""Boosted trees: XGBoost, LightGBM and CatBoost, native models and scikit-learn wrappers alike.

Trees on numbers take a matrix. Those with categories take a table, whose columns become categories in the model's own
coding: a file has text where the model was trained on pandas categories. Missing values stay NaN.

The libraries are written in C++ and trust their files: a few damaged bytes may crash the process. So a separate process
loads each file first and lets the library write its trees again. These are checked node by node, and then loaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fairfox.data.frames import as_categories, as_pandas
from fairfox.errors import DataError, FileError, OptionError, require
from fairfox.models.protocol import Description, Kind, Returns, Wanted

MODELS = {"xgboost": ("Booster", "XGBModel"), "lightgbm": ("Booster", "LGBMModel"), "catboost": ("CatBoost",)}


def library_of(obj: object) -> str | None:
    """Return which of the three libraries a model comes from; subclasses count."""
    modules = [base.__module__.partition(".")[0] for base in type(obj).__mro__]
    return next((library for library in MODELS if library in modules), None)


def describe_booster(obj: Any, *, wanted: Wanted) -> Description:
    """Return how to call boosted trees for probabilities or values, or for logits where asked."""
    from sklearn.exceptions import NotFittedError  # the base of the libraries' own

    library = library_of(obj) or type(obj).__name__
    if not isinstance(obj, tuple(getattr(require(library), name) for name in MODELS[library])):
        raise OptionError(f"This is a {type(obj).__name__}, not a model; give a booster or a fitted estimator")
    describers = {"xgboost": _describe_xgboost, "lightgbm": _describe_lightgbm, "catboost": _describe_catboost}
    try:
        return describers[library](obj, wanted)
    except NotFittedError as error:
        raise OptionError(f"This {type(obj).__name__} is not fitted; call its fit before the audit") from error


# --- XGBoost -------------------------------------------------------------------------------------------------------

_PROBABILITY = ("binary:logistic", "reg:logistic", "multi:softprob")
_CLASS_NUMBERS = ("multi:softmax", "binary:hinge")


def _describe_xgboost(obj: Any, wanted: Wanted) -> Description:
    xgb = require("xgboost")
    native = isinstance(obj, xgb.Booster)
    booster = obj if native else obj.get_booster()
    learner = json.loads(booster.save_config())["learner"]
    if learner["learner_model_param"]["num_feature"] == "0":
        raise OptionError("This Booster is not fitted; train it before the audit")
    classes = None if native else getattr(obj, "classes_", None)
    returns, margin, numbered = _xgboost_output(learner, wanted, wrapped_classes=classes is not None)
    if callable(getattr(obj, "objective", None)):
        returns, margin = "value", True  # an objective of the user's own: nobody knows what its margin means
    names = _own_names(booster.feature_names)
    types = booster.feature_types or []
    coded = [name for name, kind in zip(names or (), types, strict=False) if kind == "c"]
    # as the library itself: a wrapper stops at the best iteration, a native booster uses every tree
    stopped = not native and "best_iteration" in booster.attributes()
    rounds = (0, booster.best_iteration + 1) if stopped else (0, 0)
    missing = np.nan if native else obj.missing
    levels: dict[str, list[Any]] = {}
    if coded and hasattr(booster, "get_categories"):  # models of XGBoost before 3.1 do not hold them
        found = booster.get_categories(export_to_arrow=True)
        known = [] if found.empty() else found.to_arrow()
        levels = {name: each.to_pylist() for name, each in known if each is not None}

    def predict(rows: Any) -> Any:
        rows = _prepared(rows, levels, coded)
        if learner["gradient_booster"]["name"] == "gblinear":
            data = xgb.DMatrix(rows, missing=missing, enable_categorical=True)
            return booster.predict(data, output_margin=margin, iteration_range=rounds, validate_features=False)
        kind = "margin" if margin else "value"
        return booster.inplace_predict(rows, iteration_range=rounds, predict_type=kind, missing=missing)

    own, width = numbered if classes is None else list(classes), booster.num_features()
    return Description(predict, "table" if coded else "matrix", returns, own, names, frozenset(coded), width)


def _xgboost_output(learner: Any, wanted: Wanted, *, wrapped_classes: bool) -> tuple[Returns, bool, list[Any] | None]:
    """Return what the model gives, whether it is asked for its margin, and its classes by number."""
    objective = learner["objective"]["name"]
    shape = learner["learner_model_param"]
    if objective in _CLASS_NUMBERS and not (wrapped_classes and objective == "multi:softmax"):
        better = "multi:softprob" if objective == "multi:softmax" else "binary:logistic"
        raise OptionError(
            f"The XGBoost objective '{objective}' returns class numbers, not probabilities; "
            f"train with '{better}', or give a function that returns probabilities"
        )
    if int(shape.get("num_target", "1")) > 1:
        return "probability" if objective in _PROBABILITY else "value", False, None
    classes = list(range(max(int(shape["num_class"]), 2)))
    if objective == "binary:logitraw":
        return "logit", False, classes
    if objective == "multi:softmax" or (objective in _PROBABILITY and wanted == "logit"):
        return "logit", True, classes
    return ("probability", False, classes) if objective in _PROBABILITY else ("value", False, None)


# --- LightGBM ------------------------------------------------------------------------------------------------------


_GIVES_PROBABILITY = ("binary", "multiclass", "multiclassova", "cross_entropy")


def _describe_lightgbm(obj: Any, wanted: Wanted) -> Description:
    native = isinstance(obj, require("lightgbm").Booster)
    booster = obj if native else obj.booster_
    text = booster.model_to_string(num_iteration=1)
    objective, *options = (_line(r"^objective=(.*)$", text) or "custom").split()
    scaled = any(option.startswith("sigmoid:") and option != "sigmoid:1" for option in options)
    raw = wanted == "logit" and objective in ("binary", "multiclass", "cross_entropy") and not scaled
    returns: Returns = "logit" if raw else "probability" if objective in _GIVES_PROBABILITY else "value"
    classes = None if native or returns == "value" else getattr(obj, "classes_", None)
    if returns != "value" and classes is None:
        classes = range(max(int(_line(r"^num_class=(\d+)$", text) or 1), 2))
    names = _own_names(booster.feature_name())
    positions = (_line(r"^\[categorical_feature: ([\d,]+)\]$", text) or "").split(",")
    coded = [booster.feature_name()[int(position)] for position in positions if position]
    categories = booster.pandas_categorical or []
    if categories and len(categories) != len(coded):
        raise OptionError(
            f"This LightGBM model was trained on {len(categories)} pandas categories and has {len(coded)} categorical "
            "features, so their levels cannot be matched; wrap its predict in a function of the table"
        )
    levels = dict(zip(coded, categories, strict=True)) if categories else {}

    def predict(rows: Any) -> Any:
        return booster.predict(_prepared(rows, levels, coded if levels else ()), raw_score=raw)

    own, as_category = None if classes is None else list(classes), frozenset(coded if names else ())
    kind: Kind = "table" if levels else "matrix"
    return Description(predict, kind, returns, own, names, as_category, booster.num_feature())


def _line(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


# --- CatBoost ------------------------------------------------------------------------------------------------------

_CLASSIFIES = ("Logloss", "CrossEntropy", "Focal", "MultiClass", "MultiClassOneVsAll")
_EXPONENT = ("Poisson", "Tweedie")


def _describe_catboost(obj: Any, wanted: Wanted) -> Description:
    if not obj.is_fitted():
        raise OptionError(f"This {type(obj).__name__} is not fitted; call its fit before the audit")
    if obj.get_text_feature_indices() or obj.get_embedding_feature_indices():
        raise OptionError("This CatBoost model takes text or embeddings; wrap it in a function from a table")
    loss = str(obj.get_all_params().get("loss_function", "")).partition(":")[0]
    returns: Returns = "probability" if loss in _CLASSIFIES else "value"
    asked = "Probability" if loss in _CLASSIFIES else "Exponent" if loss in _EXPONENT else "RawFormulaVal"
    if loss in _CLASSIFIES and loss != "MultiClassOneVsAll" and wanted == "logit":
        returns, asked = "logit", "RawFormulaVal"
    names = obj.feature_names_
    coded = [names[position] for position in obj.get_cat_feature_indices()]

    def predict(rows: Any) -> Any:
        out = obj.predict(_prepared(rows, {}, ()), prediction_type=asked)
        return out[:, 0] if loss == "RMSEWithUncertainty" else out  # its second column says how sure it is

    classes, own = None if returns == "value" else list(obj.classes_) or [0, 1], _own_names(names)
    as_category = frozenset(coded if own else ())
    return Description(predict, "table" if coded else "matrix", returns, classes, own, as_category, len(names))


# --- what they share -----------------------------------------------------------------------------------------------


def _prepared(rows: Any, levels: Mapping[str, Sequence[Any]], coded: Sequence[str]) -> Any:
    """Return a matrix as it is, and a table as pandas with the model's categories."""
    if isinstance(rows, np.ndarray):
        return rows
    rows = as_pandas(rows)
    unknown = (rows[name] for name in coded if name not in levels and rows[name].dtype.kind == "O")
    if texts := [column.name for column in unknown if not hasattr(column, "cat")]:
        raise DataError(
            f"The model has only category numbers for '{texts[0]}', but the table has text there; give a pandas table "
            "with the category dtype of the training data, or train again with a newer version of the library"
        )
    return as_categories(rows, {name: levels[name] for name in levels if name in rows})


def _own_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of a model's columns, unless its library just counted them: f0, f1 or Column_0, ... or 0, ..."""
    given = tuple(names or ())
    counted = any(given == tuple(f"{stem}{j}" for j in range(len(given))) for stem in ("f", "Column_", ""))
    return None if counted else given


# --- files ---------------------------------------------------------------------------------------------------------

_SECONDS = 20  # for the trial, and one more for each megabyte
_MEMORY = 2 * 2**30  # bytes for the trial, and 64 more for each of the file
_REFUSED = 3  # exit code of a trial in which the library gave an error of its own
_TRIAL = """
import sys
import numpy as np
library, path, form, memory, written = sys.argv[1:]
if library in ("lightgbm", "xgboost"):  # both import these where they are, which takes longer than reading the model
    sys.modules.update(dict.fromkeys(("sklearn", "pandas", "dask", "distributed", "polars")))
package = __import__(library)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), resource.getrlimit(resource.RLIMIT_AS)[1]))
except (ImportError, ValueError, OSError):
    pass
content = b""
try:
    if library == "xgboost":
        content = package.Booster(model_file=path).save_raw("json")
    elif library == "lightgbm":
        content = package.Booster(model_file=path).model_to_string(num_iteration=-1).encode()
    elif library == "catboost":
        model = package.CatBoost().load_model(path, format=form)
        model.get_all_params()
        model.save_model(written, format="json")
        content = open(written, "rb").read()
    elif library == "h5py":
        import io, zipfile
        file, content, arrays, size = path, io.BytesIO(), {}, int(form)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if max(each.file_size for each in archive.infolist()) > 20 * size:
                    raise ValueError("it would unpack to far more than its size")
                config, file = archive.read("config.json"), io.BytesIO(archive.read("model.weights.h5"))
        def keep(name, item):  # is given no links to other files
            if isinstance(item, package.Dataset) and item.dtype.kind == "f" and not name.startswith("optimizer"):
                made = item.id.get_create_plist()
                filters = {made.get_filter(k)[0] for k in range(made.get_nfilters())}
                if item.external or item.is_virtual or not filters <= {1, 2, 3}:  # deflate, shuffle, checksum
                    raise ValueError(f"'{name}' is stored elsewhere or with an unknown filter")
                if item.nbytes + sum(array.nbytes for array in arrays.values()) > 20 * size:
                    raise ValueError(f"'{name}' claims more numbers than the file holds")
                arrays[name] = item[()]
        with package.File(file, "r") as model:
            config = model.attrs["model_config"] if file == path else config
            model.visititems(keep)
        config = config.encode() if isinstance(config, str) else config
        np.savez(content, config=np.frombuffer(config, dtype=np.uint8), **arrays)
        content = content.getvalue()
    else:
        options = package.SessionOptions()
        options.log_severity_level = 4
        model = package.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = {}
        for each in model.get_inputs():
            kind = {"string": "U1", "float": "f4", "double": "f8", "bool": "?"}.get(each.type[7:-1], each.type[7:-1])
            row = np.zeros([size if isinstance(size, int) else 1 for size in each.shape], dtype=kind)
            feed[each.name] = row.astype(object) if kind == "U1" else row
        try:
            model.run(None, feed)
        except Exception as error:  # it may know no such person
            if "alloc" in str(error):
                raise
    open(written, "wb").write(content)
except Exception as error:
    lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
    sys.stdout.write("\\n" + lines[0])
    sys.stdout.flush()
    sys.exit(3)
"""


def load_xgboost(path: Path) -> Any:
    """Return the booster in an XGBoost file: JSON or UBJSON."""
    content = _checked("xgboost", path, _xgboost_fits)
    return require("xgboost").Booster(model_file=bytearray(content))


def load_lightgbm(path: Path) -> Any:
    """Return the booster in a LightGBM text file."""
    content = path.read_bytes()
    if content and not (b"\nend of trees" in content and b"\nend of parameters" in content):
        raise _damaged(path, "its trees or parameters are cut off")  # the library would use the trees that are left
    content = _checked("lightgbm", path, _lightgbm_fits)
    return require("lightgbm").Booster(model_str=content.decode())


def load_catboost(path: Path) -> Any:
    """Return the model in a CatBoost file: cbm or JSON."""
    form = "cbm" if path.read_bytes()[:4] == b"CBM1" else "json"
    content = _checked("catboost", path, _catboost_fits, form)
    with TemporaryDirectory() as folder:
        (Path(folder) / "checked.json").write_bytes(content)
        return require("catboost").CatBoost().load_model(f"{folder}/checked.json", format="json")


def _checked(library: str, path: Path, fits: Callable[[str], bool], form: str = "") -> bytes:
    """Return a model as its library writes it, having checked that all that it looks up is there."""
    content = read_apart(library, path, form)
    try:
        right = fits(content.decode())
    except Exception:  # whatever is missing, or not of its type
        right = False
    if not right:
        raise _damaged(path, "it refers to nodes or features that do not exist")
    return content


def is_tree(nodes: int, *children: Any) -> bool:
    """Return whether nodes form a tree below the first: every inner node's children exist and have one parent."""
    ahead = np.concatenate(children).astype(np.int64)
    exist = nodes > 0 and ((ahead > 0) & (ahead < nodes)).all()
    return bool(exist and np.bincount(ahead, minlength=1).max() <= 1)


def _xgboost_fits(text: str) -> bool:
    learner = json.loads(text)["learner"]
    booster, shape = learner["gradient_booster"], learner["learner_model_param"]
    width = int(shape["num_feature"])
    outputs = max(int(shape["num_class"]), int(shape.get("num_target", 1)), 1)
    if booster["name"] == "gblinear":
        return len(booster["model"]["weights"]) == (width + 1) * outputs
    model = booster.get("gbtree", booster)["model"]
    trees = model["trees"]
    rounds = model.get("iteration_indptr", [0, len(trees)])  # which older versions do not write
    return bool(
        len(model["tree_info"]) == len(booster.get("weight_drop", trees)) == len(trees)
        and all(0 <= group < outputs for group in model["tree_info"])
        and (rounds[0], rounds[-1], rounds) == (0, len(trees), sorted(rounds))
        and all(_xgboost_tree_fits(tree, width, outputs) for tree in trees)
    )


def _xgboost_tree_fits(tree: Any, width: int, outputs: int) -> bool:
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    inner, used = left != -1, np.asarray(tree["split_indices"])
    coded = np.flatnonzero(inner & (np.asarray(tree["split_type"]) == 1))
    size = int(tree["tree_param"]["size_leaf_vector"])
    starts, sizes = np.asarray(tree["categories_segments"]), np.asarray(tree["categories_sizes"])
    return bool(
        is_tree(len(inner), left[inner], right[inner])
        and len({len(each) for each in (left, right, used, tree["split_conditions"], tree["split_type"])}) == 1
        and ((used[inner] >= 0) & (used[inner] < width)).all()
        and np.isin(coded, tree["categories_nodes"]).all()
        and ((starts >= 0) & (sizes >= 0) & (starts + sizes <= len(tree["categories"]))).all()
        and (size <= 1 or (size == outputs and ((right[~inner] + 1) * size <= len(tree["leaf_weights"])).all()))
    )


def _lightgbm_fits(text: str) -> bool:
    before, _, after = text.partition("\nend of trees")
    head, *trees = re.split(r"^Tree=\d+$", before, flags=re.MULTILINE)
    counts = [int(_line(rf"^{name}=(\d+)$", head) or 0) for name in ("num_class", "num_tree_per_iteration")]
    classes = int(_line(r"^objective=.* num_class:(\d+)", head) or max(counts))
    width = int(_line(r"^max_feature_idx=(\d+)$", head) or 0) + 1
    options = after.partition("\nparameters:\n")[2].partition("\nend of parameters")[0].split("\n")
    fields = [dict(line.split("=", 1) for line in tree.split("\n") if "=" in line) for tree in trees]
    return (
        {*counts, classes} == {max(classes, 1)}
        and all(re.fullmatch(r"\[\w+: .*\]", line) for line in options if line)
        and all(_lightgbm_tree_fits(tree, width) for tree in fields)
    )


def _lightgbm_tree_fits(tree: Mapping[str, str], width: int) -> bool:
    names = "split_feature decision_type left_child right_child cat_boundaries cat_threshold leaf_features num_features"
    numbers = (np.array(tree.get(name, "").split(), dtype=np.int64) for name in names.split())
    used, kinds, left, right, bounds, bits, linear, counts = numbers
    limits, values = (np.array(tree.get(name, "").split(), dtype=float) for name in ("threshold", "leaf_value"))
    splits, leaves = len(used), int(tree["num_leaves"])
    children = [np.where(child < 0, splits - child - 1, child) for child in (left, right)]  # -k is the leaf k - 1
    coded = limits[(kinds & 1) == 1] if len(kinds) == len(limits) else limits
    return bool(
        leaves == len(values) == splits + 1
        and splits == len(kinds) == len(limits) == len(left) == len(right)
        and is_tree(splits + leaves, *children)
        and all(((each >= 0) & (each < width)).all() for each in (used, linear))
        and len(bounds) == (int(tree["num_cat"]) + 1 if int(tree["num_cat"]) else 0)
        and (np.diff(bounds, prepend=0, append=len(bits)) >= 0).all()
        and ((coded >= 0) & (coded < int(tree["num_cat"]))).all()
        and (counts >= 0).all()
        and counts.sum() == len(linear) == len(tree.get("leaf_coeff", "").split())
    )


def _catboost_fits(text: str) -> bool:
    model = json.loads(text)
    kinds, outputs = [kind or () for kind in model["features_info"].values()], len(model["scale_and_bias"][1])
    limits = sum(len(feature.get("borders") or feature.get("values") or ()) for kind in kinds for feature in kind)
    ahead = [*(model.get("oblivious_trees") or ()), *(model.get("trees") or ())]
    while ahead:
        tree = ahead.pop()
        splits = tree.get("splits") or [tree[name] for name in ("split",) if name in tree]
        leaves = len(tree["leaf_values"]) if "leaf_values" in tree else outputs * 2 ** len(splits)
        if leaves != outputs * 2 ** len(splits) or not all(0 <= each["split_index"] < limits for each in splits):
            return False
        ahead += [tree[side] for side in ("left", "right") if "split" in tree]
    return True


def read_apart(library: str, path: Path, form: str = "") -> bytes:
    """Return what a library reads from a file in a separate process; raise a FileError where it fails or crashes."""
    require(library)
    size = path.stat().st_size
    if size == 0:
        raise FileError(f"'{path.name}' is empty; give a model file")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        written = Path(folder) / "written"
        given = [library, os.fspath(path), form, str(_MEMORY + 64 * size), os.fspath(written)]
        command, limit = [sys.executable, "-P", "-c", _TRIAL, *given], _SECONDS + size / 2**20
        try:
            done = subprocess.run(command, capture_output=True, env=environment, timeout=limit, check=False)
        except subprocess.TimeoutExpired as error:
            raise _damaged(path, f"{library} does not finish reading it") from error
        if done.returncode == 0:
            return written.read_bytes()
    if done.returncode == _REFUSED:
        words = done.stdout.decode(errors="replace").rsplit("\n", 1)[-1].strip().rstrip(".")
        words = re.sub(r"^\[[0-9:]+\] [^ ]+ ", "", words)  # the time and the line in the library's code
        raise _damaged(path, f"{library} says: {words[:200]}")
    raise _damaged(path, f"{library} crashes when reading it")


def _damaged(path: Path, why: str) -> FileError:
    return FileError(f"'{path.name}' is damaged or cut short: {why}; copy or save it again")
