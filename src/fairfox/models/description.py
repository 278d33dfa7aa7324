"""What fairfox must know of a model that can only be asked for predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from fairfox.models.output import Returns

Kind = Literal["table", "matrix", "encoded"]


@dataclass(frozen=True)
class Description:
    """How a model of some library is asked, on what, and what it answers."""

    predict: Callable[[Any], Any]  # a data frame or a matrix in; numbers out, one row per individual
    kind: Kind  # what it takes, unless told otherwise
    returns: Returns | None = None  # None: read off its answers
    classes: list[Any] | None = None
    names: tuple[str, ...] | None = None  # the columns it was trained on, in order, where it knows them
    as_category: frozenset[str] = frozenset()  # columns that are categories to it, whatever they are in the table
    width: int | None = None  # how many columns it takes, where it knows


def is_counted(names: Sequence[str]) -> bool:
    """Return whether names are such as libraries make up by counting: f0, f1, ..., Column_0, ... or 0, 1, ..."""
    return any(tuple(names) == tuple(f"{stem}{j}" for j in range(len(names))) for stem in ("f", "Column_", ""))


@runtime_checkable
class Described(Protocol):
    """A model of ours that knows how it is asked: an ONNX file, an endpoint."""

    def describe(self) -> Description:
        """Return how the model is asked."""
        ...
