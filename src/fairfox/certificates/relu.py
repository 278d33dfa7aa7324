"""ReLU networks along a straight path: piecewise linear in t, with known breakpoints."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairfox.certificates.path import PathChange, point_at, worst_points
from fairfox.data.encoding import Encoding
from fairfox.errors import OptionError
from fairfox.models.protocol import Output, predict
from fairfox.models.torch import TorchModel, chained_layers

_IDLE = (nn.Identity, nn.Dropout, nn.Flatten)  # layers that change no number once a network is trained
_LAYERS = "Linear, ReLU, BatchNorm1d, Dropout, and a Sigmoid (or a Softmax of two) at the end"


Layer = tuple[Tensor, Tensor] | None  # weights (O, I) and biases (O,); None: a ReLU


@dataclass(frozen=True)
class ExactNetwork:
    """A network that is linear between the breakpoints of its ReLUs, and its final activation."""

    layers: tuple[Layer, ...]
    last: nn.Module | None  # what follows them, monotone
    model: TorchModel  # the same model in float64


def read_network(model: TorchModel) -> ExactNetwork:
    """Return the layers of a network; raise where one is neither linear nor a ReLU."""
    if not isinstance(model.module, nn.Module):
        raise OptionError(
            "This is a function of tensors, whose layers cannot be read; certificates need a torch module: "
            "give the network itself"
        )
    module = copy.deepcopy(model.module).double().eval()
    parts = chained_layers(module)
    if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
        raise OptionError("This network has hooks, which may change its numbers; remove them first")
    parts = [part for part in parts if type(part) not in _IDLE]
    last = parts.pop() if parts and type(parts[-1]) in (nn.Sigmoid, nn.Softmax) else None
    layers = tuple(_layer(part) for part in parts)
    widths = [len(layer[1]) for layer in layers if layer is not None]
    if not widths or not _is_monotone(last, widths[-1], model.output):
        raise OptionError(
            f"This network's audited output mixes {widths[-1] if widths else 0} columns, so its extremes may lie "
            "between the breakpoints; certificates need one log-odds, a pair of them, or one column of values"
        )
    exact = TorchModel(module, output=model.output, decoder=model.decoder, encoded=model.encoded)
    return ExactNetwork(layers, last, exact)


def network_on_path(network: ExactNetwork, here: Tensor, there: Tensor) -> PathChange:
    """Return the largest change of a network's output on each path between encoded rows (N, D), in float64."""
    model = network.model
    start, end = _inner_path(here, there, model.decoder)
    owner, t, values = _bends(network.layers, _inputs(model, start), _inputs(model, end))
    with torch.no_grad():
        heights = model.output(values if network.last is None else network.last(values))[:, 0]
    # the output is monotone between the bends: its extremes are among them
    kept = torch.cat([_best(sign * heights, owner, len(here)) for sign in (1.0, -1.0)]).to(here.device)
    owner, t = owner.to(here.device)[kept], t.to(here)[kept]
    f_here, f_there, inside = (predict(model, x) for x in (here, there, point_at(start[owner], end[owner], t)))
    return worst_points(f_here, f_there, inside, owner, t)


def _layer(part: nn.Module) -> Layer:
    if type(part) is nn.ReLU:
        return None
    if type(part) is nn.Linear:
        weight = part.weight.detach()
        return weight, torch.zeros_like(weight[:, 0]) if part.bias is None else part.bias.detach()
    if type(part) is nn.BatchNorm1d and part.running_mean is not None and part.running_var is not None:
        with torch.no_grad():
            scale = (part.running_var + part.eps).rsqrt() * (1.0 if part.weight is None else part.weight)
            shift = (0.0 if part.bias is None else part.bias) - part.running_mean * scale
        return scale.diag(), shift
    raise OptionError(f"This network has a {type(part).__name__}; certificates along the path support {_LAYERS}")


def _is_monotone(last: nn.Module | None, width: int, output: Output) -> bool:
    """Return whether what is audited rises or falls with one linear function of the last layer's outputs."""
    if width == 1:
        return type(last) is not nn.Softmax
    if type(last) is nn.Softmax:
        return width == 2 and output.returns != "logit"
    return output.returns != "logit" or (last is None and width == 2)


def _inner_path(here: Tensor, there: Tensor, decoder: Encoding | None) -> tuple[Tensor, Tensor]:
    """Return the ends of the path as the model sees it: one-hot blocks projected.

    A block that is empty at one end (a category nobody knows) is the other end's at every point in between.
    """
    if decoder is None:
        return here, there
    here, there = decoder.project(here), decoder.project(there)
    start, end = here.clone(), there.clone()
    for block in decoder.blocks:
        start[:, block] = torch.where(here[:, block].sum(1, keepdim=True) > 0, here[:, block], there[:, block])
        end[:, block] = torch.where(there[:, block].sum(1, keepdim=True) > 0, there[:, block], here[:, block])
    return start, end


def _inputs(model: TorchModel, x: Tensor) -> Tensor:
    """Return what the network itself receives for encoded rows; straight paths stay straight."""
    assert isinstance(model.module, nn.Module)
    inputs = x if model.decoder is None or model.encoded else model.decoder.matrix(x)
    return inputs.to(next(model.module.parameters()).device, torch.float64)


def _bends(layers: Sequence[Layer], first: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whose each point is (P,), its t (P,) and the layers' outputs (P, K): both ends and every bend between.

    Points are in the order of the people and of t. Before each ReLU the values are linear between neighbours; where
    one of them changes its sign, a point is put in.
    """
    owner = torch.arange(len(first), device=first.device).repeat_interleave(2)
    t = torch.tensor([0.0, 1.0]).to(first).repeat(len(first))
    values = torch.stack([first, last], dim=1).flatten(0, 1)  # (P, I)
    for layer in layers:
        if layer is None:
            owner, t, values = _with_zeros(owner, t, values)
            values = values.relu_()
        else:
            values = torch.addmm(layer[1], values, layer[0].T)
    return owner, t, values


def _with_zeros(owner: Tensor, t: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the points with one more wherever one of the values (P, W) crosses zero between neighbours."""
    positive = values > 0
    crossed = (positive[1:] != positive[:-1]) & (owner[1:] == owner[:-1])[:, None]
    left, column = crossed.nonzero(as_tuple=True)  # in the order of `left`
    before, after = values[left, column], values[left + 1, column]
    share = before / (before - after)
    order = share.argsort()
    order = order[left[order].argsort(stable=True)]  # by interval, and by position in it
    left, share = left[order], share[order]
    # an old point moves on by the new ones before it
    fresh = torch.arange(len(left), device=t.device) + left + 1
    old = torch.arange(len(t), device=t.device) + torch.bincount(left + 1, minlength=len(t)).cumsum(0)
    order = torch.cat([old, fresh]).argsort()
    added = torch.lerp(values[left], values[left + 1], share[:, None])
    return (
        torch.cat([owner, owner[left]])[order],
        torch.cat([t, torch.lerp(t[left], t[left + 1], share)])[order],
        torch.cat([values, added])[order],
    )


def _best(values: Tensor, owner: Tensor, people: int) -> Tensor:
    """Return the index of everyone's largest value (N,)."""
    top = values.new_full((people,), -torch.inf).scatter_reduce(0, owner, values, "amax")
    hit = (values == top[owner]).nonzero()[:, 0]
    return torch.zeros(people, dtype=torch.long, device=values.device).index_copy(0, owner[hit], hit)
