"""Two audits compared, and how many people an audit needs to find an effect of a given size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fairfox.data.table import LARGEST
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.statistics.intervals import (
    DRAWS,
    Estimate,
    Values,
    estimate,
    left_over,
    mean_draws,
    refit_error,
    refit_error_of_share,
    standard_error,
)

A, B, WORSE, NOT_WORSE, UNKNOWN = "A is fairer", "B is fairer", "worse", "not worse", "cannot tell"
LEVEL = 0.05  # of the one-sided test, and of the bound that says "not worse"
FEWEST = 50  # people: with fewer, the scatter of a mean is no normal one, and its error is hardly known


@dataclass(frozen=True)
class Scores:
    """The judged people of one audit: score (N,), its standard error (N,), and 1 where flagged (N,)."""

    scores: Values
    errors: Values
    flagged: Values
    delta: float
    refits: int
    folds: int | None
    by_delta: bool = True  # a score above delta is what flags people, and nothing else
    maps_known: bool = True  # False: one refit leaves open how far the maps may be off
    effects: Values | None = None  # (N, M) of each refit, where another audit may have the same maps

    @classmethod
    def of_refits(
        cls,
        effects: Values,
        scores: Values,
        flags: NDArray[np.bool_],
        *,
        delta: float,
        folds: int | None,
        by_delta: bool = True,
        learnt: bool = True,
    ) -> Self:
        """Return the people of an audit with refits (N, M); `learnt`: maps add an error."""
        refits = effects.shape[1]
        known = not learnt or refits > 1
        marks = flags.astype(np.float64)
        return cls(scores, errors_of(effects), marks, delta, refits, folds, by_delta, known, effects)

    @property
    def fraction(self) -> float:
        """The fraction of a person's error that stays in a mean."""
        return left_over(self.refits, self.folds)

    def mean_error(self, weights: Values | None = None) -> float:
        """Return the standard error of the mean score from maps."""
        return refit_error(self.errors, weights, fraction=self.fraction)

    def share_error(self, weights: Values | None = None) -> float:
        """Return the standard error of the share of scores above delta from maps."""
        return refit_error_of_share(self.scores, math.sqrt(self.fraction) * self.errors, self.delta, weights)

    def spread(self, *, by_share: bool) -> float:
        """Return the standard error of the mean score, or of the share over delta, times the root of the number."""
        values, error = (self.flagged, self.share_error()) if by_share else (self.scores, self.mean_error())
        return standard_error(values, error) * math.sqrt(len(values))


@dataclass(frozen=True)
class Side:
    """One of two audits: its name, the fields of its summary.json, and the scores of its judged people."""

    name: str
    summary: Mapping[str, Any]
    scores: Values  # (N,)
    weights: Values | None = None  # (N,)


@dataclass(frozen=True)
class Pair:
    """The differences between two audits: second minus first, B minus A."""

    people: tuple[int, int]
    means: tuple[float, float]  # of scores
    shares: tuple[float, float]  # of flagged people
    difference: Estimate  # of the mean score
    share_difference: Estimate | None  # None where its error is not known
    less: float | None = None  # share of people whom the second treats less unequally; None for two samples of people
    more: float | None = None  # and more unequally
    paired: bool = True  # the same people
    p_value: float = 1.0  # of a mean score that is no larger than the first
    share_p_value: float | None = None
    bound: float = 0.0  # the mean score grew by no more than this, as far as the test can say
    margin: float | None = None  # a rise that does not count; None: it is asked which of two models is fairer
    maps_known: bool = True  # False: one refit leaves open how far the maps may be off, and errors are those of people
    unit: str = ""  # of the scores, as an audit says it
    itself: bool = False  # both are the same audit
    reason: str = ""  # the reason in a sentence, which `fairfox.compare` writes

    @property
    def word(self) -> str:
        """Which model is fairer, or whether the second audit is worse than the first."""
        if not self.maps_known:
            return UNKNOWN
        if self.margin is None:  # the smaller mean, where the interval leaves 0 out
            return B if self.difference.upper < 0 else A if self.difference.lower > 0 else UNKNOWN
        if self.bound <= self.margin:
            return NOT_WORSE
        return WORSE if self.p_value < LEVEL else UNKNOWN


def compare_scores(
    a: Scores,
    b: Scores,
    *,
    paired: bool = True,
    weights: Values | None = None,
    margin: float | None = None,
    unit: str = "",
    seed: int = 0,
) -> Pair:
    """Return two audits compared.

    The interval of the difference is a bootstrap over people and over the errors of the maps. People are drawn with
    both of their scores. Where both audits have the effects of their refits, these used the same maps, so only their
    effect on the difference counts; otherwise the errors of both count in full.

    Args:
        a: the first model or audit.
        b: the second.
        paired: both are about the same people in the same order; otherwise they are two independent samples.
        weights: how many people each row stands for (N,), of the same people.
        margin: a rise of the mean score that does not count; None: decide which of the two is fairer.
        unit: of the scores, as an audit says it.
        seed: of the bootstrap; a second sample has the next one.
    """
    if paired and len(a.scores) != len(b.scores):
        raise ShapeError(f"{len(a.scores)} people with A and {len(b.scores)} with B; give the same people in order")
    if not len(a.scores) or (weights is not None and not weights.sum() > 0):
        raise DataError("Nobody is judged with both models, so they cannot be compared; see the audit of each")

    def mean(values: Values) -> float:
        return float(np.average(values, weights=weights))

    means, shares = (mean(a.scores), mean(b.scores)), (mean(a.flagged), mean(b.flagged))
    if paired:
        mean_error, share_error = _errors(a, b, weights)
        draws = mean_draws(b.scores - a.scores, mean_error, weights, seed=seed)
        share_draws = mean_draws(b.flagged - a.flagged, share_error, weights, seed=seed)
    else:
        each = [mean_draws(s.scores, s.mean_error(), seed=seed + k) for k, s in enumerate((a, b))]
        flagged = [mean_draws(s.flagged, s.share_error(), seed=seed + k) for k, s in enumerate((a, b))]
        draws, share_draws = each[1] - each[0], flagged[1] - flagged[0]
    known = a.maps_known and b.maps_known
    share_known = known and a.by_delta and b.by_delta
    return Pair(
        people=(len(a.scores), len(b.scores)),
        means=means,
        shares=shares,
        difference=estimate(means[1] - means[0], draws),
        share_difference=estimate(shares[1] - shares[0], share_draws) if share_known else None,
        less=mean((b.scores < a.scores).astype(np.float64)) if paired else None,
        more=mean((b.scores > a.scores).astype(np.float64)) if paired else None,
        paired=paired,
        p_value=_p_of_no_rise(draws),
        share_p_value=_p_of_no_rise(share_draws) if share_known else None,
        bound=float(np.quantile(draws, 1 - LEVEL)),
        margin=margin,
        maps_known=known,
        unit=unit,
    )


def same_audit(audit: Scores, *, margin: float, unit: str = "") -> Pair:
    """Return an audit compared with itself: nothing changed."""
    people, none = len(audit.scores), Estimate(0.0, 0.0, 0.0, 0.0)
    means, shares = ((float(values.mean()),) * 2 for values in (audit.scores, audit.flagged))
    return Pair(
        (people, people), means, shares, none, none, 0.0, 0.0, share_p_value=1.0, margin=margin, unit=unit, itself=True
    )


def _errors(a: Scores, b: Scores, weights: Values | None) -> tuple[float, float]:
    """Return the standard errors that maps leave in the difference of two means, and of two shares."""
    shares = a.share_error(weights), b.share_error(weights)
    if a.effects is None or b.effects is None:
        return math.hypot(a.mean_error(weights), b.mean_error(weights)), math.hypot(*shares)
    sizes = np.abs(a.effects), np.abs(b.effects)
    mean = refit_error(errors_of(sizes[1] - sizes[0]), weights, fraction=a.fraction)
    common = refit_correlation(*sizes, weights)
    return mean, math.sqrt(max(shares[0] ** 2 + shares[1] ** 2 - 2 * common * shares[0] * shares[1], 0.0))


def refit_correlation(a: Values, b: Values, weights: Values | None = None) -> float:
    """Return the correlation of two models' refits (N, M) around each person's own mean; 0 where they do not vary."""
    x, y = (each - each.mean(1, keepdims=True) for each in (a, b))
    xy, xx, yy = (float(np.average((p * q).sum(1), weights=weights)) for p, q in ((x, y), (x, x), (y, y)))
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else 0.0


def errors_of(refits: Values) -> Values:
    """Return the standard error of each person's mean over refits (N,), as a new sample would change it.

    Refits on resampled rows scatter as estimates from new samples would; the mean over M of them adds 1 / M of that.
    With one refit it is unknown and returned as 0.
    """
    fits = refits.shape[1]
    return refits.std(1, ddof=1) * math.sqrt(1 + 1 / fits) if fits > 1 else np.zeros(len(refits))


def _p_of_no_rise(draws: Values) -> float:
    return float(1 + (draws <= 0).sum()) / (1 + DRAWS)


# --- how many people an audit needs --------------------------------------------------------------------------------
# The test finds a mean m above a limit when m - z · error is above it, z the upper 5 % of a standard normal. The error
# shrinks with the root of the number of people; the part from maps does too, since maps learn from people.


@dataclass(frozen=True)
class Plan:
    """How many people are needed, and the power of other numbers."""

    measure: str  # "mean |effect|" or "share over delta"
    size: float
    limit: float
    spread: float  # the standard error of the measure times the root of the number of people
    level: float
    wanted: float
    people: int  # who are needed

    def power(self, people: int) -> float:
        """Return how often an audit of this many people detects the size above the limit."""
        return power(self.size, self.limit, self.spread, people, level=self.level)

    @property
    def sentence(self) -> str:
        """The plan in one sentence."""
        limit = "the limit" if "share" in self.measure else "delta"
        return (
            f"An audit of {self.people:,} people detects that a {self.measure} of {self.size:.4g} is above {limit} "
            f"({self.limit:.4g}) {100 * self.wanted:.0f} % of the time."
        )


def power(size: float, limit: float, spread: float, people: int, *, level: float = LEVEL) -> float:
    """Return how often the test detects a true mean of `size` above the limit, with `people` people.

    `spread` is the standard error of the mean times the root of its number of people.

    Example:
        >>> round(power(0.08, 0.05, 0.3, 400), 3)  # the mean is two standard errors above the limit
        0.639
    """
    if spread == 0:
        return 1.0 if size > limit else 0.0
    return float(scipy.stats.norm.cdf((size - limit) * math.sqrt(people) / spread - scipy.stats.norm.isf(level)))


def people_needed(size: float, limit: float, spread: float, *, wanted: float = 0.8, level: float = LEVEL) -> int:
    """Return how many people are needed to detect a true mean of `size` above the limit, at least 50.

    Example:
        >>> people_needed(0.08, 0.05, 0.3)
        619
    """
    if not 0 <= spread < math.inf:
        raise OptionError(f"The spread is {spread}; expected a number of at least 0")
    if not 0 < level < wanted < 1:
        raise OptionError(f"power is {wanted} and level {level}; expected 0 < level < power < 1, such as 0.05 and 0.8")
    if not size > limit:
        raise OptionError(
            f"An effect of {size:g} is not above {limit:g}, so no number of people can show that it is; "
            "give a larger effect or a lower limit"
        )
    errors = float(scipy.stats.norm.isf(level) + scipy.stats.norm.ppf(wanted))  # that the size must lie above the limit
    root = errors * spread / (size - limit)
    if root > LARGEST:
        raise OptionError(
            f"An effect of {size:g} is too close to {limit:g}, with a spread of {spread:g}, for any number of people "
            "to show that it is above; give a larger effect or a smaller spread"
        )
    return max(FEWEST, math.ceil(root**2))
