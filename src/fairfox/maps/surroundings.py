"""What the fitting rows say about a protected variable: how far its groups are apart, and what moves along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairfox.auxiliary.model import centre_and_spread
from fairfox.data.dataset import Dataset, missing_columns
from fairfox.maps.columns import ranks_of
from fairfox.maps.held import held_columns, regression
from fairfox.maps.legitimate import legitimate_features, remaining_metric
from fairfox.maps.protocol import number_reached
from fairfox.maps.rank import RankMap
from fairfox.maps.surfaces import Bent
from fairfox.similarity import between_metric, covariance_metric

Metric = Literal["identity", "covariance", "between"]


@dataclass(frozen=True)
class Surroundings:
    """What the fitting rows say about one protected variable, whatever the auxiliary."""

    gaps: Tensor  # (G, D): the mean of x in each class; (1, D): its slope on a number
    covariance: Tensor | None  # (D, D), shrunk; None for the identity metric
    hidden: Tensor  # (D,) bool: columns that do not move along
    withheld_map: RankMap | None
    legitimate: Bent
    spread: float = 1.0  # of a number
    values: Tensor | None = None  # of a number, in order

    def reached(self, c: Tensor, to: Tensor) -> Tensor:
        """Return the class (N,) that people go to, or the number that is so many standard deviations away from c (N,).

        NaN for numbers beyond those of the fitting rows.
        """
        return to if self.values is None else number_reached(c.contiguous(), to * self.spread, self.values)

    def metric(self, kind: Metric, gap: Tensor) -> Tensor | None:
        """Return S (D, D) for people who cross a gap (D,); None for the identity."""
        if self.covariance is None:
            return None
        matrix = between_metric(self.covariance, gap) if kind == "between" else self.covariance.clone()
        hidden = self.hidden.to(matrix.device)
        matrix[hidden] = 0.0
        matrix[:, hidden] = 0.0
        return matrix


def look_around(
    known: Dataset,
    variable: int,
    *,
    metric: Metric,
    shrink: float,
    others: Sequence[int],
    hold_others: bool,
    legitimate: Sequence[str],
    seed: int,
) -> Surroundings:
    """Return what rows whose value is known say: the metric's ingredients, and where withheld columns go."""
    p, c = known.protected[variable], known.c[:, variable]
    withheld = known.withheld.to(known.x.device)
    seen = torch.where(withheld, 0.0, known.x)  # what is withheld does not move along
    covariance = None
    if metric != "identity":
        covariance = covariance_metric(seen, shrink=shrink, weights=known.weights)
    rank = ranks_of(known, variable, known.withheld, seed=seed, hold_others=hold_others)
    kept = Bent.of(legitimate_features(known, legitimate), known.x)
    still = kept.among(known.x.shape[1]).to(withheld.device)
    if covariance is not None and legitimate:
        covariance = remaining_metric(covariance, still)
    hidden = withheld | missing_columns(known).to(withheld.device) | still
    held = held_columns(known, others, kept)
    if not p.is_continuous:
        member = torch.stack([c == code for code in range(len(p.levels))], dim=1).to(seen)
        gaps = regression(seen, member, held, known.weights)[0]
        return Surroundings(gaps, covariance, hidden, rank, kept)
    mean, spread = centre_and_spread(c, known.weights)
    along = torch.stack([(c - mean) / spread, torch.ones_like(c)], dim=1)
    slope = regression(seen, along, held, known.weights)[0][:1] / spread
    return Surroundings(slope, covariance, hidden, rank, kept, float(spread), c.unique())
