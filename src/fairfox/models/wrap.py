"""as_model: the one door that picks an adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from fairfox.errors import ColumnError, OptionError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.boosting import describe_booster, library_of
from fairfox.models.description import Described, Description, Kind
from fairfox.models.output import Output, Returns, Wanted, class_index, settle_output
from fairfox.models.protocol import Decoder, Model
from fairfox.models.sklearn_model import describe_estimator, is_estimator
from fairfox.models.torch_model import TorchModel


def describe(obj: object, *, wanted: Wanted = "probability") -> Description | None:
    """Return how a model of a known library is asked; None for torch models and plain functions."""
    if isinstance(obj, Described):
        return obj.describe()
    if library_of(obj) is not None:
        return describe_booster(obj, wanted=wanted)
    if is_estimator(obj):
        return describe_estimator(obj, wanted=wanted)
    return None


def feature_names(obj: object, *, wanted: Wanted = "probability") -> tuple[str, ...] | None:
    """Return the columns a model was trained on, where it knows them."""
    described = describe(obj, wanted=wanted)
    return None if described is None else described.names


def as_model(
    obj: object,
    decoder: Decoder | None = None,
    *,
    kind: Kind | None = None,
    positive: Any = None,
    output: Wanted = "probability",
    returns: Returns | None = None,
    example: Tensor | None = None,
) -> Model:
    """Return a Model over fairfox's encoded x for a torch module, an estimator, or any prediction function.

    Args:
        obj: a torch module or function of tensors, a scikit-learn estimator or Pipeline, boosted trees of XGBoost,
            LightGBM or CatBoost, a callable on tables, or something that is a Model already (taken as it is).
        decoder: the fitted encoding; without one the model receives x itself.
        kind: what the model receives: "table", "matrix" or "encoded". By default torch takes a matrix, boosted
            trees on numbers too; Pipelines and callables take a table, what was fitted on an array a matrix.
        positive: the audited class, where there is more than one column.
        output: what is audited, "probability" or "logit".
        returns: what the model returns, "probability", "logit" or "value"; by default read off `example`.
        example: encoded rows (one category per block) on which the raw outputs are looked at.
    """
    if kind not in (None, "table", "matrix", "encoded"):
        raise OptionError(f"kind is '{kind}'; expected 'table', 'matrix' or 'encoded'")
    if isinstance(obj, Model) and not isinstance(obj, nn.Module):
        return obj
    if decoder is None:
        kind = "encoded"
    torch_like = isinstance(obj, nn.Module) or _takes_tensor(obj)
    model: TorchModel | BlackBoxModel
    classes: list[Any] | None = None
    if torch_like and kind != "table":
        module = cast(Callable[[Tensor], Tensor], obj)
        model = TorchModel(module, decoder=decoder, encoded=kind == "encoded")
    elif (described := describe(obj, wanted=output)) is not None:
        classes, returns = described.classes, returns or described.returns
        if decoder is not None and kind != "encoded":
            _check_width(described, decoder)
        model = BlackBoxModel(described.predict, decoder=decoder, kind=kind or described.kind)
    elif callable(obj) and not isinstance(obj, type):
        model = BlackBoxModel(obj, decoder=decoder, kind=kind or "table")
    else:
        what = f"the class {obj.__name__}" if isinstance(obj, type) else f"a {type(obj).__name__}"
        raise OptionError(
            f"This is {what}, not a model; "
            "give a torch module, a scikit-learn estimator or Pipeline, or a function from a table to predictions"
        )
    if example is None:
        model.output = Output(returns or "value", output, _column(positive, classes))
    else:
        with torch.no_grad():
            raw = model.raw(example)
        model.output = settle_output(raw, returns=returns, wanted=output, positive=positive, classes=classes)
    return model


def _check_width(described: Description, decoder: Decoder) -> None:
    """Raise unless the model gets as many columns as it was trained on; some libraries would take more in silence."""
    found = len(decoder.columns)
    if described.names is None and described.width not in (None, found):
        raise ColumnError(
            f"The model was trained on {described.width} columns without names, and gets {found}: "
            f"{', '.join(decoder.columns)}; leave only its own in the table, in its order (drop=[...], --drop)"
        )


def _column(positive: Any, classes: list[Any] | None) -> int | None:
    """Return the audited column where no outputs were seen: a class of the model, or a column number."""
    if classes is not None:
        return class_index(positive, classes)
    if positive is None:
        return None
    try:
        return int(positive)
    except ValueError:
        raise OptionError(f"positive is '{positive}', and the model names no classes; give a column number") from None


def _takes_tensor(obj: object) -> bool:
    """Return whether a function declares that its first argument is a torch tensor."""
    if isinstance(obj, type) or not callable(obj) or is_estimator(obj):
        return False
    try:
        first = next(iter(inspect.signature(obj).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    note = None if first is None else first.annotation
    return note is Tensor or (isinstance(note, str) and note.rsplit(".", 1)[-1] == "Tensor")
