"""Torch modules and differentiable functions, seen as Models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from fairfox.errors import ModelError
from fairfox.models.output import Output
from fairfox.models.protocol import Decoder

Affine = tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]  # weight (H, D), bias (H,), what follows: (N, H) -> (N, K)


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
        module = self.module
        if not (isinstance(module, nn.Sequential) and len(module) > 0 and isinstance(module[0], nn.Linear)):
            return None
        linear, rest = module[0], module[1:]
        weight, bias = linear.weight.detach(), linear.bias
        shift = torch.zeros_like(weight[:, 0]) if bias is None else bias.detach()
        if self.decoder is not None and self.decoder.blocks:
            return None  # the projection of one-hot blocks is not affine
        if self.decoder is not None and not self.encoded:
            corners = torch.cat([torch.zeros_like(weight[:1]), torch.eye(weight.shape[1]).to(weight)])
            # as autograd sees them: without the rounding to whole numbers
            origin, *steps = self.decoder.matrix(corners.requires_grad_()).detach()
            weight, shift = weight @ (torch.stack(steps) - origin).T, shift + weight @ origin
        return weight, shift, lambda h: self.output(rest(h))
