"""scikit-learn estimators and Pipelines: which function predicts, on what, and what it returns."""

from __future__ import annotations

from typing import Any

from fairfox.errors import OptionError
from fairfox.models.description import Description, Kind
from fairfox.models.output import Wanted


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
    kind: Kind = "matrix" if columns is None and _was_fitted_on_array(obj) else "table"
    if not is_classifier(obj):
        return Description(obj.predict, kind, "value", names=columns)
    classes = list(obj.classes_)
    if hasattr(obj, "predict_proba"):
        return Description(obj.predict_proba, kind, "probability", classes, columns)
    if wanted == "logit" and hasattr(obj, "decision_function"):
        return Description(obj.decision_function, kind, "logit", classes, columns)
    raise OptionError(
        f"This {type(obj).__name__} has no predict_proba; wrap it in CalibratedClassifierCV, "
        "or audit its decision function with output='logit' (--output logit)"
    )


def _was_fitted_on_array(obj: object) -> bool:
    """Return whether an estimator without column names saw an array; a Pipeline that counted no columns did not."""
    return not hasattr(obj, "named_steps") or hasattr(obj, "n_features_in_")
