"""What an audit's result is made of: findings on protected variables, groups, readings, features."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.data.dataset import ProtectedKind, group_name
from fairfox.verdicts.model import Verdict
from fairfox.weighted import mean, of_people, share

UNKNOWN = "unknown"  # the own group of people whose protected value is neither known nor inferred


@dataclass(frozen=True)
class FeatureEffect:
    """Through which original features the effect goes: contributions that sum to f(x') - f(x)."""

    names: tuple[str, ...]
    per_person: Tensor  # (N, F), signed; NaN rows were not explained (black boxes are explained on a sample)
    method: str  # "integrated gradients" or "sampled Shapley values"
    drawn: Tensor | None = None  # (N,) bool: a random sample the totals are taken over; None: everyone explained

    @property
    def total(self) -> dict[str, float]:
        """Mean |contribution| per feature over the explained people, largest first."""
        known = self._counted
        means = known.abs().mean(0).tolist() if len(known) else [math.nan] * len(self.names)
        return dict(sorted(zip(self.names, means, strict=True), key=lambda pair: -pair[1]))

    @property
    def error(self) -> dict[str, float]:
        """Standard error of `total` over the people it was averaged over: what a sample leaves open."""
        known = self._counted.abs()
        spread = known.std(0) / len(known) ** 0.5 if len(known) > 1 else known.new_full((len(self.names),), math.nan)
        errors = dict(zip(self.names, spread.tolist(), strict=True))
        return {name: errors[name] for name in self.total}

    @property
    def people(self) -> int:
        """How many people the totals are averaged over."""
        return len(self._counted)

    def by_group(self, finding: Finding, among: Tensor, weights: Tensor | None) -> dict[str, dict[str, float]]:
        """Return the mean signed contribution of each feature in each group, by `Group.name`, over some people (N,)."""
        values, counts = self.per_person.numpy(force=True), of_people(weights, len(among))
        own = np.asarray(finding.group, dtype=str)
        counted = ~np.isnan(values).any(1) & among.numpy(force=True)
        out = {}
        for level in np.unique(own[counted]).tolist():
            rows = counted & (own == level)
            means = [mean(column, counts[rows]) for column in values[rows].T]
            out[group_name(finding.name, level)] = dict(zip(self.names, means, strict=True))
        return out

    @property
    def _counted(self) -> Tensor:
        explained = ~self.per_person.isnan().any(1)
        return self.per_person[explained if self.drawn is None else explained & self.drawn]


@dataclass(frozen=True)
class Features:
    """Which features give the protected variable away, and which carry the effect."""

    proxy: dict[str, float]  # the paper's transparency report: |mean gradient of the auxiliary|, largest first
    effect: FeatureEffect | None
    displacement: dict[str, float] = field(
        default_factory=dict
    )  # |mean change| of the first class's people when mapped


@dataclass(frozen=True)
class Group:
    """The people of one protected class, or of one range of a protected number, together. Means are weighted."""

    variable: str
    level: str
    people: int
    mean_prediction: float
    mean_signed: float | None
    share_flagged: float  # because of this variable
    share_confident: float | None
    inferred: int = 0  # of the people: their class is the most probable one, nobody knows it
    towards: dict[str, float] = field(default_factory=dict)  # mean signed value towards each other class

    @property
    def name(self) -> str:
        """The group in words: "sex=Female"; a cut speaks for itself: "age<25", "not age<25"."""
        return group_name(self.variable, self.level)


@dataclass(frozen=True)
class Reading:
    """One reading of the effect, averaged over the judged people."""

    mean_signed: float
    mean_absolute: float
    groups: dict[str, Reading] = field(default_factory=dict)  # by own protected class


@dataclass(frozen=True)
class Finding:
    """What an audit found for one protected variable, one entry per person in the order of the table.

    Towards what people are compared: each class (the column of the own class is NaN), or a number one standard
    deviation up and down, whose sign is always that of going up.
    """

    name: str
    kind: ProtectedKind
    levels: tuple[str, ...]  # the classes; () for a number
    contrasts: tuple[str, ...]  # Q, in words: the classes; "age + 13.6" and "age - 13.6"; () where a test knows none
    effects: Tensor  # (N, Q) signed value of each contrast; NaN where there is none
    scores: Tensor  # (N,) the largest of them
    signed: Tensor | None  # (N,)
    interval: Tensor | None  # (N, 2)
    flags: Tensor  # (N,) bool
    confident_flags: Tensor | None  # (N,) bool
    abstained: Tensor  # (N,) bool: nothing can be said about this variable
    towards: tuple[str | None, ...]  # (N,) the contrast that counts, in words
    group: tuple[str, ...]  # (N,) own class, or the range the own number is in; "unknown"
    inferred: Tensor  # (N,) bool: the own class is the most probable one, nobody knows it
    direct: Tensor  # (N,) effect of the smallest edit that changes c; NaN where it abstained
    total: Tensor  # (N,) effect of the same ranks in the other group; NaN where it abstained
    alignment_share: float
    alignment_error: float
    proxy: dict[str, float]  # per feature: |mean gradient of the auxiliary|, largest first
    quality: AuxiliaryQuality
    groups: tuple[Group, ...]
    parts: tuple[str, ...] = ()  # the variables it crosses
    reference: str | None = None  # the class that all others are compared with
    second: str | None = None  # the class its members are compared with, where it is the largest; None: all others
    merged: dict[str, tuple[str, ...]] = field(default_factory=dict)  # rare classes put together, by the new name
    is_own: bool = True  # whether the score is about this variable; some tests have one score for all
    verdict: Verdict | None = None  # on the model, for this variable; None without an interval

    @property
    def reached(self) -> tuple[str, ...]:
        """The contrasts that concern anybody: of a variable compared by size the two largest classes."""
        return tuple(c for c in self.contrasts if self.second is None or c in (self.reference, self.second))

    @property
    def judged(self) -> int:
        """How many people something can be said about."""
        return int((~self.abstained).sum())

    @property
    def unknown(self) -> int:
        """How many people's own group is neither known nor inferred."""
        return 0 if UNKNOWN in self.levels else self.group.count(UNKNOWN)

    @property
    def attained(self) -> dict[str, int]:
        """For how many judged people each contrast was the largest, in the order of the contrasts."""
        away = self.abstained.numpy(force=True)
        counted = Counter(to for to, out in zip(self.towards, away, strict=True) if to is not None and not out)
        return {to: counted[to] for to in dict.fromkeys([*self.contrasts, *counted]) if counted[to]}

    def judges(self, level: str) -> bool:
        """Return whether something can be said about anybody of a group."""
        own = zip(self.group, self.abstained.tolist(), strict=True)
        return any(group == level and not out for group, out in own)

    def share_flagged(self, weights: Tensor | None = None) -> float:
        """Return the share of judged people who are flagged because of this variable."""
        return share(self.flags, self.abstained, weights)

    def share_confident(self, weights: Tensor | None = None) -> float | None:
        """Return the share of judged people who are flagged confidently; None without an interval."""
        return None if self.confident_flags is None else share(self.confident_flags, self.abstained, weights)

    def mean_score(self, weights: Tensor | None = None) -> float:
        """Return the mean score of the judged people; NaN where there are none."""
        known = ~self.abstained.numpy(force=True)
        return mean(self.scores.numpy(force=True).astype(np.float64)[known], of_people(weights, len(known))[known])

    def readings(self, weights: Tensor | None = None) -> dict[str, Reading]:
        """Return the direct and the total reading of the effect, over all judged people and per own group."""
        return {"direct": self._reading(self.direct, weights), "total": self._reading(self.total, weights)}

    def _reading(self, effect: Tensor, weights: Tensor | None) -> Reading:
        values = effect.numpy(force=True).astype(np.float64)
        known = ~self.abstained.numpy(force=True) & np.isfinite(values)
        values, weight = values[known], of_people(weights, len(known))[known]
        own = np.asarray(self.group, dtype=str)[known]
        order = dict.fromkeys([*(g.level for g in self.groups), *np.unique(own).tolist()])
        groups = {level: _mean_reading(values[own == level], weight[own == level]) for level in order if level in own}
        whole = _mean_reading(values, weight)
        return Reading(whole.mean_signed, whole.mean_absolute, groups)


def _mean_reading(values: np.ndarray, weights: np.ndarray) -> Reading:
    return Reading(mean(values, weights), mean(np.abs(values), weights))
