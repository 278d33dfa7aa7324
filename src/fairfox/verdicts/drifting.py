"""Two audits, one after the other: does the second find people treated more unequally than the first did?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairfox.verdicts.estimates import (
    DRAWS,
    Estimate,
    Values,
    estimate,
    left_over,
    mean_draws,
    refit_error,
    refit_error_of_share,
)

WORSE, NOT_WORSE, UNKNOWN = "worse", "not worse", "cannot tell"
LEVEL = 0.05  # of the one-sided test, and of the bound that says "not worse"
OTHER_DRAWS = 1  # from the seed of the first audit's draws to the second's


@dataclass(frozen=True)
class Scores:
    """The judged people of one audit: score (N,), its standard error (N,), and 1 where flagged (N,)."""

    scores: Values
    errors: Values
    flags: Values
    delta: float
    refits: int
    folds: int | None

    @property
    def part(self) -> float:
        """How much of a person's error stays in a mean."""
        return left_over(self.refits, self.folds)

    @property
    def repeats(self) -> float:
        """Which part of that comes from the few re-fits, and would be another with another seed."""
        return 1 / (self.refits * (1 if self.folds is None else self.folds) * (1 + 1 / self.refits)) / self.part


@dataclass(frozen=True)
class Drift:
    """What the second audit found less what the first one did."""

    paired: bool
    people: tuple[int, int]
    means: tuple[float, float]
    shares: tuple[float, float]
    difference: Estimate  # of the mean score
    share_difference: Estimate
    p_value: float  # of a mean score that is no larger than before
    share_p_value: float
    bound: float  # the mean score grew by no more than this, as far as the test can say
    margin: float

    @property
    def word(self) -> str:
        """Whether people are treated more unequally: no by more than the margin, surely, or nobody knows."""
        if self.bound <= self.margin:
            return NOT_WORSE
        return WORSE if self.p_value < LEVEL else UNKNOWN

    @property
    def why(self) -> str:
        """The word's reason, one sentence."""
        who = (
            f"the same {self.people[0]:,} people"
            if self.paired
            else f"{self.people[0]:,} and {self.people[1]:,} people"
        )
        d = self.difference
        found = (
            f"Of {who} the mean score went from {self.means[0]:.4f} to {self.means[1]:.4f}, by {d.value:+.4f} "
            f"(95 % interval {d.lower:+.4f} to {d.upper:+.4f})"
        )
        if self.word == WORSE:
            return f"{found}: a rise like this would come by chance with probability {self.p_value:.2g}."
        if self.word == NOT_WORSE:
            return f"{found}: surely no more than the {self.margin:.2g} that would count."
        return f"{found}: it may have risen by more than the {self.margin:.2g} that would count, or not at all."


def drift_of_same(first: Scores, second: Scores, *, margin: float, same_maps: bool, seed: int = 0) -> Drift:
    """Return the drift of the same people in one order.

    Maps learnt from the same people, so that what they get wrong is about the same in both audits; what it changes in
    the difference remains, and the scatter of few re-fits where the maps were not the very same.
    """

    def error(of_first: float, of_second: float) -> float:
        scatter = 0.0 if same_maps else math.hypot(*_scattered(first, second, of_first, of_second))
        return math.hypot(of_second - of_first, scatter)

    apart, flags = second.scores - first.scores, second.flags - first.flags
    draws = mean_draws(apart, error(*map(_mean_error, (first, second))), seed=seed)
    share_draws = mean_draws(flags, error(*map(_share_error, (first, second))), seed=seed)
    return _drift(first, second, draws, share_draws, margin, paired=True)


def drift_of_others(first: Scores, second: Scores, *, margin: float, seed: int = 0) -> Drift:
    """Return the drift between two independent samples of people, each with maps of its own."""

    def draws(what: str, error: float, of: Scores, step: int) -> Values:
        return mean_draws(getattr(of, what), error, seed=seed + step)

    means = [draws("scores", _mean_error(of), of, k * OTHER_DRAWS) for k, of in enumerate((first, second))]
    shares = [draws("flags", _share_error(of), of, k * OTHER_DRAWS) for k, of in enumerate((first, second))]
    return _drift(first, second, means[1] - means[0], shares[1] - shares[0], margin, paired=False)


def _drift(first: Scores, second: Scores, draws: Values, share_draws: Values, margin: float, *, paired: bool) -> Drift:
    means, shares = ([float(getattr(of, what).mean()) for of in (first, second)] for what in ("scores", "flags"))
    return Drift(
        paired=paired,
        people=(len(first.scores), len(second.scores)),
        means=(means[0], means[1]),
        shares=(shares[0], shares[1]),
        difference=estimate(means[1] - means[0], draws),
        share_difference=estimate(shares[1] - shares[0], share_draws),
        p_value=_share_at_most_zero(draws),
        share_p_value=_share_at_most_zero(share_draws),
        bound=float(np.quantile(draws, 1 - LEVEL)),
        margin=margin,
    )


def _share_at_most_zero(draws: Values) -> float:
    return float(1 + (draws <= 0).sum()) / (1 + DRAWS)


def _mean_error(of: Scores) -> float:
    return refit_error(of.errors, part=of.part)


def _share_error(of: Scores) -> float:
    return refit_error_of_share(of.scores, math.sqrt(of.part) * of.errors, of.delta)


def _scattered(first: Scores, second: Scores, of_first: float, of_second: float) -> tuple[float, float]:
    return math.sqrt(first.repeats) * of_first, math.sqrt(second.repeats) * of_second
