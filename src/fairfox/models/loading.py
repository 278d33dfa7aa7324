"""Model files and model code: what is safe to load, and what needs trust.

Safe: safetensors with a declared MLP architecture in a JSON file beside it. Code named explicitly
(`module:function`, `file.py:function`) is the user's own and is imported. Files that can run code when loaded
(pickle, joblib) need `trust=True`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from fairfox.data.files import written_whole
from fairfox.errors import FileError, ModelError, OptionError, UntrustedModelError, did_you_mean

_RUNS_CODE = {".pkl", ".pickle", ".joblib", ".sav"}
_NOT_READ = {".pt", ".pth", ".pt2", ".ckpt", ".h5", ".keras", ".bin"}
_KNOWN = "safetensors (.safetensors with a .json beside it), pickle (.pkl, .joblib; needs --trust-model)"


def load_model(spec: str, *, trust: bool = False) -> object:
    """Return the model that `spec` names: a file, `module:function` or `file.py:function`.

    Args:
        spec: what to load.
        trust: load files that could run code. Only for files whose origin you trust.
    """
    path = Path(spec)
    if ":" in spec and not path.exists():
        return _from_code(spec)
    if not path.exists():
        raise FileError(f"No model at '{spec}'; give a model file, module:function or file.py:function")
    if path.is_dir():
        raise FileError(f"'{spec}' is a folder; give a model file, module:function or file.py:function")
    if path.suffix == ".py":
        raise OptionError(f"'{spec}' is code; name the function in it: {spec}:function")
    if path.suffix in _RUNS_CODE or _is_pickle(path):
        return _from_pickle(path, trust=trust)
    if path.suffix == ".safetensors":
        return _from_safetensors(path)
    if path.suffix in _NOT_READ:
        raise UntrustedModelError(
            f"'{path.name}' is a kind of file that can run code when loaded and is not read; load it in a Python file "
            "of your own and give that as file.py:function"
        )
    raise OptionError(
        f"'{path.name}' is no model file that fairfox knows; it reads {_KNOWN}, or code as file.py:function"
    )


def save_mlp(net: nn.Sequential, path: str | Path, *, returns: str = "logit") -> None:
    """Write a plain Linear/ReLU network as safetensors, with its architecture in a JSON file beside it."""
    from safetensors.torch import save_file

    path = Path(path)
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    declared = {
        "kind": "mlp",
        "sizes": [linear[0].in_features, *[layer.out_features for layer in linear]],
        "activation": "relu",
        "returns": returns,
    }
    with written_whole(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, temporary)
    with written_whole(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")


def _from_code(spec: str) -> object:
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise OptionError(f"'{spec}' does not name a function; write module:function or file.py:function")
    module = _module_from_file(Path(place)) if place.endswith(".py") else _module_by_name(place)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise OptionError(f"'{place}' has no '{name}'.{did_you_mean(name, public)}")
    return getattr(module, name)


def _module_from_file(path: Path) -> Any:
    if not path.is_file():
        raise FileError(f"No file '{path}'; give the path of the Python file that holds the model")
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise FileError(f"'{path}' cannot be imported as Python")
    module = importlib.util.module_from_spec(found)
    sys.modules.setdefault(path.stem, module)
    try:
        found.loader.exec_module(module)
    except Exception as error:  # the user's code may raise anything
        raise ModelError(f"'{path}' failed when imported: {type(error).__name__}: {error}") from error
    return module


def _module_by_name(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"No module '{name}' ({error}); give an importable module, or a path as file.py:function"
        ) from error
    except Exception as error:  # the user's code may raise anything
        raise ModelError(f"The module '{name}' failed when imported: {type(error).__name__}: {error}") from error


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as handle:
        head = handle.read(2)
    return len(head) == 2 and head[0] == 0x80 and head[1] <= pickle.HIGHEST_PROTOCOL


def _from_pickle(path: Path, *, trust: bool) -> object:
    if not trust:
        raise UntrustedModelError(
            f"'{path.name}' is a pickle and can run any code when loaded; "
            "add --trust-model (trust=True) if you trust where it comes from"
        )
    try:
        if path.suffix == ".joblib":
            import joblib

            return joblib.load(path)
        with path.open("rb") as handle:
            return pickle.load(handle)
    except Exception as error:  # unpickling may raise anything
        raise FileError(f"'{path.name}' could not be unpickled: {type(error).__name__}: {error}") from error


def _from_safetensors(path: Path) -> nn.Module:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    beside = path.with_suffix(".json")
    if not beside.is_file():
        raise FileError(
            f"'{path.name}' has no '{beside.name}' beside it; declare the architecture there: kind, sizes, returns"
        )
    try:
        declared = json.loads(beside.read_text(encoding="utf-8"))
        sizes = [int(size) for size in declared["sizes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"'{beside.name}' does not declare an architecture: expected kind, sizes, returns ({error})"
        ) from error
    if declared.get("kind") != "mlp" or declared.get("activation", "relu") != "relu" or len(sizes) < 2:
        raise FileError(
            f"'{beside.name}' declares an unknown architecture; fairfox knows kind 'mlp' with activation 'relu'"
        )
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    layers.pop()
    net = nn.Sequential(*layers)
    try:
        net.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        raise FileError(f"'{path.name}' does not hold the network declared in '{beside.name}': {first_line}") from error
    if declared.get("returns", "logit") == "logit":
        net.append(nn.Sigmoid() if sizes[-1] == 1 else nn.Softmax(dim=1))
    return net.eval()
