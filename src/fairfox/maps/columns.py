"""What maps do alike with columns: those that are withheld or missing, and one-hot entries that left [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, resample
from fairfox.maps.protocol import Mapped
from fairfox.maps.rank import RankMap


def outside(x: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return the largest distance of anyone's one-hot entries from [0, 1] (N,)."""
    blocks = [x[:, f.columns] for f in features if f.kind == "categorical"]
    if not blocks:
        return x.new_zeros(len(x))
    entries = torch.cat(blocks, dim=1)
    return (entries - entries.clamp(0, 1)).abs().amax(1)


def features_among(features: Sequence[Feature], columns: Tensor) -> tuple[Feature, ...]:
    """Return the features of some columns (D,) bool, with their places among these."""
    out: list[Feature] = []
    chosen, start = columns.tolist(), 0
    for f in features:
        if chosen[f.start]:
            out.append(replace(f, start=start, stop=start + f.stop - f.start))
            start = out[-1].stop
    return tuple(out)


def ranks_of(data: Dataset, variable: int, columns: Tensor, *, seed: int, hold_others: bool = False) -> RankMap | None:
    """Return the map that sets these columns (D,) alone, by their ranks; None where there are none.

    Weighted rows are resampled.
    """
    if not bool(columns.any()):
        return None
    one_each = data if data.weights is None else resample(data, generator=torch.Generator().manual_seed(seed))
    return RankMap(variable=variable, only=columns, hold_others=hold_others).fit(one_each)


def with_ranks(mapped: Mapped, ranks: RankMap | None, data: Dataset, to: Tensor) -> Mapped:
    """Return mapped people with the columns of a rank map set by it; who is abstained by either keeps their row."""
    if ranks is None:
        return mapped
    assert ranks.only is not None
    swapped = ranks.map(data, to)
    rows = torch.where(ranks.only.to(data.x.device), swapped.rows, mapped.rows)
    lost = bool((swapped.abstained & ~mapped.abstained).any())
    stay = mapped.abstained | swapped.abstained
    rows[stay] = data.x[stay]
    return Mapped(rows, stay, swapped.reason if lost else mapped.reason, mapped.overshoot)
