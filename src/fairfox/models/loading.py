"""Model files and model code: what is safe to load, and what needs trust.

`FILES` is the policy. Files that hold only numbers load by default; files that can run their author's code need
`trust=True`. Named code (`module:function`, `file.py:function`) is the user's own and is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairfox.errors import (
    FairfoxError,
    FileError,
    ModelError,
    OptionError,
    UntrustedModelError,
    did_you_mean,
    first_line,
    require,
)
from fairfox.models.http import is_url, load_endpoint
from fairfox.models.protocol import Description


@dataclass(frozen=True)
class FileKind:
    """A kind of model file: its name, extensions and loader, and whether loading can run code."""

    name: str
    suffixes: tuple[str, ...]
    load: Callable[[Path], object]
    runs_code: bool = False


def _by(function: str) -> Callable[..., object]:
    """Return a loader of this room that is imported when it is used: it brings its library with it."""

    def load(path: Path, **options: Any) -> object:
        module, name = function.split(":")
        return getattr(importlib.import_module(f"fairfox.models.{module}"), name)(path, **options)

    return load


def _load_json(path: Path) -> object:
    """Return the XGBoost or CatBoost model in a JSON file, by the keys that each of them writes."""
    content = path.read_bytes()  # not parsed here: the libraries do that, with limits
    if re.search(rb'"learner"\s*:', content):
        return _by("boosting:load_xgboost")(path)
    if re.search(rb'"(oblivious_)?trees"\s*:', content) and re.search(rb'"features_info"\s*:', content):
        return _by("boosting:load_catboost")(path)
    raise OptionError(f"'{path.name}' is not an XGBoost or CatBoost model in JSON, or is damaged; save it again")


_NATIVE = ("sklearn", "xgboost", "lightgbm", "catboost", "pytorch")  # flavours of MLflow that fairfox takes as they are


def _load_mlflow(path: Path) -> object:
    """Return the model in an MLflow folder: of a library that fairfox knows as it is, else a function on tables."""
    mlflow = require("mlflow", why="to load MLflow models")
    flavours = importlib.import_module("mlflow.models").Model.load(str(path)).flavors
    native = next((name for name in _NATIVE if name in flavours), None)
    if native is not None:
        return importlib.import_module(f"mlflow.{native}").load_model(str(path))
    model = mlflow.pyfunc.load_model(str(path))
    schema = model.metadata.get_input_schema()
    named = schema is not None and schema.has_input_names() and not schema.is_tensor_spec()
    return Description(model.predict, "table", names=tuple(schema.input_names()) if named else None)


_PICKLE = FileKind(  # joblib also reads plain pickles, and its own are often named .pkl
    "a pickle",
    (".pkl", ".pickle", ".joblib", ".sav"),
    lambda path: importlib.import_module("joblib").load(path),
    runs_code=True,
)
_MLFLOW = FileKind("an MLflow model", (), _load_mlflow, runs_code=True)
FILES = (
    FileKind("safetensors with a declared network", (".safetensors",), _by("torch:load_mlp")),
    FileKind("an ONNX model", (".onnx",), _by("onnx:OnnxModel")),
    FileKind("an XGBoost or CatBoost model in JSON", (".json",), _load_json),
    FileKind("an XGBoost model", (".ubj",), _by("boosting:load_xgboost")),
    FileKind("a LightGBM model", (".txt", ".lgb"), _by("boosting:load_lightgbm")),
    FileKind("a CatBoost model", (".cbm",), _by("boosting:load_catboost")),
    FileKind("a Keras model", (".keras", ".h5", ".hdf5"), _by("torch:load_keras")),
    FileKind("a skops file", (".skops",), _by("sklearn:load_skops")),
    _PICKLE,
    FileKind("a torch.export archive", (".pt2",), _by("torch:load_exported"), runs_code=True),
    FileKind(
        "a torch.save or TorchScript file", (".pt", ".pth", ".ckpt", ".bin"), _by("torch:load_saved"), runs_code=True
    ),
    _MLFLOW,  # a folder
)


def load_model(spec: str, *, trust: bool = False) -> object:
    """Return the model that `spec` names: a file, `module:function`, `file.py:function`, or a URL.

    Args:
        spec: what to load. `file.onnx#output` names the output of an ONNX file that is audited.
        trust: load files that could run code. Only for files whose origin you trust.
    """
    if is_url(spec):
        return load_endpoint(spec)
    path = _path_of(spec)
    if path is None:
        return _from_code(spec)
    kind = _kind_of(path)
    if kind.runs_code and not trust:
        raise UntrustedModelError(
            f"'{path.name}' is {kind.name} and can run any code when loaded; "
            "add --trust-model (trust=True) if you trust its source"
        )
    load = kind.load
    if str(path) != str(Path(spec)):  # file.onnx#output
        load = partial(_by("onnx:OnnxModel"), output=spec.partition(".onnx#")[2])
    try:
        return load(path)
    except FairfoxError:
        raise
    except Exception as error:  # what a damaged file provokes in its library
        raise FileError(f"'{path.name}' could not be loaded: {type(error).__name__}: {first_line(error)}") from error


def needs_trust(spec: str) -> bool:
    """Return whether `spec` is a file that can run code when loaded; False for named code."""
    path = _path_of(spec)
    return path is not None and _kind_of(path).runs_code


# --- files ---------------------------------------------------------------------------------------------------------


def _path_of(spec: str) -> Path | None:
    """Return the file or folder that is named, or None for code."""
    if os.path.exists(spec):  # unlike Path.exists, also for names the system does not allow
        return Path(spec)
    stem, mark, _ = spec.partition(".onnx#")
    if mark and os.path.exists(f"{stem}.onnx"):
        return Path(f"{stem}.onnx")
    if ":" in spec:
        return None
    raise FileError(f"There is no model at '{spec}'; give a model file, module:function or file.py:function")


def _kind_of(path: Path) -> FileKind:
    """Return the kind of a file: by its content for a pickle, else by how its name ends."""
    suffix = path.suffix.lower()
    if path.is_dir():
        if (path / "MLmodel").is_file():
            return _MLFLOW
        raise FileError(f"'{path}' is a folder; give a model file, module:function or file.py:function")
    if suffix == ".py":
        raise OptionError(f"'{path}' is code; name the function in it: {path}:function")
    named = next((kind for kind in FILES if suffix in kind.suffixes), None)
    if named is not None and named.runs_code:
        return named
    if _is_pickle(path):
        return _PICKLE
    if named is None:
        known = ", ".join(suffix for kind in FILES for suffix in kind.suffixes if not kind.runs_code)
        trusted = ", ".join(suffix for kind in FILES for suffix in kind.suffixes if kind.runs_code)
        raise OptionError(
            f"'{path.name}' is not a model file fairfox can read; it reads {known}, with --trust-model also {trusted} "
            "and MLflow folders, or code as file.py:function"
        )
    return named


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as handle:
        head = handle.read(9)
    # safetensors begin with the length of their JSON header, whose bytes may look like a pickle's, and the header
    declared = head[8:] == b"{"
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL and not declared


# --- code ----------------------------------------------------------------------------------------------------------


def _from_code(spec: str) -> object:
    source, _, name = spec.rpartition(":")
    if not source or not name:
        raise OptionError(f"'{spec}' does not name a function; write module:function or file.py:function")
    try:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # last: a file sklearn.py there must not take the place of the library
        is_file = source.endswith(".py")
        module = _module_from_file(Path(source)) if is_file else importlib.import_module(source)
    except FileError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ModelError(
            f"'{source}' failed when imported: {type(error).__name__}: {error}; "
            "give an importable module, or a path as file.py:function"
        ) from error
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        own = Path(f"{source}.py")
        if own.is_file() and str(own.resolve()) != getattr(module, "__file__", ""):
            raise OptionError(f"'{source}' is installed and has no '{name}'; for your own file write {own}:{name}")
        raise OptionError(f"'{source}' has no '{name}'.{did_you_mean(name, public)}")
    return getattr(module, name)


def _module_from_file(path: Path) -> Any:
    if not path.is_file():
        raise FileError(f"There is no file '{path}'; give the path of the Python file that holds the model")
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise FileError(f"'{path}' cannot be imported as Python; give a .py file")
    module = importlib.util.module_from_spec(found)
    if importlib.util.find_spec(path.stem) is None:  # a file sklearn.py must not take the place of the library
        sys.modules.setdefault(path.stem, module)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # modules beside the file
    found.loader.exec_module(module)
    return module
