"""What a model is to fairfox, and how its predictions are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fairfox.errors import ModelError, ShapeError


@runtime_checkable
class Model(Protocol):
    """Anything that turns encoded individuals into predictions."""

    differentiable: bool  # when False, fairfox.gradients estimates derivatives from predictions

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, K) for x (N, D); K is 1 for a target model."""
        ...


class Decoder(Protocol):
    """The way back from encoded x to what a model's owner trained it on (`fairfox.data.encode.Encoding`)."""

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks among x's columns."""
        ...

    @property
    def width(self) -> int:
        """How many columns x has."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns a model receives, in order."""
        ...

    def project(self, x: Tensor) -> Tensor:
        """Return x with every one-hot block clipped at 0 and renormalised."""
        ...

    def matrix(self, x: Tensor) -> Tensor:
        """Return the columns as numbers in their own units (N, C), differentiably."""
        ...

    def table(self, x: Tensor) -> Any:
        """Return a data frame with the user's columns, units and dtypes."""
        ...

    def expand(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows with whole categories, the weight of each, and whose row each is."""
        ...


def row_blocks(rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` rows."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def predict(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return one finite prediction per individual (N,), or say what the model returned instead."""
    # A black box batches its own calls: tree ensembles want large blocks.
    size = batch_size if model.differentiable else max(len(x), 1)
    with torch.no_grad():
        parts = [_checked(model(x[rows]), x[rows], rows.start) for rows in row_blocks(len(x), size)]
    return torch.cat(parts) if parts else x.new_zeros(0)


def _checked(out: Tensor, x: Tensor, first: int) -> Tensor:
    if len(out) != len(x):
        raise ShapeError(
            f"The model returned {len(out)} predictions for {len(x)} individuals; return one each, in order"
        )
    if out.ndim == 2 and out.shape[1] != 1:
        raise ShapeError(f"The model returned {out.shape[1]} columns; say which class is audited (positive=...)")
    out = out.reshape(len(x))
    bad = ~torch.isfinite(out)
    if bad.any():
        row = first + int(bad.nonzero()[0, 0])
        raise ModelError(
            f"The model returned NaN or infinity for {int(bad.sum())} of {len(x)} individuals (first: row {row}); "
            "every individual needs a finite prediction: check missing values in the table, or the model"
        )
    return out
