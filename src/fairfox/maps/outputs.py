"""What moves: one of an auxiliary's outputs, or the difference of two classes'."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.auxiliary.model import combine_outputs
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import ShapeError
from fairfox.models.protocol import Model


def moving(model: Model, protected: Sequence[Protected], variable: int, pair: tuple[int, int]) -> Model:
    """Return what moves as a model (N, D) -> (N, 1): one output, or the difference of two classes' logits."""
    return combine_outputs(model, _row(protected, variable, pair)[None])


def check_outputs(model: Model, data: Dataset) -> None:
    """Refuse an auxiliary that has other outputs than the protected variables."""
    found, expected = model(data.x[:1]).shape[1], sum(p.outputs for p in data.protected)
    if found != expected:
        raise ShapeError(
            f"The auxiliary has {found} outputs; expected {expected}: one for two groups or a number, one per "
            "class of many, variable after variable"
        )


def _row(protected: Sequence[Protected], variable: int, pair: tuple[int, int]) -> Tensor:
    """Return what moves as a combination (K,) of the outputs: one output, or the difference of two classes'."""
    start = sum(p.outputs for p in protected[:variable])
    row = torch.zeros(sum(p.outputs for p in protected), dtype=torch.float64)
    if protected[variable].kind == "categorical":
        row[start + pair[1]], row[start + pair[0]] = 1.0, -1.0
    else:
        row[start] = 1.0
    return row
