"""Sample sizes: the power of the one-sided test that a mean over people lies above a limit.

The test finds a mean m above a limit when m - z · error is above it, z the upper 5 % of a standard normal. The error
shrinks with the root of the number of people; the part from maps does too, since maps learn from people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy

from fairfox.data.table import LARGEST
from fairfox.errors import OptionError
from fairfox.statistics.intervals import standard_error
from fairfox.statistics.paired import Scores

LEVEL = 0.05  # how often the test finds what is not there
FEWEST = 50  # people: with fewer, the scatter of a mean is no normal one, and its error is hardly known


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
        return (
            f"{self.people:,} people are needed to detect a {self.measure} of {self.size:.4g} above the limit of "
            f"{self.limit:.4g} in {self.wanted:.0%} of audits."
        )


def spread_of_mean(people: Scores) -> float:
    """Return the standard error of the mean score times the root of the number of people."""
    return standard_error(people.scores, people.mean_error()) * math.sqrt(len(people.scores))


def spread_of_share(people: Scores) -> float:
    """Return the same for the share of people over delta."""
    return standard_error(people.flagged, people.share_error()) * math.sqrt(len(people.flagged))


def p_above(mean: float, error: float, limit: float) -> float:
    """Return the probability of a mean this large where the true one is at most the limit."""
    if error == 0:
        return 0.0 if mean > limit else 1.0
    return float(scipy.stats.norm.sf((mean - limit) / error))


def power(size: float, limit: float, spread: float, people: int, *, level: float = LEVEL) -> float:
    """Return how often the test detects a true mean of `size` above the limit, with `people` people.

    `spread` is the standard error of the mean times the root of its number of people.

    Example:
        >>> round(power(0.08, 0.05, 0.3, 400), 3)  # the mean is two standard errors above the limit
        0.639
    """
    _check(spread, level)
    if people < 1:
        raise OptionError(f"The number of people is {people}; expected at least 1")
    if spread == 0:
        return 1.0 if size > limit else 0.0
    return float(scipy.stats.norm.cdf((size - limit) * math.sqrt(people) / spread - scipy.stats.norm.isf(level)))


def people_needed(size: float, limit: float, spread: float, *, wanted: float = 0.8, level: float = LEVEL) -> int:
    """Return how many people are needed to detect a true mean of `size` above the limit, at least 50.

    Example:
        >>> people_needed(0.08, 0.05, 0.3)
        619
    """
    _check(spread, level)
    if not level < wanted < 1:
        raise OptionError(f"The wanted power is {wanted}; expected a number between {level} and 1, such as 0.8")
    if not size > limit:
        raise OptionError(
            f"An effect of {size:g} is not above the limit of {limit:g}, so no number of people can show it; "
            "give a larger effect or a lower limit"
        )
    errors = float(scipy.stats.norm.isf(level) + scipy.stats.norm.ppf(wanted))  # that the size must lie above the limit
    root = errors * spread / (size - limit)
    if root > LARGEST:
        raise OptionError(
            f"An effect of {size:g} above the limit of {limit:g} is too small beside a spread of {spread:g} for any "
            "number of people to show it; give a larger effect or a smaller spread"
        )
    return max(FEWEST, math.ceil(root**2))


def _check(spread: float, level: float) -> None:
    if not 0 <= spread < math.inf:
        raise OptionError(f"The spread is {spread}; expected a number of at least 0")
    if not 0 < level < 1:
        raise OptionError(f"The level is {level}; expected a number between 0 and 1, such as 0.05")
