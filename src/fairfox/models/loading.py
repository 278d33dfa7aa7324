"""Model files and model code: what is safe to load, and what needs trust.

Safe: safetensors with a declared MLP architecture in a JSON file beside it. Code named explicitly
(`module:function`, `file.py:function`) is the user's own and is imported. Files that can run code when loaded
(pickle, joblib) need `trust=True`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairfox.data.files import written_whole
from fairfox.errors import FileError, ModelError, OptionError, UntrustedModelError, did_you_mean

_RUNS_CODE = {".pkl", ".pickle", ".joblib", ".sav"}
_NOT_READ = {".pt", ".pth", ".pt2", ".ckpt", ".h5", ".keras", ".bin"}
_RETURNS = ("logit", "probability", "value")
_KNOWN = "safetensors (.safetensors with a .json beside it), pickle (.pkl, .joblib; needs --trust-model)"


def load_model(spec: str, *, trust: bool = False) -> object:
    """Return the model that `spec` names: a file, `module:function` or `file.py:function`.

    Args:
        spec: what to load.
        trust: load files that could run code. Only for files whose origin you trust.
    """
    path = Path(spec)
    exists = os.path.exists(path)  # unlike Path.exists, also for names the system does not allow
    if ":" in spec and not exists:
        return _from_code(spec)
    if not exists:
        raise FileError(f"No model at '{spec}'; give a model file, module:function or file.py:function")
    if path.is_dir():
        raise FileError(f"'{spec}' is a folder; give a model file, module:function or file.py:function")
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise OptionError(f"'{spec}' is code; name the function in it: {spec}:function")
    if suffix in _RUNS_CODE or _is_pickle(path):
        return _from_pickle(path, trust=trust)
    if suffix == ".safetensors":
        return _from_safetensors(path)
    if suffix in _NOT_READ:
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
    if [type(layer) for layer in net] != [nn.Linear, nn.ReLU] * (len(linear) - 1) + [nn.Linear]:
        kinds = ", ".join(type(layer).__name__ for layer in net)
        raise OptionError(f"The network is {kinds}; only Linear, ReLU, ..., Linear can be declared in a file")
    if returns not in _RETURNS:
        raise OptionError(f"returns is '{returns}'; expected one of {', '.join(_RETURNS)}")
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
        head = handle.read(9)
    # safetensors begin with the length of their JSON header, whose bytes may look like a pickle's, and the header
    declared = head[8:] == b"{"
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL and not declared


def _from_pickle(path: Path, *, trust: bool) -> object:
    if not trust:
        raise UntrustedModelError(
            f"'{path.name}' is a pickle and can run any code when loaded; "
            "add --trust-model (trust=True) if you trust where it comes from"
        )
    try:
        import joblib  # also reads plain pickles, and joblib's own are often named .pkl

        return joblib.load(path)
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
    sizes, returns = _declaration(beside)
    try:
        with torch.device("meta"):  # no weights of its own, and no random numbers drawn for them
            layers = [layer for fans in pairwise(sizes) for layer in (nn.Linear(*fans), nn.ReLU())]
        net = nn.Sequential(*layers[:-1])
        net.load_state_dict(load_file(path), assign=True)
    except (SafetensorError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        raise FileError(f"'{path.name}' does not hold the network declared in '{beside.name}': {first_line}") from error
    if returns == "logit":
        net.append(nn.Sigmoid() if sizes[-1] == 1 else nn.Softmax(dim=1))
    return net.eval()


def _declaration(beside: Path) -> tuple[list[int], str]:
    """Return the layer sizes that a JSON file declares, and what the network returns."""
    try:
        declared = json.loads(beside.read_text(encoding="utf-8"))
        sizes = [int(size) for size in declared["sizes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"'{beside.name}' does not declare an architecture: expected kind, sizes, returns ({error})"
        ) from error
    known = declared.get("kind") == "mlp" and declared.get("activation", "relu") == "relu"
    if not known or len(sizes) < 2 or min(sizes) < 1:
        raise FileError(
            f"'{beside.name}' declares an unknown architecture; fairfox knows kind 'mlp' with activation 'relu'"
        )
    returns = declared.get("returns", "logit")
    if returns not in _RETURNS:
        raise FileError(f"'{beside.name}' declares returns '{returns}'; expected one of {', '.join(_RETURNS)}")
    return sizes, returns
