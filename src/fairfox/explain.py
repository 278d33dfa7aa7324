"""Which features give the protected variable away, and through which the effect goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairfox.auxiliary.model import Auxiliary
from fairfox.data.dataset import Dataset, Feature
from fairfox.flips import two_sample_ks
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import Model, predict

Levels = Literal["mean", "max", "sum"]  # what is made of a category's columns
_STEPS = 16  # of the path from x to x'


def proxy_strength(auxiliary: Auxiliary, data: Dataset, *, variable: int = 0, batch_size: int = 4096) -> Tensor:
    """Return per original feature (F,) the paper's transparency: |mean over c = 0 of the auxiliary's gradient|.

    One-hot columns are averaged within their feature, classes added up within their variable; for more than two
    classes, and for a number, the mean is over everyone.
    """
    p = data.protected[variable]
    rows = data[data.c[:, variable] == 0] if len(p.levels) == 2 else data
    first = sum(before.outputs for before in data.protected[:variable])
    own = slice(first, first + p.outputs)
    means = [jacobian(member, rows.x, batch_size=batch_size)[:, own].mean(0) for member in auxiliary.members]
    size = torch.stack(means).mean(0).abs().sum(0)  # (D,)
    return torch.stack([size[f.columns].mean() for f in data.features])


def contributions(
    model: Model, x: Tensor, mapped: Tensor, features: Sequence[Feature], *, batch_size: int = 4096
) -> Tensor:
    """Return what each original feature adds to f(x') - f(x) (N, F), by gradients integrated from x to x'.

    The rows sum to the effect: what the quadrature misses is spread in proportion to the contributions, or, where
    the model is flat all the way, to how far each feature moved.
    """
    path = integrated_jacobian(model, mapped, baseline=x, steps=_STEPS, batch_size=batch_size)[:, 0]  # (N, D)
    each = sum_by_feature(path, features)
    effect = predict(model, mapped, batch_size=batch_size) - predict(model, x, batch_size=batch_size)
    missed = effect - each.sum(1)
    size = each.abs()
    size = torch.where(size.sum(1, keepdim=True) > 0, size, sum_by_feature((mapped - x).abs(), features))
    total = size.sum(1, keepdim=True)
    return each + missed[:, None] * size / torch.where(total > 0, total, 1.0)


def shapley(model: Model, x: Tensor, mapped: Tensor, features: Sequence[Feature], *, order: Sequence[int]) -> Tensor:
    """Return what each original feature adds to f(x') - f(x) (N, F) when features change one after the other.

    Averaged over random orders these are Shapley values; with any one order each row sums to the effect exactly.
    """
    before, last, row = predict(model, x), predict(model, mapped), x.clone()
    out = x.new_zeros(len(x), len(features))
    for place, i in enumerate(order):
        columns = features[i].columns
        row[:, columns] = mapped[:, columns]
        after = last if place == len(order) - 1 else predict(model, row)
        out[:, i] = after - before
        before = after
    return out


def random_orders(length: int, count: int, *, seed: int) -> list[list[int]]:
    """Return `count` random orders of `length` things, every second one the reverse of the one before it."""
    generator = torch.Generator().manual_seed(seed)
    orders: list[list[int]] = []
    while len(orders) < count:
        order = torch.randperm(length, generator=generator).tolist()
        orders += [order, order[::-1]]
    return orders[:count]


def effect_by_feature(
    model: Model, x: Tensor, mapped: Tensor, features: Sequence[Feature], *, seed: int = 0, batch_size: int = 4096
) -> Tensor:
    """Return contributions averaged over the re-fits' rows (M, N, D): they sum to the mean effect (N, F).

    Black boxes: sampled Shapley values, one order of the features per re-fit.
    """
    orders = random_orders(len(features), len(mapped), seed=seed)
    each = [
        contributions(model, x, rows, features, batch_size=batch_size)
        if model.differentiable
        else shapley(model, x, rows, features, order=order)
        for rows, order in zip(mapped, orders, strict=True)
    ]
    return torch.stack(each).mean(0)


def sum_by_feature(values: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return (N, F) from (N, D): a one-hot group's displacements belong to one feature."""
    return torch.stack([values[:, f.columns].sum(1) for f in features], dim=1)


def mean_gradients(member: Model, x: Tensor, *, batch_size: int = 4096) -> dict[str, Tensor]:
    """Return per column (D,) the mean over people of an auxiliary's gradient, by the name of the test that has it.

    `faux`: the gradient of its first output; `faux+ng`: each person's of length one; `faux+ig`: integrated from the
    zero row. Their sizes (`strength_by_feature`) are the paper's transparency reports.
    """
    gradient = jacobian(member, x, batch_size=batch_size)[:, 0]  # (N, D)
    zero = x.new_zeros(x.shape[1])
    integrated = integrated_jacobian(member, x, baseline=zero, batch_size=batch_size)[:, 0]
    each = {"faux": gradient, "faux+ng": normalize(gradient, dim=1), "faux+ig": integrated}
    return {name: rows.mean(0) for name, rows in each.items()}


def strength_by_feature(columns: Tensor, features: Sequence[Feature], levels: Levels) -> Tensor:
    """Return one strength per original feature (F,) from signed columns (D,): their sizes, reduced to one.

    Gradients of a category's levels are comparable to a number's by their mean or maximum, displacements by their sum.
    """
    each = [columns[f.columns].abs() for f in features]
    if levels == "max":
        return torch.stack([size.max() for size in each])
    return torch.stack([size.mean() if levels == "mean" else size.sum() for size in each])


def group_distance(here: Tensor, there: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return how differently each feature (F,) is distributed among rows (n, D) and (m, D) of two groups, 0 to 1.

    A number's distance is the two-sample Kolmogorov-Smirnov statistic, a category's the total variation: one scale for
    both, and no model.
    """
    gaps = (there.mean(0) - here.mean(0)).abs()
    return torch.stack(
        [
            gaps[f.columns].sum() / 2
            if f.kind == "categorical"
            else two_sample_ks(here[:, f.start], there[:, f.start]).to(gaps)
            for f in features
        ]
    )
