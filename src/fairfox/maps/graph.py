"""The graph map: counterfactuals of an additive-noise causal model over a graph of columns that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.along import Scale
from fairfox.maps.arrows import GraphSource, check_names, read_graph
from fairfox.maps.columns import ranks_of, with_ranks
from fairfox.maps.mechanisms import Cause, MechanismKind, Node
from fairfox.maps.protocol import OFF_RANGE, UNKNOWN, Mapped, check_groups_present, number_reached, where_to, who_counts
from fairfox.maps.rank import RankMap
from fairfox.maps.swap import own_columns

__all__ = ["GraphMap", "read_graph"]

MERGED = "the group there puts several together"
_UNEVEN = 1.5  # how many times the spread of one group's noise may be that of another's


@dataclass
class GraphMap:
    """Everyone as they would be with another protected value, in the causal model of a graph of columns.

    Every column that the protected variable acts on is taken for a function of its parents plus noise. The function is
    learnt from people, "linear" (least squares) or "boosted" (gradient-boosted trees); the noise is what is left of a
    person's own value. Set the protected variable, keep the noise, and children follow, parents first. All other
    columns stay, and so do the other protected variables, whatever acts on them.

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
    mechanism: MechanismKind = "linear"
    variable: int = 0  # which protected variable
    seed: int = 0
    nodes: list[Node] = field(default_factory=list, init=False, repr=False)  # what is acted on, parents first
    needed: list[int] = field(default_factory=list, init=False, repr=False)  # protected variables that must be known
    steps: Steps | None = field(default=None, init=False, repr=False)
    withheld_map: RankMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Learn the mechanism of every column that the protected variable acts on."""
        if self.mechanism not in ("linear", "boosted"):
            raise OptionError(f"The mechanism is '{self.mechanism}'; expected 'linear' or 'boosted'")
        graph = read_graph(self.graph)
        check_names(graph, data)
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
        self.steps = Steps.of(data, self.variable)
        features = {f.name: f for f in data.features}
        sources = features | {q.name: Cause.of(data, v) for v, q in enumerate(data.protected)}
        self.nodes = [
            Node.of(
                f, [sources[name] for name in graph.parents[f.name]], data, self.variable, self.mechanism, self.seed
            )
            for f in (features[child] for child in moved)
        ]
        self.withheld_map = ranks_of(data, self.variable, own_columns(data, self.variable), seed=self.seed)
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone where `to` (N,) says: in that class, or so many standard deviations of c higher.

        NaN: nowhere; None: in the other of two groups. Who goes nowhere, who lacks a protected value that the graph
        needs, or who would go beyond the numbers that people have, keeps their row and is abstained.
        """
        if self.steps is None:
            raise NotFittedError("This GraphMap is not fitted; call fit first")
        to = where_to(data, self.variable, to)
        there, lost = self.steps.taken(data.c, to)  # (N, V)
        still = data.c[:, self.needed].isnan().any(1) | to.isnan() | (there == data.c)[:, self.variable]
        going = (~(still | there[:, self.needed].isnan().any(1))).nonzero()[:, 0]
        stay = torch.ones_like(still).index_fill_(0, going, False)
        rows = data.x.clone()
        if len(going):
            rows[going] = self._followed(data.x[going], data.c[going], there[going])
        reason = lost if bool((stay & ~still).any()) else UNKNOWN if bool(stay.any()) else ""
        return with_ranks(Mapped(rows, stay, reason), self.withheld_map, data, to)

    def checks(self) -> dict[str, float]:
        """Return how the model of the graph fits the fitting rows.

        `explained`: the share of the variance of the columns acted on that their parents explain, mean over columns.
        `unevenness`: how many times one group's noise spreads as far as another's, of the number where it differs most.
        """
        if self.steps is None:
            raise NotFittedError("This GraphMap is not fitted; call fit first")
        uneven = [node.unevenness for node in self.nodes if node.feature.kind == "continuous"]
        return {"explained": fmean(node.explained for node in self.nodes), "unevenness": max(uneven, default=1.0)}

    def doubts(self, checks: Mapping[str, float]) -> list[str]:
        """Return a warning where the noise differs between the groups: it is not simply added."""
        if checks["unevenness"] <= _UNEVEN:
            return []
        return [
            f"Around what its parents say, a column spreads {checks['unevenness']:.1f} times as far in one group as in "
            "another, where the graph's additive noise spreads alike; compare with rank, which takes over the spread."
        ]

    def _followed(self, x: Tensor, c: Tensor, there: Tensor) -> Tensor:
        """Return rows x (n, D) of people with protected values c (n, V) as they follow from the values `there`."""
        before = x.double()
        after = before.clone()
        for node in self.nodes:
            after[:, node.columns] = node.follow(before, c, after, there)
        return after.to(x)


@dataclass(frozen=True)
class Steps:
    """Where a step of one protected variable takes everyone's protected values."""

    variable: int
    parts: tuple[int, ...]  # of a crossing
    cells: Tensor  # (K, parts) the class of each part, NaN where a class of the crossing puts several together
    scale: Scale | None  # of a number
    values: Tensor  # of a number, in order, in standard deviations

    @classmethod
    def of(cls, data: Dataset, variable: int) -> Steps:
        """Return what the fitting rows say about one protected variable."""
        p, c = data.protected[variable], data.c[:, variable]
        scale = Scale.of(c) if p.is_continuous else None
        parts = tuple(v for v, q in enumerate(data.protected) if q.name in p.parts)
        cells = [data.c[c == code][:, parts].unique(dim=0) for code in range(len(p.levels) if parts else 0)]
        rows = [cell[0] if len(cell) == 1 else torch.full_like(cell[0], torch.nan) for cell in cells]
        values = scale(c).unique() if scale is not None else c[:0]
        return cls(variable, parts, torch.stack(rows) if rows else c.new_zeros(0, 0), scale, values)

    def taken(self, c: Tensor, to: Tensor) -> tuple[Tensor, str]:
        """Return the protected values (N, V) after the step, NaN where it cannot be taken, and why it cannot."""
        there = c.clone()
        if self.scale is not None:
            reached = number_reached(self.scale(c[:, self.variable]), to.double(), self.values)
            there[:, self.variable] = (reached * self.scale.sd + self.scale.mean).to(c)
            return there, OFF_RANGE
        there[:, self.variable] = to
        if self.parts:
            there[:, self.parts] = self.cells.to(c)[to.nan_to_num().long()]
        return there, MERGED
