"""Who is over delta, or whose decision would change, and how sure that is; flags, and means and shares over people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
import torch
from torch import Tensor

from fairfox.data.contrasts import LOWER
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.errors import OptionError
from fairfox.fairtests.protocol import Measurement
from fairfox.options import TestInfo
from fairfox.statistics.intervals import CommonVariance, interval_of, p_values
from fairfox.statistics.multiplicity import benjamini_hochberg
from fairfox.statistics.verdict import ALLOWED, Verdict, judge_model

_FEWEST = 3  # people whom two tests must both judge to be compared
_QUANTILE_OF = 1_000_000  # predictions at most: torch.quantile takes no more than 16 million


@dataclass(frozen=True)
class Rule:
    """What decides, beside delta, who is over it and whether they are too many: options of `fairfox.audit`."""

    decision_threshold: float | None = None
    fdr: float = 0.1
    allowed: float = ALLOWED  # share of people over delta
    folds: int | None = None
    seed: int = 0

    def certainty(
        self, measured: Measurement, delta: float | Tensor, predictions: Tensor, protected: Sequence[Protected]
    ) -> Certainty:
        """Return who is over delta, one for all or one each, or whose decision would change, and how surely."""
        if self.decision_threshold is None:
            return certainty(measured, delta, self.fdr)
        predictions = predictions.to(measured.score)
        towards = towards_decision(measured, predictions < self.decision_threshold, protected)
        assert towards.signed is not None
        limit = decision_limits(predictions, self.decision_threshold)
        sure = certainty(towards, torch.where(towards.signed > 0, limit, torch.inf), self.fdr)
        interval = interval_of(towards.refits, towards.abstained)
        if interval is None:
            return sure
        reach = (interval[:, 1] > limit) & ~measured.abstained  # also where the mean goes away from the cut
        return replace(sure, interval=interval_of(measured.refits, measured.abstained), perhaps=reach)

    def judge(self, measured: Measurement, sure: Certainty, weights: Tensor | None, variable: str) -> Verdict | None:
        """Return the verdict on the model from all who were judged; None where there are no intervals."""
        if sure.perhaps is None or sure.significant is None:
            return None
        judged = ~measured.abstained
        return judge_model(
            sure.refits[judged],
            sure.perhaps[judged],
            sure.significant[judged],
            sure.limit[judged] if isinstance(sure.limit, Tensor) else sure.limit,
            sizes=measured.score[judged],
            fdr=self.fdr,
            allowed=self.allowed,
            weights=None if weights is None else weights.to(judged.device)[judged],
            folds=self.folds,
            over="over delta" if self.decision_threshold is None else "decided differently",
            variable=variable,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Certainty:
    """Who is over the limit, and how sure that is; None where a single refit leaves it open."""

    flags: Tensor  # (N,) bool
    refits: Tensor  # (N, M) what is held against the limit
    limit: float | Tensor  # one for all, or one each (N,)
    interval: Tensor | None = None  # (N, 2)
    confident_flags: Tensor | None = None  # (N,) bool
    perhaps: Tensor | None = None  # (N,) bool: the interval reaches beyond the limit
    p_values: Tensor | None = None  # (N,); NaN for abstained people
    significant: Tensor | None = None  # (N,) bool: on the list with the given false discovery rate

    def without(self, gone: Tensor) -> Certainty:
        """Return the same with some people (N,) bool hidden, and nothing else changed."""

        def off(marks: Tensor | None) -> Tensor | None:
            return None if marks is None else marks & ~gone.to(marks.device)

        return replace(
            self,
            flags=self.flags & ~gone.to(self.flags.device),
            interval=None if self.interval is None else torch.where(gone[:, None], 0.0, self.interval),
            confident_flags=off(self.confident_flags),
            perhaps=off(self.perhaps),
            p_values=None if self.p_values is None else torch.where(gone, torch.nan, self.p_values),
            significant=off(self.significant),
        )


def certainty(
    measured: Measurement, limit: float | Tensor, fdr: float | None, *, common: CommonVariance | None = None
) -> Certainty:
    """Return how sure everyone's effect is, and who is significantly over the limit.

    The largest of several contrasts is large by chance more often than one alone, so that p-values count their number.
    `common` is the variance that refits have in common, where these are only some of the people; a list of some says
    nothing and is left out without `fdr`.
    """
    gone = measured.abstained
    interval = interval_of(measured.refits, gone, common=common)
    sure = Certainty(flag(measured.score, limit, abstained=gone), measured.refits, limit)
    if interval is None:
        return sure
    compared = (~measured.each.isnan().any(0)).sum(1).clamp(min=1)  # (N,) contrasts
    p = (p_values(measured.refits, limit, common=common) * compared.to(measured.refits)).clamp(max=1.0)
    p = torch.where(gone, torch.nan, p)
    return replace(
        sure,
        interval=interval,
        confident_flags=confident_flag(interval, limit, abstained=gone),
        perhaps=((interval[:, 1] > limit) | (interval[:, 0] < -limit)) & ~gone,
        p_values=p,
        significant=None if fdr is None else benjamini_hochberg(p, fdr),
    )


def towards_decision(measured: Measurement, no: Tensor, protected: Sequence[Protected]) -> Measurement:
    """Return the effects towards the other decision, below zero where they go away from it.

    `no` (N,) says who has a no now. The contrast that goes furthest counts: the largest effect may have the other sign.
    """
    down = [protected[c.variable].is_continuous and c.towards == LOWER for c in measured.contrasts]
    up = torch.where(torch.tensor(down), -1.0, 1.0).to(measured.each)  # numbers are signed as if they always went up
    each = measured.each * up * torch.where(no, 1.0, -1.0).to(measured.each)[:, None]
    furthest = each.mean(0).nan_to_num(nan=-torch.inf).argmax(1)
    refits = each.gather(2, furthest.expand(len(each), -1)[..., None])[..., 0].T
    refits = torch.where(measured.abstained[:, None].to(refits.device), 0.0, refits)
    mean = refits.mean(1)
    return replace(measured, score=mean.abs(), signed=mean, refits=refits, each=each, worst=furthest)


def flag(scores: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is flagged (N,) bool: a score above delta, one for all or one each, not abstained."""
    if not bool(torch.as_tensor(delta >= 0).all()):
        raise OptionError(f"delta is {delta}; expected a number of at least 0")
    flags = scores > delta
    return flags if abstained is None else flags & ~abstained


def confident_flag(interval: Tensor, delta: float | Tensor, *, abstained: Tensor | None = None) -> Tensor:
    """Return who is flagged with confidence (N,) bool: the whole interval (N, 2) lies beyond delta, on one side."""
    flags = (interval[:, 0] > delta) | (interval[:, 1] < -delta)
    return flags if abstained is None else flags & ~abstained


def decision_limits(predictions: Tensor, cut: float) -> Tensor:
    """Return what an effect towards the other decision must be above (N,) to turn it: yes from `cut` on.

    Who comes up to the cut gets a yes and who comes down to it keeps theirs, so that going up takes a hair less.

    Example:
        >>> decision_limits(torch.tensor([0.25, 0.75]), 0.5)
        tensor([0.2500, 0.2500])
    """
    away = (predictions - cut).abs()
    return torch.where(predictions < cut, torch.nextafter(away, torch.zeros_like(away)), away)


def own_deltas(data: Dataset, delta: float, deltas: Mapping[str, float]) -> float | Tensor:
    """Return everyone's delta (N,): the strictest of those given for groups they belong to, else that for all."""
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

    The share is of 1 for probabilities, else of the predictions' usual range: from the 1st to the 99th percentile, so
    that one outlier does not widen it.
    """
    share = info.delta
    if not info.of_prediction or unit == "probability" or len(predictions) == 0:
        return share
    thinned = predictions[:: max(1, len(predictions) // _QUANTILE_OF)].cpu().double()
    ends = torch.quantile(thinned, torch.tensor([0.01, 0.99], dtype=torch.float64))
    spread = float(ends[1] - ends[0])
    return share * spread if spread > 0 else share


def people_weights(weights: Tensor | None, people: int) -> np.ndarray:
    """Return how much each person counts (N,): one without weights."""
    return np.ones(people) if weights is None else weights.numpy(force=True).astype(np.float64)


def weighted_mean(values: np.ndarray, weights: np.ndarray, *, nobody: float = math.nan) -> float:
    """Return the weighted mean; `nobody` is that of no people."""
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
