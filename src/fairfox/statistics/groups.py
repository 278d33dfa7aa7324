"""Who is over delta, or whose decision would change, with what certainty; means and shares over people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from fairfox.choices.tests import TestInfo
from fairfox.data.contrasts import directions
from fairfox.data.dataset import Dataset, group_name
from fairfox.data.table import LARGEST
from fairfox.errors import OptionError
from fairfox.fairtests.protocol import Measurement
from fairfox.options import AuditOptions
from fairfox.statistics.intervals import CommonVariance, interval, interval_of, p_values, robust_interval
from fairfox.statistics.multiplicity import benjamini_hochberg
from fairfox.statistics.performance import Z95
from fairfox.statistics.verdict import ALLOWED, Counted, Point, Verdict, judge_model, p_more

VARIABLE = "{variable}"
_FEWEST = 3  # people whom two tests must both judge to be compared
_QUANTILE_OF = 1_000_000  # predictions at most: torch.quantile takes no more than 16 million


@dataclass(frozen=True)
class Rule:
    """The decision rule besides delta: options of `fairfox.audit`."""

    decision_threshold: float | None = None
    fdr: float = 0.1
    allowed: float = ALLOWED  # share of people over delta
    limits: Mapping[str, float] = field(default_factory=dict)  # the same of groups that have their own, by their names
    over: str = "effect is over delta"  # what is true of people who count, in words, with VARIABLE for its name
    bounded: bool = False  # whether effects are changes of a probability, and end with it
    folds: int | None = None
    seed: int = 0

    def certainty(self, measured: Measurement, delta: float | Tensor, predictions: Tensor) -> Certainty:
        """Return who is over delta (one for all or one each), or whose decision would change, with what certainty."""
        predictions = predictions.to(measured.score)
        within = predictions if self.bounded else None
        if self.decision_threshold is None:
            return certainty(measured, delta, self.fdr, within=within)
        towards = towards_decision(measured, predictions < self.decision_threshold)
        assert towards.effect is not None
        limit = decision_limits(predictions, self.decision_threshold)
        sure = certainty(towards, torch.where(towards.effect > 0, limit, torch.inf), self.fdr)
        if sure.sampling is None:
            return sure
        reach = (sure.sampling[:, 1] > limit) & ~measured.abstained  # also where the mean goes away from the cut
        shown = certainty(measured, delta, None, within=within)
        if sure.net is not None:
            sure = replace(sure, net=sure.net * torch.where(predictions < self.decision_threshold, 1.0, -1.0)[:, None])
        return replace(sure, interval=shown.interval, sampling=shown.sampling, possible=reach)

    def point(self, persistence: float, sure: Certainty, groups: Tensor, gone: Tensor, weights: Tensor | None) -> Point:
        """Return the shares of judged people, in groups (N,), who are over delta where ranks persist in part.

        A group's effect may be certain where no single person's is: `net` counts people over delta in their group's
        direction minus those in the other, at the lower end of the refits' interval.
        """
        marks = {"share": sure.usually, "significant": sure.robust, "possible": sure.reach}
        shares = {name: judged_share(each, gone, weights) for name, each in marks.items() if each is not None}
        weight = torch.as_tensor(people_weights(weights, len(gone))) * ~gone.cpu()
        assert sure.net is not None
        found = net_share(sure.net.double().cpu(), groups.cpu(), weight)
        people = float(weight.sum() ** 2 / weight.square().sum().clamp(min=1e-30))
        certain = max((1 - self.fdr) * shares["significant"], found)
        p_fails = p_more(certain * people, people, self.allowed) if people else 1.0
        return Point(persistence, net=found, p_fails=p_fails, **shares)

    def judge(
        self,
        measured: Measurement,
        sure: Certainty,
        weights: Tensor | None,
        variable: str,
        curve: Sequence[Point] = (),
        *,
        group: str = "",
        among: Tensor | None = None,
        everyone: Counted | None = None,
    ) -> Verdict | None:
        """Return the verdict on the model from all who were judged, or those of a group (N,) bool; None without
        intervals.

        `everyone` has the counts where these people are a sample.
        """
        if sure.possible is None or sure.significant is None:
            return None
        judged = ~measured.abstained if among is None else ~measured.abstained & among
        return judge_model(
            sure.refits[judged],
            sure.possible[judged],
            sure.significant[judged],
            sure.limit[judged] if isinstance(sure.limit, Tensor) else sure.limit,
            sizes=measured.score[judged],
            fdr=self.fdr,
            allowed=self.allowed,
            weights=None if weights is None else weights.to(judged.device)[judged],
            folds=self.folds,
            over=self.over.replace(VARIABLE, variable),
            who=f"people in the group {group}" if group else "people",
            variable=group or variable,
            seed=self.seed,
            curve=curve,
            everyone=everyone,
        )


@dataclass(frozen=True)
class Certainty:
    """Who is over delta, and with what certainty; None where there is a single refit."""

    flagged: Tensor  # (N,) bool
    refits: Tensor  # (N, M) what is held against the limit
    limit: float | Tensor  # one for all, or one each (N,)
    interval: Tensor | None = None  # (N, 2), where ranks persist in part
    sampling: Tensor | None = None  # (N, 2), where they persist as they are
    confident: Tensor | None = None  # (N,) bool: the whole interval is beyond the limit
    possible: Tensor | None = None  # (N,) bool: that of sampling reaches beyond it
    p_values: Tensor | None = None  # (N,), where ranks persist as they are; NaN for abstained people
    significant: Tensor | None = None  # (N,) bool: on the list with the given false discovery rate
    robust: Tensor | None = None  # (N,) bool: on the list that they give
    reach: Tensor | None = None  # (N,) bool: the interval reaches beyond the limit
    usually: Tensor | None = None  # (N,) bool: the mean over draws is beyond it
    net: Tensor | None = None  # (N, M) of each refit's draws, the share beyond the limit upwards less that downwards

    def without(self, gone: Tensor) -> Certainty:
        """Return a copy with some people (N,) bool hidden."""

        hidden: dict[str, Any] = {}
        for name in ("flagged", "confident", "possible", "significant", "robust"):
            marks: Tensor | None = getattr(self, name)
            hidden[name] = None if marks is None else marks & ~gone.to(marks.device)
        for name in ("interval", "sampling"):
            ends: Tensor | None = getattr(self, name)
            hidden[name] = None if ends is None else torch.where(gone[:, None], 0.0, ends)
        p_values = None if self.p_values is None else torch.where(gone, torch.nan, self.p_values)
        return replace(self, p_values=p_values, **hidden)


def certainty(
    measured: Measurement,
    limit: float | Tensor,
    fdr: float | None,
    *,
    common: CommonVariance | None = None,
    within: Tensor | None = None,
) -> Certainty:
    """Return the certainty of everyone's effect, and who is significantly over delta.

    The largest of several contrasts is large by chance more often than one alone, so p-values are corrected for their
    number. `common` is the variance that refits have in common, where these are a sample of the people; without `fdr`
    there is no list. `within` are predictions (N,) whose intervals stay between 0 and 1.
    """
    gone, drawn = measured.abstained, measured.drawn
    sampling = interval_of(measured.refits, gone, common=common)
    sure = Certainty(flag(measured.score, limit, abstained=gone), measured.refits, limit)
    if sampling is None:
        return sure
    compared = (~measured.each.isnan().any(0)).sum(1).clamp(min=1)  # (N,) contrasts
    both = []
    for own in (None, drawn):
        p = (p_values(measured.refits, limit, common=common, drawn=own) * compared.to(measured.refits)).clamp(max=1.0)
        both.append(torch.where(gone, torch.nan, p))
    lists = [None if fdr is None else benjamini_hochberg(p, fdr) for p in both]
    ends = sampling if drawn is None else robust_interval(sampling, drawn)
    if within is not None:
        ends, sampling = (_clipped(each, measured, within) for each in (ends, sampling))
    return replace(
        sure,
        interval=ends,
        sampling=sampling,
        confident=confident_flag(ends, limit, abstained=gone),
        possible=((sampling[:, 1] > limit) | (sampling[:, 0] < -limit)) & ~gone,
        p_values=both[0],
        significant=lists[0],
        robust=lists[1],
        reach=((ends[:, 1] > limit) | (ends[:, 0] < -limit)) & ~gone,
        usually=sure.flagged if drawn is None else flag((measured.refits.mean(1) + drawn.mean(1)).abs(), limit) & ~gone,
        net=None if drawn is None else _net(measured.refits, drawn, limit),
    )


def _clipped(interval: Tensor, measured: Measurement, predictions: Tensor) -> Tensor:
    """Return intervals (N, 2) of changes of a probability (N,) within what is possible: from 0 to 1."""
    turned = directions(measured.contrasts)[measured.worst.cpu()].to(predictions.device) < 0
    low, high = torch.where(turned, predictions - 1, -predictions), torch.where(turned, predictions, 1 - predictions)
    return torch.stack([interval[:, 0].clamp(low, high), interval[:, 1].clamp(low, high)], dim=1)


def _net(refits: Tensor, drawn: Tensor, limit: float | Tensor) -> Tensor:
    """Return for each refit the share of its draws over the limit upwards less that downwards (N, M)."""
    each = (refits.repeat(1, drawn.shape[1] // refits.shape[1]) + drawn).view(len(refits), -1, refits.shape[1])
    top = limit[:, None, None] if isinstance(limit, Tensor) else limit
    return ((each > top).double() - (each < -top).double()).mean(1)


def net_share(net: Tensor, groups: Tensor, weights: Tensor) -> float:
    """Return the share of people over delta in their group's direction minus that in the other direction.

    `net` (N, M) has it for each person and refit. The lower end of a 90 % interval over refits counts, at least 0.
    """
    total = net.new_zeros(net.shape[1])
    for group in groups.nan_to_num(nan=-1).unique():
        own = (net * weights[:, None])[groups.nan_to_num(nan=-1) == group].sum(0)
        total += own * own.mean().sign()
    each = (total / weights.sum().clamp(min=1e-30))[None]
    return max(0.0, float(interval(each)[0, 0]))


def towards_decision(measured: Measurement, no: Tensor) -> Measurement:
    """Return the effects towards the other decision, negative where they point away from it.

    `no` (N,) says who has a no now. The contrast that goes furthest towards it counts.
    """
    up = directions(measured.contrasts).to(measured.each)
    each = measured.each * up * torch.where(no, 1.0, -1.0).to(measured.each)[:, None]
    furthest = each.mean(0).nan_to_num(nan=-torch.inf).argmax(1)
    refits = each.gather(2, furthest.expand(len(each), -1)[..., None])[..., 0].T
    refits = torch.where(measured.abstained[:, None].to(refits.device), 0.0, refits)
    mean, turned = refits.mean(1), measured.deviations
    if turned is not None:
        turned = turned * up * torch.where(no, 1.0, -1.0).to(turned)[:, None]
    return replace(measured, score=mean.abs(), effect=mean, refits=refits, each=each, worst=furthest, deviations=turned)


def flag(scores: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is flagged (N,) bool: a score above delta, one for all or one each, not abstained."""
    flags = scores > delta
    return flags if abstained is None else flags & ~abstained


def confident_flag(interval: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is confidently flagged (N,) bool: the whole interval (N, 2) lies beyond delta, on one side."""
    flags = (interval[:, 0] > delta) | (interval[:, 1] < -delta)
    return flags if abstained is None else flags & ~abstained


def decision_limits(predictions: Tensor, cut: float) -> Tensor:
    """Return the effect towards the other decision (N,) that must be exceeded to change it: yes from `cut` on.

    A prediction that reaches the cut from below becomes a yes; one that comes down to it stays a yes.

    Example:
        >>> decision_limits(torch.tensor([0.25, 0.75]), 0.5)
        tensor([0.2500, 0.2500])
    """
    away = (predictions - cut).abs()
    return torch.where(predictions < cut, torch.nextafter(away, torch.zeros_like(away)), away)


def own_deltas(data: Dataset, delta: float, deltas: Mapping[str, float]) -> float | Tensor:
    """Return everyone's delta (N,): the strictest of those given for their groups, else the common one."""
    if not deltas:
        return delta
    strictest = torch.full((len(data),), torch.inf, dtype=data.x.dtype)
    for v, p in enumerate(data.protected):
        for code, level in enumerate(p.levels):
            members = (data.c[:, v] == code).cpu()
            strictest[members] = strictest[members].clamp(max=deltas.get(group_name(p.name, level), torch.inf))
    return torch.where(strictest.isinf(), delta, strictest)


def default_delta(info: TestInfo, predictions: Tensor, *, unit: str) -> float:
    """Return the delta of a test: its own number, or a share of the prediction where it measures that.

    The share is of 1 for probabilities, else of the range from the 1st to the 99th percentile of the predictions, so
    that one outlier does not widen it.
    """
    share = info.delta
    if not info.of_prediction or unit == "probability" or len(predictions) == 0:
        return share
    thinned = predictions[:: max(1, len(predictions) // _QUANTILE_OF)].cpu().double()
    ends = torch.quantile(thinned, torch.tensor([0.01, 0.99], dtype=torch.float64))
    spread = float(ends[1] - ends[0])
    return share * spread if spread > 0 else share


def delta_for(options: AuditOptions, predictions: Tensor, unit: str) -> float:
    """Return the delta that was given, or the test's own: a share of the prediction's range where it is one of it."""
    deltas = [*options.delta_by_group.values()] + ([] if options.delta_for_all is None else [options.delta_for_all])
    for delta in deltas:
        if delta > LARGEST:
            raise OptionError(f"delta is {delta:g}, but predictions are at most {LARGEST:g}; give a smaller delta")
        if delta >= 1 and unit == "probability" and options.info.of_prediction:
            raise OptionError(f"delta is {delta:g}, more than a probability can change; did you mean {delta / 100:g}?")
    if options.delta_for_all is not None:
        return options.delta_for_all
    return default_delta(options.info, predictions, unit=unit)


def score_unit(options: AuditOptions, unit: str) -> str:
    """Return the unit of the score, for a model of this unit."""
    return f"{options.info.unit} ({unit})" if options.info.of_prediction else options.info.unit


def is_bounded(options: AuditOptions, unit: str) -> bool:
    """Return whether the score is a change of a probability."""
    return options.info.of_prediction and not options.info.aligned and unit == "probability"


def people_weights(weights: Tensor | None, people: int) -> np.ndarray:
    """Return how much each person counts (N,): one without weights."""
    return np.ones(people) if weights is None else weights.numpy(force=True).astype(np.float64)


def weighted_mean(values: np.ndarray, weights: np.ndarray, *, nobody: float = math.nan) -> float:
    """Return the weighted mean; `nobody` where there are no people."""
    total = float(weights.sum())
    return float((values * weights).sum()) / total if total > 0 else nobody


def judged_share(marked: Tensor, abstained: Tensor, weights: Tensor | None) -> float:
    """Return the share of the judged people who are marked; of nobody it is zero."""
    judged = ~abstained.numpy(force=True)
    return weighted_mean(marked.numpy(force=True)[judged], people_weights(weights, len(judged))[judged], nobody=0.0)


def group_mean(values: Tensor, weights: Tensor, among: Tensor) -> float:
    """Return the weighted mean over some of the people (N,) bool, NaN over nobody; NaN values do not count."""
    values = values.double().cpu()
    counted = among & ~values.isnan()
    total = float(weights[counted].sum())
    return float((weights * values)[counted].sum()) / total if total > 0 else math.nan


@dataclass(frozen=True)
class Decisions:
    """Yes from a prediction of `cut` on, beside the true outcomes of people whose outcome is known."""

    cut: float
    truth: Tensor | None = None  # (N,) 1 for yes, 0 for no, NaN where unknown

    def rates(self, predictions: Tensor, weights: Tensor, members: Sequence[Tensor]) -> list[dict[str, Any]]:
        """Return for each group (N,) bool how often it gets a yes, also over the rate of the group that does most
        often, and with true outcomes how often rightly and wrongly; NaN of nobody. `intervals` has those of 95 %."""
        yes, everyone = (predictions.cpu() >= self.cut).double(), torch.ones(len(predictions), dtype=torch.bool)
        counted = {"selection_rate": (yes, everyone)}
        if self.truth is not None:
            truth = self.truth.double().cpu()
            counted |= {"true_positive_rate": (yes, truth == 1), "false_positive_rate": (yes, truth == 0)}
            counted["accuracy"] = ((yes == truth).double(), ~truth.isnan())
        out: list[dict[str, Any]] = []
        for own in members:
            rates = {name: group_mean(each, weights, own & among) for name, (each, among) in counted.items()}
            sizes = {name: _effective_people(weights[own & among]) for name, (_, among) in counted.items()}
            out.append({**rates, "intervals": {name: wilson(rates[name], sizes[name]) for name in rates}})
        shares = [
            (rates["selection_rate"], _effective_people(weights[own])) for rates, own in zip(out, members, strict=True)
        ]
        most = max((each for each in shares if each[0] > 0), default=(math.nan, 0.0))
        for found, share in zip(out, shares, strict=True):
            found["impact_ratio"] = share[0] / most[0]
            if share is not most:
                found["intervals"]["impact_ratio"] = ratio_interval(*share, *most)
        return out


def _effective_people(weights: Tensor) -> float:
    """Return how many people of equal weight tell as much as these."""
    return float(weights.sum()) ** 2 / max(float(weights.square().sum()), 1e-300)


def wilson(share: float, people: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share; NaN of nobody.

    Example:
        >>> wilson(0.0, 10.0)
        (0.0, 0.2775327998628892)
    """
    if not people > 0:
        return math.nan, math.nan
    centre = share + Z95**2 / (2 * people)
    half = Z95 * math.sqrt(share * (1 - share) / people + (Z95 / people) ** 2 / 4)
    wide = 1 + Z95**2 / people
    return max(0.0, (centre - half) / wide), min(1.0, (centre + half) / wide)


def ratio_interval(share: float, people: float, other: float, others: float) -> tuple[float, float]:
    """Return Katz's 95 % interval of the ratio of two shares; where the first is 0, its upper end is not known."""
    if not (share > 0 and other > 0):
        return 0.0 if share == 0 and other > 0 else math.nan, math.nan
    half = Z95 * math.sqrt((1 - share) / (share * people) + (1 - other) / (other * others))
    return share / other * math.exp(-half), share / other * math.exp(half)


def agreement(scores: Tensor) -> Tensor:
    """Return the rank correlations (T, T) of scores (N, T) over the people for whom both are known.

    NaN where fewer than three people are known to both, or where one of the two is the same for all of them.
    """
    values = scores.numpy(force=True)
    out = np.full((values.shape[1], values.shape[1]), np.nan)
    for a in range(len(out)):
        for b in range(a, len(out)):
            both = values[np.isfinite(values[:, a]) & np.isfinite(values[:, b])]
            if len(both) >= _FEWEST and np.ptp(both[:, a]) > 0 and np.ptp(both[:, b]) > 0:
                out[a, b] = out[b, a] = scipy.stats.spearmanr(both[:, a], both[:, b]).statistic
    return torch.from_numpy(out)
