"""Two models before the same people: which of them treats people more unequally because of their group."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairfox.errors import DataError, ShapeError
from fairfox.verdicts.estimates import (
    Estimate,
    Values,
    estimate,
    left_over,
    mean_draws,
    refit_error,
    refit_error_of_share,
)

A, B, UNKNOWN = "A is fairer", "B is fairer", "cannot tell"


@dataclass(frozen=True)
class Seen:
    """What one model does to people: the effect of each re-fit (N, M), its score (N,), and who is flagged (N,)."""

    refits: Values
    scores: Values
    flags: NDArray[np.bool_]


@dataclass(frozen=True)
class Pair:
    """Two models on the same people: mean |effect|, share over delta, and what B does less what A does."""

    people: int
    means: tuple[float, float]
    shares: tuple[float, float]
    difference: Estimate  # of mean |effect|, B less A
    share_difference: Estimate
    less: float  # share of people whom B treats less unequally
    more: float  # and more unequally

    @property
    def word(self) -> str:
        """Which model is fairer: the one with the smaller mean |effect|, where the interval leaves 0 out."""
        if self.difference.upper < 0:
            return B
        return A if self.difference.lower > 0 else UNKNOWN

    @property
    def why(self) -> str:
        """The word's reason, one sentence."""
        d = self.difference
        between = f"{d.value:+.4f} (95 % interval {d.lower:+.4f} to {d.upper:+.4f})"
        means = f"the mean |effect| is {self.means[0]:.4f} with A and {self.means[1]:.4f} with B"
        if self.word == UNKNOWN:
            return f"On the same {self.people:,} people {means}: the difference of {between} may be none."
        return f"On the same {self.people:,} people {means}: a difference of {between}."


def compare_people(
    a: Seen, b: Seen, *, delta: float, folds: int | None, weights: Values | None = None, seed: int = 0
) -> Pair:
    """Return two models side by side, from what the same maps say about the same people.

    The interval of the difference is a bootstrap over people, who are drawn with both of their scores, and over what
    the maps may have got wrong: re-fit m of one model used the maps of re-fit m of the other, so that only what it
    changes in the difference counts.
    """
    if len(a.scores) != len(b.scores):
        raise ShapeError(f"{len(a.scores)} people with A and {len(b.scores)} with B; give the same people in one order")
    if not len(a.scores) or (weights is not None and not weights.sum() > 0):
        raise DataError("Nobody is judged with both models, so that they cannot be compared; see the audit of each")
    part = left_over(a.refits.shape[1], folds)
    apart = b.scores - a.scores
    flagged = [one.flags.astype(np.float64) for one in (a, b)]
    shifts = [
        refit_error_of_share(one.scores, math.sqrt(part) * errors_of(one.refits), delta, weights) for one in (a, b)
    ]
    error = refit_error(errors_of(np.abs(b.refits) - np.abs(a.refits)), weights, part=part)

    def mean(values: Values) -> float:
        return float(np.average(values, weights=weights))

    return Pair(
        people=len(apart),
        means=(mean(a.scores), mean(b.scores)),
        shares=(mean(flagged[0]), mean(flagged[1])),
        difference=estimate(mean(apart), mean_draws(apart, error, weights, seed=seed)),
        share_difference=estimate(
            mean(flagged[1] - flagged[0]),
            mean_draws(flagged[1] - flagged[0], abs(shifts[1] - shifts[0]), weights, seed=seed),
        ),
        less=mean((apart < 0).astype(np.float64)),
        more=mean((apart > 0).astype(np.float64)),
    )


def errors_of(refits: Values) -> Values:
    """Return the standard error of each person's mean over re-fits (N,), as a new sample would change it.

    Re-fits on resampled rows scatter as estimates from new samples would; the mean over M of them adds 1 / M of that.
    With one re-fit nothing is known of it, and it is 0.
    """
    fits = refits.shape[1]
    return refits.std(1, ddof=1) * math.sqrt(1 + 1 / fits) if fits > 1 else np.zeros(len(refits))
