"""Protected variables as users name them: columns, cuts such as age<25, intersections; and names of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import Protected, ProtectedKind, group_name
from fairfox.data.sources import Crossing, Cut, NumberColumn, ProtectedSource, Values
from fairfox.data.table import (
    Level,
    Series,
    Table,
    check_column,
    column,
    floats,
    join_columns,
    level_name,
    levels_of,
    listed,
    missing,
)
from fairfox.errors import DataError, OptionError, did_you_mean

MOST_CLASSES = 50
LEAST_NAMED = 5  # people of a class whose name is shown where it is merged
MOST_NAMED = 3  # classes in the name of a merged one
_RANGES = 4  # groups of a protected number
_SEVERAL = 5  # people who have a number that may be shown
_MOST_CODES = 10  # whole numbers with as many values at most are classes
_OPERATOR = "<=|>=|==|!=|<|>|="
_CUT = re.compile(rf"^(?P<column>.+?)\s*(?P<op>{_OPERATOR})\s*(?P<value>.+)$")
_OTHER = "The table with the protected columns"
_REMEDY = (
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
    """Return the protected variables that `specs` name; with `intersections`, their intersection last."""
    if not specs:
        raise OptionError("No protected variable given; name a column, or a cut such as 'age<25'")
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

    A column with two values has two groups, one with more has classes; numbers are continuous, unless they are at
    most ten different whole numbers. `categorical` and `continuous` overrule this. A cut is a column, one of
    < <= > >= = !=, and a value: "age<25", "race != White". Its members are class 1.
    """
    cut = _parse_cut(spec, table.columns)
    name = spec if cut is None else cut.column
    check_column(table, name, advice=f" If it is not supposed to have it, {_REMEDY}")
    if missing(column(table, name)).all():
        raise DataError(f"The protected column '{name}' has only missing values; {_REMEDY}")
    if cut is not None:
        return _read_cut(cut, table)
    series = column(table, name)
    if series.dtype.is_temporal():
        raise DataError(f"The protected column '{name}' holds dates or times; convert it to a number, such as a year")
    if _is_continuous(name, series, categorical, continuous):
        number = ProtectedSource(Protected(name, "continuous", (), name), NumberColumn(name))
        number.encode(table)  # refuses infinite ones
        _two_values(name, levels_of(series))
        return number
    source = _read_classes(name, levels_of(series))
    if merge_rare is not None:
        source = merge_rare_classes(source, source.encode(table), merge_rare)
    if len(source.variable.levels) > MOST_CLASSES:
        raise DataError(
            f"The protected column '{name}' has {len(source.variable.levels)} different values, and at most "
            f"{MOST_CLASSES} groups can be compared; merge rare ones (merge_rare, --merge-rare 0.01), give a cut such "
            f"as '{name}=VALUE', or read it as a number (continuous, --continuous {name})"
        )
    return source


def column_of(spec: str, columns: Sequence[str]) -> str:
    """Return the column that a protected variable is read from: "age" of "age<25", unless there is one named so."""
    cut = _parse_cut(spec, columns)
    return spec if cut is None else cut.column


def join_protected(table: Table, other: Table, *, on: str, specs: Sequence[str]) -> tuple[Table, int]:
    """Return the people of `table`, in order, with the protected columns that `other` has for their ids.

    `specs` are protected columns or cuts; see `join_columns` for how ids are compared.
    """
    check_column(table, on, role="id column")
    check_column(other, on, role="id column", where=_OTHER)
    every = [*table.columns, *other.columns]
    wanted = list(dict.fromkeys(column_of(spec, every) for spec in specs))
    for name in wanted:
        if name in table.columns and name in other.columns:
            raise OptionError(
                f"The protected column '{name}' is in the audited table and in the one it is read from; "
                "remove it from one of them"
            )
        if name not in table.columns:
            check_column(other, name, where=_OTHER)
    taken = [name for name in wanted if name in other.columns]
    if not taken:
        raise OptionError(
            f"{_OTHER} has none of {listed([repr(name) for name in wanted], most=5)}, "
            "but the audited table does; leave out protected_from (--protected-from), or name a column of that table"
        )
    return join_columns(table, other, taken, on=on)


def cross(sources: Sequence[ProtectedSource], table: Table, *, merge_rare: float | None = None) -> ProtectedSource:
    """Return the intersection of class variables, "sex x race"; each class is a cell with people in the table.

    Rare cells are merged afterwards.
    """
    for source in sources:
        if source.variable.is_continuous:
            name = source.variable.name
            raise OptionError(
                f"Intersections need groups, but '{name}' is a number; "
                f"give a cut such as '{name}<{np.nanmedian(source.encode(table)):g}' instead"
            )
    if len(sources) < 2:
        raise OptionError("Intersections need at least two protected variables; add another one")
    codes = np.stack([source.encode(table) for source in sources], axis=1)
    cells = np.unique(codes[~np.isnan(codes).any(axis=1)].astype(int), axis=0).tolist()
    names = tuple(source.variable.name for source in sources)
    name = " x ".join(names)
    if len(cells) < 2:
        raise DataError(
            f"The intersection '{name}' has {len(cells)} group(s) with all values known; at least two are needed"
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
            f"The intersection '{name}' has {len(source.variable.levels)} groups, but at most {MOST_CLASSES} can be "
            "compared; merge rare ones (merge_rare, --merge-rare 0.01), or cross fewer variables"
        )
    return source


def compare_with_largest(source: ProtectedSource, table: Table, weights: np.ndarray | None) -> ProtectedSource:
    """Return a variable of more than two classes with the largest as its reference, unless it has one.

    Members of the largest class are compared with the second largest; of equal classes the first counts as larger.
    Sizes are those of the fitting rows, by their weights (N,) where they have any.
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


@dataclass(frozen=True)
class NumberGroups:
    """The groups of a protected number: ranges with about equally many people.

    Cuts are short numbers that reveal nobody's value. The ends are open, so no extreme value is shown.

    Example:
        >>> groups = NumberGroups.of(torch.tensor([18.0, 22.0, 33.0, 38.0, 47.0, 51.0, 62.0, 71.0]))
        >>> groups.names
        ('below 30', '30 to below 40', '40 to below 60', '60 and above')
        >>> groups.assign(torch.tensor([64.0, 19.0, float("nan")])).tolist()
        [3, 0, -1]
    """

    cuts: tuple[float, ...]  # in increasing order
    names: tuple[str, ...]  # one more than cuts, in the same order

    @classmethod
    def of(cls, values: Tensor) -> NumberGroups:
        """Return the quartile groups of values (N,), fewer where many are equal; NaN: unknown."""
        known = values.detach().double().cpu()
        known = known[~known.isnan()]
        if not len(known):
            return cls((), ("any",))
        quantiles = torch.quantile(known, torch.linspace(0, 1, _RANGES + 1, dtype=torch.float64)[1:-1])
        quarter = torch.bucketize(known, quantiles, right=True)
        parts = [known[quarter == k] for k in quarter.unique()]
        found = [_cut_between(below, above) for below, above in pairwise(parts)]
        if not found:
            return cls((), ("any",))
        words = [word for _, word in found]
        middle = [f"{low} to below {high}" for low, high in pairwise(words)]
        return cls(tuple(cut for cut, _ in found), (f"below {words[0]}", *middle, f"{words[-1]} and above"))

    def assign(self, values: Tensor) -> Tensor:
        """Return the index of everyone's group (N,), -1 where the value is unknown."""
        own = values.detach().double().cpu().contiguous()
        place = torch.bucketize(own, torch.tensor(self.cuts, dtype=torch.float64), right=True)
        return torch.where(own.isnan(), -1, place)


def _cut_between(below: Tensor, above: Tensor) -> tuple[float, str]:
    """Return the shortest number above all of some values and not above any of others, and how it is written.

    It is nobody's value, or one that several people have; of equally short ones that nearest to the middle of the gap.
    """
    first = above.min()
    low, high = Decimal(float(below.max())), Decimal(float(first))
    shared = int((above == first).sum()) >= _SEVERAL
    place = max(abs(low), abs(high)).adjusted()
    while True:
        step = Decimal(1).scaleb(place)
        for cut in ((low + high) / 2).quantize(step), *([high.quantize(step)] if shared else []):
            if low < cut < high or (shared and cut == high):
                short = (cut + 0).normalize()  # adding 0 takes the sign from -0
                words = f"{short:f}" if -5 <= short.adjusted() <= 15 else str(short)
                return float(cut) if float(cut) > float(low) else float(high), words
        place -= 1


# --- rare classes ---------------------------------------------------------------------------------------------------


def merge_rare_classes(source: ProtectedSource, c: np.ndarray, limit: float) -> ProtectedSource:
    """Return the variable with its rare classes merged into the last class, "other (A, B)".

    `c` (N,) are the classes of the fitting rows; see `classes_to_merge` for the rule, and `merged_names` for the name.
    A value that the fitting rows do not have joins the new class too.
    """
    variable, reader = source.variable, source.reader
    if not isinstance(reader, Values | Crossing):  # a number, or the two sides of a cut
        return source
    counts = np.bincount(c[~np.isnan(c)].astype(int), minlength=len(variable.levels))
    gone = classes_to_merge(counts, limit)
    if len(gone) == len(counts):
        raise DataError(
            f"Every group of '{variable.name}' is rarer than {limit:g}, so merge_rare (--merge-rare) would leave only "
            "one group; give a smaller share, or a cut that makes two groups"
        )
    if not gone:
        return source
    kept = [k for k in range(len(counts)) if k not in gone]
    name, made_of = merged_names([variable.levels[k] for k in gone], counts[gone])
    levels = (*(variable.levels[k] for k in kept), name)
    new_class = {k: j for j, k in enumerate(kept)} | dict.fromkeys(gone, len(kept))
    return ProtectedSource(
        replace(variable, kind=kind_of(levels), levels=levels),
        replace(reader, classes=tuple(new_class[k] for k in reader.classes), rest=len(kept)),
        {name: made_of},
    )


def classes_to_merge(counts: Sequence[int] | np.ndarray, limit: float) -> list[int]:
    """Return the classes to merge, in order; none where no class is rarer than `limit`.

    These are the classes with a share below `limit`; a single one is joined by the next smallest.
    """
    counts = np.asarray(counts)
    shares = counts / max(counts.sum(), 1)
    by_size = np.argsort(shares, kind="stable")  # of equal ones the first in order
    taken = int((shares < limit).sum())
    if len(counts) <= 2 or taken == 0:
        return []
    return sorted(by_size[: max(taken, 2)].tolist())


def merged_names(names: Sequence[str], counts: Sequence[int] | np.ndarray) -> tuple[str, tuple[str, ...]]:
    """Return the name of a merged class, and the names of its larger members.

    Small ones are only counted, because the name of a tiny class says something about each member.

    Example:
        >>> merged_names(["Asian", "Inuit", "Other"], [31, 1, 8])
        ('other (Asian, Other and 1 more)', ('Asian', 'Other', '1 rare class'))
    """
    large = [name for name, count in zip(names, counts, strict=True) if count >= LEAST_NAMED]
    shown, rest = large[:MOST_NAMED], len(names) - len(large)
    more, rare = len(names) - len(shown), f"{rest} rare class{'' if rest == 1 else 'es'}"
    if not large:
        return f"other ({rare})", (rare,)
    name = f"other ({', '.join(shown)}{f' and {more} more' if more else ''})"
    return name, (*large, rare) if rest else tuple(large)


def kind_of(levels: Sequence[str]) -> ProtectedKind:
    """Return "binary" for two classes, "categorical" for more."""
    return "binary" if len(levels) == 2 else "categorical"


# --- reading one variable ------------------------------------------------------------------------------------------


def _is_continuous(name: str, series: Series, categorical: Sequence[str], continuous: Sequence[str]) -> bool:
    """Return whether a column is a number to compare along rather than a set of classes."""
    if name in continuous:
        if not series.dtype.is_numeric():
            raise DataError(
                f"The protected column '{name}' is given as continuous but holds {series.dtype}; "
                "give numbers, or leave it as classes"
            )
        return True
    if name in categorical or not series.dtype.is_numeric():
        return False
    values = np.unique(floats(series)[~missing(series)])
    whole = bool((values == np.round(values)).all())
    return len(values) > 2 and not (whole and len(values) <= _MOST_CODES)


def _read_classes(name: str, values: Sequence[Level]) -> ProtectedSource:
    _two_values(name, values)
    levels = tuple(map(level_name, values))
    if len(set(levels)) < len(levels):
        twice = next(level for level in levels if levels.count(level) > 1)
        raise DataError(f"The protected column '{name}' holds two kinds of '{twice}'; use one type")
    reader = Values(name, tuple(values), tuple(range(len(values))))
    return ProtectedSource(Protected(name, kind_of(levels), levels, name), reader)


def _two_values(name: str, values: Sequence[Level]) -> None:
    if len(values) < 2:
        value = level_name(values[0])
        raise DataError(f"The protected column '{name}' has only one value ({value}); at least two groups are needed")


def _parse_cut(spec: str, columns: Sequence[str]) -> Cut | None:
    match = None if spec in columns else _CUT.match(spec)
    if match is None:
        return None
    return Cut(match["column"], match["op"].replace("==", "="), match["value"].strip().strip("'\""))


def _read_cut(cut: Cut, table: Table) -> ProtectedSource:
    group = cut.group
    source = ProtectedSource(Protected(group, "binary", (f"not {group}", group), cut.column), cut)
    c = source.encode(table)
    members, known = int((c == 1).sum()), int((~np.isnan(c)).sum())
    if members in (0, known):
        raise DataError(f"The cut '{group}' puts {members} of {known} people into one group; both groups need people")
    return source


# --- groups by name ------------------------------------------------------------------------------------------------


def _with_references(sources: Sequence[ProtectedSource], groups: Sequence[str]) -> tuple[ProtectedSource, ...]:
    """Return the variables with the reference groups that were named."""
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
    named = {p.name: p for p in protected}
    own = named.get(column_of(_tidy(text), list(named)))
    if own is not None and own.is_continuous:
        return (
            f"'{text}' is not a group: '{own.name}' is a number; "
            f"give a cut such as '{own.name}<VALUE' as a protected variable"
        )
    known = [f"{own.name}={level}" for level in own.levels] if own else [k for p in protected for k in p.levels]
    if not known:
        return f"There is no group '{text}': the protected variables are numbers; give a cut such as 'age<40'"
    return f"There is no group '{text}'.{did_you_mean(text, known)}"
