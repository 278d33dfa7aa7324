"""The swap map: nothing changes but the protected column itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError
from fairfox.maps.protocol import Mapped
from fairfox.maps.rank import RankMap


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

        NaN: as they are; None: the other of two groups. Who cannot be changed keeps their row and is abstained.
        """
        if self.ranks is None:
            raise NotFittedError("This SwapMap is not fitted; call fit first")
        return self.ranks.map(data, to)


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
