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
    share_difference: Estimate | None  # None where its error is not known
    less: float  # share of people whom B treats less unequally
    more: float  # and more unequally
    maps_known: bool = True  # False: one re-fit leaves open how far the maps may be off, and errors are those of people
    unit: str = ""  # of the scores, as an audit says it

    @property
    def word(self) -> str:
        """Which model is fairer: the one with the smaller mean |effect|, where the interval leaves 0 out."""
        if not self.maps_known:
            return UNKNOWN
        if self.difference.upper < 0:
            return B
        return A if self.difference.lower > 0 else UNKNOWN

    @property
    def why(self) -> str:
        """The word's reason, one sentence."""
        from fairfox.report.text import amount  # the room of sentences is below this one

        d, (a, b) = self.difference, (amount(mean, self.unit) for mean in self.means)
        apart, lower, upper = (amount(value, self.unit, sign=True) for value in (d.value, d.lower, d.upper))
        between = f"{apart} (95 % interval {lower} to {upper})"
        means = f"the mean score is {a} with A and {b} with B"
        if not self.maps_known:
            return (
                f"On the same {self.people:,} people {means}, but one re-fit leaves open how sure the maps are; set "
                "refits=5 (--refits 5)."
            )
        if self.word == UNKNOWN:
            return f"On the same {self.people:,} people {means}: the difference of {between} may be none."
        return f"On the same {self.people:,} people {means}: a difference of {between}."


def compare_people(
    a: Seen,
    b: Seen,
    *,
    delta: float | None,
    folds: int | None,
    weights: Values | None = None,
    seed: int = 0,
    learnt: bool = True,
    unit: str = "",
) -> Pair:
    """Return two models side by side, from what the same maps say about the same people.

    The interval of the difference is a bootstrap over people, who are drawn with both of their scores, and over what
    the maps may have got wrong: re-fit m of one model used the maps of re-fit m of the other, so that only what it
    changes in the difference counts. So it is for the share of flagged people, as far as the re-fits of the two go
    together.

    Args:
        a: what the first model does.
        b: what the second one does to the same people in the same order.
        delta: what flags people, where that is the same number for all; None: something else, and the share of flagged
            people has no interval.
        folds: of the cross-fitting; None where everyone is judged by the same maps.
        weights: how many people each row stands for.
        seed: of the bootstrap.
        learnt: whether there are maps at all; if so one re-fit leaves open how far they may be off.
        unit: of the scores, as an audit says it.
    """
    if len(a.scores) != len(b.scores):
        raise ShapeError(f"{len(a.scores)} people with A and {len(b.scores)} with B; give the same people in one order")
    if not len(a.scores) or (weights is not None and not weights.sum() > 0):
        raise DataError("Nobody is judged with both models, so that they cannot be compared; see the audit of each")
    part = left_over(a.refits.shape[1], folds)
    apart = b.scores - a.scores
    flagged = [one.flags.astype(np.float64) for one in (a, b)]
    known = not learnt or min(a.refits.shape[1], b.refits.shape[1]) > 1
    error = refit_error(errors_of(np.abs(b.refits) - np.abs(a.refits)), weights, part=part)

    def mean(values: Values) -> float:
        return float(np.average(values, weights=weights))

    def share_difference(delta: float) -> Estimate:
        error = _error_of_shares(a, b, delta, part, weights)
        flips = flagged[1] - flagged[0]
        return estimate(mean(flips), mean_draws(flips, error, weights, seed=seed))

    return Pair(
        people=len(apart),
        means=(mean(a.scores), mean(b.scores)),
        shares=(mean(flagged[0]), mean(flagged[1])),
        difference=estimate(mean(apart), mean_draws(apart, error, weights, seed=seed)),
        share_difference=share_difference(delta) if known and delta is not None else None,
        less=mean((apart < 0).astype(np.float64)),
        more=mean((apart > 0).astype(np.float64)),
        maps_known=known,
        unit=unit,
    )


def together(a: Values, b: Values, weights: Values | None = None) -> float:
    """Return how far the re-fits (N, M) of two models go up and down together, -1 to 1; 0 where they do not move.

    The correlation over re-fits around each person's own mean, of all people at once.
    """
    x, y = (one - one.mean(1, keepdims=True) for one in (a, b))
    xy, xx, yy = (float(np.average((p * q).sum(1), weights=weights)) for p, q in ((x, y), (x, x), (y, y)))
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else 0.0


def _error_of_shares(a: Seen, b: Seen, delta: float, part: float, weights: Values | None) -> float:
    """Return the standard error that maps leave in the difference of two shares: of two errors that go together."""
    one, two = (refit_error_of_share(s.scores, math.sqrt(part) * errors_of(s.refits), delta, weights) for s in (a, b))
    common = together(np.abs(a.refits), np.abs(b.refits), weights)
    return math.sqrt(max(one**2 + two**2 - 2 * common * one * two, 0.0))


def errors_of(refits: Values) -> Values:
    """Return the standard error of each person's mean over re-fits (N,), as a new sample would change it.

    Re-fits on resampled rows scatter as estimates from new samples would; the mean over M of them adds 1 / M of that.
    With one re-fit nothing is known of it, and it is 0.
    """
    fits = refits.shape[1]
    return refits.std(1, ddof=1) * math.sqrt(1 + 1 / fits) if fits > 1 else np.zeros(len(refits))
