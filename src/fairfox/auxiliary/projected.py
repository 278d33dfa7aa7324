"""Auxiliaries that see the features through a fixed projection."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.errors import ShapeError
from fairfox.nets.projection import behind


@dataclass
class ProjectedAuxiliary:
    """An `AuxiliaryModel` behind a fixed first layer (D, P), seen as an auxiliary from x to c.

    With the projection that keeps what depends on the protected variable (`SyntheticBias.keep_c`) this is the paper's
    disentangled auxiliary. Only the maker of generated data has that projection.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> keep = torch.tensor([[1.0], [0.0], [0.0]])
        >>> auxiliary = ProjectedAuxiliary(keep, AuxiliaryModel(refits=2, max_epochs=3))
        >>> members = auxiliary.fit(Dataset.from_arrays(x, c=(x[:, 0] > 0).float())).members
        >>> members[0](x).shape
        torch.Size([200, 1])
    """

    projection: Tensor  # (D, P)
    auxiliary: AuxiliaryModel = field(default_factory=AuxiliaryModel)
    members: Sequence[AuxiliaryMember] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Train on the projected x and c, never y; withheld columns do not enter."""
        if self.projection.ndim != 2 or len(self.projection) != data.x.shape[1]:
            raise ShapeError(
                f"The projection has shape {tuple(self.projection.shape)} and x has {data.x.shape[1]} columns; "
                "give one row per column of x"
            )
        used = ~data.withheld.to(data.x.device)
        projection = torch.where(used[:, None], self.projection.to(data.x), 0.0)
        seen = Dataset.from_arrays(data.x @ projection, data.c, protected=data.protected)
        self.auxiliary.fit(replace(seen, ids=np.arange(len(data)), weights=data.weights))
        inner = cast(Sequence[AuxiliaryMember], self.auxiliary.members)
        self.members = [_before(projection, member, used) for member in inner]
        rows = self.auxiliary.held_out
        assert rows is not None
        self.held_out = data[cast(np.ndarray, rows.ids)]
        return self


def _before(projection: Tensor, member: AuxiliaryMember, used: Tensor) -> AuxiliaryMember:
    """Return the member of the projected rows as one of the rows themselves."""
    one = copy.copy(member)
    one.net = behind(projection * member.mask, member.net)
    one.mask = used
    return one
