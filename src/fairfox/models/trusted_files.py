"""Model files that run code of their author when loaded: pickles, Keras models, MLflow folders.

`loading` asks for trust before it calls any of these.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fairfox.errors import FileError, MissingExtraError
from fairfox.extras import require
from fairfox.models.description import Description

_NATIVE = ("sklearn", "xgboost", "lightgbm", "catboost", "pytorch")  # flavours of MLflow that fairfox takes as they are


def load_pickle(path: Path) -> object:
    """Return what a pickle holds, written by pickle or by joblib."""
    import joblib  # also reads plain pickles, and joblib's own are often named .pkl

    return _loaded(path, "unpickled", lambda: joblib.load(path))


def load_keras(path: Path) -> object:
    """Return a Keras model, asked for a matrix."""
    try:
        keras = require("keras")
    except MissingExtraError as error:
        raise MissingExtraError(
            f"The package 'keras' is needed to load '{path.name}' and not installed; run: pip install keras"
        ) from error
    return _Keras(_loaded(path, "loaded", lambda: keras.saving.load_model(path, compile=False, safe_mode=False)))


def load_mlflow(path: Path) -> object:
    """Return the model in an MLflow folder: of a library that fairfox knows as it is, else through pyfunc."""
    mlflow = require("mlflow", why="to load MLflow models")

    def load() -> object:
        flavours = import_module("mlflow.models").Model.load(str(path)).flavors
        native = next((name for name in _NATIVE if name in flavours), None)
        if native is not None:
            return import_module(f"mlflow.{native}").load_model(str(path))
        return mlflow.pyfunc.load_model(str(path))

    found = _loaded(path, "loaded", load)
    return _PyFunc(found) if type(found).__module__.startswith("mlflow.pyfunc") else found


class _Keras:
    """A Keras model on a matrix."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def describe(self) -> Description:
        """Return how it is asked: for a matrix in float32, without a progress bar."""
        width = self.model.input_shape[-1] if isinstance(self.model.input_shape, tuple) else None
        return Description(
            lambda matrix: self.model.predict(matrix.astype("float32"), verbose=0), "matrix", width=width
        )


class _PyFunc:
    """An MLflow function on tables, with the columns of its signature."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def describe(self) -> Description:
        """Return how it is asked: for the columns of its signature, where it has one."""
        schema = self.model.metadata.get_input_schema()
        named = schema is not None and schema.has_input_names() and not schema.is_tensor_spec()
        return Description(self.model.predict, "table", names=tuple(schema.input_names()) if named else None)


def _loaded(path: Path, verb: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # what runs here may raise anything
        detail = (str(error).splitlines() or [""])[0]
        raise FileError(f"'{path.name}' could not be {verb}: {type(error).__name__}: {detail}") from error
