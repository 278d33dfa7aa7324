"""Table to tensors and back: scaling, one-hot blocks, protected columns.

How columns are read: text, booleans, categories and numbers with at most two values are categorical, other
numbers continuous; `categorical` and `continuous` overrule this. Missing values: a category of their own, or the
mean plus a column "is missing". A category that the encoding has not seen becomes an empty block (it decodes to
missing). Constant columns stay (the model needs them) and carry no information.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.data.columns import Series, Table, column, levels_of, missing, numbers, objects, places_of
from fairfox.data.combinations import expand_blocks
from fairfox.data.dataset import Dataset, Feature, Level, project_blocks
from fairfox.data.features import codes_of, continuous_values, decode_feature, encode_feature, fit_feature
from fairfox.data.frames import Template
from fairfox.data.protected import ProtectedSource, read_protected
from fairfox.data.table import check_column
from fairfox.errors import ColumnError, DataError, OptionError, did_you_mean


@dataclass(frozen=True)
class Encoding:
    """A fitted encoding: `encode` a table into a Dataset, bring x back as `matrix` or `table`."""

    features: tuple[Feature, ...]
    sources: tuple[ProtectedSource, ...]
    label: str | None
    label_values: tuple[Level, ...] | None
    id_column: str | None
    template: Any = field(repr=False, compare=False)  # an empty data frame with the model's columns
    dtype: torch.dtype = torch.float32
    seed: int = 0  # of the draws in `expand`

    @property
    def width(self) -> int:
        """D: how many columns x has."""
        return self.features[-1].stop if self.features else 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns a model receives, in order."""
        return tuple(f.name for f in self.features)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks among x's columns."""
        return tuple(f.columns for f in self.features if f.kind == "categorical")

    @cached_property
    def withheld(self) -> Tensor:
        """Which columns of x (D,) the auxiliary must not see: those a protected variable was read from."""
        hidden = {s.column for s in self.sources}
        out = torch.zeros(self.width, dtype=torch.bool)
        for f in self.features:
            out[f.columns] = f.name in hidden
        return out

    def encode(self, table: Table) -> Dataset:
        """Return the individuals of a table as tensors."""
        x = np.zeros((len(table), self.width))
        for f in self.features:
            _encode_feature(f, _column(table, f.name), x)
        c = np.stack([_encode_protected(s, table) for s in self.sources], axis=1)
        y = None
        if self.label is not None and self.label in table.columns:
            y = torch.as_tensor(_encode_label(_column(table, self.label), self.label_values))
        ids = None
        if self.id_column is not None:
            ids = _objects(_column(table, self.id_column))
        return Dataset(
            x=torch.as_tensor(x).to(self.dtype),
            c=torch.as_tensor(c).to(self.dtype),
            protected=tuple(s.variable for s in self.sources),
            features=self.features,
            y=y,
            withheld=self.withheld,
            ids=ids,
        )

    def unseen(self, table: Table) -> dict[str, int]:
        """Return how many individuals have a category that the encoding does not know, per column."""
        counts: dict[str, int] = {}
        for f in self.features:
            if f.kind == "categorical":
                known = {_key(level) for level in f.levels}
                missing = sum(_key(v) not in known for v in _objects(_column(table, f.name)))
                counts |= {f.name: missing} if missing else {}
        return counts

    def project(self, x: Tensor) -> Tensor:
        """Return x with every one-hot block clipped at 0 and renormalised; blocks without mass stay empty."""
        return project_blocks(x, self.features)

    def matrix(self, x: Tensor) -> Tensor:
        """Return the columns as numbers in their own units (N, C): categories by their expected code."""
        out = []
        for f in self.features:
            if f.kind == "continuous":
                value = x[:, f.start] * f.scale + f.mean
                if not x.requires_grad:
                    value = _whole(value, f) if f.whole else value
                    value = torch.where(x[:, f.start + 1] > 0.5, torch.nan, value) if f.has_missing else value
                out.append(value)
            else:
                out.append(x[:, f.columns] @ self._codes(f).to(x))
        return torch.stack(out, dim=1) if out else x[:, :0]

    def table(self, x: Tensor) -> Any:
        """Return a data frame with the user's columns, units and dtypes (categories: the most probable)."""
        values = x.detach().cpu().double()
        columns = {f.name: self._decode_feature(f, values) for f in self.features}
        return _frame_like(self.template, columns)

    def expand(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows with one category per block (R, D), the weight of each (R,), and whose row each is (R,).

        The product distribution over the blocks: exact up to 32 combinations, else 32 draws with common
        random numbers (the same for everyone, so neither order nor batches matter).
        """
        x = self.project(x)
        support = torch.stack([(x[:, b] > 1e-9).sum(1).clamp(min=1) for b in self.blocks], dim=1)  # (N, B)
        combinations = support.double().prod(1)
        exact = combinations <= _COMBINATIONS
        repeats = torch.where(exact, combinations, float(_COMBINATIONS)).long()
        owner = torch.repeat_interleave(torch.arange(len(x)), repeats)
        first = torch.cumsum(repeats, 0) - repeats
        place = torch.arange(len(owner)) - first[owner]  # 0.. within each individual
        weights = torch.where(exact, 1.0, 1.0 / _COMBINATIONS).to(torch.float64)[owner]
        rows = x[owner]
        draws = self._draws(len(self.blocks)).to(x.dtype)
        stride = torch.ones(len(x), dtype=torch.long)
        for j, block in enumerate(self.blocks):
            share, order = x[:, block].sort(dim=1, descending=True, stable=True)
            digit = (place // stride[owner]) % support[owner, j]
            above = share.cumsum(1)[owner] < draws[place.clamp(max=_COMBINATIONS - 1), j, None]
            drawn = above.sum(1).clamp(max=share.shape[1] - 1)
            digit = torch.where(exact[owner], digit, drawn)
            level = order[owner].gather(1, digit[:, None])
            chance = share[owner].gather(1, digit[:, None])[:, 0].double()
            empty = share[:, 0][owner] <= 0  # an unseen category: the block stays empty
            weights = torch.where(exact[owner] & ~empty, weights * chance, weights)
            block_rows = torch.zeros_like(share[owner]).scatter_(1, level, 1.0)
            rows[:, block] = torch.where(empty[:, None], 0.0, block_rows)
            stride = stride * support[:, j]
        return rows, weights, owner

    def _draws(self, blocks: int) -> Tensor:
        """Return a Latin hypercube of uniforms (32, B): every block's marginal is hit evenly."""
        generator = torch.Generator().manual_seed(self.seed)
        offsets = torch.rand(_COMBINATIONS, blocks, generator=generator, dtype=torch.float64)
        order = torch.stack([torch.randperm(_COMBINATIONS, generator=generator) for _ in range(blocks)], dim=1)
        return (order + offsets) / _COMBINATIONS

    def _codes(self, f: Feature) -> Tensor:
        try:
            codes = [float("nan") if level is None else float(level) for level in f.levels]
        except (TypeError, ValueError):
            text = next(level for level in f.levels if isinstance(level, str))
            raise DataError(
                f"Column '{f.name}' holds text such as '{text}', and the model takes a matrix of numbers; "
                f"drop the column (drop='{f.name}'), or give a model that takes the table"
            ) from None
        if any(np.isnan(codes)):
            raise DataError(f"Column '{f.name}' has missing values, and the model takes a matrix; fill them in first")
        return torch.tensor(codes, dtype=torch.float64)

    def _decode_feature(self, f: Feature, x: Tensor) -> np.ndarray:
        if f.kind == "continuous":
            value = x[:, f.start] * f.scale + f.mean
            value = _whole(value, f) if f.whole else value
            if f.has_missing:
                value = torch.where(x[:, f.start + 1] > 0.5, torch.nan, value)
            return np.asarray(value)
        levels = np.array([*f.levels, None], dtype=object)
        block = x[:, f.columns]
        best = torch.where(block.amax(1) > 0, block.argmax(1), len(f.levels))
        return np.asarray(levels[best.numpy()])


def fit_encoding(
    table: Table,
    *,
    protected: Sequence[str],
    label: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    also: Table | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Encoding:
    """Return the encoding of a table.

    Args:
        table: the rows whose means, spreads and categories are used.
        protected: protected columns, or cuts through one: "age<25", "race=White".
        label: the column of true outcomes, never a feature.
        id_column: the column that names individuals, never a feature.
        drop: columns to leave out.
        categorical: columns to read as categories whatever they look like.
        continuous: columns to read as numbers whatever they look like.
        columns: the model's own columns, in its order; by default all that are left.
        also: further rows whose categories are known too (the audited table beside a reference).
        dtype: of x.
        seed: of the draws over category distributions.
    """
    for name in [label, id_column, *drop, *categorical, *continuous]:
        if name is not None:
            check_column(table, name)
    both = set(categorical) & set(continuous)
    if both:
        raise OptionError(f"Column '{sorted(both)[0]}' is given as categorical and as continuous; choose one")
    if not protected:
        raise OptionError("No protected variable is given; name a column, or a cut such as 'age<25'")
    sources = tuple(read_protected(spec, table) for spec in protected)
    left_out = {label, id_column, *drop}
    if columns is None:
        hidden = {s.column for s in sources}
        columns = [name for name in table.columns if name not in left_out | hidden]
    absent = [name for name in columns if name not in table.columns]
    if absent:
        raise ColumnError(
            f"The model was trained on column '{absent[0]}', which the table does not have."
            f"{did_you_mean(absent[0], table.columns)}"
        )
    if not columns:
        raise DataError("No column is left for the model once protected, label, id and dropped columns are taken out")
    features: list[Feature] = []
    start = 0
    for name in columns:
        forced = "categorical" if name in categorical else "continuous" if name in continuous else None
        extra = None if also is None else _column(also, name)
        feature = _fit_feature(name, _column(table, name), extra, start, forced)
        features.append(feature)
        start = feature.stop
    label_values = None if label is None else _label_values(_column(table, label))
    template = to_native_frame(table.select(list(columns)).head(0))
    return Encoding(tuple(features), sources, label, label_values, id_column, template, dtype, seed)


