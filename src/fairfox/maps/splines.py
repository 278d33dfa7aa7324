"""Natural cubic splines of one number, by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BEYOND = 10  # people beyond the outermost knots on either side, but no more than a twentieth
_ROUNDING = 1e-12  # of a variance
_REPEATED = 2.0  # how much heavier a knot weighs than by the BIC, since re-fits repeat rows


@dataclass(frozen=True)
class Splines:
    """Natural cubic splines of one number, each with as many knots as it needs."""

    knots: list[Tensor]  # candidates, from none (a constant) or two (a straight line) to many
    weights: Tensor  # (all bases together, D): zero but for the chosen candidate

    @classmethod
    def of(cls, c: Tensor, values: Tensor, *, sizes: Sequence[int]) -> Splines:
        """Return the least-squares splines of values (n, D) over c (n,), their knots chosen by the BIC."""
        ordered = c.sort().values
        knots = [spline_knots(ordered, size) for size in sizes if 20 * size <= len(c) or size <= 2]
        weights, criteria = [], []
        for own in knots:
            basis = natural_spline(c, own)
            weights.append(torch.linalg.pinv(basis) @ values)  # (k, D)
            missed = (values - basis @ weights[-1]).square().mean(0)
            least = _ROUNDING * (values - values.mean(0)).square().mean(0) + torch.finfo(values.dtype).tiny
            criteria.append(len(c) * missed.maximum(least).log() + _REPEATED * basis.shape[1] * math.log(len(c)))
        best = torch.stack(criteria).argmin(0)  # (D,)
        return cls(knots, torch.cat([part * (best == k) for k, part in enumerate(weights)]))

    def __call__(self, c: Tensor) -> Tensor:
        """Return the splines at c (n,): (n, D)."""
        return torch.cat([natural_spline(c, own) for own in self.knots], dim=1) @ self.weights


def natural_spline(c: Tensor, knots: Tensor) -> Tensor:
    """Return the basis (n, k) of cubic splines of c that are straight lines beyond the outermost of k knots.

    One, c, and for each but the last two knots the restricted cubic term; one alone where there are no knots.
    """
    if len(knots) == 0:
        return torch.ones_like(c)[:, None]
    first, before, last = knots[0], knots[-2], knots[-1]

    def cube(at: Tensor) -> Tensor:
        return (c - at).clamp(min=0) ** 3

    bent = [
        (cube(t) + (cube(last) * (before - t) - cube(before) * (last - t)) / (last - before)) / (last - first) ** 2
        for t in knots[:-2]
    ]
    return torch.stack([torch.ones_like(c), c, *bent], dim=1)


def spline_knots(ordered: Tensor, most: int) -> Tensor:
    """Return at most so many of some values in order (n,), evenly spaced in rank: none, or two and more."""
    if most < 2:
        return ordered[:0]
    beyond = min(_BEYOND / len(ordered), 0.05)
    places = (torch.linspace(beyond, 1 - beyond, most, dtype=torch.float64) * (len(ordered) - 1)).round().long()
    knots = ordered[places.to(ordered.device)].unique()
    return knots if len(knots) > 1 else torch.stack([ordered[0], ordered[-1]])
