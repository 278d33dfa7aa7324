"""The verdict on a model: passes, fails or cannot tell, from how many people are surely, or perhaps, over delta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

import numpy as np
import scipy
import torch
from torch import Tensor

from fairfox.data.table import verb
from fairfox.maps.check import MapCheck
from fairfox.statistics.intervals import (
    Estimate,
    Values,
    estimate,
    left_over,
    mean_draws,
    refit_error,
    refit_error_of_share,
    standard_errors,
)
from fairfox.statistics.multiplicity import holm

Word = Literal["passes", "fails", "cannot tell"]
FEWEST = 59  # people, from whom on 0 of them can pass a limit of 5 %; fewer are not enough to fail either
LEAST = 0.95  # persistence at which a model must still fail: ranks never carry over exactly
ALLOWED = 0.05  # share of people over delta, where nobody gave another
LEVEL = 0.05  # how often each of the two one-sided tests may be wrong


@dataclass(frozen=True)
class Point:
    """Which shares of people are over delta where ranks carry over with a correlation."""

    persistence: float
    share: float  # whose mean effect over the draws is
    surely: float  # who are on the list
    perhaps: float  # whose interval reaches beyond delta
    net: float  # over delta in the direction of their group, less those in the other one
    p_fails: float  # of so many on the list, or net, where no more than allowed truly are over delta


@dataclass(frozen=True)
class Counted:
    """How many of the people who were judged are surely, or perhaps, over delta. Shares and means are weighted."""

    judged: int
    surely: int  # on the list of people over delta
    perhaps: int  # whose interval reaches beyond delta
    share_surely: float
    share_perhaps: float
    equal: float  # as many people of equal weights would say as much
    mean: float | None = None  # |effect|; None: that of the people at hand
    share: float | None = None  # over delta

    @classmethod
    def of(cls, perhaps: Tensor, listed: Tensor, weight: Values) -> Counted:
        """Return how many people (n,) are marked."""
        surely, reach = (float(np.average(marks.numpy(force=True), weights=weight)) for marks in (listed, perhaps))
        equal = float(weight.sum() ** 2 / (weight**2).sum())
        return cls(len(listed), int(listed.sum()), int(perhaps.sum()), surely, reach, equal)


@dataclass(frozen=True)
class Verdict:
    """What can be said about a model as a whole, and the numbers it rests on."""

    word: Word
    reason: str  # one sentence
    allowed: float  # share of people that may be over delta
    judged: int
    surely: int  # on the list of people over delta
    perhaps: int  # whose interval reaches beyond delta
    p_fails: float  # of so many surely over delta where no more than allowed truly are
    p_passes: float  # of so few perhaps over delta where more than allowed truly are
    mean: Estimate | None = None  # |effect|
    share: Estimate | None = None  # over delta
    variable: str = ""  # the protected one
    tipping: float | None = None  # the smallest persistence at which the word stands; None: it is not known
    curve: tuple[Point, ...] = ()  # by falling persistence

    @property
    def passed(self) -> bool | None:
        """True where the model passes, False where it fails, None where the data cannot tell."""
        return {"passes": True, "fails": False}.get(self.word)


def judge_model(
    refits: Tensor,
    perhaps: Tensor,
    listed: Tensor,
    limit: float | Tensor,
    *,
    fdr: float,
    sizes: Tensor | None = None,
    allowed: float = ALLOWED,
    weights: Tensor | None = None,
    folds: int | None = None,
    over: str = "over delta",
    variable: str = "",
    seed: int = 0,
    curve: Sequence[Point] = (),
    everyone: Counted | None = None,
) -> Verdict:
    """Return the verdict from the effects of the people who were judged.

    The model fails where so many are surely over delta that the share of all people who are is above the allowed one;
    it passes where so few are perhaps over it that the share is below. The list may be wrong about the share `fdr` of
    its people, so that these are not counted. A model that does not fail any more where ranks carry over a little less
    than exactly is not failed.

    Args:
        refits: the effect in each refit (n, M).
        perhaps: whose interval reaches beyond delta (n,).
        listed: who is on the list (n,) of people over delta.
        limit: delta, one for all or one each (n,).
        fdr: the share of the list that may be wrong.
        sizes: everyone's |effect| (n,), where another one than the largest is held against delta.
        allowed: the share of people that may be over delta.
        weights: how many people each row stands for (n,).
        folds: into how many folds the people were split; None where the maps were learnt from others.
        over: what people are whose effect counts, in words.
        variable: the protected one.
        seed: of the bootstrap.
        curve: shares by falling persistence.
        everyone: the counts, where these people are a sample of those that the verdict is on.
    """
    if not len(refits):
        return Verdict("cannot tell", "Nobody could be judged.", allowed, 0, 0, 0, 1.0, 1.0, variable=variable)
    weight = np.ones(len(refits)) if weights is None else weights.numpy(force=True).astype(np.float64)
    counted = Counted.of(perhaps, listed, weight) if everyone is None else everyone
    people, equal = counted.judged, counted.equal
    p_fails = p_more((1 - fdr) * counted.share_surely * equal, equal, allowed)
    p_passes = p_fewer(counted.share_perhaps * equal, equal, allowed) if allowed < 1 else 0.0  # no share is above one
    too_few = equal < FEWEST or p_fewer(0.0, equal, allowed) > LEVEL
    word: Word = "fails" if p_fails <= LEVEL else "passes" if p_passes <= LEVEL else "cannot tell"
    if equal < FEWEST:
        word = "cannot tell"
    counts = (people, counted.surely, counted.perhaps)
    mean, share = _estimates(refits, sizes, limit, None if weights is None else weight, folds, seed)
    mean, share = mean.around(counted.mean, math.inf), share.around(counted.share, 1.0)
    tipping = tipping_point(word, curve, allowed)
    if word == "fails" and tipping is not None and tipping > LEAST:
        why = (
            f"{counts[1]:,} of {people:,} people {verb(counts[1])} surely {over} if people's ranks carry over exactly, "
            f"but too few if they carry over with a correlation of {LEAST:g}."
        )
        word, tipping = "cannot tell", None
    else:
        why = verdict_sentence(word, *counts, allowed=allowed, fdr=fdr, over=over, too_few=too_few)
    return Verdict(word, why, allowed, *counts, p_fails, p_passes, mean, share, variable, tipping, tuple(curve))


def tipping_point(word: Word, curve: Sequence[Point], allowed: float) -> float | None:
    """Return the smallest persistence at which a model still fails, or passes, with all larger ones.

    It fails where the list says so, and passes where no more people than allowed are over delta on average. None where
    nothing is known of smaller ones than 1, or the verdict is open.
    """
    if word == "cannot tell" or not curve:
        return None
    stands = (point.p_fails <= LEVEL if word == "fails" else point.share <= allowed for point in curve)
    kept = list(takewhile(lambda pair: pair[1], zip(curve, stands, strict=True)))
    return kept[-1][0].persistence if kept else 1.0


def tipping_sentence(verdict: Verdict) -> str:
    """Return how far ranks may fail to carry over before the verdict changes, in a sentence; "" where it is open."""
    if verdict.tipping is None:
        return ""
    word = "fail" if verdict.word == "fails" else "pass"
    if verdict.tipping == 0:
        return f"It would still {word} if people's ranks did not carry over to the other group at all."
    if verdict.tipping == 1:
        return f"It would no longer {word} if people's ranks carried over a little less than exactly."
    return f"It would still {word} if people's ranks carried over only with a correlation of {verdict.tipping:g}."


def p_more(found: float, people: float, allowed: float) -> float:
    """Return how probable at least so many of the people are where each belongs to them with the probability allowed.

    Example:
        >>> round(p_more(2, 3, 0.5), 3)
        0.5
    """
    if found <= 0 or allowed >= 1:
        return 1.0
    return float(scipy.stats.beta.cdf(allowed, found, people - found + 1))


def p_fewer(found: float, people: float, allowed: float) -> float:
    """Return how probable at most so many of the people are where each belongs to them with the probability allowed.

    Example:
        >>> round(p_fewer(0, 50, 0.05), 3)  # 0.95 to the power of 50
        0.077
    """
    if found >= people or allowed <= 0:
        return 1.0
    return float(scipy.stats.beta.sf(allowed, found + 1, people - found))


def taken_back(verdict: Verdict, why: str) -> Verdict:
    """Return a verdict that cannot stand, and why."""
    return replace(verdict, word="cannot tell", reason=f"{verdict.reason} But {why}", tipping=None)


def family_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return one verdict on a model from those on each protected variable, or on groups with limits of their own.

    It fails where one of them still fails when their number is allowed for (Holm 1979), and passes where all pass.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    corrected = holm([each.p_fails for each in verdicts])
    failing = [v for v, each in enumerate(verdicts) if each.word == "fails" and corrected[v] <= LEVEL]
    if failing:
        return verdicts[min(failing, key=lambda v: (corrected[v], -verdicts[v].surely))]
    if all(each.word == "passes" for each in verdicts):
        return max(verdicts, key=lambda each: each.p_passes)
    chosen = min((each for each in verdicts if each.word != "passes"), key=lambda each: each.p_fails)
    if chosen.word == "cannot tell":
        return chosen
    return taken_back(chosen, f"that is not enough where {len(verdicts)} verdicts are looked at.")


def _estimates(
    refits: Tensor, sizes: Tensor | None, limit: float | Tensor, weights: Values | None, folds: int | None, seed: int
) -> tuple[Estimate, Estimate]:
    """Return the mean |effect| and the share over delta, with intervals."""
    scores = refits.mean(1).abs().numpy(force=True).astype(np.float64)
    size = scores if sizes is None else sizes.numpy(force=True).astype(np.float64)
    errors = standard_errors(refits)[0].numpy(force=True).astype(np.float64)
    errors = errors * np.sqrt(left_over(refits.shape[1], folds))
    delta = np.broadcast_to(torch.as_tensor(limit).numpy(force=True).astype(np.float64), scores.shape)
    over = (scores > delta).astype(np.float64)
    of_share = refit_error_of_share(scores, errors, delta, weights)
    draws = (
        mean_draws(size, refit_error(errors, weights), weights, seed=seed),
        mean_draws(over, of_share, weights, seed=seed),
    )
    mean, share = (
        estimate(float(np.average(values, weights=weights)), np.clip(drawn, 0.0, None))
        for values, drawn in zip((size, over), draws, strict=True)
    )
    return mean, Estimate(share.value, share.error, share.lower, min(share.upper, 1.0))


def verdict_sentence(
    word: Word, judged: int, surely: int, perhaps: int, *, allowed: float, fdr: float, over: str, too_few: bool
) -> str:
    """Return why a verdict is what it is: a sentence with its counts and shares."""
    share = f"{100 * allowed:.3g} %"
    if word == "fails":
        wrong = f"at most {100 * fdr:.3g} % of these wrongly"
        return (
            f"{surely:,} of {judged:,} people {verb(surely)} surely {over} ({wrong}), and no more than {share} may be."
        )
    if word == "passes" and allowed >= 1:
        return f"Everyone may be {over}: the limit is {share}."
    if word == "passes":
        who = "Everyone is" if perhaps == 0 else f"All but {perhaps:,} of {judged:,} people are"
        return f"{who} surely not {over}, and up to {share} may be."
    if too_few and allowed == 0:
        return f"However many people are judged, they cannot show that nobody at all is {over}: give a limit above 0."
    if too_few:
        who = f"{judged:,} {verb(judged, 'person is', 'people are')}"
        return f"{who} too few to tell whether more than {share} of all are {over}."
    return (
        f"Of {judged:,} people {surely:,} {verb(surely)} surely {over} and {perhaps:,} perhaps, which leaves open "
        f"whether more than {share} are."
    )


def held_back(verdict: Verdict | None, gaps: Sequence[MapCheck], *, by_chance: bool, points: bool) -> Verdict | None:
    """Return a verdict that does not say more than is known.

    Nothing fails if chance alone gives effects over delta. Nothing passes if the groups' mean predictions differ by
    more than delta and the map, which changes only features in which the groups surely differ, does not say why.

    Args:
        verdict: on one protected variable.
        gaps: checks of the map that leave more than delta unexplained.
        by_chance: whether shuffled protected values give effects over delta.
        points: whether predictions are probabilities.
    """
    if verdict is not None and verdict.word == "fails" and by_chance:
        return taken_back(verdict, "effects as large come by chance: shuffled protected values give them too.")
    if verdict is None or verdict.word != "passes" or not gaps:
        return verdict
    size = abs(gaps[0].gap or 0)
    gap = f"{100 * size:.1f} points" if points else f"{size:.3g}"
    why = (
        f"the mean predictions of {gaps[0].group} and {gaps[0].towards} differ by {gap}, and no feature surely shows "
        "why: more people would."
    )
    return taken_back(verdict, why)
