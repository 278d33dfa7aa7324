"""The auxiliary: from features to protected variables, trained several times over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.alignment import Head
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError
from fairfox.models.protocol import Model
from fairfox.nets.mlp import MLP
from fairfox.nets.training import Loss, train

AuxOutput = Literal["logit", "probability"]


class Auxiliary(Protocol):
    """Something with `fit` that then holds one or more models from x to the protected outputs."""

    @property
    def members(self) -> Sequence[Model]:
        """M models (N, D) -> (N, K)."""
        ...

    @property
    def held_out(self) -> Dataset | None:
        """Rows the members were not trained on; group statistics are read off them."""
        ...

    def fit(self, data: Dataset) -> Self:
        """Train on x and c, never y."""
        ...


@dataclass(frozen=True)
class FixedAuxiliary:
    """Models from x to c that come trained: `fit` leaves them as they are."""

    members: Sequence[Model]
    held_out: Dataset | None = None

    def fit(self, data: Dataset) -> Self:
        """Return self."""
        return self


class AuxiliaryMember:
    """One trained network behind the auxiliary's mask, seen as a Model.

    Withheld columns, and columns that never varied in the training rows, do not enter: J is zero there.
    """

    differentiable = True

    def __init__(
        self, net: nn.Sequential, mask: Tensor, protected: Sequence[Protected], *, output: AuxOutput = "logit"
    ) -> None:
        self.net = net
        self.mask = mask  # (D,) bool: columns that are used
        self.protected = tuple(protected)
        self.output = output

    def __call__(self, x: Tensor) -> Tensor:
        """Return the protected outputs (N, K): logits, centred logits or standardised values, head after head."""
        masked = torch.where(self.mask, x, 0.0).to(self._first.weight)
        return self._finish(self.net(masked)).to(x)

    @property
    def first_affine(self) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """The first linear layer with masked weights, its bias, and the rest of the network."""
        first, rest = self._first, self.net[1:]
        weight = torch.where(self.mask, first.weight.detach(), 0.0)
        return weight, first.bias.detach(), lambda h: self._finish(rest(h.to(weight))).to(h)

    @property
    def _first(self) -> nn.Linear:
        first = self.net[0]
        assert isinstance(first, nn.Linear)
        return first

    def _finish(self, out: Tensor) -> Tensor:
        parts = out.split([p.outputs for p in self.protected], dim=1)
        finished = [_head_output(part, p, self.output) for part, p in zip(parts, self.protected, strict=True)]
        return torch.cat(finished, dim=1) if len(finished) > 1 else finished[0]


@dataclass(kw_only=True)
class AuxiliaryModel:
    """`refits` MLPs from x to c, trained in one batched loop, each on its own minibatches.

    A fifth of the rows is held out: it decides when to stop, and group statistics are read off it, because
    logits of training rows are over-separated.

    Example:
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> auxiliary = AuxiliaryModel(refits=2).fit(Dataset.from_arrays(x, c=(x[:, 0] > 0).float()))
        >>> len(auxiliary.members), auxiliary.members[0](x).shape
        (2, torch.Size([200, 1]))
    """

    refits: int = 5
    width: int = 64
    depth: int = 2
    batch_size: int = 64
    rate: float = 1e-3
    max_epochs: int = 60
    patience: int = 5
    output: AuxOutput = "logit"
    seed: int = 0
    members: Sequence[Model] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train on the rows whose protected values are known (x and c, never y)."""
        known = data[~data.c.isnan().all(1)]
        fitting, held_out = known.split(0.8, seed=self.seed)
        check_groups(fitting)
        mask = usable_columns(fitting)
        targets, valid_targets = (_standardised(part, fitting) for part in (fitting, held_out))
        net = MLP(
            data.x.shape[1],
            sum(p.outputs for p in data.protected),
            width=self.width,
            depth=self.depth,
            members=self.refits,
            seed=self.seed,
        ).to(data.x.device)
        train(
            net,
            torch.where(mask, fitting.x, 0.0).float(),
            targets.float(),
            loss=_loss(data.protected),
            valid_x=torch.where(mask, held_out.x, 0.0).float(),
            valid_targets=valid_targets.float(),
            batch_size=self.batch_size,
            rate=self.rate,
            max_epochs=self.max_epochs,
            patience=self.patience,
            seed=self.seed,
        )
        nets = [net.member(m).to(data.x.device) for m in range(self.refits)]
        self.members = [AuxiliaryMember(one, mask, data.protected, output=self.output) for one in nets]
        self.held_out = held_out
        return self


def heads_of(protected: Sequence[Protected]) -> tuple[Head, ...]:
    """Return the auxiliary's heads, one per protected variable."""
    return tuple(Head(p.outputs, p.kind == "categorical") for p in protected)


def usable_columns(data: Dataset) -> Tensor:
    """Return the columns (D,) an auxiliary may use: not withheld, and varying over the rows."""
    varies = (data.x != data.x[:1]).any(0)
    return varies & ~data.withheld.to(varies.device)


def _head_output(part: Tensor, p: Protected, output: AuxOutput) -> Tensor:
    if p.kind == "categorical":
        return part.softmax(1) if output == "probability" else part - part.mean(1, keepdim=True)
    if p.kind == "binary" and output == "probability":
        return part.sigmoid()
    return part


def _standardised(data: Dataset, fitting: Dataset) -> Tensor:
    """Return c with continuous variables standardised by the fitting rows."""
    c = data.c.clone()
    for v, p in enumerate(data.protected):
        if p.kind == "continuous":
            known = fitting.c[:, v][~fitting.c[:, v].isnan()]
            c[:, v] = (c[:, v] - known.mean()) / known.std().clamp(min=1e-12)
    return c


def _loss(protected: Sequence[Protected]) -> Loss:
    """Return the sum over heads of their losses; people whose value is unknown do not count."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:  # (M, N, K), (M, N, V) -> (M,)
        total = outputs.new_zeros(len(outputs))
        start = 0
        for v, p in enumerate(protected):
            out, c = outputs[..., start : start + p.outputs], targets[..., v]
            known = ~c.isnan()
            each = _head_loss(out, c.nan_to_num(), p)
            total = total + (each * known).sum(1) / known.sum(1).clamp(min=1)
            start += p.outputs
        return total

    return loss


def _head_loss(out: Tensor, c: Tensor, p: Protected) -> Tensor:
    if p.kind == "binary":
        return F.binary_cross_entropy_with_logits(out[..., 0], c, reduction="none")
    if p.kind == "categorical":
        return F.cross_entropy(out.movedim(-1, 1), c.long(), reduction="none")
    return (out[..., 0] - c).square()


def check_groups(data: Dataset) -> None:
    """Raise where a protected class has too few people to learn from."""
    for v, p in enumerate(data.protected):
        c = data.c[:, v]
        if p.kind == "continuous":
            continue
        for code, level in enumerate(p.levels):
            if int((c == code).sum()) < 2:
                raise DataError(
                    f"Group '{level}' of '{p.name}' has too few people to learn from; at least 10 are needed"
                )
