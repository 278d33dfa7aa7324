"""Two audits, one after the other: does the second find people treated more unequally than the first did?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
    by_delta: bool = True  # a score above delta is what flags people, and nothing else
    maps_known: bool = True  # False: one re-fit leaves open how far the maps may be off

    @property
    def part(self) -> float:
        """How much of a person's error stays in a mean."""
        return left_over(self.refits, self.folds)


@dataclass(frozen=True)
class Drift:
    """What the second audit found less what the first one did."""

    paired: bool
    people: tuple[int, int]
    means: tuple[float, float]
    shares: tuple[float, float]
    difference: Estimate  # of the mean score
    share_difference: Estimate | None  # None where its error is not known
    p_value: float  # of a mean score that is no larger than before
    share_p_value: float | None
    bound: float  # the mean score grew by no more than this, as far as the test can say
    margin: float
    maps_known: bool = True  # False: one re-fit leaves open how far the maps may be off, and errors are those of people
    unit: str = ""  # of the scores, as an audit says it
    itself: bool = False  # both audits are the same one

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from fairfox.report.snippet import drift_card

        return drift_card(self)

    @property
    def word(self) -> str:
        """Whether people are treated more unequally: not by more than the margin, surely, or nobody knows."""
        if not self.maps_known:
            return UNKNOWN
        if self.bound <= self.margin:
            return NOT_WORSE
        return WORSE if self.p_value < LEVEL else UNKNOWN

    @property
    def why(self) -> str:
        """The word's reason, one sentence."""
        from fairfox.report.text import amount  # the room of sentences is below this one

        before, now, margin = (amount(value, self.unit) for value in (*self.means, self.margin))
        value, lower, upper = (
            amount(end, self.unit, sign=True)
            for end in (self.difference.value, self.difference.lower, self.difference.upper)
        )
        if self.itself:
            return (
                f"It is the same audit twice, with the same rows, predictions and scores: of {self.people[0]:,} people "
                f"the mean score is {before}, and nothing changed."
            )
        many = self.people
        who = f"the same {many[0]:,} people" if self.paired else f"{many[0]:,} and {many[1]:,} people"
        found = f"Of {who} the mean score went from {before} to {now}, by {value}"
        if not self.maps_known:
            return (
                f"{found}, but one re-fit leaves open how sure the maps are; set refits=5 (--refits 5) in both audits."
            )
        found = f"{found} (95 % interval {lower} to {upper})"
        if self.word == WORSE:
            return f"{found}: a rise like this would come by chance with probability {self.p_value:.2g}."
        if self.word == NOT_WORSE:
            return f"{found}: surely no more than the {margin} that would count."
        return f"{found}: it may have risen by more than the {margin} that would count, or not at all."


def drift_of_itself(audit: Scores, *, margin: float, unit: str = "") -> Drift:
    """Return the drift of an audit from itself: none, whatever its people and maps leave open."""
    mean, share, none = float(audit.scores.mean()), float(audit.flags.mean()), Estimate(0.0, 0.0, 0.0, 0.0)
    return Drift(
        paired=True,
        people=(len(audit.scores), len(audit.scores)),
        means=(mean, mean),
        shares=(share, share),
        difference=none,
        share_difference=none,
        p_value=1.0,
        share_p_value=1.0,
        bound=0.0,
        margin=margin,
        unit=unit,
        itself=True,
    )


def drift_of_same(first: Scores, second: Scores, *, margin: float, unit: str = "", seed: int = 0) -> Drift:
    """Return the drift of the same people in one order.

    They are drawn with both of their scores. What the maps get wrong counts in full for both audits: nobody knows
    whether a model that has changed is moved alike by it.
    """

    def draws(what: str, errors: tuple[float, float]) -> Values:
        return mean_draws(getattr(second, what) - getattr(first, what), math.hypot(*errors), seed=seed)

    means = draws("scores", (_mean_error(first), _mean_error(second)))
    shares = draws("flags", (_share_error(first), _share_error(second)))
    return replace(_drift(first, second, means, shares, margin, paired=True), unit=unit)


def drift_of_others(first: Scores, second: Scores, *, margin: float, unit: str = "", seed: int = 0) -> Drift:
    """Return the drift between two independent samples of people, each with maps of its own."""

    def draws(what: str, error: float, of: Scores, step: int) -> Values:
        return mean_draws(getattr(of, what), error, seed=seed + step)

    means = [draws("scores", _mean_error(of), of, k * OTHER_DRAWS) for k, of in enumerate((first, second))]
    shares = [draws("flags", _share_error(of), of, k * OTHER_DRAWS) for k, of in enumerate((first, second))]
    found = _drift(first, second, means[1] - means[0], shares[1] - shares[0], margin, paired=False)
    return replace(found, unit=unit)


def _drift(first: Scores, second: Scores, draws: Values, share_draws: Values, margin: float, *, paired: bool) -> Drift:
    means, shares = ([float(getattr(of, what).mean()) for of in (first, second)] for what in ("scores", "flags"))
    known = first.maps_known and second.maps_known
    share_known = known and first.by_delta and second.by_delta
    return Drift(
        paired=paired,
        people=(len(first.scores), len(second.scores)),
        means=(means[0], means[1]),
        shares=(shares[0], shares[1]),
        difference=estimate(means[1] - means[0], draws),
        share_difference=estimate(shares[1] - shares[0], share_draws) if share_known else None,
        p_value=_share_at_most_zero(draws),
        share_p_value=_share_at_most_zero(share_draws) if share_known else None,
        bound=float(np.quantile(draws, 1 - LEVEL)),
        margin=margin,
        maps_known=known,
    )


def _share_at_most_zero(draws: Values) -> float:
    return float(1 + (draws <= 0).sum()) / (1 + DRAWS)


def _mean_error(of: Scores) -> float:
    return refit_error(of.errors, part=of.part)


def _share_error(of: Scores) -> float:
    return refit_error_of_share(of.scores, math.sqrt(of.part) * of.errors, of.delta)
