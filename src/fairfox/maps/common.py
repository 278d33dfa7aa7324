"""What people's ways to another group have in common: displacements that few share count less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset, project_blocks
from fairfox.maps.ranks import kept_missing

Between = tuple[int, int]  # two classes, the lower first; (0, 0): the two directions of a number
Displace = Callable[[Dataset, Tensor], tuple[Tensor, Tensor]]  # people, where to -> rows (N, D), who got there (N,)


@dataclass(frozen=True)
class CommonWays:
    """How much each direction of a displacement counts, for every two groups.

    The displacements of the fitting people between two groups, both ways, have principal directions; a direction counts
    (s / s_1)^power, its singular value over the largest. Features are mapped one by one, each with an error of its own,
    and what the groups really differ in moves many features of many people together.
    """

    columns: Tensor  # (S,) that may be displaced
    weights: dict[Between, Tensor]  # (S, S)

    @classmethod
    def of(cls, data: Dataset, variable: int, displace: Displace, power: float) -> CommonWays:
        """Return what the people have in common on their way wherever a variable may take them."""
        free = (~data.withheld).nonzero()[:, 0].to(data.x.device)  # what is protected takes its value, whatever it is
        grams: dict[Between, Tensor] = {}
        for contrast in moves(data.protected):
            if contrast.variable != variable:
                continue
            to = destinations(data, contrast)
            rows, moved = displace(data, to)
            ways = (rows - data.x)[:, free].double()
            for pair, people in _pairs(data, variable, to, moved):
                own = ways[people]
                grams[pair] = grams.get(pair, 0.0) + own.T @ own
        return cls(free, {pair: _weights(gram, power).to(data.x) for pair, gram in grams.items()})

    def shrink(self, data: Dataset, variable: int, to: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
        """Return rows (N, D) whose displacement keeps what is common; who stays and what is missing stays."""
        out = rows.clone()
        for pair, people in _pairs(data, variable, to, moved):
            ways = (rows - data.x)[people][:, self.columns]
            if pair in self.weights:
                out[people[:, None], self.columns] = data.x[people][:, self.columns] + ways @ self.weights[pair]
        return kept_missing(project_blocks(out, data.features), data.x, data.features)


def _pairs(data: Dataset, variable: int, to: Tensor, moved: Tensor) -> list[tuple[Between, Tensor]]:
    """Return the row numbers of those who move, by the two groups between which they do."""
    if data.protected[variable].is_continuous:
        return [((0, 0), moved.nonzero()[:, 0])]
    both = torch.stack([data.c[:, variable], to], dim=1).sort(dim=1).values
    found = []
    for low, high in both[moved].unique(dim=0).long().tolist():
        people = moved & (both[:, 0] == low) & (both[:, 1] == high)
        found.append(((low, high), people.nonzero()[:, 0]))
    return found


def _weights(gram: Tensor, power: float) -> Tensor:
    """Return V diag((s / s_1)^power) Vᵀ from the Gram matrix V diag(s²) Vᵀ; columns that never move stay exactly."""
    values, vectors = torch.linalg.eigh(gram)
    size = values.clamp(min=0).sqrt()
    weight = (size / size.max().clamp(min=1e-30)) ** power
    alive = (gram.diagonal() > 0).to(gram)
    weighted: Tensor = (vectors * weight) @ vectors.T
    return weighted * alive * alive[:, None]
