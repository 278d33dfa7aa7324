"""What fairfox must know of a model that can only be asked for predictions."""

from __future__ import annotations

from collections.abc import Callable
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


@runtime_checkable
class Described(Protocol):
    """A model of ours that knows how it is asked: an ONNX file, an endpoint."""

    def describe(self) -> Description:
        """Return how the model is asked."""
        ...
