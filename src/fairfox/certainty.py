"""Who is over delta, or would be decided on otherwise, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairfox.data.contrasts import LOWER
from fairfox.data.dataset import Protected
from fairfox.fairtests.protocol import Measurement
from fairfox.thresholds import confident_flag, decision_limits, flag
from fairfox.verdicts.discoveries import benjamini_hochberg
from fairfox.verdicts.intervals import p_values
from fairfox.verdicts.model import ALLOWED, Verdict, judge_model


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
        """Return who is over delta, one for all or one each, or would be decided on otherwise, and how surely."""
        if self.decision_threshold is None:
            return certainty(measured, delta, self.fdr)
        predictions = predictions.to(measured.score)
        towards = towards_decision(measured, predictions < self.decision_threshold, protected)
        assert towards.signed is not None
        limit = decision_limits(predictions, self.decision_threshold)
        sure = certainty(towards, torch.where(towards.signed > 0, limit, torch.inf), self.fdr)
        if towards.interval is None:
            return sure
        reach = (towards.interval[:, 1] > limit) & ~measured.abstained  # also where the mean goes away from the cut
        return replace(sure, interval=measured.interval, perhaps=reach)

    def judge(self, measured: Measurement, sure: Certainty, weights: Tensor | None, variable: str) -> Verdict | None:
        """Return the verdict on the model from all who were judged; None where there are no intervals."""
        if sure.perhaps is None or sure.listed is None:
            return None
        judged = ~measured.abstained
        return judge_model(
            sure.refits[judged],
            sure.perhaps[judged],
            sure.listed[judged],
            sure.limit[judged] if isinstance(sure.limit, Tensor) else sure.limit,
            sizes=measured.score[judged],
            fdr=self.fdr,
            allowed=self.allowed,
            weights=None if weights is None else weights.to(judged.device)[judged],
            folds=self.folds,
            over="over delta" if self.decision_threshold is None else "decided on otherwise",
            variable=variable,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Certainty:
    """Who is over the limit, and how sure that is; None where one re-fit only leaves it open."""

    flags: Tensor  # (N,) bool
    refits: Tensor  # (N, M) what is held against the limit
    limit: float | Tensor  # one for all, or one each (N,)
    interval: Tensor | None = None  # (N, 2)
    confident_flags: Tensor | None = None  # (N,) bool
    perhaps: Tensor | None = None  # (N,) bool: the interval reaches beyond the limit
    p_values: Tensor | None = None  # (N,); NaN for abstained people
    listed: Tensor | None = None  # (N,) bool

    def without(self, gone: Tensor) -> Certainty:
        """Return the same with some people (N,) bool hidden; what is said about the others stays as it is."""

        def off(marks: Tensor | None) -> Tensor | None:
            return None if marks is None else marks & ~gone.to(marks.device)

        return replace(
            self,
            flags=self.flags & ~gone.to(self.flags.device),
            interval=None if self.interval is None else torch.where(gone[:, None], 0.0, self.interval),
            confident_flags=off(self.confident_flags),
            perhaps=off(self.perhaps),
            p_values=None if self.p_values is None else torch.where(gone, torch.nan, self.p_values),
            listed=off(self.listed),
        )


def certainty(measured: Measurement, limit: float | Tensor, fdr: float) -> Certainty:
    """Return how sure everyone's effect is, and who is on the list of those over the limit.

    The largest of several contrasts is large by chance more often than one alone, so that p-values count their number.
    """
    interval, gone = measured.interval, measured.abstained
    sure = Certainty(flag(measured.score, limit, abstained=gone), measured.refits, limit)
    if interval is None:
        return sure
    compared = (~measured.each.isnan().any(0)).sum(1).clamp(min=1)  # (N,) contrasts
    p = (p_values(measured.refits, limit) * compared.to(measured.refits)).clamp(max=1.0)
    p = torch.where(gone, torch.nan, p)
    return replace(
        sure,
        interval=interval,
        confident_flags=confident_flag(interval, limit, abstained=gone),
        perhaps=((interval[:, 1] > limit) | (interval[:, 0] < -limit)) & ~gone,
        p_values=p,
        listed=benjamini_hochberg(p, fdr),
    )


def towards_decision(measured: Measurement, no: Tensor, protected: Sequence[Protected]) -> Measurement:
    """Return the effects towards the other decision, below zero where they go away from it.

    `no` (N,) says who has a no now. The contrast that goes furthest counts: the largest effect may go the other way.
    """
    down = [protected[c.variable].is_continuous and c.towards == LOWER for c in measured.contrasts]
    up = torch.where(torch.tensor(down), -1.0, 1.0).to(measured.each)  # numbers are signed as if they always went up
    each = measured.each * up * torch.where(no, 1.0, -1.0).to(measured.each)[:, None]
    furthest = each.mean(0).nan_to_num(nan=-torch.inf).argmax(1)
    refits = each.gather(2, furthest.expand(len(each), -1)[..., None])[..., 0].T
    refits = torch.where(measured.abstained[:, None].to(refits.device), 0.0, refits)
    mean = refits.mean(1)
    return replace(measured, score=mean.abs(), signed=mean, refits=refits, each=each, worst=furthest)
