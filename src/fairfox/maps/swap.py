"""The swap map: nothing changes but the protected column itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import NotFittedError
from fairfox.maps.protocol import Mapped, where_to
from fairfox.maps.rank import RankMap

NOT_GIVEN = "the protected column itself is missing, so that there is no value to change"


@dataclass
class SwapMap:
    """Everyone with another value of the protected variable and all else as it is, as far as the target sees it.

    A class becomes the other class. A number goes one standard deviation up or down. The source column of a cut such
    as age<25 goes to the same rank on the other side; where classes were put together, to their shares. A target
    that does not take the column sees the same row.
    """

    variable: int = 0  # which protected variable
    ranks: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn which values of the column stand for which group."""
        self.ranks = RankMap(variable=self.variable, only=own_columns(data, self.variable)).fit(data)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone's row with the value that `to` (N,) says: that class, or so many standard deviations higher.

        NaN: as they are; None: the other of two groups. Who cannot be changed keeps their row and is abstained; so
        does who lacks the column, though their group is known or inferred: what it now says is of no group.
        """
        if self.ranks is None:
            raise NotFittedError("This SwapMap is not fitted; call fit first")
        missing = not_given(data, self.variable) & ~data.c[:, self.variable].isnan()
        if not bool(missing.any()):
            return self.ranks.map(data, to)
        mapped = self.ranks.map(data, where_to(data, self.variable, to).masked_fill(missing, torch.nan))
        others = bool((mapped.abstained & ~missing).any())
        return replace(mapped, reason=f"{mapped.reason} or {NOT_GIVEN}" if others else NOT_GIVEN)


def own_columns(data: Dataset, variable: int) -> Tensor:
    """Return which columns of x (D,) tell the target this protected variable: those that it was read from."""
    p = data.protected[variable]
    read = [q for q in data.protected if q.name in p.parts] if p.parts else [p]
    names = {q.source or q.name for q in read}
    out = torch.zeros_like(data.withheld)
    for f in data.features:
        if f.name in names:
            out[f.columns] = data.withheld[f.columns]
    return out


def not_given(data: Dataset, variable: int) -> Tensor:
    """Return who (N,) bool lacks a column of x that tells the target this protected variable."""
    own = own_columns(data, variable).tolist()
    out = torch.zeros(len(data), dtype=torch.bool, device=data.x.device)
    for f in data.features:
        if own[f.start]:
            out |= _is_missing(data.x[:, f.columns], f)
    return out


def _is_missing(x: Tensor, f: Feature) -> Tensor:
    """Return whether the columns (N, stop - start) of a feature say that it is missing, or nothing."""
    if f.kind == "continuous":
        return x[:, 1] > 0.5 if f.has_missing else torch.zeros_like(x[:, 0], dtype=torch.bool)
    known = x[:, :-1] if f.levels[-1] is None else x
    return known.sum(1) < 0.5
