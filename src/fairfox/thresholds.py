"""Choosing delta, and turning scores into flags."""

from __future__ import annotations

import torch
from torch import Tensor

from fairfox.errors import OptionError


def flag(scores: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is flagged (N,) bool: a score above delta, one for all or one each, not abstained."""
    if not bool(torch.as_tensor(delta >= 0).all()):
        raise OptionError(f"delta is {delta}; expected a number of at least 0")
    flags = scores > delta
    return flags if abstained is None else flags & ~abstained


def confident_flag(interval: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is flagged with confidence (N,) bool: the whole interval (N, 2) lies beyond delta, on one side."""
    flags = (interval[:, 0] > delta) | (interval[:, 1] < -delta)
    return flags if abstained is None else flags & ~abstained


def decision_limits(predictions: Tensor, cut: float) -> Tensor:
    """Return what an effect towards the other decision must be above (N,) to turn it: yes from `cut` on.

    Who comes up to the cut gets a yes and who comes down to it keeps theirs, so that going up takes a hair less.

    Example:
        >>> decision_limits(torch.tensor([0.25, 0.75]), 0.5)
        tensor([0.2500, 0.2500])
    """
    away = (predictions - cut).abs()
    return torch.where(predictions < cut, torch.nextafter(away, torch.zeros_like(away)), away)


def default_delta(share: float, predictions: Tensor, *, unit: str) -> float:
    """Return delta as a share of the prediction: of 1 for probabilities, else of the predictions' usual range.

    The usual range is from the 1st to the 99th percentile, so that one outlier does not widen it.
    """
    if unit == "probability" or len(predictions) == 0:
        return share
    ends = torch.quantile(_thinned(predictions).double(), torch.tensor([0.01, 0.99], dtype=torch.float64))
    spread = float(ends[1] - ends[0])
    return share * spread if spread > 0 else share


def _thinned(values: Tensor, most: int = 1_000_000) -> Tensor:
    return values[:: max(1, len(values) // most)].cpu()
