"""The contrast that counts for each person in words, for many people at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.data.dataset import Protected
from fairfox.fairtests.protocol import Measurement


def towards_of(found: Measurement, p: Protected, own: Tensor, words: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Return all that can be said of the contrast that counts, and the place of what is said of each person (N,)."""
    if not words:
        return (), torch.zeros(len(own), dtype=torch.long)
    places = (found.klass if p.kind == "binary" else found.worst).cpu()
    same = (own.cpu() == places) & (not p.is_continuous)
    return (*words, *(f"away from {word}" for word in words)), torch.where(same, places + len(words), places)
