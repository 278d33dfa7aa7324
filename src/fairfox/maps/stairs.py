"""Numbers whose values many people share: a staircase of ranks, where each step has its share of the people."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_MOST_STEPS = 20
_SPIKE = 0.33  # the share of a value that stands out


def is_stepped(values: Tensor) -> bool:
    """Return whether a number (n,) has few values, or one that many people share: no gain, forty hours."""
    counts = values.unique(return_counts=True)[1]
    return len(counts) <= _MOST_STEPS or int(counts.max()) > max(_SPIKE * len(values), 2)


@dataclass(frozen=True)
class Stairs:
    """A number cut into steps: where a value stands in its step, and which value stands at a place of another."""

    cuts: Tensor  # (B - 1,) the highest value of each step but the last
    ordered: Tensor  # (n,) all values in order
    start: Tensor  # (B,) how many values lie below each step
    size: Tensor  # (B,) how many it has

    @classmethod
    def of(cls, values: Tensor) -> Stairs:
        """Return the steps of values (n,): each value one where they are few, else with about equally many people."""
        ordered = values.sort().values
        distinct = ordered.unique()
        if len(distinct) > _MOST_STEPS:
            places = (torch.arange(1, _MOST_STEPS, device=values.device) * len(ordered)) // _MOST_STEPS
            distinct = torch.cat([ordered[places], ordered[-1:]]).unique()
        cuts = distinct[:-1].contiguous()
        size = torch.bincount(torch.bucketize(ordered, cuts), minlength=len(cuts) + 1)
        return cls(cuts, ordered, size.cumsum(0) - size, size)

    def one_hot(self, x: Tensor) -> Tensor:
        """Return the step of numbers x (k,) as a block (k, B)."""
        return F.one_hot(torch.bucketize(x, self.cuts), len(self.size)).to(x)

    def same_rank(self, x: Tensor, own: Tensor, other: Tensor) -> Tensor:
        """Return the values (k,) at the rank of numbers x (k,), once the steps have other shares (k, B) than their own.

        Of equal values the middle one counts.
        """
        step = torch.bucketize(x, self.cuts)[:, None]  # (k, 1)
        middle = (torch.searchsorted(self.ordered, x) + torch.searchsorted(self.ordered, x, right=True)) / 2
        inside = ((middle - self.start[step[:, 0]]) / self.size[step[:, 0]]).clamp(0, 1)[:, None]
        rank = (own.cumsum(1) - own).gather(1, step) + inside * own.gather(1, step)
        ends = other.cumsum(1)
        new = (ends <= rank).sum(1, keepdim=True).clamp(max=len(self.size) - 1)
        share = other.gather(1, new)
        place = (rank - (ends.gather(1, new) - share)) / torch.where(share > 0, share, 1.0)
        at = (place.clamp(0, 1) * self.size[new] + 1e-9).long().minimum(self.size[new] - 1)
        return self.ordered[(self.start[new] + at)[:, 0]]
