"""The auxiliary: from features to protected variables, trained several times over."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.alignment import Head
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError
from fairfox.models.protocol import Model
from fairfox.models.torch_model import Tail
from fairfox.nets.adversarial import HidingSettings, Task, train_hiding
from fairfox.nets.mlp import MLP
from fairfox.nets.training import Loss, train

AuxOutput = Literal["logit", "probability"]
_HIDING_FLOOR = 3.0  # of the adversarial auxiliary: that of a target that hides c


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
        self.net = _combined(net, _centring(protected)) if any(p.outputs > 1 for p in protected) else net
        self.mask = mask  # (D,) bool: columns that are used
        self.protected = tuple(protected)
        self.output = output

    def __call__(self, x: Tensor) -> Tensor:
        """Return the protected outputs (N, K): logits, centred logits or standardised values, head after head."""
        masked = torch.where(self.mask, x, 0.0).to(self._first.weight)
        return self._finish(self.net(masked)).to(x)

    @property
    def first_affine(self) -> tuple[Tensor, Tensor, Tail]:
        """The first linear layer with masked weights, its bias, and the rest of the network."""
        first = self._first
        weight = torch.where(self.mask, first.weight.detach(), 0.0)
        finish = None if self.output == "logit" else self._finish
        return weight, first.bias.detach(), Tail(nn.Sequential(*list(self.net)[1:]), finish)

    @property
    def _first(self) -> nn.Linear:
        first = self.net[0]
        assert isinstance(first, nn.Linear)
        return first

    def combined(self, matrix: Tensor) -> Model:
        """Return linear combinations (R, K) of the outputs as a Model of its own, at the cost of R outputs."""
        if self.output == "probability":
            return Combined(self, matrix)
        one = copy.copy(self)
        one.net = _combined(self.net, matrix)
        return one

    def _finish(self, out: Tensor) -> Tensor:
        if self.output == "logit":
            return out
        parts = out.split([p.outputs for p in self.protected], dim=1)
        return torch.cat([probabilities(part, p) for part, p in zip(parts, self.protected, strict=True)], dim=1)


class Combined:
    """Linear combinations (R, K) of a model's outputs, seen as a Model."""

    differentiable = True

    def __init__(self, model: Model, matrix: Tensor) -> None:
        self.model, self.matrix = model, matrix

    def __call__(self, x: Tensor) -> Tensor:
        """Return the combinations (N, R)."""
        out = self.model(x)
        return out @ self.matrix.to(out).T


def combine_outputs(model: Model, matrix: Tensor) -> Model:
    """Return linear combinations (R, K) of a model's outputs as a Model, in the cheapest way it knows."""
    if matrix.shape == (1, 1) and float(matrix) == 1.0:
        return model
    return model.combined(matrix) if isinstance(model, AuxiliaryMember) else Combined(model, matrix)


@dataclass(kw_only=True)
class AuxiliaryModel:
    """`refits` MLPs from x to c, trained in one batched loop, each on its own minibatches.

    A fifth of the rows is held out: it decides when to stop, and group statistics are read off it, because
    logits of training rows are over-separated.

    With `adversarial` the networks also hide the label y from an adversary, as the paper has them; then the last of
    a fixed number of epochs is kept. Where y goes with c this takes away what tells c: scores shrink or change sides.
    With `precise` the networks are taken to float64 once they are trained; beside a target in float64, gradients are
    formed and compared in it.

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
    adversarial: bool = False  # needs labels, and harms the tests
    precise: bool = False
    members: Sequence[Model] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train on the rows whose protected values are known (x and c; y only to hide it)."""
        known = data[~data.c.isnan().all(1)]
        fitting, held_out = known.split(0.8, seed=self.seed)
        check_groups(known, fitting)
        mask = usable_columns(fitting)
        net = self._hiding(fitting, mask) if self.adversarial else self._plain(fitting, held_out, known, mask)
        dtype = torch.float64 if self.precise else torch.float32
        nets = [net.member(m).to(data.x.device, dtype) for m in range(self.refits)]
        self.members = [AuxiliaryMember(one, mask, data.protected, output=self.output) for one in nets]
        self.held_out = held_out
        return self

    def _plain(self, fitting: Dataset, held_out: Dataset, known: Dataset, mask: Tensor) -> MLP:
        """Return networks that tell c, each as it was when it told the held-out rows best."""
        targets, valid_targets = (_targets(part, known) for part in (fitting, held_out))
        net = MLP(
            known.x.shape[1],
            sum(map(_width, known.protected)),
            width=self.width,
            depth=self.depth,
            members=self.refits,
            seed=self.seed,
        ).to(known.x.device)
        train(
            net,
            torch.where(mask, fitting.x, 0.0).float(),
            targets.float(),
            loss=_loss(known.protected),
            valid_x=torch.where(mask, held_out.x, 0.0).float(),
            valid_targets=valid_targets.float(),
            batch_size=self.batch_size,
            rate=self.rate,
            max_epochs=self.max_epochs,
            patience=self.patience,
            seed=self.seed,
        )
        return net

    def _hiding(self, fitting: Dataset, mask: Tensor) -> MLP:
        """Return networks that tell c and hide y from an adversary: a fair target's training, roles swapped."""
        return train_hiding(
            torch.where(mask, fitting.x, 0.0).float(),
            protected_task(fitting),
            label_task(fitting),
            floors=[_HIDING_FLOOR] * self.refits,
            seeds=[self.seed * self.refits + m for m in range(self.refits)],
            settings=HidingSettings(width=self.width, depth=self.depth, rate=self.rate),
        )


def heads_of(protected: Sequence[Protected]) -> tuple[Head, ...]:
    """Return the auxiliary's heads, one per protected variable."""
    return tuple(Head(p.outputs, p.kind == "categorical") for p in protected)


def usable_columns(data: Dataset) -> Tensor:
    """Return the columns (D,) an auxiliary may use: not withheld, and varying over the rows."""
    varies = (data.x != data.x[:1]).any(0)
    return varies & ~data.withheld.to(varies.device)


def probabilities(logits: Tensor, p: Protected) -> Tensor:
    """Return a head's probabilities for its logits (N, K); the value itself for a number."""
    if p.kind == "categorical":
        shares: Tensor = logits.softmax(1)
        return shares
    return logits.sigmoid() if p.kind == "binary" else logits


def centre_and_spread(c: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of the known values of a number c (N,), weighted."""
    known = ~c.isnan()
    values = c[known].double()
    share = torch.ones_like(values) if weights is None else weights[known].to(values)
    share = share / share.sum()
    mean = (share * values).sum()
    spread = (share * (values - mean).square()).sum().sqrt()
    return mean.to(c), spread.clamp(min=1e-12).to(c)


def check_groups(data: Dataset, fitting: Dataset | None = None) -> None:
    """Raise where a protected class has too few people to learn from among the rows that are fitted on (all)."""
    rows = data if fitting is None else fitting
    for v, p in enumerate(data.protected):
        if bool(rows.c[:, v].isnan().all()):
            raise DataError(f"Nobody's '{p.name}' is known in the fitting rows; give rows that know it, or drop it")
        for code, level in enumerate(() if p.is_continuous else p.levels):
            if int((rows.c[:, v] == code).sum()) < 2:
                found = int((data.c[:, v] == code).sum())
                raise DataError(
                    f"Group '{level}' of '{p.name}' has too few people to learn from: {found} found, at least 10 are "
                    "needed; merge rare classes (merge_rare, --merge-rare) or drop it"
                )


def protected_task(data: Dataset) -> Task:
    """Return the protected variables as what a network learns to tell, or to hide: their heads' losses summed."""
    return Task(_targets(data, data).float(), _loss(data.protected), sum(map(_width, data.protected)))


def label_task(data: Dataset) -> Task:
    """Return the label as what a network learns to tell, or to hide; labels other than 0 and 1 are numbers."""
    if data.y is None:
        raise DataError("These people have no labels y, and an adversary needs them; give people with labels")
    known = data.y[~data.y.isnan()]
    two = bool(((known == 0) | (known == 1)).all())
    label = Protected("label") if two else Protected("label", "continuous", ())
    return protected_task(replace(data, c=data.y.to(data.x)[:, None], protected=(label,)))


def _width(p: Protected) -> int:
    """Return how many outputs the network has for a variable: two classes need one logit, as a binary one does."""
    return 1 if len(p.levels) == 2 else p.outputs


def _centring(protected: Sequence[Protected]) -> Tensor:
    """Return what makes protected outputs of the network's (K, R): centred logits, and two of them of a single one."""
    blocks = []
    for p in protected:
        raw = torch.eye(_width(p), dtype=torch.float64)
        if p.kind == "categorical":
            raw = torch.tensor([[-0.5], [0.5]], dtype=torch.float64) if _width(p) == 1 else raw - 1 / len(raw)
        blocks.append(raw)
    matrix: Tensor = torch.block_diag(*blocks)
    return matrix


def _combined(net: nn.Sequential, matrix: Tensor) -> nn.Sequential:
    """Return the network with linear combinations (R, K) of its outputs: a last layer with other weights."""
    last = net[-1]
    assert isinstance(last, nn.Linear)
    # skip_init: initial weights would be drawn from the global generator
    linear = nn.utils.skip_init(
        nn.Linear, last.in_features, len(matrix), device=last.weight.device, dtype=last.weight.dtype
    )
    mixing = matrix.to(last.weight.device, torch.float64)
    with torch.no_grad():
        linear.weight.copy_(mixing @ last.weight.double())
        linear.bias.copy_(mixing @ last.bias.double())
    return nn.Sequential(*list(net)[:-1], linear).eval()


def _targets(data: Dataset, known: Dataset) -> Tensor:
    """Return c with numbers standardised by all known rows, and one more column with weights where there are any."""
    columns = list(data.c.unbind(1))
    for v, p in enumerate(data.protected):
        if p.is_continuous:
            mean, spread = centre_and_spread(known.c[:, v], known.weights)
            columns[v] = (columns[v] - mean) / spread
    if data.weights is not None and known.weights is not None:
        columns.append((data.weights / known.weights.mean()).to(data.c))
    return torch.stack(columns, dim=1)


def _loss(protected: Sequence[Protected]) -> Loss:
    """Return the sum over heads of their losses; people whose value is unknown do not count.

    Where the targets have one column more than there are variables, it says how much each person counts.
    """

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:  # (M, N, K), (M, N, V) -> (M,)
        total = outputs.new_zeros(len(outputs))
        weights = targets[..., len(protected) :]  # (M, N, 1) or nothing
        start = 0
        for v, p in enumerate(protected):
            out, c = outputs[..., start : start + _width(p)], targets[..., v]
            known = ~c.isnan()
            each = _head_loss(out, c.nan_to_num(), p)
            each = each * weights[..., 0] if weights.shape[-1] else each
            total = total + (each * known).sum(1) / known.sum(1).clamp(min=1)
            start += _width(p)
        return total

    return loss


def _head_loss(out: Tensor, c: Tensor, p: Protected) -> Tensor:
    if p.is_continuous:
        return (out[..., 0] - c).square()
    if _width(p) == 1:
        return F.binary_cross_entropy_with_logits(out[..., 0], c, reduction="none")
    return F.cross_entropy(out.movedim(-1, 1), c.long(), reduction="none")
