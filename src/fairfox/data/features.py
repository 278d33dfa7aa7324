"""One original column and its place in x: how it is fitted, filled in and read back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fairfox.data.columns import Series, levels_of, missing, numbers, places_of
from fairfox.data.dataset import Feature, FeatureKind
from fairfox.errors import DataError

_MOST_DECIMALS = 9
_FEW_LEVELS = 50  # that many categories are always allowed


def fit_feature(name: str, series: Series, also: Series | None, start: int, forced: FeatureKind | None) -> Feature:
    """Return the feature of a column whose place in x begins at `start`.

    `also` is the same column of further rows, whose categories and missing values are known too.
    """
    if missing(series).all():
        raise DataError(f"Column '{name}' has no values; {_drop(name)}")
    if series.dtype.is_temporal():
        raise DataError(f"Column '{name}' holds dates or times; turn it into a number, or {_drop(name)}")
    kind = forced or _detect(series)
    if kind == "continuous" and not series.dtype.is_numeric():
        raise DataError(
            f"Column '{name}' is given as continuous and holds {series.dtype}; give numbers, or leave it categorical"
        )
    if series.dtype.is_numeric():
        _refuse_infinite(name, numbers(series))
    gone = any(bool(missing(part).any()) for part in (series, also) if part is not None)
    if kind == "continuous":
        return _fit_continuous(name, numbers(series)[~missing(series)], start, gone)
    levels = levels_of(series) if also is None else levels_of(series, also)
    if len(levels) > max(_FEW_LEVELS, len(series) // 2):
        raise DataError(
            f"Column '{name}' has {len(levels)} different values in {len(series)} rows, too many for categories; "
            f"{_drop(name)}, or name it as the id (id='{name}', --id {name})"
        )
    known = (*levels, None) if gone else tuple(levels)
    return Feature(name, "categorical", start, start + len(known), known)


def encode_feature(f: Feature, series: Series, x: np.ndarray) -> None:
    """Write a column into its place in x (N, D), which is zero there."""
    if f.kind == "categorical":
        place = places_of(series, f.levels)
        known = (place >= 0).nonzero()[0]
        x[known, f.start + place[known]] = 1.0
        return
    if series.dtype.is_numeric():
        values = numbers(series)
        gone = np.isnan(values)
    elif missing(series).all():
        values, gone = np.zeros(len(series)), np.ones(len(series), dtype=bool)
    else:
        raise DataError(f"Column '{f.name}' holds {series.dtype} here and was numeric in the fitting rows")
    _refuse_infinite(f.name, values)
    x[:, f.start] = (values - f.mean) / f.scale
    if gone.any():
        x[gone, f.start] = 0.0
    if f.has_missing:
        x[:, f.start + 1] = gone
    elif gone.any():
        raise DataError(
            f"Column '{f.name}' misses {int(gone.sum())} value(s) here and none in the fitting rows; fill them in"
        )


def decode_feature(f: Feature, x: Tensor) -> np.ndarray:
    """Return the column in its own units (N,): floats, or the most probable category (None: missing or unseen)."""
    if f.kind == "continuous":
        return np.asarray(continuous_values(f, x).numpy(force=True))
    levels = np.array([*f.levels, None], dtype=object)
    block = x[:, f.columns].detach().cpu()
    best = torch.where(block.amax(1) > 0, block.argmax(1), len(f.levels))
    return np.asarray(levels[best.numpy()])


def continuous_values(f: Feature, x: Tensor) -> Tensor:
    """Return a continuous column in its own units (N,), in float64 and with NaN where it is missing.

    Values that rounding alone has moved off a number of few decimals are put back on it: a rule such as
    `ratio >= 0.35` must find 0.35.
    """
    value = x[:, f.start].detach().double() * f.scale + f.mean
    if f.decimals is not None:
        unit = 10.0**f.decimals
        near = (value * unit).round() / unit
        slack = 4 * torch.finfo(x.dtype).eps * (value.abs() + abs(f.mean))
        value = torch.where((value - near).abs() <= slack, near, value)
    return torch.where(x[:, f.start + 1] > 0.5, torch.nan, value) if f.has_missing else value


def codes_of(f: Feature) -> Tensor:
    """Return the categories as numbers (L,), 0 for "missing", or say why no matrix can hold them."""
    try:
        codes = [0.0 if level is None else float(level) for level in f.levels]
    except (TypeError, ValueError):
        text = next(level for level in f.levels if isinstance(level, str))
        raise DataError(
            f"Column '{f.name}' holds text such as '{text}', and the model takes a matrix of numbers; "
            f"{_drop(f.name)}, or give a model that takes the table"
        ) from None
    return torch.tensor(codes, dtype=torch.float64)


def _drop(name: str) -> str:
    return f"drop it (drop=['{name}'], --drop {name})"


def _detect(series: Series) -> FeatureKind:
    """Return the kind of a column: numbers with more than two values are continuous, all else categorical."""
    if not series.dtype.is_numeric():
        return "categorical"
    return "categorical" if len(np.unique(numbers(series)[~missing(series)])) <= 2 else "continuous"


def _refuse_infinite(name: str, values: np.ndarray) -> None:
    infinite = int(np.isinf(values).sum())
    if infinite:
        raise DataError(f"Column '{name}' holds {infinite} infinite value(s); numbers must be finite or missing")


def _fit_continuous(name: str, values: np.ndarray, start: int, gone: bool) -> Feature:
    mean, scale = float(values.mean()), float(values.std())
    if scale <= 1e-12 * max(abs(mean), 1.0):
        scale = 1.0
    stop = start + (2 if gone else 1)
    return Feature(name, "continuous", start, stop, (), mean, scale, _decimals(values))


def _decimals(values: np.ndarray) -> int | None:
    """Return how many decimals the values have, 0 for whole numbers; None where they have more than nine."""
    largest = float(np.abs(values).max())
    for decimals in range(_MOST_DECIMALS + 1):
        if largest * 10.0**decimals >= 2**53:
            return None
        if all((np.round(part, decimals) == part).all() for part in (values[:100], values)):
            return decimals
    return None
