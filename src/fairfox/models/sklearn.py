"""scikit-learn estimators and Pipelines: which function predicts, on what, and what it returns."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fairfox.data.frames import as_categories
from fairfox.errors import FileError, OptionError, UntrustedModelError, first_line, require
from fairfox.models.protocol import Description, Kind, Returns, Wanted

# Types of scikit-learn that skops does not know as harmless. None of them runs code of the file's choosing; a function
# inside a partial is a type of its own, and refused unless it is known too.
_HARMLESS = {
    "functools.partial",  # HistGradientBoosting on categories keeps its check of arrays in one
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
}
_INFLATED = 2**30  # bytes a small file may unpack to


def is_estimator(obj: object) -> bool:
    """Return whether this looks like a scikit-learn estimator (any object with get_params and predict)."""
    return not isinstance(obj, type) and hasattr(obj, "predict") and hasattr(obj, "get_params")


def describe_estimator(obj: Any, *, wanted: Wanted) -> Description:
    """Return how to ask a fitted estimator for probabilities, or for values if it is a regressor."""
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
    return Description(predict, kind, returns, classes, columns, frozenset(levels), width)


def load_skops(path: Path) -> Any:
    """Return the estimator in a skops file, unless it holds types that could run code when loaded."""
    io = require("skops.io", extra="skops")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > max(_INFLATED, 100 * path.stat().st_size):
            raise FileError(
                f"'{path.name}' would unpack to {unpacked / 2**20:,.0f} MiB; save the model again with skops"
            )
        content = path.read_bytes()  # what is checked is what is loaded
        doubtful = io.get_untrusted_types(data=content)
        foreign = [name for name in doubtful if name not in _HARMLESS and not name.startswith("sklearn._loss.")]
        if not foreign:
            return io.loads(content, trusted=doubtful)
    except FileError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise FileError(
            f"'{path.name}' could not be read as a skops file: {type(error).__name__}: {first_line(error)}; "
            "save it again"
        ) from error
    raise UntrustedModelError(
        f"'{path.name}' holds types that fairfox does not know as harmless: {', '.join(sorted(foreign))}; load it in a "
        "Python file of your own, if you trust where it comes from, and give that as file.py:function"
    )


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
