"""Protected variables: read from a column of two values, or from a cut such as age<25 through one."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fairfox.data.columns import Series, Table, column, levels_of, missing, numbers, objects, places_of, same_text
from fairfox.data.dataset import Level, Protected
from fairfox.data.table import check_column
from fairfox.errors import DataError, OptionError

_CUT = re.compile(r"^(?P<column>.+?)\s*(?P<op><=|>=|==|!=|<|>|=)\s*(?P<value>.+)$")
_COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True)
class ProtectedSource:
    """Where a protected variable comes from: a column, or a cut such as age<25 through one."""

    variable: Protected
    column: str
    operator: str | None = None
    value: str | None = None
    values: tuple[Level, ...] = ()  # the column's own values behind the levels

    def encode(self, table: Table) -> np.ndarray:
        """Return the group of everyone (N,): 0 or 1, NaN where it is unknown."""
        series = column(table, self.column)
        if self.operator is None:
            place = places_of(series, self.values)
            strange = (place < 0) & ~missing(series)
            if strange.any():
                found = objects(series)[strange][0]
                raise DataError(
                    f"The protected column '{self.column}' holds '{found}' here; the groups to compare are "
                    f"{' and '.join(map(repr, self.variable.levels))}: spell them alike, or give a cut"
                )
            return np.where(place < 0, np.nan, place)
        if self.operator in _COMPARE:
            member = _COMPARE[self.operator](numbers(series), self._bound())
        else:
            equal = np.array([same_text(v, str(self.value)) for v in objects(series)], dtype=bool)
            member = equal if self.operator == "=" else ~equal
        return np.where(missing(series), np.nan, member)

    def _bound(self) -> float:
        try:
            return float(str(self.value))
        except ValueError:
            raise OptionError(f"The cut '{self.variable.name}' needs a number after '{self.operator}'") from None


def read_protected(spec: str, table: Table) -> ProtectedSource:
    """Return the protected variable that `spec` names: a column of two values, or a cut through a column.

    A cut is a column, one of < <= > >= = !=, and a value: "age<25", "race != White". Its members are class 1.
    """
    cut = None if spec in table.columns else _CUT.match(spec)
    if cut is None:
        return _whole_column(spec, column(table, spec))
    name, operator, value = cut["column"], cut["op"].replace("==", "="), cut["value"].strip("'\"")
    check_column(table, name)
    dtype = table.schema[name]
    if operator in _COMPARE and not dtype.is_numeric():
        raise DataError(f"The cut '{spec}' compares numbers, and column '{name}' holds {dtype}; use {name}=VALUE")
    group = f"{name}{operator}{value}"
    source = ProtectedSource(Protected(group, "binary", (f"not {group}", group), name), name, operator, value)
    c = source.encode(table)
    members, known = int((c == 1).sum()), int((~np.isnan(c)).sum())
    if members in (0, known):
        raise DataError(f"The cut '{spec}' puts {members} of {known} people into one group; both groups need people")
    return source


def _whole_column(name: str, series: Series) -> ProtectedSource:
    levels = levels_of(series)
    if not levels:
        raise DataError(f"The protected column '{name}' has no values; give a column with two groups")
    if len(levels) == 1:
        raise DataError(
            f"The protected column '{name}' has one value only ({levels[0]}); two groups are needed to compare"
        )
    if len(levels) > 2:
        numeric = series.dtype.is_numeric()
        hint = f"{name}<{np.nanmedian(numbers(series)):g}" if numeric else f"{name}={levels[0]}"
        raise DataError(
            f"The protected column '{name}' has {len(levels)} values; two groups can be compared for now: "
            f"give a cut such as '{hint}'"
        )
    variable = Protected(name, "binary", tuple(map(str, levels)), name)
    return ProtectedSource(variable, name, values=tuple(levels))
