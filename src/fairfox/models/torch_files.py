"""Networks in files: safetensors with a declared architecture, and what torch itself writes.

Only safetensors are safe. TorchScript, `torch.export` and `torch.save` files can run code when loaded: `loading` asks
for trust before it calls the functions for them.
"""

from __future__ import annotations

import io
import json
import logging
import re
import tomllib
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from fairfox.data.files import written_whole
from fairfox.errors import FileError, OptionError, UntrustedModelError
from fairfox.models.archives import check_zip

_RETURNS = ("logit", "probability", "value")
_LARGEST_HEADER = 100 * 2**20  # of safetensors, as their own library has it
# what torch.export writes: the program, its weights as plain bytes, and pickles of tensors that are read below
_EXPORTED = re.compile(
    r"(models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
    r"|extra/.*|archive_format|archive_version|version|byteorder|\.data/.*|\.format_version|\.storage_alignment)"
)
_CONFIGS = (("data/weights/", "model_weights_config.json"), ("data/constants/", "model_constants_config.json"))


# --- safetensors ---------------------------------------------------------------------------------------------------


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


def load_mlp(path: Path) -> nn.Module:
    """Return the network in a safetensors file whose architecture is declared in a JSON or TOML file beside it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    beside = next((b for b in (path.with_suffix(".json"), path.with_suffix(".toml")) if b.is_file()), None)
    if beside is None:
        raise FileError(
            f"'{path.name}' has no '{path.stem}.json' or '{path.stem}.toml' beside it; "
            "declare the architecture there: kind, sizes, returns"
        )
    sizes, returns = _declaration(beside)
    _check_header(path)
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
    """Return the layer sizes that a file declares, and what the network returns."""
    try:
        text = beside.read_text(encoding="utf-8")
        declared = tomllib.loads(text) if beside.suffix == ".toml" else json.loads(text)
        sizes = [int(size) for size in declared["sizes"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
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


def _check_header(path: Path) -> None:
    """Refuse safetensors whose header claims more bytes than the file has."""
    with path.open("rb") as handle:
        claimed = int.from_bytes(handle.read(8), "little")
    size = path.stat().st_size
    if not 2 <= claimed <= min(size - 8, _LARGEST_HEADER):
        raise FileError(f"'{path.name}' is damaged: its header claims {claimed} bytes of a file of {size}")


# --- what torch writes ---------------------------------------------------------------------------------------------


def load_torchscript(path: Path) -> nn.Module:
    """Return the module in a TorchScript file. It runs what the file says: only for files that are trusted."""
    check_zip(path, path.name)
    with _torch_errors(path, "TorchScript"):
        module: nn.Module = torch.jit.load(str(path), map_location="cpu")
    return module.eval()


def load_saved(path: Path) -> nn.Module:
    """Return the module that `torch.save` wrote. It is a pickle: only for files that are trusted."""
    with _torch_errors(path, "torch.save"):
        found = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(found, nn.Module):
        raise OptionError(
            f"'{path.name}' holds a {type(found).__name__}, not a module; "
            "build the network in a Python file of your own and give that as file.py:function"
        )
    return found.eval()


def load_exported(path: Path) -> nn.Module:
    """Return the module that `torch.export.save` wrote, once the file holds nothing else.

    Torch reads whatever is in such a file, and unpickles what its safe reader refuses. So a bare pickle, members that
    torch.export does not write, and pickles of anything but tensors are refused even when the file is trusted.
    """
    _check_exported(path)
    with _torch_errors(path, "torch.export"):
        module = torch.export.load(path).module()
    for part in module.modules():
        part.training = False  # eval() is not allowed: it has only the mode it was exported in
    return module


def _check_exported(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        raise UntrustedModelError(
            f"'{path.name}' is not an archive of torch.export, and is not read even with --trust-model; "
            "a pickle is loaded as .pkl"
        )
    members = {m.filename.partition("/")[2]: m for m in check_zip(path, path.name, stored=True)}
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        strange = [n for n in names if _EXPORTED.fullmatch(n.partition("/")[2]) is None]
        one_root = len({n.partition("/")[0] for n in names}) == 1 and len(members) == len(names)
        if strange or not one_root or "models/model.json" not in members or "archive_format" not in members:
            what = f"the member '{strange[0]}'" if strange else "no exported program"
            raise UntrustedModelError(
                f"'{path.name}' holds {what}, unlike what torch.export writes, and is not read even with --trust-model"
            )
        for name in _pickled(path, archive, members):
            if name in members:
                _check_tensors_only(path, name, archive.read(members[name]))


def _pickled(path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> Iterator[str]:
    """Yield the members that torch would unpickle: sample inputs, and what the configs say are pickles."""
    yield "data/sample_inputs/model.pt"
    for folder, config in _CONFIGS:
        if folder + config not in members:
            continue
        try:
            entries = json.loads(archive.read(members[folder + config]))["config"].values()
            yield from [folder + entry["path_name"] for entry in entries if entry["use_pickle"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
            raise FileError(f"'{path.name}' is damaged: '{folder}{config}' cannot be read") from error


def _check_tensors_only(path: Path, name: str, content: bytes) -> None:
    try:
        check_zip(io.BytesIO(content), name)
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile pickle provokes
        raise UntrustedModelError(
            f"'{path.name}' holds a pickle of more than tensors ('{name}'), and is not read even with --trust-model"
        ) from error


@contextmanager
def _torch_errors(path: Path, writer: str) -> Iterator[None]:
    """Turn what torch raises on a damaged file into one sentence, and keep its logs and deprecations to itself."""
    log = logging.getLogger("torch.export")
    disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except Exception as error:  # torch raises many kinds
        first_line = (str(error).splitlines() or [""])[0]
        raise FileError(
            f"'{path.name}' is no {writer} file that torch can read: {type(error).__name__}: {first_line}"
        ) from error
    finally:
        log.disabled = disabled
