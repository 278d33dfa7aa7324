"""What an audit found: findings on protected variables, their groups, and the record they form. Data only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.certificates.path import Certificates
from fairfox.choices.tests import EFFECT
from fairfox.data.dataset import ProtectedKind, group_name
from fairfox.maps.check import FlipSet, MapCheck, flip_sets
from fairfox.options import EVERYONE
from fairfox.statistics.diagnostics import Null
from fairfox.statistics.groups import judged_share, people_weights, weighted_mean
from fairfox.statistics.intervals import standard_error
from fairfox.statistics.multiplicity import Threshold
from fairfox.statistics.performance import Performance
from fairfox.statistics.verdict import ALLOWED, Counted, Verdict, family_verdict

RATES = ("selection_rate", "impact_ratio", "true_positive_rate", "false_positive_rate", "accuracy")  # of groups
UNKNOWN = "unknown"  # the own group of people whose protected value is neither known nor inferred


@dataclass(frozen=True)
class FeatureEffect:
    """Through which original features the effect goes: contributions that sum to f(x') - f(x)."""

    names: tuple[str, ...]
    per_person: Tensor  # (N, F), signed; NaN rows were not explained (black boxes are explained on a sample)
    method: str  # "integrated gradients" or "sampled Shapley values"
    drawn: Tensor | None = None  # (N,) bool: a random sample the totals are taken over; None: everyone explained
    weights: Tensor | None = None  # (N,) how many people each row stands for
    explain: Callable[[int, Tensor], Tensor] | None = field(default=None, repr=False, compare=False)
    # contributions (F,) of one more person, by their place and their counterfactual row (D,)

    def __getstate__(self) -> dict[str, Any]:  # the model that `explain` asks is not copied
        return {**self.__dict__, "explain": None}

    @property
    def total(self) -> dict[str, float]:
        """Mean |contribution| per feature over the people who count, largest first."""
        sizes, counts = self._sizes
        means = [weighted_mean(column, counts) for column in sizes.T]
        return dict(sorted(zip(self.names, means, strict=True), key=lambda pair: -pair[1]))

    @property
    def error(self) -> dict[str, float]:
        """Standard error of `total` over the people it was averaged over: what a sample leaves open."""
        sizes, counts = self._sizes
        errors = dict(zip(self.names, (standard_error(column, 0.0, counts) for column in sizes.T), strict=True))
        return {name: errors[name] for name in self.total}

    @property
    def people(self) -> int:
        """How many people the totals are averaged over."""
        return int(self._counted.sum())

    def by_group(self, finding: Finding, among: Tensor) -> dict[str, dict[str, float]]:
        """Return the mean signed contribution of each feature in each group, by `Group.name`, over some people (N,)."""
        values, counts = self.per_person.numpy(force=True), people_weights(self.weights, len(among))
        own = np.asarray(finding.group, dtype=str)
        counted = (self._counted & among.to(self._counted.device)).numpy(force=True)
        out = {}
        for level in np.unique(own[counted]).tolist():
            rows = counted & (own == level)
            means = [weighted_mean(column, counts[rows]) for column in values[rows].T]
            out[group_name(finding.name, level)] = dict(zip(self.names, means, strict=True))
        return out

    @property
    def _sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The |contributions| (n, F) of the people who count, and their weights (n,)."""
        counted = self._counted.numpy(force=True)
        return self.per_person.abs().numpy(force=True)[counted], people_weights(self.weights, len(counted))[counted]

    @property
    def _counted(self) -> Tensor:
        """Whose contributions the means are over (N,) bool: those explained and drawn."""
        explained = ~self.per_person.isnan().any(1)
        return explained if self.drawn is None else explained & self.drawn.to(explained.device)


@dataclass(frozen=True)
class Features:
    """Which features give the protected variable away, and which carry the effect."""

    proxy: dict[str, float]  # the paper's transparency report: |mean gradient of the auxiliary|, largest first
    effect: FeatureEffect | None


@dataclass(frozen=True)
class Group:
    """The people of one protected class, or of one range of a protected number, together. Means are weighted."""

    variable: str
    level: str
    people: int
    mean_prediction: float
    mean_effect: float | None
    share_flagged: float  # because of this variable
    share_confident: float | None
    inferred: int = 0  # of the people: their class is the most probable one, nobody knows it
    towards: dict[str, float] = field(default_factory=dict)  # mean signed value towards each other class
    selection_rate: float | None = None  # share with a yes: a prediction of at least the decision threshold, or 0.5
    impact_ratio: float | None = None  # that over the largest of the variable's groups
    true_positive_rate: float | None = None  # share with a yes of those with a true one; None without labels
    false_positive_rate: float | None = None  # of those with a true no
    accuracy: float | None = None  # share whose decision is the true outcome
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, of these rates by name

    @property
    def name(self) -> str:
        """The group in words: "sex=Female"; a cut speaks for itself: "age<25", "not age<25"."""
        return group_name(self.variable, self.level)


@dataclass(frozen=True)
class Tally:
    """How many of some people are what. Shares and means are weighted, counts never."""

    people: int
    judged: int
    flagged: int
    confident: int | None  # None without an interval
    inferred: int  # whose own group is the most probable one
    share_flagged: float  # of the judged people
    share_confident: float | None
    mean_score: float  # NaN of nobody
    unknown: int = 0  # whose own group is neither known nor inferred
    attained: dict[str, int] = field(default_factory=dict)  # for how many judged people each contrast was the largest

    @classmethod
    def of(cls, found: AuditRecord | Finding, weights: Tensor | None, **more: Any) -> Tally:
        """Return it of people who are in memory."""
        known, confident = ~found.abstained.numpy(force=True), found.confident
        scores = found.scores.numpy(force=True).astype(np.float64)
        return cls(
            people=len(known),
            judged=int(known.sum()),
            flagged=int(found.flagged.sum()),
            confident=None if confident is None else int(confident.sum()),
            inferred=int(found.inferred.sum()),
            share_flagged=judged_share(found.flagged, found.abstained, weights),
            share_confident=None if confident is None else judged_share(confident, found.abstained, weights),
            mean_score=weighted_mean(scores[known], people_weights(weights, len(known))[known]),
            **more,
        )


@dataclass(frozen=True)
class StreamedVariable:
    """All people of a stream in numbers, for one protected variable."""

    tally: Tally
    groups: tuple[Group, ...]
    counted: dict[str, Counted]  # what a verdict needs, by the name of the variable and of each group


@dataclass(frozen=True)
class Streamed:
    """All people of a stream in numbers; those who are in a record one by one are a sample of them."""

    tally: Tally
    variables: dict[str, StreamedVariable]  # by name
    share_abstained: float
    abstained_by_reason: dict[str, int]
    worst_case: dict[str, float]
    threshold: Threshold | None  # of the list; None without intervals


@dataclass(frozen=True)
class Reading:
    """One reading of the effect, averaged over the judged people."""

    mean_effect: float
    mean_absolute: float
    groups: dict[str, Reading] = field(default_factory=dict)  # by own protected class


@dataclass(frozen=True)
class CommonCause:
    """How strong a common cause outside the table would have to be to explain a group's mean effect."""

    group: str
    feature: str  # the number that gives the group away most
    shift: float | None  # of it between the groups, in its standard deviations; None: not even 3 would do


@dataclass(frozen=True)
class GapParts:
    """The gap between the mean predictions of two groups, taken apart along a causal graph.

    gap = direct - indirect - spurious, each a mean over the people of the first group. `direct` is the change of only
    the protected column, `indirect` what its descendants then take away again. `spurious` is the remaining difference
    between these people, as members of the other group, and its real members: the groups differ in other causes.
    """

    group: str
    towards: str
    gap: float
    direct: float
    indirect: float
    spurious: float


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
    effect: Tensor | None  # (N,)
    interval: Tensor | None  # (N, 2)
    flagged: Tensor  # (N,) bool
    confident: Tensor | None  # (N,) bool
    abstained: Tensor  # (N,) bool: nothing can be said about this variable
    towards: tuple[str | None, ...]  # (N,) the contrast that counts, in words
    group: tuple[str, ...]  # (N,) own class, or the range the own number is in; "unknown"
    inferred: Tensor  # (N,) bool: the own class is the most probable one, nobody knows it
    direct: Tensor | None  # (N,) effect of the smallest edit that changes c; NaN where it abstained, None: not measured
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
    same_outcome: Tensor | None = None  # (N,) the same among people with the same label; None without labels
    gap_parts: tuple[GapParts, ...] = ()  # along a causal graph
    common_cause: CommonCause | None = None
    streamed: Tally | None = None  # of all people of a stream, where the others here are a sample

    @property
    def reached(self) -> tuple[str, ...]:
        """The contrasts that concern anybody: where everyone is compared by size, the two largest classes."""
        return tuple(c for c in self.contrasts if self.second is None or c in (self.reference, self.second))

    def tally(self, weights: Tensor | None = None) -> Tally:
        """Return how many people are what because of this variable; contrasts are in their order."""
        if self.streamed is not None:
            return self.streamed
        away = self.abstained.numpy(force=True)
        counted = Counter(to for to, out in zip(self.towards, away, strict=True) if to is not None and not out)
        attained = {to: counted[to] for to in dict.fromkeys([*self.contrasts, *counted]) if counted[to]}
        unknown = 0 if UNKNOWN in self.levels else self.group.count(UNKNOWN)
        return Tally.of(self, weights, unknown=unknown, attained=attained)

    def readings(self, weights: Tensor | None = None) -> dict[str, Reading]:
        """Return the total reading of the effect, the direct one where it was measured, and that at the same outcome.

        Over all judged people and per own group.
        """
        each = {"direct": self.direct, "total": self.total, "same outcome": self.same_outcome}
        return {name: self.reading(effect, weights) for name, effect in each.items() if effect is not None}

    def reading(self, effect: Tensor, weights: Tensor | None = None) -> Reading:
        """Return an effect (N,) averaged over the judged people for whom it is known, and per own group."""
        values = effect.numpy(force=True).astype(np.float64)
        known = ~self.abstained.numpy(force=True) & np.isfinite(values)
        values, weight = values[known], people_weights(weights, len(known))[known]
        own = np.asarray(self.group, dtype=str)[known]
        order = dict.fromkeys([*(g.level for g in self.groups), *np.unique(own).tolist()])
        groups = {level: _mean_reading(values[own == level], weight[own == level]) for level in order if level in own}
        whole = _mean_reading(values, weight)
        return Reading(whole.mean_effect, whole.mean_absolute, groups)


def _mean_reading(values: np.ndarray, weights: np.ndarray) -> Reading:
    return Reading(weighted_mean(values, weights), weighted_mean(np.abs(values), weights))


@dataclass(frozen=True)
class TestComparison:
    """What each test said about everyone, how long it took, and which tests were left out and why."""

    __test__ = False  # pytest would take the name for a test's

    tests: tuple[str, ...]
    scores: Tensor  # (N, T); NaN where a test cannot say
    agreement: Tensor  # (T, T) rank correlations over the people whom both judge; NaN where there is none
    seconds: dict[str, float]  # of fitting and measuring, without the auxiliaries
    training_seconds: float  # of the auxiliaries, which `move` and `faux` share with the audit itself
    checks: dict[str, dict[str, float]]  # what tests say about their fits and about the model
    skipped: dict[str, str]  # why


@dataclass(frozen=True)
class AuditRecord:
    """Everything an audit found, one entry per person in the order of the table.

    Scores, signs, intervals and flags are those of the worst case over all protected variables and classes;
    `findings` has them for each variable. Abstained people have score 0.0 here and null in the files, and are left
    out of `share_flagged`. Shares and means are weighted where people have weights, counts never.
    """

    scores: Tensor  # (N,), higher is less fair
    effect: Tensor | None  # (N,); > 0: a higher prediction as a member of the other group
    interval: Tensor | None  # (N, 2), around the signed value (the score where a test has no sign)
    flagged: Tensor  # (N,) bool: score above delta
    confident: Tensor | None  # (N,) bool: the whole interval is beyond delta
    abstained: Tensor  # (N,) bool
    reasons: tuple[str | None, ...]  # why abstained
    predictions: Tensor  # (N,)
    worst: Tensor  # (N,) which of the findings attained the score
    findings: tuple[Finding, ...]  # one per protected variable
    counterfactual: Tensor | None  # (N, D) encoded rows x' of the map, for the contrast that counts
    encoded: Tensor  # (N, D) everyone's own rows x
    ids: np.ndarray | None  # (N,) the id column, else None
    features: Features
    delta: float
    test: str
    meaning: str  # one sentence: what the score says
    unit: str  # "change of the prediction (probability)", "cosine"
    warnings: tuple[str, ...]
    settings: dict[str, Any]  # seed, versions, options, durations
    deltas: dict[str, float] = field(default_factory=dict)  # delta of single groups, by `Group.name`
    weights: Tensor | None = None  # (N,) how many people each row stands for
    checks: dict[str, float] = field(default_factory=dict)  # what the test says of its fits and of the model as a whole
    comparison: TestComparison | None = None  # with every other test that applies
    counterfactual_table: Any = None  # x' in the table's own kind and units, categories the most probable
    certificates: Certificates | None = None  # what is proved about the path to x', where asked for
    refits: Tensor | None = None  # (N, M) the effect of each refit
    sampling: Tensor | None = None  # (N, 2) intervals that hold if people's ranks carry over exactly
    p_values: Tensor | None = None  # (N,) of an effect as large where the true one is no more than delta
    significant: Tensor | None = None  # (N,) bool: on the list of people over delta with a given false discovery rate
    null: Null | None = None  # what is found where the protected values are shuffled, where asked for
    map_checks: tuple[MapCheck, ...] = ()  # whether the map accounts for the gap, and stays on the data
    still: tuple[str, ...] = ()  # features in which the groups do not differ beyond chance: they do not move
    streamed: Streamed | None = None  # all people of a stream, where those here are a sample of them
    performance: tuple[Performance, ...] = ()  # how well predictions tell the label, where there is one
    alternatives: dict[str, Any] | None = None  # that were tried, as `read_alternatives` returns them
    intersections: tuple[Group, ...] = ()  # of several protected variables, where they were not audited themselves

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def tally(self) -> Tally:
        """How many people are what, in the worst case over all protected variables."""
        return Tally.of(self, self.weights) if self.streamed is None else self.streamed.tally

    @property
    def listed(self) -> int | None:
        """How many people are significant; None without an interval."""
        if self.streamed is not None and self.streamed.threshold is not None:
            return self.streamed.threshold.listed
        return None if self.significant is None else int(self.significant.sum())

    @property
    def judged(self) -> int:
        """How many people were not abstained."""
        return self.tally.judged

    @property
    def share_flagged(self) -> float:
        """Share of flagged people among those not abstained."""
        return self.tally.share_flagged

    @property
    def share_confident(self) -> float | None:
        """Share of confidently flagged people among those not abstained; None without an interval."""
        return self.tally.share_confident

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the model, over all protected variables; None without intervals."""
        found = [finding.verdict for finding in self.findings if finding.verdict is not None]
        return family_verdict(found) if found else None

    @property
    def limit(self) -> float:
        """The largest share of people that may be over delta."""
        return float((self.settings.get("max_flagged") or {}).get(EVERYONE, ALLOWED))

    @property
    def decision_threshold(self) -> float | None:
        """The prediction from which on people get a yes, where effects count that turn the decision."""
        return self.settings.get("decision_threshold")

    @property
    def share_abstained(self) -> float:
        """Share of abstained people among all."""
        if self.streamed is not None:
            return self.streamed.share_abstained
        return weighted_mean(self.abstained.numpy(force=True), people_weights(self.weights, len(self)), nobody=0.0)

    @property
    def share_certified(self) -> float | None:
        """Share of people with a certificate among those not abstained; None where it was not asked for."""
        proved = self.certificates
        return None if proved is None else judged_share(proved.certified, self.abstained, self.weights)

    @property
    def uncertified_by_reason(self) -> dict[str, int]:
        """How many judged people have no certificate for each reason, the most frequent first."""
        if self.certificates is None:
            return {}
        judged = zip(self.certificates.reasons, self.abstained.tolist(), strict=True)
        return dict(Counter(reason for reason, out in judged if reason is not None and not out).most_common())

    @property
    def abstained_by_reason(self) -> dict[str, int]:
        """How many people were abstained for each reason, the most frequent first."""
        if self.streamed is not None:
            return self.streamed.abstained_by_reason
        away = self.abstained.numpy(force=True)
        counted = Counter(reason or "no reason given" for reason, out in zip(self.reasons, away, strict=True) if out)
        return dict(counted.most_common())

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the protected variables."""
        return tuple(finding.name for finding in self.findings)

    @property
    def two_groups(self) -> bool:
        """Whether one protected variable with two classes was audited, so that no worst case needs a name."""
        return len(self.findings) == 1 and len(self.findings[0].levels) == 2

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of every protected variable, one after the other."""
        return tuple(group for finding in self.findings for group in finding.groups)

    @property
    def alignment_share(self) -> dict[str, float]:
        """The alignment share of each protected variable."""
        return {finding.name: finding.alignment_share for finding in self.findings}

    @property
    def inferred(self) -> Tensor:
        """Whose own group was inferred for at least one protected variable (N,) bool."""
        return torch.stack([finding.inferred for finding in self.findings]).any(0)

    @property
    def direct(self) -> Tensor | None:
        """The direct reading of the variable that attained the score (N,); None where it was not measured."""
        each = [finding.direct for finding in self.findings if finding.direct is not None]
        return self._of_worst(each) if len(each) == len(self.findings) else None

    @property
    def total(self) -> Tensor:
        """The total reading of the variable that attained the score (N,)."""
        return self._of_worst([finding.total for finding in self.findings])

    @property
    def towards(self) -> tuple[str | None, ...]:
        """The contrast that attained the score, in words (N,); None for abstained people."""
        places = zip(self.worst.tolist(), self.abstained.tolist(), strict=True)
        return tuple(None if out else self.findings[v].towards[n] for n, (v, out) in enumerate(places))

    @property
    def tells_variables_apart(self) -> bool:
        """Whether the test knows the protected variables, so that one of them attains the score."""
        return any(finding.is_own for finding in self.findings)

    @property
    def worst_case(self) -> dict[str, float]:
        """For which share of the judged people each protected variable attained the score; empty where none does."""
        if self.streamed is not None:
            return self.streamed.worst_case
        if not self.tells_variables_apart:
            return {}
        shares = (judged_share(self.worst == v, self.abstained, self.weights) for v in range(len(self.findings)))
        return dict(zip(self.variables, shares, strict=True))

    @property
    def is_effect(self) -> bool:
        """Whether the score is a change of the prediction, in the prediction's own unit."""
        return self.unit.partition(" (")[0] == EFFECT

    @property
    def effect_unit(self) -> str:
        """The unit of the readings and of the feature contributions: that of the prediction, "" where not known."""
        return self.unit.partition(" (")[2].removesuffix(")")

    @property
    def cut(self) -> float:
        """The prediction from which on people get a yes: the decision threshold, the model's own, or else one half."""
        return next((cut for cut in (self.decision_threshold, self.settings.get("cut")) if cut is not None), 0.5)

    def flips(self, finding: Finding) -> dict[str, FlipSet]:
        """Return for each group whose decision depends on their group, by `Group.name`: a prediction of at least `cut`.

        Only where the score is a change of a probability between classes; {} otherwise.
        """
        if not self.is_effect or self.effect_unit != "probability" or finding.effect is None or not finding.levels:
            return {}
        codes = {level: code for code, level in enumerate(finding.levels)}
        own = torch.tensor([float(codes.get(level, math.nan)) for level in finding.group])
        here = self.predictions.cpu()
        there = torch.where(finding.abstained, torch.nan, here + finding.effect.cpu().to(here))
        found = flip_sets(here, there, own, self.cut)
        return {group_name(finding.name, finding.levels[code]): flips for code, flips in found.items()}

    @property
    def effect_by_group(self) -> dict[str, dict[str, float]]:
        """Mean signed contribution of each feature in each group, by `Group.name`.

        Over everyone the signs would cancel. A contribution belongs to the contrast that counts, so the groups of a
        variable are those people whose score it attained.
        """
        effect = self.features.effect
        if effect is None:
            return {}
        means = [effect.by_group(f, self.worst == v) for v, f in enumerate(self.findings)]
        return {name: of_features for each in means for name, of_features in each.items()}

    def delta_of(self, group: str) -> float:
        """Return the delta of a group, by `Group.name`: its own where it has one."""
        return self.deltas.get(group, self.delta)

    def _of_worst(self, each: Sequence[Tensor]) -> Tensor:
        """Return the values of the variable that attained the score (N,)."""
        if len(each) == 1:
            return each[0]
        stacked = torch.stack(list(each))  # (V, N)
        return stacked.gather(0, self.worst.to(stacked.device)[None])[0]
