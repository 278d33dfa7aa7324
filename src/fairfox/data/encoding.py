"""Table to tensors and back: scaling, one-hot blocks, protected columns.

How columns are read: text, booleans, categories and numbers with at most two values are categorical, other
numbers continuous; `categorical` and `continuous` overrule this. Missing values are a category of their own, or the
mean plus a column "is missing". A category that the encoding has not seen becomes an empty block (it decodes to
missing). Constant columns stay (the model needs them) and carry no information.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, Literal, NamedTuple, Self

import narwhals as nw
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from fairfox.data.dataset import MOST_DECIMALS, Dataset, Feature, FeatureKind, expand_blocks, project_blocks
from fairfox.data.frames import Template
from fairfox.data.protected import column_of, compare_with_largest, read_variables
from fairfox.data.sources import ProtectedSource
from fairfox.data.table import (
    LARGEST,
    Level,
    Series,
    Table,
    check_column,
    column,
    fitted_numbers,
    floats,
    is_text,
    levels_of,
    missing,
    objects,
    places_of,
)
from fairfox.errors import DataError, OptionError

_MANY_NUMBERS = 10  # different numbers, as texts: a column of as many is hardly one of codes
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+|\d{1,3}([ .,']\d{3})+([.,]\d+)?)")  # also 1234,5 and 1,234.5
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")  # with or without a time
_FEW_LEVELS = 50  # that many categories are always allowed
_ROWS, _ROWS_ON_GPU = 4096, 1 << 16  # that are decoded at a time: of a processor, in its cache
_FARTHEST = 1e15  # standard deviations: squares of larger numbers are infinite in float32


@dataclass(frozen=True)
class Encoding:
    """A fitted encoding: `encode` turns a table into a Dataset, `matrix` and `table` turn x back."""

    features: tuple[Feature, ...]
    sources: tuple[ProtectedSource, ...]
    label: str | None
    label_values: tuple[Level, ...] | None
    id_column: str | None
    fitted_on: Table = field(repr=False, compare=False)  # the model's columns, for the kind and dtypes of data frames
    dtype: torch.dtype = torch.float32
    seed: int = 0  # of the draws in `expand`
    weights: str | None = None  # the column that says how many people each row stands for
    covariates: tuple[Feature, ...] = ()  # columns that models do not take, to compare people by

    @property
    def width(self) -> int:
        """D: how many columns x has."""
        return self.features[-1].stop if self.features else 0

    def for_table(self, table: Table) -> Encoding:
        """Return the encoding whose models receive tables like this one."""
        return replace(self, fitted_on=table.select(list(self.columns)))

    def only(self, columns: Sequence[str]) -> Encoding:
        """Return the encoding whose models receive only these columns of the same rows x, in this order."""
        named = {f.name: f for f in self.features}
        return replace(self, features=tuple(named[name] for name in columns), fitted_on=self.fitted_on.select(columns))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns a model receives, in order."""
        return tuple(f.name for f in self.features)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns to read where a table has them: the model's, protected columns, label, id and weights."""
        groups = [name for source in self.sources for name in source.columns]
        others = [*(f.name for f in self.covariates), self.label, self.id_column, self.weights]
        return tuple(dict.fromkeys([*self.columns, *groups, *(name for name in others if name is not None)]))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks among x's columns."""
        return tuple(f.columns for f in self.features if f.kind == "categorical")

    @cached_property
    def withheld(self) -> Tensor:
        """Which columns of x (D,) are withheld from the auxiliary: those a protected variable was read from."""
        hidden = {name for s in self.sources for name in s.columns}
        out = torch.zeros(self.width, dtype=torch.bool)
        for f in self.features:
            out[f.columns] = f.name in hidden
        return out

    @cached_property
    def template(self) -> Template:
        """The data frames that a model on tables receives; tables from files need pandas for it."""
        return Template.of(self.fitted_on, {f.name: f.levels for f in self.features if f.kind == "categorical"})

    def encode(self, table: Table, *, device: str = "cpu") -> Dataset:
        """Return the individuals of a table as tensors, the features on a device.

        The table may lack the protected columns (their values are unknown then), the label and the id.
        """
        c = np.stack([source.encode(table) for source in self.sources], axis=1)
        label, ids = (None if n is None or n not in table.columns else n for n in (self.label, self.id_column))
        weights = None if self.weights is None else read_weights(table, self.weights)
        if weights is not None and not weights.any():
            raise DataError(f"The weights '{self.weights}' are 0 for everyone; at least one person must count")
        return Dataset(
            x=self._x(table, device).to(self.dtype).T.contiguous(),
            c=torch.as_tensor(c).to(self.dtype),
            protected=tuple(s.variable for s in self.sources),
            features=self.features,
            y=None if label is None else torch.as_tensor(_encode_label(column(table, label), self.label_values)),
            withheld=self.withheld,
            ids=None if ids is None else objects(column(table, ids)),
            weights=None if weights is None else torch.tensor(weights).to(self.dtype),
            w=self._w(table) if self.covariates else None,
            covariates=self.covariates,
        )

    def _w(self, table: Table) -> Tensor:
        """Return the covariates (N, W); a label that is missing is an empty block, or NaN."""
        out = np.zeros((len(table), self.covariates[-1].stop))
        for f in self.covariates:
            if f.name != self.label:
                encode_feature(f, column(table, f.name), out)
                continue
            y = np.full(len(table), np.nan)
            if f.name in table.columns:
                y = _encode_label(column(table, f.name), self.label_values)
            if f.kind == "continuous":
                out[:, f.start] = (y - f.mean) / f.scale
            else:
                known = ~np.isnan(y)
                out[known, f.start + y[known].astype(int)] = 1.0
        return torch.as_tensor(out).to(self.dtype)

    def _x(self, table: Table, device: str) -> Tensor:
        """Return the features in double precision, one after the other (D, N): they are written one by one."""
        here = np.zeros((self.width, len(table)))
        x = torch.as_tensor(here) if device == "cpu" else torch.zeros(here.shape, dtype=torch.float64, device=device)
        sent = set() if device == "cpu" else _send(self.features, table, x)
        for f in [f for f in self.features if f.name not in sent]:
            encode_feature(f, column(table, f.name), here.T)
            x[f.columns] = torch.as_tensor(here[f.columns])
        return x

    def project(self, x: Tensor) -> Tensor:
        """Return x with every one-hot block clipped at 0 and renormalised; blocks without mass stay empty."""
        return project_blocks(x, self.features)

    def matrix(self, x: Tensor) -> Tensor:
        """Return the columns as numbers in their own units (N, C): categories by their expected code.

        What is missing or unseen is NaN, except under autograd, where it is the mean or 0.
        """
        units = _Units.of(tuple(f for f in self.features if f.kind == "continuous"), x.device)
        out = torch.cat([units.values(rows) for rows in x.split(_ROWS_ON_GPU if x.is_cuda else _ROWS)])
        if out.shape[1] == len(self.features):
            return out
        columns = iter(out.unbind(1))
        each = [_expected_code(f, x) if f.kind == "categorical" else next(columns) for f in self.features]
        return torch.stack(each, dim=1)

    def table(self, x: Tensor) -> Any:
        """Return a data frame with the user's columns, units and dtypes (categories: the most probable)."""
        return self.template.fill(self._values(x))

    def own_table(self, x: Tensor) -> Any:
        """Return the rows as `table` does, but as Arrow where the user's table was Arrow."""
        if self.fitted_on.implementation.is_pyarrow():
            large = {
                f.name: pa.uint64() for f in self.features if any(isinstance(v, int) and v >= 2**63 for v in f.levels)
            }
            return pa.table({n: pa.array(v, large.get(n), from_pandas=True) for n, v in self._values(x).items()})
        return self.table(x)

    def _values(self, x: Tensor) -> dict[str, np.ndarray]:
        x = x.detach().cpu().T.contiguous().T  # columns are read one by one
        return {f.name: decode_feature(f, x) for f in self.features}

    def expand(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows with one category per block (R, D), the weight of each (R,), and whose row each is (R,).

        The product distribution over the blocks: exact up to 32 combinations, else 32 draws with common
        random numbers (the same for everyone, so neither order nor batches matter).
        """
        return expand_blocks(self.project(x), self.blocks, seed=self.seed)


def fit_encoding(
    table: Table,
    *,
    protected: Sequence[str],
    label: str | None = None,
    id_column: str | None = None,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    continuous: str | Sequence[str] = (),
    columns: Sequence[str] | None = None,
    also: Table | None = None,
    intersections: bool = False,
    merge_rare: float | None = None,
    reference_group: str | Sequence[str] = (),
    contrasts: Literal["largest", "all"] = "largest",
    weights: str | None = None,
    hidden: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
) -> Encoding:
    """Return the encoding of a table.

    Args:
        table: the rows whose means, spreads and categories are used.
        protected: protected columns, or cuts through one: "age<25", "race=White". Only `table` needs them.
        label: the column of true outcomes, never a feature; one of the tables may lack it.
        id_column: the column that names individuals, never a feature; only the audited table needs it.
        drop: columns to leave out.
        categorical: columns to read as categories whatever they look like.
        continuous: columns to read as numbers whatever they look like.
        columns: the model's own columns, in its order; by default all that are left.
        also: further rows, which may lack numbers (the audited table beside a reference).
        intersections: add the crossing of the protected variables, "sex x race", as one more.
        merge_rare: protected classes with a smaller share of the known rows of `table` are put together as "other".
        reference_group: classes that all others of their variable are compared with: "White", "race=White".
        contrasts: of more than two classes compare all with the "largest", and its members with the second largest;
            or "all" with each other.
        weights: the column that says how many people each row stands for, never a feature; both tables need it.
        hidden: columns that are no features unless `columns` names them.
        dtype: of x.
    """
    drop, categorical, continuous, groups = (
        [n] if isinstance(n, str) else n for n in (drop, categorical, continuous, reference_group)
    )
    tables = [table] if also is None else [table, also]
    _check_given(tables, [label, *drop, *categorical, *continuous], protected, weights)
    if id_column is not None:
        column(tables[-1], id_column)  # the audited table's
    if both := set(categorical) & set(continuous):
        raise OptionError(f"Column '{min(both)}' is given as categorical and as continuous; choose one")
    read_as: dict[str, Any] = {"merge_rare": merge_rare, "categorical": categorical, "continuous": continuous}
    sources = read_variables(protected, table, intersections=intersections, reference_group=groups, **read_as)
    if contrasts == "largest":
        counts = None if weights is None else read_weights(table, weights)
        sources = tuple(compare_with_largest(source, table, counts) for source in sources)
    read = [name for s in sources for name in s.columns]
    roles: list[tuple[str, Sequence[str | None]]] = [("the label", [label]), ("the id", [id_column])]
    roles += [("the weights", [weights]), ("protected", read), ("to be dropped", drop)]
    _check_roles([*roles, ("a column of the model", columns or ())])
    left_out = {label, id_column, weights, *drop, *hidden, *read}
    columns = [name for name in table.columns if name not in left_out] if columns is None else columns
    for name in columns:
        check_column(table, name, advice=" The model needs it.")
    if not columns:
        raise DataError("No column is left for the model besides protected, label, id and dropped columns; drop fewer")
    forced: dict[str, FeatureKind] = dict.fromkeys(categorical, "categorical")
    forced |= dict.fromkeys(continuous, "continuous")
    return Encoding(
        features=_fit_features(table, also, columns, forced),
        sources=sources,
        label=label,
        label_values=None if label is None else _label_values(_first_with(tables, label)),
        id_column=id_column,
        fitted_on=table.select(list(columns)),
        dtype=dtype,
        weights=weights,
    )


def with_covariates(encoding: Encoding, table: Table, names: Sequence[str], *, also: Table | None = None) -> Encoding:
    """Return an encoding that also holds columns the model does not take, to compare people by, and the label."""
    taken = {*encoding.columns, encoding.label, *(name for source in encoding.sources for name in source.columns)}
    covariates = _fit_features(table, also, [name for name in dict.fromkeys(names) if name not in taken], {})
    if encoding.label is not None:
        tables = [table] if also is None else [table, also]
        series = _first_with(tables, encoding.label)
        covariates += (_label_feature(series, encoding.label, encoding.label_values, covariates),)
    return replace(encoding, covariates=covariates)


def check_given_values(table: Table, names: Sequence[str]) -> None:
    """Raise where a given column is empty, or has a different value for nearly everyone."""
    for name in [name for name in names if name in table.columns]:
        series = column(table, name)
        if missing(series).all():
            raise DataError(f"Column '{name}' has no values, so it cannot be given; leave it out of given (--given)")
        if not series.dtype.is_numeric() and _too_many(levels_of(series), series):
            raise DataError(f"'{name}' cannot be given: nearly everyone has a different value; name other columns")


def _fit_features(
    table: Table, also: Table | None, columns: Sequence[str], forced: Mapping[str, FeatureKind]
) -> tuple[Feature, ...]:
    """Return the features of the columns, one after the other in x; `forced` has the kinds that were given."""
    features: list[Feature] = []
    for name in columns:
        extra = None if also is None else column(also, name)
        start = features[-1].stop if features else 0
        features.append(fit_feature(name, column(table, name), extra, start, forced.get(name)))
    return tuple(features)


def _first_with(tables: Sequence[Table], name: str) -> Series:
    """Return a column of the first table that has it."""
    return column(next((table for table in tables if name in table.columns), tables[-1]), name)


def _check_given(
    tables: Sequence[Table], named: Sequence[str | None], protected: Sequence[str], weights: str | None
) -> None:
    """Refuse names of columns that no table has, and tables without weights or, a reference, without groups."""
    for name in named:
        if name is not None:
            _first_with(tables, name)
    for table in tables:
        if weights is not None:
            check_column(table, weights, role="column of weights")
    if len(tables) > 1:
        advice = " People are compared by it; give a reference table that has it"
        for name in (column_of(spec, tables[0].columns) for spec in protected):
            check_column(tables[0], name, role="protected column", where="The reference table", advice=advice)


def _check_roles(roles: Sequence[tuple[str, Sequence[str | None]]]) -> None:
    """Refuse a column with two roles that exclude each other."""
    for (one, first), (two, second) in combinations(roles, 2):
        both = {name for name in first if name is not None} & set(second)
        # a protected column may be an input of the model, and one that a cut goes through may be dropped
        if both and one != "protected":
            raise OptionError(f"Column '{min(both)}' is given as {one} and as {two}; choose one")


def _expected_code(f: Feature, x: Tensor) -> Tensor:
    block = x[:, f.columns]
    code = block @ codes_of(f).to(x)
    known = block.sum(1) > 0 if f.levels[-1] is not None else block[:, :-1].sum(1) >= 0.5
    return code if x.requires_grad else torch.where(known, code, torch.nan)


def _encode_label(series: Series, values: tuple[Level, ...] | None) -> np.ndarray:
    if values is None:
        return fitted_numbers(series, f"The label '{series.name}'").copy()  # torch wants to write
    place = places_of(series, values)
    return np.where(place < 0, np.nan, place)


def read_weights(table: Table, name: str) -> np.ndarray:
    """Return how many people each row stands for (N,), or say which row says none."""
    series = column(table, name)
    if not series.dtype.is_numeric():
        raise DataError(f"The weights '{name}' hold {series.dtype}; give numbers of at least 0")
    gone, values = missing(series), floats(series)
    bad = (gone | ~(values <= LARGEST) | (values < 0)).nonzero()[0]
    if len(bad):
        found = "a missing value" if gone[bad[0]] else f"{values[bad[0]]:g}"
        raise DataError(
            f"The weights '{name}' hold {found} in row {bad[0]} (counted from 0); give a finite number of at least 0 "
            "for everyone"
        )
    return values


def _label_feature(series: Series, name: str, levels: tuple[Level, ...] | None, before: tuple[Feature, ...]) -> Feature:
    """Return the label as a column to compare people by: its classes, or a number."""
    start = before[-1].stop if before else 0
    if levels is not None:
        return Feature(name, "categorical", start, start + len(levels), levels)
    return _fit_continuous(name, floats(series)[~missing(series)], start, False)


def _label_values(series: Series) -> tuple[Level, ...] | None:
    """Return the classes of a label, or None for a number with more than ten values."""
    values = levels_of(series)
    return None if series.dtype.is_numeric() and len(values) > 10 else tuple(values)


def _send(features: Sequence[Feature], table: Table, x: Tensor) -> set[str]:
    """Return the columns that were written to x (D, N) on its device, all at once: floats, none missing or far off."""
    columns = [(f, column(table, f.name)) for f in features if f.kind == "continuous"]
    plain = {f: each.to_numpy() for f, each in columns if each.dtype.is_float() and not each.null_count()}
    if not plain:
        return set()
    kind = torch.float32 if all(values.dtype == np.float32 for values in plain.values()) else torch.float64
    staged = torch.empty((len(plain), len(table)), dtype=kind, pin_memory=x.is_cuda)
    np.stack([*plain.values()], out=staged.numpy(), casting="same_kind")
    units, rows = _Units.of(tuple(plain), x.device), staged.to(x.device, non_blocking=True).double()
    x[units.starts] = rows.sub_(units.mean[:, None]).div_(units.scale[:, None])
    near = (rows.abs_() <= _FARTHEST).all(1).tolist()
    return {f.name for f, is_near in zip(plain, near, strict=True) if is_near}


# --- one column and its columns of x ---------------------------------------------------------------------------------


def fit_feature(name: str, series: Series, also: Series | None, start: int, forced: FeatureKind | None) -> Feature:
    """Return the feature of a column whose place in x begins at `start`.

    `also` is the same column of further rows, which may lack numbers where the series has all.
    """
    if missing(series).all():
        raise DataError(f"Column '{name}' has no values; {_drop(name)}")
    if series.dtype.is_temporal():
        raise DataError(f"Column '{name}' holds dates or times; convert it to a number, or {_drop(name)}")
    few = not series.dtype.is_numeric() or len(np.unique(floats(series)[~missing(series)])) <= 2
    kind = forced or ("categorical" if few else "continuous")
    if kind == "continuous" and not series.dtype.is_numeric():
        raise DataError(
            f"Column '{name}' is given as continuous but holds {series.dtype}; give numbers, or leave it categorical"
        )
    if series.dtype.is_numeric():
        fitted_numbers(series, f"Column '{name}'")
    parts = [series] if also is None or kind == "categorical" else [series, also]
    gone = any(bool(missing(part).any()) for part in parts)
    if kind == "continuous":
        return _fit_continuous(name, floats(series)[~missing(series)], start, gone)
    levels = levels_of(series)
    known = (*levels, None) if gone else tuple(levels)
    f = Feature(name, "categorical", start, start + len(known), known)
    if _too_many(levels, series):
        found = f"Column '{name}' has {len(levels)} different values in {len(series)} rows, too many for categories; "
        if all(isinstance(level, str) and _DATE.match(level) for level in levels):
            found = f"Column '{name}' holds dates such as '{levels[0]}'; convert it to a number such as the year, "
        elif mistaken := numbers_as_text(f):
            found = (
                f"{mistaken}, so it is read as text; write every value as a number such as 1234.5 or leave it empty, "
            )
        raise DataError(f"{found}{_drop(name)}, or name it as the id (id='{name}', --id {name})")
    return f


def _too_many(levels: Sequence[Level], series: Series) -> bool:
    """Return whether a column has too many values for categories."""
    return len(levels) > max(_FEW_LEVELS, len(series) // 2)


def encode_feature(f: Feature, series: Series, x: np.ndarray) -> None:
    """Write a column into its place in x (N, D), which is zero there."""
    if f.kind == "categorical":
        text, kinds = is_text(series), {isinstance(level, str) for level in f.levels if level is not None}
        typed = text or series.dtype.is_numeric() or series.dtype == nw.Boolean
        if typed and (not text) in kinds and not missing(series).all():
            here, there = ("String", "no ") if text else (series.dtype, "")
            raise DataError(f"Column '{f.name}' holds {here} here but {there}text in the fitting rows; use one type")
        place = places_of(series, f.levels)
        known = (place >= 0).nonzero()[0]
        x[known, f.start + place[known]] = 1.0
        return
    values = fitted_numbers(series, f"Column '{f.name}'")
    gone = np.isnan(values)
    x[:, f.start] = (values - f.mean) / f.scale
    far = (np.abs(x[:, f.start]) > _FARTHEST).nonzero()[0]
    if len(far):
        raise DataError(
            f"Column '{f.name}' holds {values[far[0]]:g} in row {far[0]} (counted from 0), too far from the fitting "
            f"rows, whose mean is {f.mean:.3g} and standard deviation {f.scale:.3g}; check it, or leave the row out"
        )
    if gone.any():
        x[gone, f.start] = 0.0
    if f.has_missing:
        x[:, f.start + 1] = gone
    elif gone.any():
        raise DataError(
            f"Column '{f.name}' has {int(gone.sum())} missing value(s) here but none in the fitting rows; fill them in"
        )


def decode_feature(f: Feature, x: Tensor) -> np.ndarray:
    """Return the column in its own units (N,): floats, or the most probable category (None: missing or unseen)."""
    if f.kind == "continuous":
        return continuous_values(f, x).numpy(force=True)
    levels = np.array([*f.levels, None], dtype=object)
    block = x[:, f.columns].detach().cpu()
    most = block.max(1)  # several times as fast as amax and argmax
    best = torch.where(most.values > 0, most.indices, len(f.levels))
    return np.asarray(levels[best.numpy()])


class _Units(NamedTuple):
    """What turns C continuous columns of x into their own units: tensors that stay on a device."""

    starts: Tensor  # (C,) columns of x
    mean: Tensor
    scale: Tensor
    power: Tensor  # ten to so many decimals, NaN where there are many
    rounded: bool  # whether some have few
    gaps: Tensor  # positions of those with a column that says "missing"
    span: slice | None  # the columns, where they stand side by side

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, features: tuple[Feature, ...], device: torch.device) -> Self:
        starts, gaps = [f.start for f in features], [n for n, f in enumerate(features) if f.has_missing]
        powers = [torch.nan if f.decimals is None else 10.0**f.decimals for f in features]
        numbers = [[f.mean for f in features], [f.scale for f in features], powers]
        with torch.inference_mode(False):  # they are kept, and must serve gradients later
            places = [torch.tensor(own, dtype=torch.long, device=device) for own in (starts, gaps)]
            mean, scale, power = torch.tensor(numbers, dtype=torch.float64, device=device)
        span = slice(starts[0], starts[0] + len(starts)) if starts else slice(0, 0)
        rounded, beside = any(f.decimals is not None for f in features), starts == [*range(span.start, span.stop)]
        return cls(places[0], mean, scale, power, rounded, places[1], span if beside else None)

    def values(self, x: Tensor) -> Tensor:
        """Return the columns (N, C) of x (N, D) in their own units: exactly, or differentiably under autograd."""
        if x.requires_grad:
            return self._among(x) * self.scale.to(x) + self.mean.to(x)
        return self.exact(x).to(x)

    def exact(self, x: Tensor) -> Tensor:
        """Return them in float64, with NaN where they are missing.

        Values that rounding alone has moved off a number of few decimals are put back on it: a rule such as
        `ratio >= 0.35` must find 0.35.
        """
        value = (self._among(x.detach()).double() * self.scale).add_(self.mean)
        if self.rounded:
            near = (value * self.power).round_().div_(self.power)  # NaN, and so not near, where there are many
            slack = 4 * torch.finfo(x.dtype).eps * (value.abs() + self.mean.abs())
            value = torch.where((value - near).abs_() <= slack, near, value)
        if len(self.gaps):
            gone = x[:, self.starts[self.gaps] + 1] > 0.5
            value.index_copy_(1, self.gaps, value.index_select(1, self.gaps).masked_fill_(gone, torch.nan))
        return value

    def _among(self, x: Tensor) -> Tensor:
        return x[:, self.starts] if self.span is None else x[:, self.span]


def continuous_values(f: Feature, x: Tensor) -> Tensor:
    """Return a continuous column in its own units (N,), in float64 and with NaN where it is missing."""
    return _Units.of((f,), x.device).exact(x)[:, 0]


def numbers_as_text(f: Feature) -> str:
    """Return how a category looks as if it should be a number; empty where it does not."""
    texts = [level for level in f.levels if isinstance(level, str)]
    others = [text for text in texts if not _NUMBER.fullmatch(text.strip())]
    if not texts or len(f.levels) < _MANY_NUMBERS or 2 * len(others) > len(f.levels):
        return ""
    numbers = next((f"numbers with commas, such as '{text}'" for text in texts if "," in text), "numbers as text")
    return f"Column '{f.name}' holds " + (f"'{others[0]}' among numbers" if others else numbers)


def codes_of(f: Feature) -> Tensor:
    """Return the categories as numbers (L,), 0 for "missing", or say why no matrix can hold them."""
    try:
        codes = [0.0 if level is None else float(level) for level in f.levels]
    except (TypeError, ValueError):
        text = next(level for level in f.levels if isinstance(level, str))
        what = numbers_as_text(f) or f"Column '{f.name}' holds text such as '{text}'"
        raise DataError(
            f"{what}, but the model takes a matrix of numbers; correct it, {_drop(f.name)}, or give a model that takes "
            "the table"
        ) from None
    return torch.tensor(codes, dtype=torch.float64)


def _drop(name: str) -> str:
    return f"drop it (drop=['{name}'], --drop {name})"


def _fit_continuous(name: str, values: np.ndarray, start: int, gone: bool) -> Feature:
    mean, scale = float(values.mean()), float(values.std())
    if scale <= 1e-12 * max(abs(mean), 1.0):
        scale = 1.0
    return Feature(name, "continuous", start, start + (2 if gone else 1), (), mean, scale, _decimals(values))


def _decimals(values: np.ndarray) -> int | None:
    """Return how many decimals the values have, 0 for whole numbers; None where they have more than nine."""
    largest = float(np.abs(values).max())
    for decimals in range(MOST_DECIMALS + 1):
        if largest * 10.0**decimals >= 2**53:
            return None
        if all((np.round(part, decimals) == part).all() for part in (values[:100], values)):
            return decimals
    return None
