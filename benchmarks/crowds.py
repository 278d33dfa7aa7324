"""The people whom benchmarks measure on: as rows that are encoded already, and as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fairfox.data.dataset import Dataset

SEED = 0


def population(rows: int, features: int, *, gap: float = 0.2, dtype: torch.dtype = torch.float32) -> Dataset:
    """Return people of two groups that differ a little in every feature, and a label that depends on some.

    Features of the two groups are apart by the gap times a number that is normal over features.
    """
    generator = torch.Generator().manual_seed(SEED)
    c = (torch.rand(rows, generator=generator) < 0.5).to(dtype)
    x = torch.randn(rows, features, generator=generator, dtype=dtype)
    x = x + gap * c[:, None] * torch.randn(features, generator=generator, dtype=dtype)
    y = (x[:, : features // 2].sum(1) + torch.randn(rows, generator=generator, dtype=dtype) > 0).to(dtype)
    return Dataset.from_arrays(x, c, y)


def people(rows: int, features: int, seed: int, *, dtype: Any = np.float64) -> pa.Table:
    """Return a table of people of two groups that differ a little in every feature; the same groups for every seed."""
    rng = np.random.default_rng(seed)
    group = rng.random(rows) < 0.5
    shift = 0.5 * np.random.default_rng(SEED).normal(size=features)
    columns = {f"x{j}": (rng.normal(size=rows) + shift[j] * group).astype(dtype) for j in range(features)}
    return pa.table({**columns, "group": np.where(group, "a", "b")})
