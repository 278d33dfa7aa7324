"""Torch modules and differentiable functions as target models, and networks in files.

Only safetensors are safe. TorchScript, `torch.export` and `torch.save` files can run code when loaded: `loading` asks
for trust before it calls the functions for them.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairfox.data.encoding import Encoding
from fairfox.data.files import write_text, written_whole
from fairfox.errors import FileError, ModelError, OptionError, first_line
from fairfox.models.protocol import Kind, Output, Returns, check_rows

Affine = tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]  # weight (H, D), bias (H,), what follows: (N, H) -> (N, K)


@dataclass(frozen=True)
class Tail:
    """What follows a network's first linear layer, up to the model's outputs: (N, H) -> (N, K)."""

    layers: nn.Sequential
    finish: Callable[[Tensor], Tensor] | None = None  # what the model makes of the network's outputs; None: nothing

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the model's outputs for the first layer's."""
        overwrites = len(self.layers) > 0 and getattr(self.layers[0], "inplace", False)
        out: Tensor = self.layers(hidden.clone() if overwrites else hidden)
        return out if self.finish is None else self.finish(out)


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that are called one after the other, with chains within chains taken apart."""
    if type(module) is not nn.Sequential or module._forward_hooks or module._forward_pre_hooks:
        return [module]
    return [layer for part in module for layer in _layers(part)]


class TorchModel:
    """A torch module or function behind fairfox's encoding; autograd sees through it.

    One-hot blocks are projected and columns brought back to their own units in front of the module,
    differentiably. A module in training mode is copied and put into evaluation mode.
    """

    differentiable = True

    def __init__(
        self,
        module: Callable[[Tensor], Tensor],
        *,
        output: Output | None = None,
        decoder: Encoding | None = None,
        encoded: bool = False,
    ) -> None:
        if isinstance(module, nn.Module) and module.training:
            module = copy.deepcopy(module).eval()
        self.module = module
        self.output = output or Output()
        self.decoder = decoder
        self.encoded = encoded
        self.sample: Tensor | None = None
        if isinstance(module, nn.Module):
            floats = (t for t in chain(module.parameters(), module.buffers()) if t.is_floating_point())
            self.sample = next(floats, None)

    @property
    def kind(self) -> Kind:
        """What the module receives."""
        return "encoded" if self.encoded else "matrix"

    @property
    def unit(self) -> Returns:
        """What the predictions are: "probability", "logit" or "value"."""
        return self.output.unit

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for encoded x (N, D)."""
        return self.output(self.raw(x)).to(x)

    def raw(self, x: Tensor) -> Tensor:
        """Return what the module itself returns for encoded x."""
        inputs = x
        if self.decoder is not None:
            inputs = self.decoder.project(inputs)
            inputs = inputs if self.encoded else self.decoder.matrix(inputs)
        if self.sample is not None:
            inputs = inputs.to(self.sample)
        try:
            out: Any = self.module(inputs)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            names = "" if self.decoder is None or self.encoded else f" with columns {', '.join(self.decoder.columns)}"
            raise ModelError(
                f"The model failed on a {tuple(inputs.shape)} tensor{names}: {first_line(error)}; "
                "drop what it does not take"
            ) from error
        if not isinstance(out, Tensor):
            raise ModelError(f"The model returned {type(out).__name__}; expected a tensor with one row per individual")
        check_rows(out, len(x))
        return out.reshape(len(x), -1)

    @property
    def first_affine(self) -> Affine | None:
        """The first linear layer on encoded x and the rest of the network, where the model starts with one."""
        layers = _layers(self.module) if isinstance(self.module, nn.Sequential) else []
        if not layers or type(layers[0]) is not nn.Linear:
            return None  # subclasses may do more than their kind
        linear, rest = layers[0], nn.Sequential(*layers[1:])
        weight, bias = linear.weight.detach(), linear.bias
        shift = torch.zeros_like(weight[:, 0]) if bias is None else bias.detach()
        if self.decoder is not None and (self.decoder.blocks or self.decoder.width != weight.shape[1]):
            return None  # projecting one-hot blocks is not affine; columns that say "missing" do not reach the model
        if self.decoder is not None and not self.encoded:
            corners = torch.cat([torch.zeros_like(weight[:1]), torch.eye(weight.shape[1]).to(weight)]).double()
            # as autograd sees them: without the rounding to whole numbers
            units = self.decoder.matrix(corners.requires_grad_()).detach()
            scales = (units[1:] - units[0]).to(weight)  # in float64: a mean may be far larger than its scale
            weight, shift = weight @ scales.T, shift + weight @ units[0].to(weight)
        return weight, shift, Tail(rest, self.output)


# --- safetensors ---------------------------------------------------------------------------------------------------

_RETURNS = ("logit", "probability", "value")


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
    write_text(json.dumps(declared, indent=2) + "\n", path.with_suffix(".json"))


def load_mlp(path: Path) -> nn.Module:
    """Return the network in a safetensors file whose architecture is declared in a JSON file beside it."""
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
        raise FileError(
            f"'{path.name}' does not hold the network declared in '{beside.name}': {first_line(error)}"
        ) from error
    if returns == "logit":
        net.append(nn.Sigmoid() if sizes[-1] == 1 else nn.Softmax(dim=1))
    return net.eval()


def _declaration(beside: Path) -> tuple[list[int], str]:
    """Return the layer sizes that a file declares, and what the network returns."""
    try:
        declared = json.loads(beside.read_text(encoding="utf-8"))
        sizes = [int(size) for size in declared["sizes"]]
        kind, returns = (declared["kind"], declared.get("activation", "relu")), declared.get("returns", "logit")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(
            f"'{beside.name}' does not declare an architecture: expected kind, sizes, returns ({error})"
        ) from error
    if kind != ("mlp", "relu") or returns not in _RETURNS or len(sizes) < 2 or min(sizes) < 1:
        raise FileError(
            f"'{beside.name}' declares an unknown architecture; fairfox knows kind 'mlp' with activation 'relu', sizes "
            f"of at least 1, and returns {', '.join(_RETURNS)}"
        )
    return sizes, returns


# --- what torch writes ---------------------------------------------------------------------------------------------


def load_saved(path: Path) -> nn.Module:
    """Return the module that `torch.save` or TorchScript wrote. It runs code: only for files that are trusted."""
    with _torch_errors(path, "torch.save or TorchScript"):
        found = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(found, nn.Module):
        raise OptionError(
            f"'{path.name}' holds a {type(found).__name__}, not a module; "
            "build the network in a Python file of your own and give that as file.py:function"
        )
    return found.eval()


def load_exported(path: Path) -> nn.Module:
    """Return the module that `torch.export.save` wrote. It may hold pickles: only for files that are trusted."""
    with _torch_errors(path, "torch.export"):
        module = torch.export.load(path).module()
    for part in module.modules():
        part.training = False  # eval() is not allowed: it has only the mode it was exported in
    return module


@contextmanager
def _torch_errors(path: Path, writer: str) -> Iterator[None]:
    """Turn what torch raises on a damaged file into one sentence, and keep its logs and deprecations to itself."""
    log = logging.getLogger("torch.export")
    disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", ".*looks like a TorchScript archive")
            yield
    except Exception as error:  # torch raises many kinds
        raise FileError(
            f"'{path.name}' is no {writer} file that torch can read: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        log.disabled = disabled
