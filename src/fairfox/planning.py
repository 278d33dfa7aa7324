"""plan(...): how many people an audit needs to see an effect of a given size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fairfox.earlier import check_unweighted, read_earlier
from fairfox.errors import OptionError
from fairfox.result import AuditResult
from fairfox.verdicts.drifting import Scores
from fairfox.verdicts.estimates import refit_error, refit_error_of_share, standard_error
from fairfox.verdicts.power import LEVEL, people_needed, power


@dataclass(frozen=True)
class Plan:
    """How many people it takes, and what fewer or more of them would show."""

    measure: str  # "mean |effect|" or "share over delta"
    size: float
    limit: float
    spread: float  # the standard error of the measure times the root of the number of people
    level: float
    wanted: float
    people: int  # who are needed

    def power(self, people: int) -> float:
        """Return how often an audit of so many people finds the size above the limit."""
        return power(self.size, self.limit, self.spread, people, level=self.level)

    @property
    def sentence(self) -> str:
        """What it takes, in one sentence."""
        return (
            f"It takes {self.people:,} people to find a {self.measure} of {self.size:.4g} above the limit of "
            f"{self.limit:.4g} in {self.wanted:.0%} of audits."
        )


def plan(
    pilot: AuditResult | str | Path | None = None,
    *,
    effect: float | None = None,
    limit: float | None = None,
    share: float | None = None,
    max_flagged: float | None = None,
    spread: float | None = None,
    wanted: float = 0.8,
    level: float = LEVEL,
) -> Plan:
    """Return how many people are needed to find an effect of a given size.

    To find: the one-sided test says that the mean |effect| lies above `limit`, or with `max_flagged` that the share of
    people over delta does. How far either scatters comes from a pilot, by what people and what re-fits of its maps
    differ: an earlier audit of some hundred people of the same kind, with the same model.

    Args:
        pilot: the folder of an earlier audit, or its result.
        effect: the true mean |effect| to be found; by default the pilot's.
        limit: what it must lie above; by default the pilot's delta.
        share: the true share of people over delta to be found; by default the pilot's. Needs `max_flagged`.
        max_flagged: the share that may be over delta.
        spread: the standard error times the root of the number of people, where there is no pilot.
        wanted: how often the effect shall be found.
        level: how often an effect of exactly the limit is found.
    """
    by_share = max_flagged is not None or share is not None
    if by_share and (max_flagged is None or effect is not None or limit is not None):
        raise OptionError(
            "A share is planned with share and max_flagged, a mean with effect and limit; give two of a kind"
        )
    if (pilot is None) == (spread is None):
        raise OptionError(
            "How far results scatter is known from a pilot, the folder of an earlier audit, or given as spread "
            "(--spread); give one of them"
        )
    size, allowed = (share, max_flagged) if by_share else (effect, limit)
    if pilot is not None:
        people = _pilot(pilot, by_share=by_share)
        size = size if size is not None else float((people.flags if by_share else people.scores).mean())
        allowed = people.delta if allowed is None else allowed
        spread = spread_of_share(people) if by_share else spread_of_mean(people)
    if size is None or allowed is None or spread is None:
        raise OptionError("Without a pilot the size to be found and the limit are needed: effect and limit (--limit)")
    if math.isnan(spread):
        raise OptionError("The pilot judged one person only; give one with at least some dozen people")
    needed = people_needed(size, allowed, spread, wanted=wanted, level=level)
    measure = "share over delta" if by_share else "mean |effect|"
    return Plan(measure, size, allowed, spread, level, wanted, needed)


def _pilot(pilot: AuditResult | str | Path, *, by_share: bool) -> Scores:
    """Return the people of a pilot that says how far results scatter; another one is refused."""
    read = read_earlier(pilot)
    check_unweighted(read)
    if not read.people.maps_known:
        raise OptionError(
            f"One re-fit in {read.name} leaves open how sure its maps are, and so how far results scatter; give a "
            "pilot with refits=5 (--refits 5)"
        )
    if by_share and not read.people.by_delta:
        raise OptionError(
            f"A decision threshold or the delta of a single group flags people in {read.name}, and shares are planned "
            "for one delta for all; give a pilot with that, or plan a mean with effect and limit (--effect, --limit)"
        )
    return read.people


def spread_of_mean(people: Scores) -> float:
    """Return the standard error of the mean score times the root of the number of people."""
    error = refit_error(people.errors, part=people.part)
    return standard_error(people.scores, error) * math.sqrt(len(people.scores))


def spread_of_share(people: Scores) -> float:
    """Return the same for the share of people over delta."""
    error = refit_error_of_share(people.scores, math.sqrt(people.part) * people.errors, people.delta)
    return standard_error(people.flags, error) * math.sqrt(len(people.flags))
