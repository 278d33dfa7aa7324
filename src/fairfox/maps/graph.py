"""The graph map: counterfactuals along a user's causal graph of columns, by conditional ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, resample
from fairfox.data.files import read_toml
from fairfox.errors import ColumnError, FileError, NotFittedError, OptionError, did_you_mean
from fairfox.maps.conditional import Columns, Regressed
from fairfox.maps.protocol import OFF_RANGE, UNKNOWN, Mapped, check_groups_present, number_reached, where_to, who_counts
from fairfox.maps.rank import RankMap, own_columns, ranks_of, repeated, with_ranks
from fairfox.maps.ranks import Draws, Scale

MERGED = "the destination group merges several classes"
_EXAMPLE = 'for example income = ["sex", "education"]'


Graph = dict[str, tuple[str, ...]]  # the parents of every column that has any, parents before their children
GraphSource = Mapping[str, Sequence[str]] | str | Path


def read_graph(source: GraphSource | None) -> Graph:
    """Return the graph of a dict {column: [its parents]}, or of a TOML file with such a table named `parents`.

    Example:
        >>> read_graph({"income": ["sex", "job"], "job": ["sex"]})
        {'job': ('sex',), 'income': ('sex', 'job')}
    """
    if source is None:
        raise OptionError(f"No graph given; list the parents of each column in a dict or a TOML file, {_EXAMPLE}")
    if not isinstance(source, Mapping | str | Path):
        raise OptionError(f"The graph is {source!r}; expected parents of each column, or a TOML file (--graph FILE)")
    found = source if isinstance(source, Mapping) else read_toml(Path(source)).get("parents")
    if not isinstance(found, Mapping):
        raise FileError(f"The graph '{source}' has no table [parents]; list the parents of columns there, {_EXAMPLE}")
    for child, parents in found.items():
        listed = isinstance(parents, Sequence) and not isinstance(parents, str)
        if not listed or not all(isinstance(p, str) for p in parents):
            raise OptionError(
                f"The graph gives '{child}' the parents {parents!r}; expected a list of names, {_EXAMPLE}"
            )
        if twice := [name for name in parents if parents.count(name) > 1]:
            raise OptionError(f"The graph lists '{twice[0]}' twice among the parents of '{child}'; list it once")
    if not any(found.values()):
        raise OptionError(f"The graph is empty; give the parents of at least one column, {_EXAMPLE}")
    try:
        order = list(TopologicalSorter(found).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise OptionError(f"The graph has a cycle: {circle}; remove one of these edges") from None
    return {name: tuple(found[name]) for name in order if found.get(name)}


def descendants(graph: Graph, names: Iterable[str], *, held: Iterable[str] = ()) -> list[str]:
    """Return the descendants of these columns, parents first; columns that are held have no parents."""
    reached, held, out = set(names), set(held), []
    for child, parents in graph.items():
        if child not in held and not reached.isdisjoint(parents):
            reached.add(child)
            out.append(child)
    return out


def _check_names(graph: Graph, data: Dataset) -> None:
    """Refuse a graph that names what is neither a column of the model nor a protected variable."""
    variables = {p.name: p for p in data.protected}
    columns = [f.name for f in (*data.features, *data.covariates)]
    for name in dict.fromkeys(name for child, parents in graph.items() for name in (*parents, child)):
        if name in variables and not variables[name].parts:
            continue
        if name in variables:
            raise OptionError(
                f"The graph names the intersection '{name}'; name {' and '.join(variables[name].parts)} instead"
            )
        read = [p.name for p in data.protected if p.source == name]
        if read:
            raise OptionError(
                f"The graph names '{name}', from which the protected variable '{read[0]}' is read; name '{read[0]}' "
                "instead"
            )
        if name not in columns:
            hint = did_you_mean(name, [*variables, *columns])
            raise ColumnError(f"The graph names '{name}', which is neither a column nor protected.{hint}")


@dataclass
class GraphMap:
    """Everyone as they would be with another protected value, in the causal model of a graph of columns.

    Every column that the protected variable acts on keeps its rank among people with the same parents: x' is the value
    of that rank among people who have the parents' new values. Parents go first. All other columns stay, and so do the
    other protected variables, whatever acts on them. Columns that the model does not take may be in the graph too.

    A category stays with probability min(1, p'/p), p and p' its share given the parents before and after, and what
    leaves is spread over the categories that gain (maximal coupling). What is missing stays missing.

    A number goes up or down by standard deviations. An intersection sets all its variables.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [2.0], [5.0], [7.0]], c=[0, 0, 1, 1], names=["income"])
        >>> GraphMap({"income": ["c"]}).fit(data).map(data).rows[:, 0].round(decimals=4)
        tensor([5., 7., 0., 2.])
    """

    graph: GraphSource | None = None  # {column: [parents]}, or a TOML file
    variable: int = 0  # which protected variable
    seed: int = 0
    persists: ClassVar[bool] = True
    columns: Columns | None = field(default=None, init=False, repr=False)
    nodes: list[Regressed] = field(default_factory=list, init=False, repr=False)  # what is acted on, parents first
    causes: list[bool] = field(default_factory=list, init=False, repr=False)  # whether the variable acts on it directly
    needed: list[int] = field(default_factory=list, init=False, repr=False)  # protected variables that must be known
    shift: Shift | None = field(default=None, init=False, repr=False)
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn the mechanism of every column that the protected variable acts on."""
        graph = read_graph(self.graph)
        _check_names(graph, data)
        p = data.protected[self.variable]
        moved = descendants(graph, p.parts or (p.name,), held=(other.name for other in data.protected))
        if not moved:
            raise OptionError(
                f"In the graph '{p.name}' has no children, so nothing would change; add it to the parents of the "
                "columns it affects, or leave it out of the protected variables"
            )
        causes = {name for child in moved for name in graph[child]} | {p.name, *p.parts}
        self.needed = [v for v, q in enumerate(data.protected) if q.name in causes]
        data = who_counts(data, self.needed)
        if data.weights is not None:
            data = resample(data, generator=torch.Generator().manual_seed(self.seed))
        check_groups_present(data, self.variable)
        self.shift = Shift.of(data, self.variable)
        self.columns = Columns.of(data, [name for pair in graph.items() for name in (pair[0], *pair[1])])
        rows = self.columns.rows(data)
        features = {f.name: f for f in (*self.columns.features, *self.columns.covariates, *self.columns.protected)}
        self.nodes, self.causes = [], []
        for child in moved:
            parents = graph[child]
            self.causes.append(p.name in parents)
            group, classes = self._group(data.c) if p.name in parents else (torch.zeros_like(rows[:, 0]), 1)
            others = [features[name] for name in parents if name != p.name]
            self.nodes.append(Regressed.of(rows, group, classes, others, [features[child]]))
        self.withheld_map = ranks_of(data, self.variable, own_columns(data, self.variable), seed=self.seed)
        return self

    def _group(self, c: Tensor) -> tuple[Tensor, int]:
        """Return the protected variable (N,) as classes, or in standard deviations, and how many classes it has."""
        assert self.columns is not None
        scale, own = self.columns.scales[self.variable], c[:, self.variable]
        f = self.columns.protected[self.variable]
        return (own.double(), f.stop - f.start) if scale is None else (scale(own), 0)

    def map(self, data: Dataset, to: Tensor | None = None, *, draws: Draws | None = None) -> Mapped:
        """Return everyone where `to` (N,) says: in that class, or so many standard deviations of c higher.

        NaN: nowhere; None: in the other of two groups. People who go nowhere, lack a protected value that the graph
        needs, or would leave the range of the numbers keep their row and are abstained.
        """
        if self.shift is None:
            raise NotFittedError("This GraphMap is not fitted; call fit first")
        to = where_to(data, self.variable, to)
        if draws is not None:
            data, to, draws = repeated(data, to, draws)
        there, lost = self.shift.taken(data.c, to)  # (N, V)
        unknown = data.c[:, self.needed].isnan().any(1)
        still = unknown | to.isnan() | (there == data.c)[:, self.variable]
        going = (~(still | there[:, self.needed].isnan().any(1))).nonzero()[:, 0]
        stay = torch.ones_like(still).index_fill_(0, going, False)
        rows = data.x.clone()
        if len(going):
            own = None if draws is None else draws.taken(going)
            rows[going] = self.followed(data[going], there[going], own).to(rows)
        return with_ranks(Mapped(rows, stay, {UNKNOWN: unknown, lost: stay & ~still}), self.withheld_map, data, to)

    def followed(self, people: Dataset, there: Tensor, draws: Draws | None = None) -> Tensor:
        """Return people's rows (n, D) for new protected values (n, V), parents first."""
        assert self.columns is not None
        before = self.columns.rows(people)
        after = before.clone()
        groups = self.columns.groups(there)
        after[:, before.shape[1] - groups.shape[1] :] = groups
        own, new = self._group(people.c)[0], self._group(there)[0]
        nobody = torch.zeros_like(own)
        for node, direct in zip(self.nodes, self.causes, strict=True):
            here, goal = (own, new) if direct else (nobody, nobody)
            moved = node.moved(before, here, after, goal, draws)
            for each in node.all:
                after[:, each.feature.columns] = moved[:, each.feature.columns]
        return after[:, : people.x.shape[1]]


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
