"""Whether what was read of a stored source describes one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from numbers import Real
from typing import Any

from torch import Tensor

from fairfox.errors import DataError
from fairfox.synthetic.options import check_number, check_whole


def check_stored(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise a DataError, or an OptionError, unless description and tensors of a source fit together.

    The networks are left out but for values that are not finite: torch itself checks their shapes.
    """
    if unknown := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise DataError(f"'{unknown[0]}' holds values that are not finite")
    weights = tensors["encoding.weights"]
    if weights.ndim != 2:
        raise DataError(f"'encoding.weights' has {weights.ndim} dimension(s), expected features and modes")
    _check_description(description, *weights.shape)
    _check_tensors(tensors, len(description["levels"]), *weights.shape)


def _check_description(description: Mapping[str, Any], features: int, modes: int) -> None:
    names, levels, found = description["names"], description["levels"], description["settings"]["modes"]
    if not _is_list_of(str, names) or len(names) != features:
        raise DataError(f"the names are {names!r}, expected one for each of {features} feature(s)")
    if found != modes:
        raise DataError(f"the settings say {found!r} modes and 'encoding.weights' has {modes}")
    if not _is_list_of(Real, levels) or not _rising(levels):
        raise DataError(f"the levels are {levels!r}, expected two or more rising numbers")
    check_whole("rows", description["rows"])
    check_number("spread", description["spread"], above_zero=False)


def _check_tensors(tensors: Mapping[str, Tensor], classes: int, features: int, modes: int) -> None:
    one_each, per_mode = (features,), (features, modes)
    expected = {"centre": one_each, "scale": one_each, "means": per_mode, "variances": per_mode}
    shapes = {f"encoding.{name}": shape for name, shape in expected.items()} | {"shares": (classes,)}
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise DataError(f"'{name}' has shape {tuple(tensors[name].shape)}, expected {shape}")
    for name in ("shares", "encoding.scale", "encoding.variances"):
        if not bool((tensors[name] > 0).all()):
            raise DataError(f"'{name}' holds values that are not above 0")
    for name in ("shares", "encoding.weights"):
        total = tensors[name].double().sum(-1)
        if not bool(((total - 1.0).abs() <= 1e-6).all() and (tensors[name] >= 0).all()):
            raise DataError(f"'{name}' holds no shares that sum to 1")


def _is_list_of(kind: type, values: object) -> bool:
    return isinstance(values, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in values)


def _rising(levels: list[float]) -> bool:
    return len(levels) >= 2 and all(map(isfinite, levels)) and all(a < b for a, b in pairwise(levels))
