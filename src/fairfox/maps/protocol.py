"""The protocol of counterfactual maps, their checks, and how they are refitted."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, zip_longest
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected, resampled_rows
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.maps.ranks import Draws

Pair = tuple[int, int]  # from a class to another
_MOST_PEOPLE = 2**15  # of a class, that a map learns from

# why people are not mapped, or not judged
UNKNOWN = "protected value unknown"
FLAT = "no evidence about the protected variable (the auxiliary is flat here)"
OFF_RANGE = "nobody to compare with has a protected value that high or low"
TOO_FEW = "too few people share the other protected values"
UNKNOWN_GIVEN = "a given value is unknown"


@dataclass(frozen=True)
class Mapped:
    """People as members of another group: encoded rows, and who could not be mapped and why."""

    rows: Tensor  # (N, D), one-hot blocks as category distributions
    abstained: Tensor  # (N,) bool
    reasons: Mapping[str, Tensor] = field(default_factory=dict)  # (N,) bool by reason: whom it keeps from being mapped
    overshoot: Tensor | None = None  # (N,): how far a one-hot entry lay outside [0, 1] before it was put back
    borrowed: Tensor | None = None  # (N,) bool: at whose given values a group is missing

    @property
    def reason(self) -> str:
        """All reasons that hold for somebody."""
        return " or ".join(words for words, who in self.reasons.items() if bool(who.any()))

    def also(self, other: Mapped) -> dict[str, Tensor]:
        """Return the reasons with those of another map for people whom this one could map."""
        fresh = {words: who & ~self.abstained for words, who in other.reasons.items()}
        return {**self.reasons, **{words: who | self.reasons.get(words, who) for words, who in fresh.items()}}


class CounterfactualMap(Protocol):
    """Says how each person would look as a member of another group."""

    variable: int  # which protected variable

    def fit(self, data: Dataset) -> Self:
        """Learn from x and c, never y."""

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone where `to` (N,) says: in that class, or so many standard deviations higher.

        NaN: nowhere. None: everyone goes to the other of two groups.
        """


@runtime_checkable
class RefittableMap(Protocol):
    """A map that fits several copies of itself at once."""

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
        """Return `refits` independently fitted maps for each protected variable."""


@runtime_checkable
class PreparedMap(Protocol):
    """A map whose refits share a decision made once."""

    def prepare(self, data: Dataset) -> None:
        """Decide it, on all fitting rows."""

    def fit_rows(self, data: Dataset, rows: Tensor) -> Self:
        """Fit on some of these rows (n,), which may be repeated and then count alike."""


@runtime_checkable
class CheckedMap(Protocol):
    """A map that checks how real its rows look."""

    def checks(self) -> dict[str, float]:
        """Return the checks made at the fit, by name."""

    def warnings(self, checks: Mapping[str, float]) -> list[str]:
        """Return a sentence for each check that is poor; several fits give their means."""


def check_groups_present(data: Dataset, variable: int) -> None:
    """Raise where a class has nobody to learn from, or a number fewer than two values."""
    p, c = data.protected[variable], data.c[:, variable]
    if p.is_continuous:
        if len(c[~c.isnan()].unique()) < 2:
            raise DataError(f"The fitting rows have fewer than two values of '{p.name}'; at least two are needed")
        return
    for code, level in enumerate(p.levels):
        if not bool((c == code).any()):
            raise DataError(f"Nobody in the fitting rows belongs to '{level}' of '{p.name}'; all groups are needed")


def check_is_grouped(p: Protected, test: str) -> None:
    """Raise where a protected variable is a number, which this test does not take."""
    if p.is_continuous:
        raise OptionError(
            f"'{p.name}' is a number, but {test} maps between groups; use rank or move, which take numbers, or make "
            f"two groups with a cut such as '{p.name}<25'"
        )


def who_counts(data: Dataset, variables: Sequence[int]) -> Dataset:
    """Return the rows with known values of these variables and a positive weight."""
    known = ~data.c[:, variables].isnan().any(1)
    return data[known if data.weights is None else known & (data.weights > 0).to(known.device)]


def compared_pairs(p: Protected) -> list[Pair]:
    """Return the ordered pairs of classes that are compared: all, or those with the reference group."""
    pairs = permutations(range(len(p.levels)), 2)
    return [pair for pair in pairs if p.reference is None or p.reference in pair]


def where_to(data: Dataset, variable: int, to: Tensor | None) -> Tensor:
    """Return where everyone goes (N,), with its shape checked; None: to the other of two groups."""
    p, c = data.protected[variable], data.c[:, variable]
    if to is None:
        if p.is_continuous or len(p.levels) != 2:
            found = "is a number" if p.is_continuous else f"has {len(p.levels)} classes"
            raise OptionError(f"'{p.name}' {found}; give destinations in `to`: there is no single other group")
        return 1 - c
    if to.shape != c.shape:
        raise ShapeError(f"`to` has shape {tuple(to.shape)}; expected ({len(c)},): one destination each")
    return to.to(c)


def number_reached(c: Tensor, step: Tensor, values: Tensor) -> Tensor:
    """Return the number that is a step (N,) away from c (N,); NaN beyond the last of the `values` that people have.

    Where nobody is within half a step of it, in a wide gap between two values, the next value is returned: there is
    nobody to compare with inside the gap.
    """
    there = c + step
    last = len(values) - 1
    below, above = torch.searchsorted(values, there, right=True) - 1, torch.searchsorted(values, there)  # (N,)
    inside = (below >= 0) & (above <= last) & ~there.isnan()
    low, high = values[below.clamp(min=0)], values[above.clamp(max=last)]
    gap = torch.minimum(there - low, high - there) > step.abs() / 2
    reached = torch.where(gap, torch.where(step > 0, high, low), there)
    return torch.where(inside, reached, torch.nan)


def fit_maps(prototype: CounterfactualMap, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
    """Return `refits` fitted copies of a map for each protected variable.

    A single one uses the rows as they are, several use resampled rows; weighted rows are always resampled. Large
    tables are sampled.
    """
    if isinstance(prototype, RefittableMap):
        return prototype.fit_many(data, refits, seed=seed)
    maps: list[list[CounterfactualMap]] = []
    for v in range(len(data.protected)):
        generator = torch.Generator().manual_seed(seed)
        people = some_of_each(data, v, generator)
        as_they_are = refits == 1 and data.weights is None
        drawn = [None if as_they_are else resampled_rows(people, generator=generator) for _ in range(refits)]
        first = copy.copy(prototype)
        first.variable = v
        if isinstance(first, PreparedMap):
            first.prepare(people)
        maps.append([])
        for rows in drawn:
            one = copy.copy(first)
            if rows is not None and isinstance(one, PreparedMap):
                maps[-1].append(one.fit_rows(people, rows))
            else:
                maps[-1].append(one.fit(people if rows is None else replace(people[rows], weights=None)))
    return maps


def some_of_each(data: Dataset, variable: int, generator: torch.Generator) -> Dataset:
    """Return people of whom so many of a class at most are drawn: more take time, and hardly change a map."""
    p, c = data.protected[variable], data.c[:, variable].cpu().nan_to_num(nan=-1.0)
    if len(data) <= _MOST_PEOPLE:
        return data
    code = torch.zeros_like(c) if p.is_continuous else c
    order = torch.randperm(len(c), generator=generator)
    rows = torch.cat([order[code[order] == own][:_MOST_PEOPLE] for own in code.unique()]).sort().values
    return data if len(rows) == len(data) else data[rows]


def map_by_each(
    maps: Sequence[CounterfactualMap], data: Dataset, to: Tensor | None, draws: Sequence[Draws] | None = None
) -> Iterator[Mapped]:
    """Yield the rows of the same people from each fit of a map; with draws, one draw after the other."""
    together = getattr(maps[0], "map_by_each", None)  # what they share is then looked up once
    if together is not None:
        yield from together(maps, data, to, draws)
        return
    for fitted, own in zip_longest(maps, draws or ()):
        yield fitted.map(data, to) if own is None else fitted.map(data, to, draws=own)  # type: ignore[call-arg]


def block_overshoot(x: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return the largest distance of anyone's one-hot entries from [0, 1] (N,)."""
    blocks = [x[:, f.columns] for f in features if f.kind == "categorical"]
    if not blocks:
        return x.new_zeros(len(x))
    entries = torch.cat(blocks, dim=1)
    return (entries - entries.clamp(0, 1)).abs().amax(1)


def features_among(features: Sequence[Feature], columns: Tensor) -> tuple[Feature, ...]:
    """Return the features of some columns (D,) bool, with their positions among these."""
    out: list[Feature] = []
    chosen, start = columns.tolist(), 0
    for f in features:
        if chosen[f.start]:
            out.append(replace(f, start=start, stop=start + f.stop - f.start))
            start = out[-1].stop
    return tuple(out)


def total_variance(values: Tensor, counts: Tensor) -> float:
    """Return the variance of values (n, L), of which there are so many (n,) each, summed over the columns."""
    share = (counts / counts.sum())[:, None]
    return float((share * (values - (share * values).sum(0)).square()).sum())
