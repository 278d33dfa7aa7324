"""Straight paths between rows: the numbers a model gets along them, and how far its prediction changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import narwhals as nw
import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import Feature
from fairfox.data.encoding import Encoding
from fairfox.errors import OptionError
from fairfox.models.adapters import BlackBoxModel

MIXES = "a category changes along the path, where the prediction averages over categories"
MISSING = "a value is missing at only one end of the path"
_SHARE = 1e-9  # smaller shares of a category are no categories to a model
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Certificates:
    """The largest change of the prediction along the path to the contrast that counts, one entry per person.

    It is averaged over the refits, so it is at least the size of the mean effect; for tests with /a it is multiplied by
    the alignment share, as the score is. People without a certificate have NaN and a reason.
    """

    largest: Tensor  # (N,) no point on the path changes the prediction by more
    inside: Tensor  # (N,) by how much the worst point on the path exceeds its end
    reasons: tuple[str | None, ...]  # why somebody has none
    delta: float
    limits: Tensor  # (N,) everyone's own delta
    total: bool  # of the total reading, as the test itself moves nobody

    @property
    def certified(self) -> Tensor:
        """Who has a certificate (N,) bool."""
        return ~self.largest.isnan()

    @property
    def within(self) -> Tensor:
        """For whom (N,) no point on the path changes the prediction by more than delta."""
        return self.largest <= self.limits

    @property
    def worse_inside(self) -> Tensor:
        """For whom (N,) a point on the path is worse than its end by more than delta."""
        return self.inside > self.limits


@dataclass(frozen=True)
class PathChange:
    """The largest change of the prediction along the path from `here` (t = 0) to `there` (t = 1), one per person.

    In float64. People without a certificate have NaN everywhere and a reason.
    """

    largest: Tensor  # (N,) the largest |f(x(t)) - f(x(0))| of all t from 0 to 1
    at: Tensor  # (N,) the t where it is; of several the first
    end: Tensor  # (N,) f(x(1)) - f(x(0)): the effect itself
    reasons: tuple[str | None, ...]  # why somebody has no certificate

    @property
    def numbers(self) -> tuple[Tensor, Tensor, Tensor]:
        """All numeric fields, in order."""
        return self.largest, self.at, self.end


def point_at(here: Tensor, there: Tensor, t: Tensor) -> Tensor:
    """Return the rows x(t) (N, D) for t (N,); by rounding x(1) may differ from `there` in the last digit."""
    return here + t[:, None] * (there - here)


def worst_points(f_here: Tensor, f_there: Tensor, inside: Tensor, owner: Tensor, t: Tensor) -> PathChange:
    """Return the worst of everyone's points and the end, for predictions `inside` (P,) at points t (P,) of an owner."""
    people = len(f_here)
    owner = torch.cat([owner, torch.arange(people, device=owner.device)])
    t = torch.cat([t, torch.ones_like(f_here)])
    change = torch.cat([inside, f_there]) - f_here[owner]
    largest = torch.zeros_like(f_here).scatter_reduce(0, owner, change.abs(), "amax")
    worst = (change.abs() == largest[owner]) & (change != 0)
    at = torch.full_like(f_here, torch.inf).scatter_reduce(0, owner, torch.where(worst, t, torch.inf), "amin")
    return PathChange(largest, torch.where(largest > 0, at, 0.0), f_there - f_here, (None,) * people)


def join_blocks(blocks: Sequence[PathChange]) -> PathChange:
    """Return the changes of all people, block after block."""
    largest, at, end = (torch.cat(each) for each in zip(*(block.numbers for block in blocks), strict=True))
    return PathChange(largest, at, end, tuple(reason for block in blocks for reason in block.reasons))


def with_reasons(some: PathChange, rows: Tensor, reasons: Sequence[str | None]) -> PathChange:
    """Return everyone: people numbered `rows` as they are, the others without a certificate and with their reason."""
    if len(rows) == len(reasons):
        return some
    gone = some.largest.new_full((len(reasons),), torch.nan)
    largest, at, end = (gone.index_copy(0, rows, each) for each in some.numbers)
    return PathChange(largest, at, end, tuple(reasons))


# --- The numbers a tree ensemble receives --------------------------------------------------------------------------


@dataclass(frozen=True)
class PathNumbers:
    """Everyone's columns along the path: x = start + t * step, in the model's own units.

    All operations on x keep the order, so each column is monotone.
    """

    start: np.ndarray  # (N, C)
    step: np.ndarray  # (N, C)
    scale: np.ndarray  # (C,)
    mean: np.ndarray  # (C,)
    unit: np.ndarray  # (C,) 1, 10, 100, ... where numbers have that many decimals; NaN where any
    missing: np.ndarray  # (N, C) bool

    def at(self, person: np.ndarray, column: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return single numbers (Q,), as `continuous_values` decodes them; NaN: missing."""
        x = self.start[person, column] + t * self.step[person, column]
        mean, unit = self.mean[column], self.unit[column]
        value = x * self.scale[column] + mean
        near = np.round(value * unit) / unit
        close = np.abs(value - near) <= 4 * _EPS * (np.abs(value) + np.abs(mean))
        return np.where(self.missing[person, column], np.nan, np.where(close, near, value))

    def all_at(self, t: float) -> np.ndarray:
        """Return everyone's numbers (N, C) at one t."""
        people, columns = (part.ravel() for part in np.indices(self.start.shape))
        return self.at(people, columns, np.full(len(people), t)).reshape(self.start.shape)


def path_numbers(model: BlackBoxModel, here: Tensor, there: Tensor) -> PathNumbers:
    """Return the columns that a black box gets on the path between rows without `reasons_against`."""
    start, step = here.numpy(force=True), (there - here).numpy(force=True)
    if not isinstance(model.decoder, Encoding) or model.kind == "encoded":
        whole = start.copy()
        for block in model.blocks:
            whole[:, block] = start[:, block] > _SHARE
            step[:, block] = 0.0
        ones = np.ones(start.shape[1])
        return PathNumbers(whole, step, ones, 0 * ones, np.nan * ones, np.isnan(start))
    features = model.decoder.features
    columns = zip(*(_column(f, start, step) for f in features), strict=True)
    starts, steps, missing = (np.stack(each, axis=1) for each in columns)
    return PathNumbers(
        starts,
        steps,
        np.array([f.scale if f.kind == "continuous" else 1.0 for f in features]),
        np.array([f.mean if f.kind == "continuous" else 0.0 for f in features]),
        np.array([np.nan if f.kind != "continuous" or f.decimals is None else 10.0**f.decimals for f in features]),
        missing,
    )


def reasons_against(model: BlackBoxModel, here: Tensor, there: Tensor) -> list[str | None]:
    """Return for everyone why the path between their rows has no certificate (N), None where it has one."""
    mixes = torch.zeros(len(here), dtype=torch.bool)
    for block in model.blocks:
        before, after = here[:, block] > _SHARE, there[:, block] > _SHARE
        mixes |= (before != after).any(1).cpu() | (before.sum(1) > 1).cpu()
    gaps = (here.isnan() != there.isnan()).any(1).cpu()
    if isinstance(model.decoder, Encoding) and model.kind != "encoded":
        for f in model.decoder.features:
            if f.has_missing:
                gaps |= ((here[:, f.start + 1] > 0.5) != (there[:, f.start + 1] > 0.5)).cpu()
    return [
        MIXES if mixed else MISSING if gap else None for mixed, gap in zip(mixes.tolist(), gaps.tolist(), strict=True)
    ]


def float32_columns(model: BlackBoxModel) -> np.ndarray:
    """Return which columns (C,) bool reach the model as float32, because its own data frames hold that."""
    if model.decoder is None or model.kind != "table":
        return np.zeros(0, dtype=bool)
    example = model.decoder.table(torch.zeros(1, model.decoder.width, dtype=torch.float64))
    schema = nw.from_native(example, eager_only=True).schema
    return np.array([schema[name] == nw.Float32 for name in model.decoder.columns])


def check_numbers(model: BlackBoxModel, columns: np.ndarray) -> None:
    """Raise unless the columns that the trees split on hold numbers."""
    if not isinstance(model.decoder, Encoding) or model.kind == "encoded":
        return
    for f in (model.decoder.features[column] for column in columns.tolist()):
        if any(isinstance(level, str) for level in f.levels):
            raise OptionError(
                f"The trees split on '{f.name}', which holds text; certificates along the path need trees on numbers"
            )


def _column(f: Feature, x: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one column of everyone: its start and step in x, and where it is missing."""
    if f.kind == "continuous":
        gone = x[:, f.start + 1] > 0.5 if f.has_missing else np.zeros(len(x), dtype=bool)
        return x[:, f.start], step[:, f.start], gone
    codes = np.array([np.nan if level is None or isinstance(level, str) else float(level) for level in f.levels])
    shares = x[:, f.columns]
    code = np.where(shares.max(1) > _SHARE, codes[shares.argmax(1)], np.nan)
    return np.nan_to_num(code), np.zeros(len(x)), np.isnan(code)
