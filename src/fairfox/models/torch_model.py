"""Torch modules and differentiable functions, seen as Models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from fairfox.errors import ModelError
from fairfox.models.output import Output
from fairfox.models.protocol import Decoder

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

    @property
    def linears(self) -> list[nn.Linear] | None:
        """The linear layers where ReLU, Linear, ..., ReLU, Linear is all there is; None for other networks."""
        layers = list(self.layers)
        kinds = [nn.ReLU, nn.Linear] * (len(layers) // 2)
        if not layers or len(layers) % 2 or not all(map(_is_plain, layers, kinds)):
            return None
        return cast(list[nn.Linear], layers[1::2])


def _is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a layer does what its kind does and nothing else: no subclass, no hooks."""
    return type(layer) is kind and not (layer._forward_hooks or layer._forward_pre_hooks)


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
        decoder: Decoder | None = None,
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
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelError(
                f"The model failed on a {tuple(inputs.shape)} tensor{names}: {first_line}; drop what it does not take"
            ) from error
        if not isinstance(out, Tensor):
            raise ModelError(f"The model returned {type(out).__name__}; expected a tensor with one row per individual")
        if out.ndim == 0 or len(out) != len(x):
            found = "a single number" if out.ndim == 0 else f"{len(out)} predictions"
            raise ModelError(f"The model returned {found} for {len(x)} individuals; return one row each, in order")
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
