"""Torch modules and differentiable functions as target models, and networks in files.

Only safetensors are safe. TorchScript, `torch.export` and `torch.save` files can run code when loaded, so `loading`
requires trust for them.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from io import BytesIO
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairfox.data.encoding import Encoding
from fairfox.data.files import read_text, write_text, written_whole
from fairfox.errors import FileError, ModelError, OptionError, first_line, require
from fairfox.models.boosting import read_apart
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


def chained_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that are called one after the other, with chains within chains taken apart."""
    if type(module) is not nn.Sequential or module._forward_hooks or module._forward_pre_hooks:
        return [module]
    return [layer for part in module for layer in chained_layers(part)]


@dataclass(eq=False, repr=False)
class TorchModel:
    """A torch module or function behind fairfox's encoding, differentiable by autograd.

    Before the module, one-hot blocks are projected and columns converted to their own units, differentiably.
    A module in training mode is copied and put into evaluation mode.
    """

    module: Callable[[Tensor], Tensor]
    _: KW_ONLY
    output: Output = field(default_factory=Output)
    decoder: Encoding | None = None
    encoded: bool = False
    sample: Tensor | None = field(default=None, init=False)  # whose dtype and device the module takes
    differentiable = True

    def __post_init__(self) -> None:
        if isinstance(self.module, nn.Module):
            self.module = copy.deepcopy(self.module).eval() if self.module.training else self.module
            tensors = chain(self.module.parameters(), self.module.buffers())
            self.sample = next((t for t in tensors if t.is_floating_point()), None)

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
                "drop columns it does not take"
            ) from error
        if not isinstance(out, Tensor):
            raise ModelError(f"The model returned {type(out).__name__}; expected a tensor with one row per individual")
        check_rows(out, len(x))
        return out.reshape(len(x), -1)

    @property
    def first_affine(self) -> Affine | None:
        """The first linear layer on encoded x and the rest of the network, where the model starts with one."""
        layers = chained_layers(self.module) if isinstance(self.module, nn.Sequential) else []
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
_MOST = 1000  # layers that a file may declare


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
    sizes = [linear[0].in_features, *[layer.out_features for layer in linear]]
    declared = {"kind": "mlp", "sizes": sizes, "activation": "relu", "returns": returns}
    with written_whole(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, temporary)
    write_text(json.dumps(declared, indent=2) + "\n", path.with_suffix(".json"))


def load_mlp(path: Path) -> nn.Module:
    """Return the network in a safetensors file whose architecture is declared in a JSON file beside it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    beside = path.with_suffix(".json")
    if not beside.is_file():
        raise FileError(f"'{path.name}' needs '{beside.name}' beside it, with its kind, sizes and returns")
    try:
        declared = json.loads(read_text(beside, most=2**24))
        sizes = [int(size) for size in declared["sizes"]]
        kind, returns = (declared["kind"], declared.get("activation", "relu")), declared.get("returns", "logit")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"'{beside.name}' does not declare kind, sizes and returns ({error})") from error
    if kind != ("mlp", "relu") or returns not in _RETURNS or not 2 <= len(sizes) <= _MOST or min(sizes) < 1:
        raise FileError(
            f"'{beside.name}' declares an unknown architecture; fairfox knows kind 'mlp' with activation 'relu', 2 to "
            f"{_MOST} sizes of at least 1, and returns {', '.join(_RETURNS)}"
        )
    try:
        with torch.device("meta"):  # no weights of its own, and no random numbers drawn for them
            layers = [layer for fans in pairwise(sizes) for layer in (nn.Linear(*fans), nn.ReLU())]
        net = nn.Sequential(*layers[:-1])
        net.load_state_dict(load_file(path), assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise FileError(f"'{path.name}' does not hold the network of '{beside.name}': {first_line(error)}") from error
    if returns == "logit":
        net.append(nn.Sigmoid() if sizes[-1] == 1 else nn.Softmax(dim=1))
    return net.eval()


# --- Keras ---------------------------------------------------------------------------------------------------------

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "softmax": lambda: nn.Softmax(dim=1),
    "tanh": nn.Tanh,
}
_KERAS: dict[str, dict[str, tuple[Any, ...]]] = {  # layers that are read, and what some of their settings must be
    **{kind: {} for kind in ("Activation", "Dropout", "InputLayer")},
    "BatchNormalization": {"axis": (-1, 1, [-1], [1]), "renorm": (False,)},
    "Dense": {"lora_rank": (None,), "quantization_config": (None,)},
    "ReLU": {"max_value": (None,), "negative_slope": (0, None), "threshold": (0, None)},
    "Softmax": {"axis": (-1, 1, [-1], [1])},
}


def load_keras(path: Path) -> nn.Module:
    """Return the dense network in a Keras file, read as arrays: Keras is not needed, and no code in the file runs."""
    require("h5py", extra="keras", why=f"to read '{path.name}'")
    with np.load(BytesIO(read_apart("h5py", path, str(path.stat().st_size)))) as arrays:
        weights = {name: torch.as_tensor(arrays[name].astype(np.float32)) for name in arrays if name != "config"}
        config = arrays["config"].tobytes()
    try:
        net = nn.Sequential(*(layer for each in _chain(json.loads(config)) for layer in _as_torch(*each, weights)))
        width = next(layer for layer in net if isinstance(layer, nn.Linear | nn.BatchNorm1d)).weight.shape[-1]
        net.eval()(torch.zeros(2, width))  # layers that do not fit together fail here
    except Exception as error:  # a crafted description may make anything fail
        reason = first_line(error) if type(error) is ValueError else f"{type(error).__name__}: {first_line(error)}"
        raise FileError(
            f"'{path.name}' is not a Keras model fairfox can read: {reason[:200]}; expected a sequence of "
            f"{', '.join(_KERAS)}, or give code that calls the model as file.py:function"
        ) from error
    return net


def _chain(model: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield kind, number in the file and settings of the layers of a network that follow each other."""
    plain, config, counts = model["class_name"] == "Sequential", model["config"], Counter[str]()
    layers = config if isinstance(config, list) else config["layers"]
    names = [layer["config"]["name"] for layer in layers]
    if model["class_name"] not in ("Sequential", "Functional", "Model") or len(layers) > _MOST:
        raise ValueError(f"it is a {model['class_name']!r} of {len(layers)} layers")
    if not plain and {name for name in names if json.dumps(name) in json.dumps(config["output_layers"])} != {names[-1]}:
        raise ValueError("it has outputs before its last layer")
    for k, layer in enumerate(layers):
        kind, settings = layer["class_name"], layer["config"]
        if kind not in [*_KERAS] or layer.get("registered_name") not in (None, kind):
            raise ValueError(f"it has a layer of the kind {kind!r}")
        if odd := [name for name, right in _KERAS[kind].items() if settings.get(name, right[0]) not in right]:
            raise ValueError(f"a {kind} in it has '{odd[0]}' {settings[odd[0]]!r}")
        if len(settings.get("batch_shape") or settings.get("batch_input_shape") or "ND") != 2:
            raise ValueError("it takes more than one row of numbers per person")
        inbound = [] if plain else layer["inbound_nodes"]
        before = {name for name in names if json.dumps(name) in json.dumps(inbound)}
        if not plain and (len(inbound), before) != (min(k, 1), set(names[max(k - 1, 0) : k])):
            raise ValueError(f"its layer {names[k]!r} does not follow the one before it")
        snake = "batch_normalization" if kind == "BatchNormalization" else kind.lower()
        yield kind, f"{snake}_{counts[kind]}" if counts[kind] else snake, settings
        counts[kind] += 1


def _as_torch(kind: str, numbered: str, settings: dict[str, Any], weights: dict[str, Tensor]) -> Iterator[nn.Module]:
    """Yield a layer as torch has it; its weights have its name in .h5 files, and its number in .keras files."""

    def array(part: str, k: int) -> Tensor:
        named = rf"model_weights/{re.escape(settings['name'])}/(.*/)?{part}(:0)?"
        pattern = re.compile(rf"{named}|(layers|_layer_checkpoint_dependencies)/{numbered}/vars/{k}")
        found = [weights[name] for name in weights if pattern.fullmatch(name)]
        if len(found) != 1:
            raise ValueError(f"it has {len(found)} arrays for the {part} of its layer {settings['name']!r}")
        return found[0]

    if kind == "Dense":
        kernel = array("kernel", 0)
        linear = nn.Linear(kernel.shape[0], kernel.shape[1], bias=bool(settings["use_bias"]), device="meta")
        given = {"weight": kernel.T.contiguous()} | ({"bias": array("bias", 1)} if settings["use_bias"] else {})
        linear.load_state_dict(given, assign=True)
        yield linear
    elif kind == "BatchNormalization":
        flags = {"gamma": settings["scale"], "beta": settings["center"], "moving_mean": True, "moving_variance": True}
        own = {part: array(part, k) for k, part in enumerate(part for part, there in flags.items() if there)}
        mean, variance = own["moving_mean"], own["moving_variance"]
        norm = nn.BatchNorm1d(len(mean), eps=settings["epsilon"])
        state = {"weight": own.get("gamma", torch.ones_like(mean)), "bias": own.get("beta", torch.zeros_like(mean))}
        norm.load_state_dict(state | {"running_mean": mean, "running_var": variance}, strict=False)
        yield norm
    activation = settings.get("activation", "linear") if kind in ("Dense", "Activation") else kind.lower()
    if kind in ("Dense", "Activation", "ReLU", "Softmax") and activation != "linear":
        if activation not in [*_ACTIVATIONS]:
            raise ValueError(f"it has the activation {activation!r}")
        yield _ACTIVATIONS[activation]()


# --- what torch writes ---------------------------------------------------------------------------------------------


def load_saved(path: Path) -> nn.Module:
    """Return the module that `torch.save` or TorchScript wrote. It runs code, so only load files you trust."""
    with _torch_errors(path, "torch.save or TorchScript"):
        found = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(found, nn.Module):
        raise OptionError(
            f"'{path.name}' holds a {type(found).__name__}, not a module; "
            "build the network in a Python file of your own and give that as file.py:function"
        )
    return found.eval()


def load_exported(path: Path) -> nn.Module:
    """Return the module that `torch.export.save` wrote. It may hold pickles, so only load files you trust."""
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
            f"'{path.name}' is not a {writer} file that torch can read: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        log.disabled = disabled
