"""The graph map: counterfactuals of an additive-noise causal model over a graph of columns that the user gives."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import fmean
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ColumnError, FileError, NotFittedError, OptionError, did_you_mean
from fairfox.maps.protocol import (
    OFF_RANGE,
    UNKNOWN,
    Mapped,
    check_groups_present,
    number_reached,
    total_variance,
    where_to,
    who_counts,
)
from fairfox.maps.rank import RankMap, own_columns, ranks_of, with_ranks
from fairfox.maps.ranks import Scale, couple_rows, weighted_least_squares

MERGED = "the group there puts several together"
_UNEVEN = 1.5  # how many times the spread of one group's noise may be that of another's
_FEWEST = 10  # people of a group, to speak of the spread of their noise
_EXAMPLE = 'for example income = ["sex", "education"]'


@dataclass(frozen=True)
class Graph:
    """Which columns act on which: the parents of every column that has any, parents before their children."""

    parents: Mapping[str, tuple[str, ...]]

    def descendants(self, names: Iterable[str], *, held: Iterable[str] = ()) -> list[str]:
        """Return what these act on, directly or through others, parents first; nothing acts on what is held."""
        reached, held, out = set(names), set(held), []
        for child, parents in self.parents.items():
            if child not in held and not reached.isdisjoint(parents):
                reached.add(child)
                out.append(child)
        return out


GraphSource = Graph | Mapping[str, Sequence[str]] | str | Path


def read_graph(source: GraphSource | None) -> Graph:
    """Return the graph of a dict {column: [its parents]}, or of a TOML file with such a table named `parents`.

    Example:
        >>> read_graph({"income": ["sex", "job"], "job": ["sex"]}).parents
        {'job': ('sex',), 'income': ('sex', 'job')}
    """
    if source is None:
        raise OptionError(f"No graph is given; say which columns act on which: a dict or a TOML file, {_EXAMPLE}")
    if isinstance(source, Graph):
        return source
    found = source if isinstance(source, Mapping) else _read_parents(Path(source))
    for child, parents in found.items():
        if (
            isinstance(parents, str)
            or not isinstance(parents, Sequence)
            or not all(isinstance(p, str) for p in parents)
        ):
            raise OptionError(
                f"The graph gives '{child}' the parents {parents!r}; expected a list of names, {_EXAMPLE}"
            )
        if twice := [name for name in parents if parents.count(name) > 1]:
            raise OptionError(f"The graph names '{twice[0]}' twice among the parents of '{child}'; name it once")
    if not any(found.values()):
        raise OptionError(f"The graph is empty; give the parents of at least one column, {_EXAMPLE}")
    try:
        order = list(TopologicalSorter(found).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise OptionError(f"The graph goes in a circle: {circle}; leave out one of these edges") from None
    return Graph({name: tuple(found[name]) for name in order if found.get(name)})


def _check_names(graph: Graph, data: Dataset) -> None:
    """Refuse a graph that names what is neither a column of the model nor a protected variable."""
    variables = {p.name: p for p in data.protected}
    columns = [f.name for f in data.features]
    for name in dict.fromkeys(name for child, parents in graph.parents.items() for name in (*parents, child)):
        if name in variables and not variables[name].parts:
            continue
        if name in variables:
            raise OptionError(
                f"The graph names the crossing '{name}'; name {' and '.join(variables[name].parts)} instead"
            )
        read = [p.name for p in data.protected if p.source == name]
        if read:
            raise OptionError(
                f"The graph names '{name}', from which the protected variable '{read[0]}' is read; name '{read[0]}' "
                "instead"
            )
        if name not in columns:
            hint = did_you_mean(name, [*variables, *columns])
            raise ColumnError(f"The graph names '{name}', which is no column of the model and not protected.{hint}")


def _read_parents(path: Path) -> Mapping[str, Sequence[str]]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"The graph '{path}' cannot be read ({error.strerror}); give a TOML file") from error
    except ValueError as error:
        raise FileError(f"The graph '{path}' is not TOML: {error}") from error
    parents = found.get("parents")
    if not isinstance(parents, dict):
        raise FileError(f"The graph '{path}' has no table [parents]; list the parents of columns there, {_EXAMPLE}")
    return parents


@dataclass
class GraphMap:
    """Everyone as they would be with another protected value, in the causal model of a graph of columns.

    Every column that the protected variable acts on is taken for a linear function of its parents plus noise. The
    function is learnt from people by least squares; the noise is what is left of a person's own value. Set the
    protected variable, keep the noise, and children follow, parents first. All other columns stay, and so do the other
    protected variables, whatever acts on them.

    A category has shares in place of a mean: it stays with probability min(1, p'/p), p and p' its share given the
    parents before and after, and what leaves is spread over the categories that gain (maximal coupling), so that the
    shares are reproduced; the block is a distribution. What is missing stays missing.

    A number goes up or down by standard deviations. A crossing sets all its parts.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [2.0], [5.0], [7.0]], c=[0, 0, 1, 1], names=["income"])
        >>> GraphMap({"income": ["c"]}).fit(data).map(data).rows[:, 0].round(decimals=4)
        tensor([5., 7., 0., 2.])
    """

    graph: GraphSource | None = None  # {column: [parents]}, a TOML file, or what read_graph returns
    variable: int = 0  # which protected variable
    seed: int = 0
    nodes: list[Node] = field(default_factory=list, init=False, repr=False)  # what is acted on, parents first
    needed: list[int] = field(default_factory=list, init=False, repr=False)  # protected variables that must be known
    shift: Shift | None = field(default=None, init=False, repr=False)
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn the mechanism of every column that the protected variable acts on."""
        graph = read_graph(self.graph)
        _check_names(graph, data)
        p = data.protected[self.variable]
        moved = graph.descendants(p.parts or (p.name,), held=(other.name for other in data.protected))
        if not moved:
            raise OptionError(
                f"In the graph '{p.name}' acts on no column, so that nothing would change; add it to the parents of "
                "what it acts on, or leave it out of the protected variables"
            )
        causes = {name for child in moved for name in graph.parents[child]} | {p.name, *p.parts}
        self.needed = [v for v, q in enumerate(data.protected) if q.name in causes]
        data = who_counts(data, self.needed)
        check_groups_present(data, self.variable)
        self.shift = Shift.of(data, self.variable)
        features = {f.name: f for f in data.features}
        scales = [Scale.of(data.c[:, v]) if q.is_continuous else None for v, q in enumerate(data.protected)]
        sources = features | {q.name: Cause(v, len(q.levels), scales[v]) for v, q in enumerate(data.protected)}
        self.nodes = [
            Node.of(features[child], [sources[name] for name in graph.parents[child]], data, self.variable)
            for child in moved
        ]
        self.withheld_map = ranks_of(data, self.variable, own_columns(data, self.variable), seed=self.seed)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone where `to` (N,) says: in that class, or so many standard deviations of c higher.

        NaN: nowhere; None: in the other of two groups. Who goes nowhere, who lacks a protected value that the graph
        needs, or who would go beyond the numbers that people have, keeps their row and is abstained.
        """
        if self.shift is None:
            raise NotFittedError("This GraphMap is not fitted; call fit first")
        to = where_to(data, self.variable, to)
        there, lost = self.shift.taken(data.c, to)  # (N, V)
        still = data.c[:, self.needed].isnan().any(1) | to.isnan() | (there == data.c)[:, self.variable]
        going = (~(still | there[:, self.needed].isnan().any(1))).nonzero()[:, 0]
        stay = torch.ones_like(still).index_fill_(0, going, False)
        rows, before = data.x.clone(), data.x[going].double()
        after = before.clone()
        for node in self.nodes if len(going) else ():
            values = node.values_after(before, data.c[going], after, there[going])
            after[:, _value_columns(node.feature)] = values
        rows[going] = after.to(rows)
        reason = lost if bool((stay & ~still).any()) else UNKNOWN if bool(stay.any()) else ""
        return with_ranks(Mapped(rows, stay, reason), self.withheld_map, data, to)

    def checks(self) -> dict[str, float]:
        """Return how the model of the graph fits the fitting rows.

        `explained`: the share of the variance of the columns acted on that their parents explain, mean over columns.
        `unevenness`: how many times one group's noise spreads as far as another's, of the number where it differs most.
        """
        if self.shift is None:
            raise NotFittedError("This GraphMap is not fitted; call fit first")
        uneven = [node.unevenness for node in self.nodes if node.feature.kind == "continuous"]
        return {"explained": fmean(node.explained for node in self.nodes), "unevenness": max(uneven, default=1.0)}

    def warnings(self, checks: Mapping[str, float]) -> list[str]:
        """Return a warning where the noise differs between the groups: it is not simply added."""
        if checks["unevenness"] <= _UNEVEN:
            return []
        return [
            f"Around what its parents say, a column spreads {checks['unevenness']:.1f} times as far in one group as in "
            "another, where the graph's additive noise spreads alike; compare with rank, which takes over the spread."
        ]


@dataclass(frozen=True)
class Shift:
    """Where a change of one protected variable takes everyone's protected values."""

    variable: int
    parts: tuple[int, ...]  # of a crossing
    cells: Tensor  # (K, parts) the class of each part, NaN where a class of the crossing puts several together
    scale: Scale | None  # of a number
    values: Tensor  # of a number, in order, in standard deviations

    @classmethod
    def of(cls, data: Dataset, variable: int) -> Shift:
        """Return what the fitting rows say about one protected variable."""
        p, c = data.protected[variable], data.c[:, variable]
        scale = Scale.of(c) if p.is_continuous else None
        parts = tuple(v for v, q in enumerate(data.protected) if q.name in p.parts)
        cells = [data.c[c == code][:, parts].unique(dim=0) for code in range(len(p.levels) if parts else 0)]
        rows = [cell[0] if len(cell) == 1 else torch.full_like(cell[0], torch.nan) for cell in cells]
        values = scale(c).unique() if scale is not None else c[:0]
        return cls(variable, parts, torch.stack(rows) if rows else c.new_zeros(0, 0), scale, values)

    def taken(self, c: Tensor, to: Tensor) -> tuple[Tensor, str]:
        """Return the protected values (N, V) after the change, NaN where it cannot be made, and why it cannot."""
        there = c.clone()
        if self.scale is not None:
            reached = number_reached(self.scale(c[:, self.variable]), to.double(), self.values)
            there[:, self.variable] = (reached * self.scale.sd + self.scale.mean).to(c)
            return there, OFF_RANGE
        there[:, self.variable] = to
        if self.parts:
            there[:, self.parts] = self.cells.to(c)[to.nan_to_num().long()]
        return there, MERGED


@dataclass(frozen=True)
class Cause:
    """A protected variable as a parent: its place in c, and how many classes it has or the scale of its numbers."""

    place: int
    classes: int
    scale: Scale | None


@dataclass(frozen=True)
class Node:
    """A column that is acted on: its parents, its mechanism, and what is left of it: the noise."""

    feature: Feature
    parents: Sequence[Feature | Cause]
    mechanism: Linear
    explained: float  # the share of the variance that its parents explain
    unevenness: float  # how many times one group's noise spreads as far as another's

    @classmethod
    def of(cls, feature: Feature, parents: Sequence[Feature | Cause], data: Dataset, variable: int) -> Node:
        """Return the node that people show who do not lack its value."""
        data = data[~_lacking(feature, data.x)]
        columns, child = design(parents, data.x, data.c), data.x[:, _value_columns(feature)].double()
        counts = torch.ones_like(child[:, 0]) if data.weights is None else data.weights.double()
        mechanism = Linear.of(columns, child, counts)
        noise = child - mechanism(columns)
        total = total_variance(child, counts)
        explained = 1 - total_variance(noise, counts) / total if total > 0 else 1.0
        return cls(feature, parents, mechanism, explained, _unevenness(noise, counts, data, variable))

    def values_after(self, x: Tensor, c: Tensor, new_x: Tensor, new_c: Tensor) -> Tensor:
        """Return the values (n, L) of people with rows x and protected values c, once their parents are the new ones.

        The noise stays: x' = x + (mean' - mean). Categories move as little as their shares allow, and what is missing
        stays missing.
        """
        own, new = self.mechanism(design(self.parents, x, c)), self.mechanism(design(self.parents, new_x, new_c))
        values = x[:, _value_columns(self.feature)]
        if self.feature.kind == "categorical":
            return couple_rows(values, own, new)
        missing = _lacking(self.feature, x)[:, None]
        return torch.where(missing, values, values + (new - own))


def design(parents: Sequence[Feature | Cause], x: Tensor, c: Tensor) -> Tensor:
    """Return the parents of everyone as float64 columns (n, P), from rows x (n, D) and protected values c (n, V).

    Classes but the first as 0 and 1, numbers in standard deviations, features as they are encoded: a missing number
    is the mean and has its flag, so that what follows from it is what follows for those who lack it.
    """
    columns = []
    for parent in parents:
        if isinstance(parent, Feature):
            columns.append(x[:, parent.columns].double())
        elif parent.scale is not None:
            columns.append(parent.scale(c[:, parent.place])[:, None])
        else:
            columns.append(F.one_hot(c[:, parent.place].long(), parent.classes)[:, 1:].double())
    return torch.cat(columns, dim=1)


@dataclass(frozen=True)
class Linear:
    """The least-squares line; of a one-hot block, linear probabilities, which sum to one."""

    coefficients: Tensor  # (P, L)
    level: Tensor  # (L,) where all parents are 0

    @classmethod
    def of(cls, parents: Tensor, child: Tensor, counts: Tensor) -> Linear:
        """Return the line through people with these parents (n, P) and children (n, L), so many (n,) each."""
        solution = weighted_least_squares(torch.cat([parents, torch.ones_like(parents[:, :1])], dim=1), child, counts)
        return cls(solution[:-1], solution[-1])

    def __call__(self, parents: Tensor) -> Tensor:
        """Return the mean or the shares (n, L) at parents (n, P)."""
        return parents @ self.coefficients.to(parents.device) + self.level.to(parents.device)


def _value_columns(feature: Feature) -> slice:
    """Return the columns with a feature's values, without the flag of a missing number."""
    return feature.columns if feature.kind == "categorical" else slice(feature.start, feature.start + 1)


def _lacking(feature: Feature, x: Tensor) -> Tensor:
    """Return who has no value of a feature (n,) bool: a missing number, or a category that the encoding never saw."""
    if feature.kind == "categorical":
        return x[:, feature.columns].sum(1) == 0
    return x[:, feature.start + 1] > 0.5 if feature.has_missing else torch.zeros_like(x[:, 0], dtype=torch.bool)


def _unevenness(noise: Tensor, counts: Tensor, data: Dataset, variable: int) -> float:
    """Return the largest standard deviation of a group's noise (n, L) over the smallest; of a number: of two halves."""
    c = data.c[:, variable]
    group = (c > c.median()).long() if data.protected[variable].is_continuous else c.long()
    groups = [group == g for g in group.unique()]
    spreads = [total_variance(noise[own], counts[own]) ** 0.5 for own in groups if float(counts[own].sum()) >= _FEWEST]
    return max(spreads) / min(spreads) if len(spreads) > 1 and min(spreads) > 0 else 1.0
