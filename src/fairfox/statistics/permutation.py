"""The null distribution of scores, from audits of the same people with shuffled protected values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SHARE = 0.95  # of the people who stay below the delta that chance suggests


@dataclass(frozen=True)
class Null:
    """Scores and alignment shares of audits with shuffled protected values."""

    scores: Tensor  # (R, N) of R shuffles; NaN for abstained people
    alignment: Tensor  # (R, V) share of each protected variable

    @property
    def delta(self) -> float:
        """The 95 % quantile of scores by chance; NaN where nobody was judged."""
        known = self.scores[~self.scores.isnan()].double()
        return float(known.sort().values[min(int(SHARE * len(known)), len(known) - 1)]) if len(known) else float("nan")

    @property
    def mean_score(self) -> float:
        """The mean score by chance."""
        return float(self.scores.double().nanmean())

    def p_alignment(self, variable: int, share: float) -> float:
        """Return the probability of an alignment share this large by chance, from the shuffles and the real order.

        Example:
            >>> Null(torch.zeros(3, 1), torch.tensor([[0.1], [0.3], [0.2]])).p_alignment(0, 0.25)
            0.5
        """
        larger = int((self.alignment[:, variable] >= share).sum())
        return (1 + larger) / (1 + len(self.alignment))


def shuffled(c: Tensor, seed: int) -> Tensor:
    """Return shuffled protected values (N, V); rows stay together, so variables stay related."""
    return c[torch.randperm(len(c), generator=torch.Generator().manual_seed(seed)).to(c.device)]
