"""What people's ways to another group have in common: displacements that few share count less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.maps.ranks import kept_missing, numbers_among

Way = tuple[int, int]  # from one class to another; of a number (0, 1) up and (1, 0) down
Displace = Callable[[Dataset, Tensor], tuple[Tensor, Tensor]]  # people, where to -> rows (N, D), who got there (N,)


@dataclass(frozen=True)
class CommonWays:
    """How displacements of numbers add up: the mean of a group's way, and how much each direction beside it counts.

    Numbers are mapped one by one, each with an error of its own, and what the groups really differ in moves many of
    them together. So everyone keeps their group's mean displacement, and what they add to it counts by its direction:
    the displacements of the fitting people between two groups, both ways and in units of each number's spread, have
    principal directions, and one counts (s / s_1)^power, its singular value over the largest. Categories stay as they
    were mapped: theirs are moves from one corner to another, which different people make.
    """

    columns: Tensor  # (S,) of the numbers that may be displaced
    means: dict[Way, Tensor]  # (S,)
    weights: dict[Way, Tensor]  # (S, S) in the units of the numbers, the same there and back

    @classmethod
    def of(cls, data: Dataset, variable: int, displace: Displace, power: float) -> CommonWays:
        """Return what the people have in common on their way wherever a variable may take them."""
        numbers = torch.tensor([f.start for f in numbers_among(data.features)], dtype=torch.long, device=data.x.device)
        free = numbers[~data.withheld.to(numbers.device)[numbers]]  # what is protected takes its value, whatever it is
        if not len(free):
            return cls(free, {}, {})
        spread = data.x[:, free].double().std(0, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)
        means: dict[Way, Tensor] = {}
        grams: dict[Way, Tensor] = {}
        for contrast in moves(data.protected):
            if contrast.variable != variable:
                continue
            to = destinations(data, contrast)
            rows, moved = displace(data, to)
            displaced = (rows[:, free] - data.x[:, free]).double()
            for way, people in _ways(data, variable, to, moved):
                own = displaced[people]
                means[way] = own.mean(0)
                grams[_both(way)] = grams.get(_both(way), 0.0) + (own / spread).T @ (own / spread)
        found = {pair: (_weights(gram, power) / spread[:, None] * spread).to(data.x) for pair, gram in grams.items()}
        return cls(free, {way: m.to(data.x) for way, m in means.items()}, {way: found[_both(way)] for way in means})

    def shrink(self, data: Dataset, variable: int, to: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
        """Return rows (N, D), which are overwritten, whose displacement keeps what is common.

        Who stays and what is missing stays.
        """
        for way, people in _ways(data, variable, to, moved):
            if way in self.means:
                mean, after = self.means[way], rows.index_select(0, people)
                before = self._free(data.x.index_select(0, people))
                beside = self._free(after).sub_(before).sub_(mean)
                before.add_(mean).add_(beside @ self.weights[way])
                rows.index_copy_(0, people, after.index_copy_(1, self.columns, before))
        return kept_missing(rows, data.x, data.features)

    def _free(self, rows: Tensor) -> Tensor:
        """Return the numbers that may be displaced (n, S), of rows that are overwritten with them."""
        return rows if len(self.columns) == rows.shape[1] else rows.index_select(1, self.columns)


def _both(way: Way) -> Way:
    return min(way), max(way)


def _ways(data: Dataset, variable: int, to: Tensor, moved: Tensor) -> list[tuple[Way, Tensor]]:
    """Return the row numbers of those who move, by where from and where to."""
    p = data.protected[variable]
    if p.is_continuous:
        start, end, size = (to < 0).long(), (to > 0).long(), 2
    else:
        start, end, size = data.c[:, variable].nan_to_num().long(), to.nan_to_num().long(), len(p.levels)
    code = torch.where(moved, start * size + end, -1)
    here = (torch.bincount(code + 1, minlength=1)[1:] > 0).nonzero()[:, 0].tolist()
    return [(divmod(one, size), (code == one).nonzero()[:, 0]) for one in here]


def _weights(gram: Tensor, power: float) -> Tensor:
    """Return V diag((s / s_1)^power) Vᵀ from the Gram matrix V diag(s²) Vᵀ; columns that never move stay exactly."""
    values, vectors = torch.linalg.eigh(gram)
    size = values.clamp(min=0).sqrt()
    weight = (size / size.max().clamp(min=1e-30)) ** power
    alive = (gram.diagonal() > 0).to(gram)
    weighted: Tensor = (vectors * weight) @ vectors.T
    return weighted * alive * alive[:, None]
