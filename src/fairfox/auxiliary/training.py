"""The minibatch loop (Adam, early stopping on validation loss, best weights restored) and its learning tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adamw import adamw  # the class would import torch's compiler: more than a second, in every audit

from fairfox.auxiliary.mlp import MLP, backward, forward, layers_of, outputs_of, take
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError

_LARGEST_WEIGHT = 20.0  # that balancing gives anybody
_FEW_CELLS = 20_000_000  # of a table that is computed on one thread
_MOST_CLASSES = 10  # of a label; with more values it is a number

P = ParamSpec("P")
R = TypeVar("R")
Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (M, N, K), targets (M, N, ...) -> (M,) mean loss per member


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: on matrices this small several threads mostly wait for each other.

    Next to another busy process they take up to ten times as long, and rounding would depend on their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_threads_by_size(compute: Callable[P, R]) -> Callable[P, R]:
    """Return a function of people, or of their effects, that uses one thread where they are few, else all threads.

    Afterwards the caller has as many threads as before.
    """

    @wraps(compute)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        people = [getattr(each, "people", each) for each in args]
        cells = max((each.x.numel() for each in people if isinstance(each, Dataset)), default=0)
        with one_thread() if cells <= _FEW_CELLS else nullcontext():
            return compute(*args, **kwargs)

    return inner


@one_thread()
def train(
    net: MLP,
    x: Tensor,
    targets: Tensor,
    *,
    loss: Loss,
    valid_x: Tensor,
    valid_targets: Tensor,
    batch_size: int = 64,
    rate: float = 1e-3,
    max_epochs: int = 60,
    patience: int = 5,
    seed: int = 0,
) -> None:
    """Train every member of `net` in place on its own minibatches.

    Each member keeps the weights of its best epoch and stops `patience` epochs after it; the loop ends when all have
    stopped.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters, layers = list(net.parameters()), layers_of(net)
    weights, grads = [p.detach() for p in parameters], [p.grad for p in parameters if p.grad is not None]
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))  # of the gradients
    steps = [torch.zeros((), device=weight.device) for weight in weights]
    best = [weight.clone() for weight in weights]
    best_loss = torch.full((net.members,), torch.inf)
    best_epoch = torch.zeros(net.members, dtype=torch.long)
    for epoch in range(1, max_epochs + 1):
        orders = torch.stack([torch.randperm(len(x), generator=generator) for _ in range(net.members)])
        for start in range(0, len(x), batch_size):
            rows = orders[:, start : start + batch_size].to(x.device)  # (M, B)
            entered = forward(layers, take(x, rows))
            backward(layers, entered, loss_slope(loss, outputs_of(layers, entered), take(targets, rows)))
            adamw(  # without decay it is Adam
                weights, grads, means, squares, [], steps, fused=True, amsgrad=False,
                beta1=0.9, beta2=0.999, lr=rate, weight_decay=0.0, eps=1e-8, maximize=False,
            )  # fmt: skip
        with torch.no_grad():
            held_out = valid_targets.expand(net.members, *valid_targets.shape)
            current = loss(net(valid_x), held_out).cpu()
        active = epoch - best_epoch <= patience
        better = active & (current < best_loss)
        best_loss = torch.where(better, current, best_loss)
        best_epoch[better] = epoch
        for kept, now in zip(best, weights, strict=True):
            kept[better] = now[better]
        if bool((epoch - best_epoch >= patience).all()):
            break
    for kept, now in zip(best, weights, strict=True):
        now.copy_(kept)


def loss_slope(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the derivative of each member's loss by its outputs (M, N, K)."""
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(loss(leaf, targets).sum(), leaf)
    return slope


def binary_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each member's log-loss of one logit (M, N, 1) against 0/1 targets (M, N)."""
    return F.binary_cross_entropy_with_logits(outputs[..., 0], targets, reduction="none").mean(1)


# --- What is learnt ------------------------------------------------------------------------------------------------


class LearningTask(NamedTuple):
    """Something to predict from x: its value in every row, and the loss of a network's outputs."""

    targets: Tensor  # (N, ...)
    loss: Loss
    outputs: int = 1


def protected_task(data: Dataset, known: Dataset | None = None) -> LearningTask:
    """Return the protected variables as something to predict, or to hide: the sum of their heads' losses.

    Numbers are standardised by the rows `known`, by default all rows. The last column of the targets has the weights,
    where there are any.
    """
    known = data if known is None else known
    columns = list(data.c.unbind(1))
    for v, p in enumerate(data.protected):
        if p.is_continuous:
            mean, spread = centre_and_spread(known.c[:, v], known.weights)
            columns[v] = (columns[v] - mean) / spread
    if data.weights is not None and known.weights is not None:
        columns.append((data.weights / known.weights.mean()).to(data.c))
    targets = torch.stack(columns, dim=1).float()
    return LearningTask(targets, protected_loss(data.protected), sum(map(head_width, data.protected)))


def balanced(data: Dataset) -> Dataset:
    """Return the people with weights that make the protected variables independent of the label.

    These are P(c) P(y) / P(c, y), numbers in fifths; at most 20, with mean 1, times the people's own weights. People
    without a label, or with an unknown protected value, get none.
    """
    if data.y is None:
        raise DataError("These people have no labels y, which balanced auxiliaries need; give people with labels")
    numbers = [p.is_continuous for p in data.protected]
    c = torch.stack([_in_cells(own, number) for own, number in zip(data.c.unbind(1), numbers, strict=True)], dim=1)
    y = _in_cells(data.y, len(data.y[~data.y.isnan()].unique()) > _MOST_CLASSES)
    known = (c >= 0).all(1) & (y >= 0)
    own = torch.ones(len(c), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    own = torch.where(known, own, 0.0)
    groups, labels = (values.unique(dim=0, return_inverse=True)[1] for values in (c, y[:, None]))
    cells = torch.zeros(int(groups.max()) + 1, int(labels.max()) + 1, dtype=torch.float64)
    cells.index_put_((groups, labels), own, accumulate=True)
    cells /= cells.sum()
    ratio = cells.sum(1, keepdim=True) * cells.sum(0) / torch.where(cells > 0, cells, torch.inf)
    weights = ratio.clamp(max=_LARGEST_WEIGHT)[groups, labels]
    weights = own * weights / (weights * known).sum() * known.sum()
    return replace(data, weights=weights.to(data.x))


def within_label(data: Dataset) -> Tensor:
    """Return x (N, D) minus the mean of the people with the same label; numbers in fifths."""
    assert data.y is not None
    y = _in_cells(data.y, len(data.y[~data.y.isnan()].unique()) > _MOST_CLASSES).to(data.x.device)
    x, count = data.x.double(), torch.ones_like(y, dtype=torch.float64)
    count = count if data.weights is None else data.weights.to(count)
    places = y.unique(return_inverse=True)[1]
    total = x.new_zeros(int(places.max()) + 1, x.shape[1]).index_add_(0, places, count[:, None] * x)
    size = count.new_zeros(len(total)).index_add_(0, places, count)
    return (x - (total / size.clamp(min=1e-30)[:, None])[places]).to(data.x)


def _in_cells(values: Tensor, number: bool) -> Tensor:
    """Return codes (N,) of classes, or of the fifths of a number; -1 where it is unknown."""
    known = ~values.isnan()
    if not number:
        return torch.where(known, values, -1).long().cpu()
    fifths = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64, device=values.device)
    cuts = values[known].double().quantile(fifths)
    return torch.where(known, torch.bucketize(values.double().contiguous(), cuts), -1).cpu()


def label_task(data: Dataset) -> LearningTask:
    """Return the label as something to predict, or to hide; labels other than 0 and 1 are numbers."""
    if data.y is None:
        raise DataError("These people have no labels y, which an adversary needs; give people with labels")
    known = data.y[~data.y.isnan()]
    two = bool(((known == 0) | (known == 1)).all())
    label = Protected("label") if two else Protected("label", "continuous", ())
    return protected_task(replace(data, c=data.y.to(data.x)[:, None], protected=(label,)))


def head_width(p: Protected) -> int:
    """Return how many outputs the network has for a variable: two classes need one logit, as a binary one does."""
    return 1 if len(p.levels) == 2 else p.outputs


def usable_columns(data: Dataset) -> Tensor:
    """Return the columns (D,) an auxiliary may use: not withheld, and varying over the rows."""
    varies = (data.x != data.x[:1]).any(0)
    return varies & ~data.withheld.to(varies.device)


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
    """Raise where a protected class has too few people to learn from in the fitting rows."""
    rows = data if fitting is None else fitting
    for v, p in enumerate(data.protected):
        if bool(rows.c[:, v].isnan().all()):
            raise DataError(f"Nobody's '{p.name}' is known in the fitting rows; give rows that have it, or drop it")
        for code, level in enumerate(() if p.is_continuous else p.levels):
            if int((rows.c[:, v] == code).sum()) < 2:
                found = int((data.c[:, v] == code).sum())
                raise DataError(
                    f"Group '{level}' of '{p.name}' has too few people to learn from: {found} found, at least 10 are "
                    "needed; merge rare classes (merge_rare, --merge-rare) or drop it"
                )


def protected_loss(protected: Sequence[Protected]) -> Loss:
    """Return the sum of the heads' losses; people whose value is unknown do not count.

    Where the targets have one column more than there are variables, it holds the weights.
    """

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:  # (M, N, K), (M, N, V) -> (M,)
        total = outputs.new_zeros(len(outputs))
        weights = targets[..., len(protected) :]  # (M, N, 1) or nothing
        heads = outputs.split([head_width(p) for p in protected], dim=-1)
        for p, out, c in zip(protected, heads, targets.unbind(-1), strict=False):
            known = ~c.isnan()
            each = _head_loss(out, c.nan_to_num(), p)
            each = each * weights[..., 0] if weights.shape[-1] else each
            total = total + (each * known).sum(1) / known.sum(1).clamp(min=1)
        return total

    return loss


def _head_loss(out: Tensor, c: Tensor, p: Protected) -> Tensor:
    if p.is_continuous:
        return (out[..., 0] - c).square()
    if head_width(p) == 1:
        return F.binary_cross_entropy_with_logits(out[..., 0], c, reduction="none")
    return F.cross_entropy(out.movedim(-1, 1), c.long(), reduction="none")
