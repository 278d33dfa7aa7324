"""Auxiliary models from features to protected variables, trained several times; and groups inferred by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from fairfox.auxiliary.adversarial import HidingSettings, train_hiding
from fairfox.auxiliary.mlp import MLP, behind, linear_layer, project
from fairfox.auxiliary.training import (
    balanced,
    centre_and_spread,
    check_groups,
    head_width,
    label_task,
    protected_task,
    train,
    usable_columns,
)
from fairfox.data.dataset import Dataset, Protected
from fairfox.gradients.alignment import Head
from fairfox.models.protocol import Model, row_blocks
from fairfox.models.torch import Tail

_ROWS = 4096  # whose groups are inferred at a time
_HIDING_FLOOR = 3.0  # of the adversarial auxiliary: that of a target that hides c


class Auxiliary(Protocol):
    """Something with `fit` that then holds one or more models from x to the protected outputs."""

    @property
    def members(self) -> Sequence[Model]:
        """M models (N, D) -> (N, K)."""

    @property
    def held_out(self) -> Dataset | None:
        """Rows the members were not trained on; group statistics come from them."""

    def fit(self, data: Dataset) -> Self:
        """Train on x and c, never y."""


@dataclass(frozen=True)
class FixedAuxiliary:
    """Trained models from x to c: `fit` leaves them as they are."""

    members: Sequence[Model]
    held_out: Dataset | None = None
    balance: bool = False  # whether they were trained with c and y independent

    def fit(self, data: Dataset) -> Self:
        """Return self."""
        return self


@dataclass(frozen=True, eq=False)
class AuxiliaryMember:
    """One trained network behind the auxiliary's mask, as a Model.

    Withheld columns, and columns that are constant in the training rows, are left out: J is zero there.
    """

    net: nn.Sequential  # logits, centred logits or standardised values, head after head
    mask: Tensor  # (D,) bool: columns that are used
    differentiable = True

    @classmethod
    def of(cls, net: nn.Sequential, mask: Tensor, protected: Sequence[Protected]) -> AuxiliaryMember:
        """Return a network as trained, with the logits of many classes centred."""
        return cls(_combined(net, _centring(protected)) if any(p.outputs > 1 for p in protected) else net, mask)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the protected outputs (N, K)."""
        out: Tensor = self.net(torch.where(self.mask, x, 0.0).to(self._first.weight))
        return out.to(x)

    @property
    def first_affine(self) -> tuple[Tensor, Tensor, Tail]:
        """The first linear layer with masked weights, its bias, and the rest of the network."""
        weight = torch.where(self.mask, self._first.weight.detach(), 0.0)
        return weight, self._first.bias.detach(), Tail(nn.Sequential(*list(self.net)[1:]))

    @property
    def _first(self) -> nn.Linear:
        return cast(nn.Linear, self.net[0])

    def after(self, projection: Tensor, used: Tensor) -> AuxiliaryMember:
        """Return this model of projected rows as a model of the rows themselves, of which it uses columns (D,)."""
        return AuxiliaryMember(behind(projection * self.mask, self.net), used)


class Combined:
    """Linear combinations (R, K) of a model's outputs, as a Model."""

    differentiable = True

    def __init__(self, model: Model, matrix: Tensor) -> None:
        self.model, self.matrix = model, matrix

    def __call__(self, x: Tensor) -> Tensor:
        """Return the combinations (N, R)."""
        out = self.model(x)
        return out @ self.matrix.to(out).T


def combine_outputs(model: Model, matrix: Tensor) -> Model:
    """Return linear combinations (R, K) of a model's outputs as a Model, as cheaply as it can."""
    if matrix.shape == (1, 1) and float(matrix) == 1.0:
        return model
    if isinstance(model, AuxiliaryMember):
        return replace(model, net=_combined(model.net, matrix))
    return Combined(model, matrix)


@dataclass(kw_only=True)
class AuxiliaryModel:
    """`refits` MLPs from x to c, trained in one batched loop, each on its own minibatches.

    A fifth of the rows is held out for early stopping and for group statistics, because logits of training rows are
    over-separated.

    With `adversarial` the networks also hide the label y from an adversary, as in the paper; the last of a fixed number
    of epochs is then kept. Where y depends on c this removes what predicts c: scores shrink or change sign.
    With `balance` people are weighted so that c and y are independent, and networks have no reason to use what predicts
    y.

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
    seed: int = 0
    adversarial: bool = False  # needs labels, and harms the tests
    balance: bool = False  # needs labels
    members: Sequence[Model] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train on the rows whose protected values are known (x and c; y only to hide it)."""
        known = data[~data.c.isnan().all(1)]
        known = balanced(known) if self.balance else known
        fitting, held_out = known.split(0.8, seed=self.seed)
        check_groups(known, fitting)
        mask = usable_columns(fitting)
        net = self._hiding(fitting, mask) if self.adversarial else self._plain(fitting, held_out, known, mask)
        nets = [net.member(m).to(data.x.device) for m in range(self.refits)]
        self.members = [AuxiliaryMember.of(one, mask, data.protected) for one in nets]
        self.held_out = held_out
        return self

    def _plain(self, fitting: Dataset, held_out: Dataset, known: Dataset, mask: Tensor) -> MLP:
        """Return networks that predict c, each with the weights that predicted the held-out rows best."""
        task = protected_task(fitting, known)
        net = MLP(
            known.x.shape[1], task.outputs, width=self.width, depth=self.depth, members=self.refits, seed=self.seed
        ).to(known.x.device)
        x, valid_x = (torch.where(mask, rows.x, 0.0).float() for rows in (fitting, held_out))
        targets = protected_task(held_out, known).targets
        how = {name: getattr(self, name) for name in ("batch_size", "rate", "max_epochs", "patience", "seed")}
        train(net, x, task.targets, loss=task.loss, valid_x=valid_x, valid_targets=targets, **how)
        return net

    def _hiding(self, fitting: Dataset, mask: Tensor) -> MLP:
        """Return networks that predict c and hide y from an adversary: a fair target's training, roles swapped."""
        return train_hiding(
            torch.where(mask, fitting.x, 0.0).float(),
            protected_task(fitting),
            label_task(fitting),
            floors=[_HIDING_FLOOR] * self.refits,
            seeds=[self.seed * self.refits + m for m in range(self.refits)],
            settings=HidingSettings(width=self.width, depth=self.depth, rate=self.rate),
        )


@dataclass
class ProjectedAuxiliary:
    """An `AuxiliaryModel` behind a fixed first layer (D, P), as an auxiliary from x to c.

    With the projection that keeps what depends on the protected variable (`SyntheticBias.keep_c`) this is the paper's
    disentangled auxiliary. Only the maker of generated data has that projection.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> keep = torch.tensor([[1.0], [0.0], [0.0]])
        >>> auxiliary = ProjectedAuxiliary(keep, AuxiliaryModel(refits=2, max_epochs=3))
        >>> members = auxiliary.fit(Dataset.from_arrays(x, c=(x[:, 0] > 0).float())).members
        >>> members[0](x).shape
        torch.Size([200, 1])
    """

    projection: Tensor  # (D, P)
    auxiliary: AuxiliaryModel = field(default_factory=AuxiliaryModel)
    members: Sequence[AuxiliaryMember] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train on the projected x and c, never y; withheld columns do not enter."""
        used = ~data.withheld.to(data.x.device)
        x = project(torch.where(used, data.x, 0.0), self.projection)
        projection = torch.where(used[:, None], self.projection.to(data.x), 0.0)
        projected = Dataset.from_arrays(x, data.c, protected=data.protected)
        self.auxiliary.fit(replace(projected, ids=np.arange(len(data)), weights=data.weights))
        inner = cast(Sequence[AuxiliaryMember], self.auxiliary.members)
        self.members = [member.after(projection, used) for member in inner]
        rows = self.auxiliary.held_out
        assert rows is not None
        self.held_out = data[cast(np.ndarray, rows.ids)]
        return self


def heads_of(protected: Sequence[Protected]) -> tuple[Head, ...]:
    """Return the auxiliary's heads, one per protected variable."""
    return tuple(Head(p.outputs, p.kind == "categorical") for p in protected)


def _centring(protected: Sequence[Protected]) -> Tensor:
    """Return what makes protected outputs of the network's (K, R): centred logits, and two of them of a single one."""
    blocks = []
    for p in protected:
        raw = torch.eye(head_width(p), dtype=torch.float64)
        if p.kind == "categorical":
            raw = torch.tensor([[-0.5], [0.5]], dtype=torch.float64) if head_width(p) == 1 else raw - 1 / len(raw)
        blocks.append(raw)
    matrix: Tensor = torch.block_diag(*blocks)
    return matrix


def _combined(net: nn.Sequential, matrix: Tensor) -> nn.Sequential:
    """Return the network with linear combinations (R, K) of its outputs: a last layer with other weights."""
    last = cast(nn.Linear, net[-1])
    mixing = matrix.to(last.weight.device, torch.float64)
    weight, bias = (mixing @ part.detach().double() for part in (last.weight, last.bias))
    return nn.Sequential(*list(net)[:-1], linear_layer(weight.to(last.weight), bias)).eval()


# --- Groups that are unknown ---------------------------------------------------------------------------------------


def infer_groups(data: Dataset, auxiliary: Auxiliary, fitting: Dataset) -> tuple[Dataset, Tensor]:
    """Return the people with unknown protected values filled in, and which were (N, V) bool.

    A class is the most probable one of the members' mean probabilities, a number their mean prediction in its own
    units, which are those of the `fitting` rows. An intersection follows its variables; where no fitting row has the
    combination it stays unknown. People whose values are all known are returned as they are.
    """
    unknown = data.c.isnan()
    rows = unknown.any(1).nonzero()[:, 0]
    if len(rows) == 0:
        return data, unknown
    x = data.x[rows]
    chances = torch.stack([_chances(member, x, data.protected) for member in auxiliary.members]).mean(0)
    heads = chances.split([p.outputs for p in data.protected], dim=1)
    inferred = torch.stack([_inferred(head, v, fitting) for v, head in enumerate(heads)], dim=1).to(data.c)
    filled = torch.where(unknown[rows], inferred, data.c[rows])  # (n, V)
    for v, p in enumerate(data.protected):
        if p.parts:
            filled[:, v] = torch.where(unknown[rows, v], _crossed(filled, v, fitting), filled[:, v])
    c = data.c.index_copy(0, rows, filled)
    return replace(data, c=c), unknown & ~c.isnan()


def _inferred(head: Tensor, variable: int, fitting: Dataset) -> Tensor:
    """Return the class or number (n,) that a head's mean outputs (n, K) stand for."""
    p = fitting.protected[variable]
    if p.is_continuous:
        mean, spread = centre_and_spread(fitting.c[:, variable], fitting.weights)
        return mean.to(head) + spread.to(head) * head[:, 0]
    return head.argmax(1).to(head) if p.kind == "categorical" else (head[:, 0] > 0.5).to(head)


def _crossed(c: Tensor, variable: int, fitting: Dataset) -> Tensor:
    """Return the class (n,) of an intersection that fitting rows with the same parts have; NaN where there are none."""
    names = [p.name for p in fitting.protected]
    parts = [names.index(name) for name in fitting.protected[variable].parts if name in names]
    if len(parts) < len(fitting.protected[variable].parts):
        return torch.full_like(c[:, variable], torch.nan)
    classes = fitting.c[:, [*parts, variable]].to(c)
    classes = classes[~classes.isnan().any(1)].unique(dim=0)  # (U, P + 1)
    out = torch.full_like(c[:, variable], torch.nan)
    for row in classes:
        out[(c[:, parts] == row[:-1]).all(1)] = row[-1]
    return out


def _chances(member: Model, x: Tensor, protected: tuple[Protected, ...]) -> Tensor:
    """Return a member's outputs (n, K), of classes as probabilities."""
    with torch.no_grad():
        outputs = torch.cat([member(x[rows]) for rows in row_blocks(len(x), _ROWS)])
    heads = outputs.split([p.outputs for p in protected], dim=1)
    shares = [
        head.softmax(1) if p.kind == "categorical" else head.sigmoid() if p.kind == "binary" else head
        for head, p in zip(heads, protected, strict=True)
    ]
    return torch.cat(shares, dim=1)
