"""Rare classes put together, by a rule that can be told: which classes are rarer than a share of the people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairfox.data.dataset import ProtectedKind
from fairfox.data.sources import Crossing, ProtectedSource, Values
from fairfox.errors import DataError

LEAST_NAMED = 5  # people of a class whose name is told where it is merged
MOST_NAMED = 3  # classes in the name of a merged one


def merge_rare_classes(source: ProtectedSource, c: np.ndarray, limit: float) -> ProtectedSource:
    """Return the variable with its rare classes put together as "other (A, B)", the last class.

    `c` (N,) are the classes of the fitting rows; see `classes_to_merge` for the rule, and `merged_names` for whose name
    stays. A value that the fitting rows do not have joins the new class too.
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
    name, told = merged_names([variable.levels[k] for k in gone], counts[gone])
    levels = (*(variable.levels[k] for k in kept), name)
    new_class = {k: j for j, k in enumerate(kept)} | dict.fromkeys(gone, len(kept))
    return ProtectedSource(
        replace(variable, kind=kind_of(levels), levels=levels),
        replace(reader, classes=tuple(new_class[k] for k in reader.classes), rest=len(kept)),
        {name: told},
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


def merged_names(names: Sequence[str], counts: Sequence[int] | np.ndarray) -> tuple[str, tuple[str, ...]]:
    """Return what a merged class is called, and what it is made of: the names of classes of some size.

    The others are counted: a name that a handful of people have says something about each of them.

    Example:
        >>> merged_names(["Asian", "Inuit", "Other"], [31, 1, 8])
        ('other (Asian, Other and 1 more)', ('Asian', 'Other', '1 rare class'))
    """
    told = [name for name, count in zip(names, counts, strict=True) if count >= LEAST_NAMED]
    shown, rest = told[:MOST_NAMED], len(names) - len(told)
    more, rare = len(names) - len(shown), f"{rest} rare class{'' if rest == 1 else 'es'}"
    if not told:
        return f"other ({rare})", (rare,)
    name = f"other ({', '.join(shown)}{f' and {more} more' if more else ''})"
    return name, (*told, rare) if rest else tuple(told)


def kind_of(levels: Sequence[str]) -> ProtectedKind:
    """Return "binary" for two classes, "categorical" for more."""
    return "binary" if len(levels) == 2 else "categorical"
