"""The way from one row to another, and what is known of a model along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class OnTheWay:
    """The largest change of the prediction on the way from `here` (t = 0) to `there` (t = 1), one per person.

    In float64. People without a certificate have NaN everywhere and a reason.
    """

    largest: Tensor  # (N,) the largest |f(x(t)) - f(x(0))| of all t from 0 to 1
    signed: Tensor  # (N,) f(x(t)) - f(x(0)) there
    at: Tensor  # (N,) the t where it is; of several the first
    end: Tensor  # (N,) f(x(1)) - f(x(0)): the effect itself
    reasons: tuple[str | None, ...]  # why somebody has no certificate

    @property
    def certified(self) -> Tensor:
        """Who has a certificate (N,) bool."""
        return ~self.largest.isnan()

    def worse_inside(self, slack: float = 1e-9) -> Tensor:
        """Return for whom (N,) some point on the way is worse than its end, by more than `slack`."""
        return self.largest > self.end.abs() + slack


def point_at(here: Tensor, there: Tensor, t: Tensor) -> Tensor:
    """Return the rows x(t) (N, D) for t (N,); by rounding x(1) may differ from `there` in the last digit."""
    return here + t[:, None] * (there - here)


def settle(f_here: Tensor, f_there: Tensor, found: Tensor, owner: Tensor, t: Tensor) -> OnTheWay:
    """Return the worst of everyone's points and the end itself, for the answers `found` (P,) at points of ways."""
    people = len(f_here)
    owner = torch.cat([owner, torch.arange(people, device=owner.device)])
    t = torch.cat([t, torch.ones_like(f_here)])
    change = torch.cat([found, f_there]) - f_here[owner]
    largest = torch.zeros_like(f_here).scatter_reduce(0, owner, change.abs(), "amax")
    worst = (change.abs() == largest[owner]) & (change != 0)
    at = torch.full_like(f_here, torch.inf).scatter_reduce(0, owner, torch.where(worst, t, torch.inf), "amin")
    hit = (worst & (t == at[owner])).nonzero()[:, 0]
    signed = torch.zeros_like(f_here).index_copy(0, owner[hit], change[hit])
    return OnTheWay(largest, signed, torch.where(largest > 0, at, 0.0), f_there - f_here, (None,) * people)


def join(parts: Sequence[OnTheWay]) -> OnTheWay:
    """Return what is known of all people, block after block."""
    largest, signed, at, end = (
        torch.cat(each) for each in zip(*((p.largest, p.signed, p.at, p.end) for p in parts), strict=True)
    )
    return OnTheWay(largest, signed, at, end, tuple(reason for part in parts for reason in part.reasons))


def spread_out(found: OnTheWay, rows: Tensor, reasons: Sequence[str | None]) -> OnTheWay:
    """Return everyone: people at the places `rows` as found, the others without a certificate and with their reason."""
    if len(rows) == len(reasons):
        return found
    gone = found.largest.new_full((len(reasons),), torch.nan)
    largest, signed, at, end = (
        gone.index_copy(0, rows, each) for each in (found.largest, found.signed, found.at, found.end)
    )
    return OnTheWay(largest, signed, at, end, tuple(reasons))
