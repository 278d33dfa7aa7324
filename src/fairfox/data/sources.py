"""Sources of protected variables: a column's values, a number, a cut through a column, an intersection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairfox.data.dataset import Protected
from fairfox.data.table import (
    Level,
    Table,
    column,
    fitted_numbers,
    floats,
    level_name,
    listed,
    missing,
    objects,
    places_of,
    same_text,
)
from fairfox.errors import DataError, OptionError

COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True)
class ProtectedSource:
    """A protected variable, how it is read from a table, and which rare classes were merged."""

    variable: Protected
    reader: Values | NumberColumn | Cut | Crossing
    merged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # new class -> the classes it is made of

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it is read from."""
        if isinstance(self.reader, Crossing):
            return tuple(dict.fromkeys(name for part in self.reader.parts for name in part.columns))
        return (self.reader.column,)

    def encode(self, table: Table) -> np.ndarray:
        """Return the class or number of everyone (N,); NaN where it is unknown, as in a table without the column."""
        if not set(self.columns) <= set(table.columns):
            return np.full(len(table), np.nan)
        return self.reader.read(table)


@dataclass(frozen=True)
class Values:
    """The classes behind a column's own values."""

    column: str
    values: tuple[Level, ...]
    classes: tuple[int, ...]  # of each value
    rest: int | None = None  # the class of values that the fitting rows do not have

    def __post_init__(self) -> None:
        if len(self.values) != len(self.classes):
            raise DataError(f"'{self.column}' has {len(self.values)} values and {len(self.classes)} classes for them")

    def read(self, table: Table) -> np.ndarray:
        """Return the class of everyone (N,), NaN where the value is missing."""
        series = column(table, self.column)
        place = places_of(series, self.values)
        strange = (place < 0) & ~missing(series)
        if strange.any() and self.rest is None:
            known = listed([repr(level_name(value)) for value in self.values], most=5)
            raise DataError(
                f"The protected column '{self.column}' holds '{level_name(objects(series)[strange][0])}' here, but the "
                f"groups to compare are {known}; use the same spelling, or give a cut such as '{self.column}=VALUE'"
            )
        return np.where(strange, self.rest or 0, np.array([*self.classes, np.nan])[place])  # the last is at -1


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, as they are."""

    column: str

    def read(self, table: Table) -> np.ndarray:
        """Return everyone's number (N,), NaN where it is missing."""
        return fitted_numbers(column(table, self.column), f"The protected column '{self.column}'")


@dataclass(frozen=True)
class Cut:
    """Two groups on the two sides of a value; class 1 are the people for whom the cut is true."""

    column: str
    operator: str
    value: str

    def __post_init__(self) -> None:
        try:
            if self.operator in COMPARE:
                float(self.value)
        except ValueError:
            raise OptionError(f"The cut '{self.group}' needs a number after '{self.operator}'") from None

    @property
    def group(self) -> str:
        """The name of the group that the cut makes: "age<25"."""
        return f"{self.column}{self.operator}{self.value}"

    def read(self, table: Table) -> np.ndarray:
        """Return the side of everyone (N,): 0 or 1, NaN where the value is missing."""
        series = column(table, self.column)
        gone = missing(series)
        if self.operator not in COMPARE:
            equal = np.array([same_text(v, self.value) for v in objects(series)], dtype=bool)
            return np.where(gone, np.nan, equal if self.operator == "=" else ~equal)
        if not series.dtype.is_numeric() and not gone.all():
            raise DataError(
                f"The cut '{self.group}' compares numbers, but column '{self.column}' holds {series.dtype}; "
                f"use {self.column}=VALUE"
            )
        values = np.full(len(series), np.nan) if gone.all() else floats(series)
        return np.where(gone, np.nan, COMPARE[self.operator](values, float(self.value)))


@dataclass(frozen=True)
class Crossing:
    """The groups formed by several protected variables together."""

    parts: tuple[ProtectedSource, ...]
    cells: tuple[tuple[int, ...], ...]  # one class of every part
    classes: tuple[int, ...]  # of each cell
    rest: int | None = None  # the class of cells that the fitting rows do not have; None: they are unknown

    def __post_init__(self) -> None:
        if len(self.cells) != len(self.classes) or {len(cell) for cell in self.cells} - {len(self.parts)}:
            raise DataError("An intersection has cells that are not combinations of its variables' classes")

    def read(self, table: Table) -> np.ndarray:
        """Return the class of everyone (N,); NaN where a value is unknown or no fitting row has the combination."""
        codes = np.stack([part.encode(table) for part in self.parts], axis=1)  # (N, P)
        known = ~np.isnan(codes).any(axis=1)
        found, inverse = np.unique(codes[known].astype(int), axis=0, return_inverse=True)
        place = {cell: j for j, cell in enumerate(self.cells)}
        places = np.array([place.get(tuple(cell), -1) for cell in found.tolist()], dtype=int)
        classes = np.array([*self.classes, np.nan])[places]
        classes[places < 0] = np.nan if self.rest is None else self.rest
        out = np.full(len(codes), np.nan)
        out[known] = classes[inverse.reshape(-1)]
        return out
