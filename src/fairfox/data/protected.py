"""Protected variables as a user names them: columns, cuts such as age<25, their crossing, and names of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairfox.data.columns import Series, Table, column, level_name, levels_of, listed, missing, numbers
from fairfox.data.dataset import Level, Protected, group_name
from fairfox.data.merging import kind_of, merge_rare_classes
from fairfox.data.sources import COMPARE, Crossing, Cut, Number, ProtectedSource, Values
from fairfox.errors import ColumnError, DataError, OptionError, did_you_mean

MOST_CLASSES = 50
_MOST_CODES = 10  # whole numbers with as many values at most are classes
_OPERATOR = "<=|>=|==|!=|<|>|="
_CUT = re.compile(rf"^(?P<column>.+?)\s*(?P<op>{_OPERATOR})\s*(?P<value>.+)$")
_WAY_OUT = (
    "give a reference table that has it (reference, --reference), "
    "or read it from another table (protected_from, --protected-from TABLE --on ID)"
)


def read_variables(
    specs: Sequence[str],
    table: Table,
    *,
    intersections: bool = False,
    merge_rare: float | None = None,
    reference_group: Sequence[str] = (),
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
) -> tuple[ProtectedSource, ...]:
    """Return the protected variables that `specs` name, and with `intersections` their crossing at the end."""
    if not specs:
        raise OptionError("No protected variable is given; name a column, or a cut such as 'age<25'")
    if merge_rare is not None and not 0 < merge_rare < 0.5:
        raise OptionError(f"merge_rare is {merge_rare}; give a share of the people above 0 and below 0.5")
    sources = [
        read_protected(spec, table, merge_rare=merge_rare, categorical=categorical, continuous=continuous)
        for spec in specs
    ]
    names = [source.variable.name for source in sources]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionError(f"The protected variable '{twice[0]}' is given twice; give it once")
    if intersections:
        sources.append(cross(sources, table, merge_rare=merge_rare))
    return _with_references(sources, reference_group)


def read_protected(
    spec: str,
    table: Table,
    *,
    merge_rare: float | None = None,
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
) -> ProtectedSource:
    """Return the protected variable that `spec` names: a column, or a cut through one.

    Of a column two values are two groups, more values classes; numbers are a continuous variable, unless they are at
    most ten different whole numbers. `categorical` and `continuous` overrule this. A cut is a column, one of
    < <= > >= = !=, and a value: "age<25", "race != White". Its members are class 1.
    """
    cut = _parse_cut(spec, table.columns)
    name = spec if cut is None else cut.column
    if name not in table.columns:
        hint = did_you_mean(name, list(table.columns))
        raise ColumnError(f"The table has no column '{name}'.{hint} If it is not meant to have it, {_WAY_OUT}")
    if missing(column(table, name)).all():
        raise DataError(f"The protected column '{name}' has no values: nobody's group is known; {_WAY_OUT}")
    if cut is not None:
        return _read_cut(cut, table)
    series = column(table, name)
    if series.dtype.is_temporal():
        raise DataError(f"The protected column '{name}' holds dates or times; turn it into a number, such as a year")
    if _is_continuous(name, series, categorical, continuous):
        return _read_number(name, series, table)
    source = _read_classes(name, levels_of(series))
    if merge_rare is not None:
        source = merge_rare_classes(source, source.encode(table), merge_rare)
    if len(source.variable.levels) > MOST_CLASSES:
        raise DataError(_too_many(name, series, len(source.variable.levels)))
    return source


def column_of(spec: str, columns: Sequence[str]) -> str:
    """Return the column that a protected variable is read from: "age" of "age<25", unless there is one named so."""
    cut = _parse_cut(spec, columns)
    return spec if cut is None else cut.column


def cross(sources: Sequence[ProtectedSource], table: Table, *, merge_rare: float | None = None) -> ProtectedSource:
    """Return the crossing of class variables: "sex x race", of which each class is a cell with people in the table.

    Rare cells are put together after the crossing.
    """
    for source in sources:
        if source.variable.is_continuous:
            name = source.variable.name
            raise OptionError(
                f"Intersections need groups, and '{name}' is a number; "
                f"give a cut such as '{name}<{np.nanmedian(source.encode(table)):g}' in its place"
            )
    if len(sources) < 2:
        raise OptionError("Intersections need at least two protected variables; name another one")
    codes = np.stack([source.encode(table) for source in sources], axis=1)
    cells = np.unique(codes[~np.isnan(codes).any(axis=1)].astype(int), axis=0).tolist()
    names = tuple(source.variable.name for source in sources)
    name = " x ".join(names)
    if len(cells) < 2:
        raise DataError(
            f"The intersections '{name}' have {len(cells)} group(s) of people with all values known; two are needed"
        )
    parts = [[s.variable.levels[k] for s, k in zip(sources, cell, strict=True)] for cell in cells]
    levels = tuple(" & ".join(part) for part in parts)
    if len(set(levels)) < len(levels):  # classes have an & of their own
        levels = tuple(" & ".join(map(group_name, names, part)) for part in parts)
    reader = Crossing(tuple(sources), tuple(map(tuple, cells)), tuple(range(len(cells))))
    source = ProtectedSource(Protected(name, kind_of(levels), levels, None, parts=names), reader)
    if merge_rare is not None:
        source = merge_rare_classes(source, source.encode(table), merge_rare)
    if len(source.variable.levels) > MOST_CLASSES:
        raise DataError(
            f"The intersections '{name}' make {len(source.variable.levels)} groups, more than {MOST_CLASSES}; "
            "put rare ones together (merge_rare, --merge-rare 0.01), or cross fewer variables"
        )
    return source


def compare_with_largest(source: ProtectedSource, table: Table, weights: np.ndarray | None) -> ProtectedSource:
    """Return a variable of more than two classes with the largest as its reference, unless it has one.

    Members of the largest class are compared with the second largest; of equal ones the first in order counts as
    larger. Sizes are those of the fitting rows, by their weights (N,) where they have any.
    """
    variable = source.variable
    if variable.kind != "categorical" or variable.reference is not None:
        return source
    c = source.encode(table)
    known = ~np.isnan(c)
    sizes = np.bincount(c[known].astype(int), None if weights is None else weights[known], len(variable.levels))
    largest, second = np.argsort(-sizes, kind="stable")[:2].tolist()
    return replace(source, variable=replace(variable, reference=largest, second=second))


def find_group(protected: Sequence[Protected], text: str) -> tuple[int, int]:
    """Return which variable and which of its classes a text names: "White", "race=White", "age<25", "not age<25"."""
    groups = [(v, k, p.name, level) for v, p in enumerate(protected) for k, level in enumerate(p.levels)]
    found = [(v, k) for v, k, name, level in groups if text == f"{name}={level}"]  # as it is written, if anything is
    found = found or [(v, k) for v, k, _, level in groups if text == level]
    wanted = _tidy(text)
    found = found or [(v, k) for v, k, name, level in groups if wanted in (_tidy(level), _tidy(f"{name}={level}"))]
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(f"'{protected[v].name}={protected[v].levels[k]}'" for v, k in found)
        raise OptionError(f"'{text}' is a group of more than one protected variable; say which: {choices}")
    raise OptionError(_no_group(protected, text))


# --- reading one variable ------------------------------------------------------------------------------------------


def _is_continuous(name: str, series: Series, categorical: Sequence[str], continuous: Sequence[str]) -> bool:
    """Return whether a column is a number to compare along rather than a set of classes."""
    if name in continuous:
        if not series.dtype.is_numeric():
            raise DataError(
                f"The protected column '{name}' is given as continuous and holds {series.dtype}; "
                "give numbers, or leave it as classes"
            )
        return True
    if name in categorical or not series.dtype.is_numeric():
        return False
    values = np.unique(numbers(series)[~missing(series)])
    whole = bool((values == np.round(values)).all())
    return len(values) > 2 and not (whole and len(values) <= _MOST_CODES)


def _read_number(name: str, series: Series, table: Table) -> ProtectedSource:
    source = ProtectedSource(Protected(name, "continuous", (), name), Number(name))
    if len(np.unique(source.encode(table)[~missing(series)])) < 2:
        raise DataError(_one_value(name, levels_of(series)))
    return source


def _read_classes(name: str, values: Sequence[Level]) -> ProtectedSource:
    if len(values) == 1:
        raise DataError(_one_value(name, values))
    levels = tuple(map(level_name, values))
    if len(set(levels)) < len(levels):
        twice = next(level for level in levels if levels.count(level) > 1)
        raise DataError(f"The protected column '{name}' holds different values that read '{twice}'; write them alike")
    reader = Values(name, tuple(values), tuple(range(len(values))))
    return ProtectedSource(Protected(name, kind_of(levels), levels, name), reader)


def _too_many(name: str, series: Series, classes: int) -> str:
    cut, number = f"{name}={level_name(levels_of(series)[0])}", ""
    if series.dtype.is_numeric():
        cut = f"{name}<{np.nanmedian(numbers(series)):g}"
        number = f", or read it as a number (continuous, --continuous {name})"
    return (
        f"The protected column '{name}' has {classes} different values, more than {MOST_CLASSES} groups; if it is no "
        f"id, put rare ones together (merge_rare, --merge-rare 0.01), or give a cut such as '{cut}'{number}"
    )


def _one_value(name: str, values: Sequence[Level]) -> str:
    value = level_name(values[0])
    return f"The protected column '{name}' has one value only ({value}); two groups are needed to compare"


def _parse_cut(spec: str, columns: Sequence[str]) -> Cut | None:
    match = None if spec in columns else _CUT.match(spec)
    if match is None:
        return None
    return Cut(match["column"], match["op"].replace("==", "="), match["value"].strip().strip("'\""))


def _read_cut(cut: Cut, table: Table) -> ProtectedSource:
    group = f"{cut.column}{cut.operator}{cut.value}"
    if cut.operator in COMPARE and not _is_number(cut.value):
        raise OptionError(f"The cut '{group}' needs a number after '{cut.operator}'")
    source = ProtectedSource(Protected(group, "binary", (f"not {group}", group), cut.column), cut)
    c = source.encode(table)
    members, known = int((c == 1).sum()), int((~np.isnan(c)).sum())
    if members in (0, known):
        raise DataError(f"The cut '{group}' puts {members} of {known} people into one group; both groups need people")
    return source


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- groups by name ------------------------------------------------------------------------------------------------


def _with_references(sources: Sequence[ProtectedSource], groups: Sequence[str]) -> tuple[ProtectedSource, ...]:
    """Return the variables, those with a reference group knowing it."""
    variables = [source.variable for source in sources]
    chosen: dict[int, int] = {}
    for text in groups:
        v, k = find_group(variables, text)
        if v in chosen:
            levels = variables[v].levels
            raise OptionError(
                f"'{variables[v].name}' has two reference groups, '{levels[chosen[v]]}' and '{levels[k]}'; give one"
            )
        chosen[v] = k
    return tuple(replace(s, variable=replace(s.variable, reference=chosen.get(v))) for v, s in enumerate(sources))


def _tidy(text: str) -> str:
    """Return a group's name without blanks around signs, and with one = for two."""
    return re.sub(rf"\s*({_OPERATOR})\s*", lambda match: match[1].replace("==", "="), text.strip())


def _no_group(protected: Sequence[Protected], text: str) -> str:
    """Return what to say of a text that names no group."""
    variables = {p.name: p for p in protected}
    named = variables.get(column_of(_tidy(text), list(variables)))
    if named is not None and named.is_continuous:
        return (
            f"'{text}' names no group: '{named.name}' is a number; "
            f"give a cut such as '{named.name}<VALUE' as a protected variable"
        )
    if named is not None and named.name == _tidy(text):
        return f"'{text}' is a protected variable; name one of its groups: {listed(named.levels, most=12)}"
    known = [level for p in protected for level in p.levels]
    if named is not None:
        known = [f"{named.name}={level}" for level in named.levels]
    if not known:
        return f"There is no group '{text}': the protected variables are numbers; give a cut such as 'age<40'"
    return f"There is no group '{text}'.{did_you_mean(text, known)}"
