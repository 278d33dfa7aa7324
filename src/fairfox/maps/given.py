"""Given columns: all that people can be compared by as one table, and what may be held equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ColumnError, OptionError, did_you_mean
from fairfox.maps.ranks import Scale

_TURNS = 5  # how often the group may change along a number that tells it
_EXACT = 1 - 1e-6  # correlation of two numbers that say the same


@dataclass(frozen=True)
class Columns:
    """The features x, the covariates w and the protected variables c of people side by side, as one table."""

    features: tuple[Feature, ...]  # of x, with the same places
    covariates: tuple[Feature, ...]
    protected: tuple[Feature, ...]
    scales: tuple[Scale | None, ...]  # of protected numbers

    @classmethod
    def of(cls, data: Dataset, names: Sequence[str]) -> Columns:
        """Return the columns of some people, with the covariates where one of the names is among them."""
        start = data.x.shape[1]
        outside = data.covariates if any(f.name in names for f in data.covariates) else ()
        covariates = tuple(replace(f, start=start + f.start, stop=start + f.stop) for f in outside)
        start = covariates[-1].stop if covariates else start
        protected: list[Feature] = []
        for p in data.protected:
            width = max(len(p.levels), 1)
            kind = "continuous" if p.is_continuous else "categorical"
            protected.append(Feature(p.name, kind, start, start + width, p.levels))  # type: ignore[arg-type]
            start += width
        scales = tuple(Scale.of(data.c[:, v]) if p.is_continuous else None for v, p in enumerate(data.protected))
        return cls(data.features, covariates, tuple(protected), scales)

    def rows(self, data: Dataset) -> Tensor:
        """Return everyone's row (N, D + W + ...), in float64; who is in no known class has an empty block."""
        parts = [data.x.double()]
        if self.covariates:
            assert data.w is not None
            parts.append(data.w.double())
        return torch.cat([*parts, self.groups(data.c)], dim=1)

    def groups(self, c: Tensor) -> Tensor:
        """Return the protected values c (N, V) as columns."""
        parts = []
        for v, (f, scale) in enumerate(zip(self.protected, self.scales, strict=True)):
            known = ~c[:, v].isnan()
            if scale is not None:
                parts.append(scale(c[:, v]).nan_to_num()[:, None])
            else:
                parts.append(F.one_hot(c[:, v].nan_to_num().long(), f.stop - f.start).double() * known[:, None])
        return torch.cat(parts, dim=1) if parts else c.double()

    def given(self, data: Dataset, names: Sequence[str]) -> list[Feature]:
        """Return the features of given names, after a look at whether they can be given."""
        return [
            {f.name: f for f in (*self.covariates, *self.features)}[name] for name in check_given_columns(data, names)
        ]


def check_given_columns(data: Dataset, names: Sequence[str]) -> list[str]:
    """Return the given names, each once; refuse those that cannot be given."""
    shown = [f.name for f in data.features if not bool(data.withheld[f.start])]
    known = {*shown, *(f.name for f in data.covariates)}
    read = {text: p.name for p in data.protected for text in (p.name, p.source) if text is not None}
    for name in names:
        if name in read:
            raise OptionError(
                f"'{name}' cannot be given: the protected variable '{read[name]}' is read from it; name other columns"
            )
        if name not in known:
            raise ColumnError(f"The given column '{name}' is not in the table.{did_you_mean(name, sorted(known))}")
    if names and set(shown) <= set(names) and not bool(data.withheld.any()):
        raise OptionError("All columns of the model are given, and nothing is left to be compared; name fewer")
    for name in names:
        for v, p in enumerate(data.protected):
            if _tells(data, name, v):
                raise OptionError(
                    f"'{name}' cannot be given: it tells everyone's '{p.name}', and nobody is left to compare with; "
                    "name other columns"
                )
    return list(dict.fromkeys(names))


def _tells(data: Dataset, name: str, variable: int) -> bool:
    """Return whether a column says which group everyone is in."""
    columns = Columns.of(data, [name])
    f = {f.name: f for f in (*columns.covariates, *columns.features)}[name]
    known = ~data.c[:, variable].isnan()
    rows, c = columns.rows(data)[known], data.c[known, variable]
    if data.protected[variable].is_continuous:
        pair = torch.stack([rows[:, f.start], c.double()])
        return f.kind == "continuous" and float(torch.corrcoef(pair)[0, 1].abs().nan_to_num()) > _EXACT
    if len(c.unique()) < 2 or (f.kind == "categorical" and float(rows[:, f.columns].sum()) == 0):
        return False
    if f.kind == "continuous":
        ordered, places = rows[:, f.start].sort()
        turns = c[places][1:] != c[places][:-1]
        mixed = bool((turns & (ordered[1:] == ordered[:-1])).any())  # people of two groups with the same value
        smallest = int(c.unique(return_counts=True)[1].min())
        return not mixed and int(turns.sum()) <= min(_TURNS, smallest // 2)
    code = rows[:, f.columns].argmax(1)
    groups = torch.stack([code, c.long()], dim=1).unique(dim=0)[:, 0]
    return len(groups) == len(groups.unique())


def remaining_metric(covariance: Tensor, given: Tensor) -> Tensor:
    """Return the covariance (D, D) of what some columns (D,) bool leave unexplained (Schur complement), 0 for them."""
    across = covariance[:, given]  # (D, G)
    left: Tensor = covariance - across @ torch.linalg.pinv(covariance[given][:, given], hermitian=True) @ across.T
    left[given] = 0.0
    left[:, given] = 0.0
    return left
