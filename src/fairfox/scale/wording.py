"""The contrasts of a protected variable in words and numbers, for many people at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Protected
from fairfox.fairtests.protocol import Measurement


def contrast_words(found: Measurement, p: Protected, spread: float) -> tuple[str, ...]:
    """Return the contrasts of a variable in words, as an audit writes them; () where a test knows none."""
    if not found.contrasts or found.signed is None:
        return ()
    return p.levels if p.kind == "binary" else tuple(_word(contrast, p, spread) for contrast in found.contrasts)


def effects_of(found: Measurement, p: Protected, own: Tensor) -> Tensor:
    """Return the value of every contrast of a variable (N, Q), NaN towards the own class."""
    values = found.values
    if not found.contrasts or found.signed is None:
        return values[:, :0]
    if p.kind == "binary":  # one column, towards whichever is the other class
        return torch.where(torch.stack([own == 1, own == 0], dim=1).to(values.device), values, torch.nan)
    return values


def towards_of(found: Measurement, p: Protected, own: Tensor, words: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Return all that can be said of the contrast that counts, and the place of what is said of each person (N,)."""
    if not words:
        return (), torch.zeros(len(own), dtype=torch.long)
    places = (found.klass if p.kind == "binary" else found.worst).cpu()
    same = (own.cpu() == places) & (not p.is_continuous)
    return (*words, *(f"away from {word}" for word in words)), torch.where(same, places + len(words), places)


def _word(contrast: Contrast, p: Protected, spread: float) -> str:
    if not p.is_continuous:
        assert contrast.towards is not None
        return p.levels[contrast.towards]
    if contrast.towards is None:
        return p.name
    return f"{p.name} {'+' if contrast.towards == HIGHER else '-'} {spread:.3g}"
