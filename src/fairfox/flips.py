"""What a map does to people, in pure tensors: whose outcome flips, what changes about them, and how real they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ShapeError

_RIDGE = 1e-6  # of the mean variance: one-hot columns add up to one


@dataclass(frozen=True)
class FlipSet:
    """The people of one group whose outcome depends on their group, as row numbers."""

    people: int  # of the group, who could be mapped
    negative: Tensor  # good outcome only as a member of the other group: their own group costs them
    positive: Tensor  # good outcome only as a member of their own: it helps them

    @property
    def share(self) -> float:
        """The part of the group whose outcome flips, either way."""
        return (len(self.negative) + len(self.positive)) / max(self.people, 1)


class Transparency(NamedTuple):
    """What changes about a group's people on average when they are mapped, largest |mean| first in a report."""

    strength: Tensor  # (F,) per original feature: |mean displacement|, summed over the levels of a category
    signed: Tensor  # (D,) per column: mean of T(x) - x, from the own group towards the other


def flip_sets(here: Tensor, there: Tensor, c: Tensor, cut: float) -> dict[int, FlipSet]:
    """Return the flips of each group (its class number) for predictions f(x) (N,) and f(T(x)) (N,).

    A prediction of at least `cut` is the good outcome. Who is of unknown group (NaN in c), or was not mapped (NaN in
    `there`), belongs to no set.

    Example:
        >>> flips = flip_sets(torch.tensor([0.4, 0.6]), torch.tensor([0.7, 0.2]), torch.tensor([0.0, 1.0]), 0.5)
        >>> flips[0].negative, flips[1].positive
        (tensor([0]), tensor([1]))
    """
    if not (here.shape == there.shape == c.shape and here.ndim == 1):
        found = ", ".join(str(tuple(each.shape)) for each in (here, there, c))
        raise ShapeError(f"Predictions here, there and groups have shapes {found}; give one number per person each")
    mapped = ~there.isnan() & ~here.isnan()
    good, good_there = here >= cut, there >= cut
    out = {}
    for group in c[~c.isnan()].unique().tolist():
        own = mapped & (c == group)
        negative, positive = own & ~good & good_there, own & good & ~good_there
        out[int(group)] = FlipSet(int(own.sum()), negative.nonzero()[:, 0], positive.nonzero()[:, 0])
    return out


def transparency(data: Dataset, rows: Tensor, *, among: Tensor | None = None) -> Transparency:
    """Return what changes on average about the people `among` (N,) bool when their rows become `rows` (N, D).

    None: the people of class 0 of the first protected variable, as in Black et al. 2020. A group of one direction at
    a time: over both, what one gains the other loses. The displacements of a category's levels are summed as absolute
    values, since with their signs they always add up to zero.
    """
    if rows.shape != data.x.shape:
        raise ShapeError(f"The mapped rows have shape {tuple(rows.shape)}; expected {tuple(data.x.shape)}, as x")
    among = data.c[:, 0] == 0 if among is None else among
    weight = among.to(data.x) if data.weights is None else among.to(data.x) * data.weights.to(data.x)
    signed = (weight / weight.sum().clamp(min=1e-30)) @ (rows - data.x)  # (D,)
    strength = [signed[f.columns].abs().sum() for f in data.features]
    return Transparency(torch.stack(strength) if strength else signed.new_zeros(0), signed)


def mean_distance(mapped: Tensor, real: Tensor, features: Sequence[Feature]) -> float:
    """Return the mean over features of how differently they are distributed among mapped (n, D) and real (m, D) rows.

    A number's distance is the two-sample Kolmogorov-Smirnov statistic of the values that are not missing; a category's
    is the largest gap between the shares of a level, which is the same for categories that are drawn.
    """
    gaps = []
    for f in features:
        if f.kind == "categorical":
            gaps.append(float((mapped[:, f.columns].mean(0) - real[:, f.columns].mean(0)).abs().max()))
        elif len(here := _values(mapped, f)) and len(there := _values(real, f)):
            gaps.append(float(two_sample_ks(here, there)))
    return sum(gaps) / max(len(gaps), 1)


def two_sample_ks(here: Tensor, there: Tensor) -> Tensor:
    """Return the largest distance between the empirical distributions of numbers (n,) and (m,)."""
    order = torch.cat([here, there]).sort()
    own = (order.indices < len(here)).double()
    gap = (own.cumsum(0) / len(here) - (1 - own).cumsum(0) / len(there)).abs()
    tied = order.values[1:] == order.values[:-1]  # the distance counts after the last of equal values
    gap[:-1][tied] = 0.0
    return gap.max()


def mean_regression_error(train: Tensor, rows: Tensor, features: Sequence[Feature]) -> float:
    """Return the mean squared error on `rows` (n, D) of the linear regressions of each column on the other features.

    They are fitted on `train` (m, D), and numbers are in its standard deviations. All come from one inverse P of the
    covariance: the residual of a feature's columns J is P_JJ⁻¹ P_J (x - mean).
    """
    columns, blocks = _columns_of(features)
    train, rows = train[:, columns].double(), rows[:, columns].double()
    scale = train.std(0, correction=0)
    for block in blocks:
        if block.stop - block.start > 1:
            scale[block] = 1.0  # shares stay shares
    scale[scale == 0] = 1.0
    centred, rows = (train - train.mean(0)) / scale, (rows - train.mean(0)) / scale
    covariance = centred.T @ centred / len(train)
    ridge = _RIDGE * covariance.diagonal().mean().clamp(min=1e-30)
    inverse = torch.linalg.inv(covariance + ridge * torch.eye(len(columns), device=rows.device, dtype=rows.dtype))
    apart = torch.zeros_like(inverse)  # P_JJ⁻¹ on the diagonal, block by block
    for block in blocks:
        apart[block, block] = torch.linalg.inv(inverse[block, block])
    return float((rows @ (apart @ inverse).T).square().mean())


def _values(rows: Tensor, f: Feature) -> Tensor:
    """Return the values of a number that are not missing (k,)."""
    return rows[rows[:, f.start + 1] < 0.5, f.start] if f.has_missing else rows[:, f.start]


def _columns_of(features: Sequence[Feature]) -> tuple[list[int], list[slice]]:
    """Return the columns of x that say more than that a value is missing, and where among them each feature is."""
    columns: list[int] = []
    blocks = []
    for f in features:
        stop = f.stop if f.kind == "categorical" else f.start + 1
        blocks.append(slice(len(columns), len(columns) + stop - f.start))
        columns += range(f.start, stop)
    return columns, blocks
