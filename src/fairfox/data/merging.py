"""Rare classes put together, by a rule that can be told: which classes are rarer than a share of the people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairfox.data.columns import listed
from fairfox.data.dataset import ProtectedKind
from fairfox.data.sources import Crossing, ProtectedSource, Values
from fairfox.errors import DataError


def merge_rare_classes(source: ProtectedSource, c: np.ndarray, limit: float) -> ProtectedSource:
    """Return the variable with its rare classes put together as "other (A, B)", the last class.

    `c` (N,) are the classes of the fitting rows; see `classes_to_merge` for the rule. A value that the fitting rows
    do not have joins the new class too.
    """
    variable, reader = source.variable, source.reader
    if not isinstance(reader, Values | Crossing):  # a number, or the two sides of a cut
        return source
    counts = np.bincount(c[~np.isnan(c)].astype(int), minlength=len(variable.levels))
    gone = classes_to_merge(counts, limit)
    if len(gone) == len(counts):
        raise DataError(
            f"Every group of '{variable.name}' is rarer than {limit:g}, so that merge_rare (--merge-rare) would leave "
            "one group; give a smaller share, or a cut that makes two groups"
        )
    if not gone:
        return source
    kept = [k for k in range(len(counts)) if k not in gone]
    old = tuple(variable.levels[k] for k in gone)
    name = f"other ({listed(old)})"
    levels = (*(variable.levels[k] for k in kept), name)
    new_class = {k: j for j, k in enumerate(kept)} | dict.fromkeys(gone, len(kept))
    return ProtectedSource(
        replace(variable, kind=kind_of(levels), levels=levels),
        replace(reader, classes=tuple(new_class[k] for k in reader.classes), rest=len(kept)),
        {name: old},
    )


def classes_to_merge(counts: Sequence[int] | np.ndarray, limit: float) -> list[int]:
    """Return the classes to put together, in their order, none where no class is rarer than `limit`.

    They are those with a smaller share than `limit`; where it is only one, the next smallest class joins it.
    """
    counts = np.asarray(counts)
    shares = counts / max(counts.sum(), 1)
    by_size = np.argsort(shares, kind="stable")  # of equal ones the first in order
    taken = int((shares < limit).sum())
    if len(counts) <= 2 or taken == 0:
        return []
    return sorted(by_size[: max(taken, 2)].tolist())


def kind_of(levels: Sequence[str]) -> ProtectedKind:
    """Return "binary" for two classes, "categorical" for more."""
    return "binary" if len(levels) == 2 else "categorical"
