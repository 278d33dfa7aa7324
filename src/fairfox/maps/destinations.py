"""Where people are to arrive on the auxiliary's output, so that it takes them for members of the other group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairfox.maps.held import counts

Persistence = Literal["adaptive"] | float


@dataclass(frozen=True)
class GroupLogits:
    """Mean and spread of the auxiliary's logit in each of two groups, from rows it was not trained on."""

    mean: Tensor  # (2,)
    spread: Tensor  # (2,)
    between: float  # the between-group share of the logit's variance (eta squared)

    @classmethod
    def of(cls, logit: Tensor, c: Tensor, weights: Tensor | None = None) -> GroupLogits:
        """Return the statistics of logits (n,) over the groups c (n,), 0 and 1."""
        parts = [c == 0, c == 1]
        counts = [None if weights is None else weights[part].to(logit) for part in parts]
        moments = [_moments(logit[part], count) for part, count in zip(parts, counts, strict=True)]
        mean, spread = (torch.stack(each) for each in zip(*moments, strict=True))
        size = [part.sum() if count is None else count.sum() for part, count in zip(parts, counts, strict=True)]
        share = torch.stack(size).to(mean)
        share = share / share.sum()
        within = (share * spread.square()).sum()
        between = (share * (mean - (share * mean).sum()).square()).sum()
        return cls(mean, spread, float(between / (between + within).clamp(min=1e-30)))

    def where_to(self, logit: Tensor, own: Tensor, persistence: Persistence) -> Tensor:
        """Return the logit each person should reach in the other group: r(x)."""
        p = _carried_over(persistence, self.between)
        other = 1 - own
        known = self.spread[own] > 0  # a group of one has no spread to compare with
        ratio = torch.where(known, self.spread[other] / torch.where(known, self.spread[own], 1.0), 1.0)
        return self.mean[other] + p * ratio * (logit - self.mean[own])


@dataclass(frozen=True)
class OutputLine:
    """The least-squares line of the auxiliary's output on a number, from rows it was not trained on."""

    slope: Tensor
    level: Tensor  # the output at c = 0
    explained: float  # the share of the output's variance on the line (R squared)

    @classmethod
    def of(cls, output: Tensor, c: Tensor, weights: Tensor | None = None) -> OutputLine:
        """Return the line of outputs (n,) on the numbers c (n,)."""
        count = counts(weights, output)
        share = count / count.sum()
        out, at = output - (share * output).sum(), c - (share * c).sum()
        variance = (share * at.square()).sum()
        slope = (share * at * out).sum() / variance
        explained = slope.square() * variance / (share * out.square()).sum().clamp(min=1e-30)
        return cls(slope, (share * (output - slope * c)).sum(), float(explained.clamp(max=1.0)))

    def where_to(self, output: Tensor, c: Tensor, to: Tensor, persistence: Persistence) -> Tensor:
        """Return the output each person should reach at the number `to` (n,) instead of c (n,): r(x)."""
        here, there = (self.level + self.slope * at for at in (c, to))
        return there + _carried_over(persistence, self.explained) * (output - here)


def _moments(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of values (n,)."""
    if weights is None:
        return values.mean(), values.std(correction=0)
    share = weights / weights.sum()
    mean = (share * values).sum()
    return mean, (share * (values - mean).square()).sum().sqrt()


def _carried_over(persistence: Persistence, explained: float) -> float:
    return (1 - explained) ** 2 if persistence == "adaptive" else persistence
