"""The verdict on a model: passes, fails or cannot tell, from how many people are, or may be, over delta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from fairfox.data.table import verb
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
HEADLINES: dict[str, str] = {"passes": "PASS", "fails": "FAIL", "cannot tell": "CANNOT TELL"}
FEWEST = 59  # people, from whom on 0 of them can pass a limit of 5 %; fewer are not enough to fail either
LEAST = 0.95  # persistence at which a model must still fail: ranks never carry over exactly
ALLOWED = 0.05  # share of people over delta, where nobody gave another
LEVEL = 0.05  # how often each of the two one-sided tests may be wrong


@dataclass(frozen=True)
class Point:
    """Which shares of people are over delta where ranks carry over with a correlation."""

    persistence: float
    share: float  # whose mean effect over the draws is
    significant: float  # who are on the list made at this persistence
    possible: float  # whose interval reaches beyond delta
    net: float  # over delta in the direction of their group, less those in the other one
    p_fails: float  # of so many on the list, or net, where no more than allowed truly are over delta


@dataclass(frozen=True)
class Counted:
    """How many of the people who were judged are, or may be, over delta. Shares and means are weighted."""

    judged: int
    significant: int  # on the list of people over delta
    possible: int  # whose interval reaches beyond delta
    share_significant: float
    share_possible: float
    equal: float  # as many people of equal weights would say as much
    mean: float | None = None  # |effect|; None: that of the people at hand
    share: float | None = None  # over delta

    @classmethod
    def of(cls, possible: Tensor, significant: Tensor, weight: Values) -> Counted:
        """Return how many people (n,) are marked."""
        each = weight / weight.max()  # equal ones are then ones
        found, reach = (float(np.average(marks.numpy(force=True), weights=each)) for marks in (significant, possible))
        equal = float(each.sum() ** 2 / (each**2).sum())
        return cls(len(significant), int(significant.sum()), int(possible.sum()), found, reach, equal)


@dataclass(frozen=True)
class Verdict:
    """What can be said about a model as a whole, and the numbers it rests on."""

    word: Word
    reason: str  # one sentence
    allowed: float  # share of people that may be over delta
    judged: int
    significant: int  # on the list of people over delta
    possible: int  # whose interval reaches beyond delta
    p_fails: float  # of so many significant people where no more than allowed truly are over delta
    p_passes: float  # of so few possible ones where more than allowed truly are
    mean: Estimate | None = None  # |effect|
    share: Estimate | None = None  # over delta
    variable: str = ""  # the protected one
    tipping: float | None = None  # the smallest persistence at which the word stands; None: it is not known
    curve: tuple[Point, ...] = ()  # by falling persistence

    @property
    def passed(self) -> bool | None:
        """True where the model passes, False where it fails, None where the data cannot tell."""
        return {"passes": True, "fails": False}.get(self.word)

    @property
    def headline(self) -> str:
        """The verdict and why, in a sentence: "FAIL: 273 of 500 people ..."."""
        return f"{HEADLINES[self.word]}: {self.reason}"


def judge_model(
    refits: Tensor,
    possible: Tensor,
    significant: Tensor,
    limit: float | Tensor,
    *,
    fdr: float,
    sizes: Tensor | None = None,
    allowed: float = ALLOWED,
    weights: Tensor | None = None,
    folds: int | None = None,
    over: str = "effect is over delta",
    who: str = "people",
    variable: str = "",
    seed: int = 0,
    curve: Sequence[Point] = (),
    everyone: Counted | None = None,
) -> Verdict:
    """Return the verdict from the effects of the people who were judged.

    The model fails where so many are significant that the share of all people over delta is above the allowed one;
    it passes where so few may be over delta that the share is below. The list may be wrong about the share `fdr` of
    its people, so that these are not counted. A model that does not fail any more where ranks carry over a little less
    than exactly is not failed.

    Args:
        refits: the effect in each refit (n, M).
        possible: whose interval reaches beyond delta (n,).
        significant: who is on the list (n,) of people over delta.
        limit: delta, one for all or one each (n,).
        fdr: the share of the list that may be wrong.
        sizes: everyone's |effect| (n,), where another one than the largest is held against delta.
        allowed: the share of people that may be over delta.
        weights: how many people each row stands for (n,).
        folds: into how many folds the people were split; None where the maps were learnt from others.
        over: what is true of people whose effect counts, in words: "prediction shifts by more than 5 points with sex".
        who: the people, in words.
        variable: the protected one.
        seed: of the bootstrap.
        curve: shares by falling persistence.
        everyone: the counts, where these people are a sample of those that the verdict is on.
    """
    if not len(refits):
        return Verdict("cannot tell", "Nobody could be judged.", allowed, 0, 0, 0, 1.0, 1.0, variable=variable)
    weight = np.ones(len(refits)) if weights is None else weights.numpy(force=True).astype(np.float64)
    counted = Counted.of(possible, significant, weight) if everyone is None else everyone
    equal = counted.equal
    p_fails = p_more((1 - fdr) * counted.share_significant * equal, equal, allowed)
    p_passes = p_fewer(counted.share_possible * equal, equal, allowed) if allowed < 1 else 0.0  # no share is above one
    word: Word = "fails" if p_fails <= LEVEL else "passes" if p_passes <= LEVEL else "cannot tell"
    if equal < FEWEST:
        word = "cannot tell"
    mean, share = _estimates(refits, sizes, limit, None if weights is None else weight, folds, seed)
    mean, share = mean.around(counted.mean, math.inf), share.around(counted.share, 1.0)
    tipping = tipping_point(word, curve, allowed)
    why = verdict_sentence(word, counted, allowed=allowed, over=over, who=who)
    counts = (counted.judged, counted.significant, counted.possible)
    found = Verdict(word, why, allowed, *counts, p_fails, p_passes, mean, share, variable, tipping, tuple(curve))
    if word == "fails" and tipping is not None and tipping > LEAST:
        exactly = f"a little less than exactly (persistence {LEAST:g})"
        return taken_back(found, f"the model no longer fails if ranks carry over {exactly}.")
    return found


def tipping_point(word: Word, curve: Sequence[Point], allowed: float) -> float | None:
    """Return the smallest persistence at which a model still fails, or passes, with all larger ones.

    It fails where the list says so, and passes where no more people than allowed are over delta on average. None where
    nothing is known of smaller ones than 1, or the verdict is "cannot tell".
    """
    if word == "cannot tell" or not curve:
        return None
    stands = (point.p_fails <= LEVEL if word == "fails" else point.share <= allowed for point in curve)
    kept = list(takewhile(lambda pair: pair[1], zip(curve, stands, strict=True)))
    return kept[-1][0].persistence if kept else 1.0


def tipping_sentence(verdict: Verdict) -> str:
    """Return down to which persistence the verdict holds, in a sentence; "" where that is not known."""
    if verdict.tipping is None:
        return ""
    start = f"Tipping point: {f'persistence {verdict.tipping:g}' if verdict.tipping else 'none'}. The model"
    if verdict.tipping == 0:
        return f"{start} {verdict.word} at every persistence, even if ranks do not carry over at all."
    if verdict.tipping == 1:
        return f"{start} {verdict.word} only if ranks carry over exactly."
    return f"{start} {verdict.word} as long as ranks carry over at least that well (1: exactly, 0: not at all)."


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
        return verdicts[min(failing, key=lambda v: (corrected[v], -verdicts[v].significant))]
    if all(each.word == "passes" for each in verdicts):
        return max(verdicts, key=lambda each: each.p_passes)
    chosen = min((each for each in verdicts if each.word != "passes"), key=lambda each: each.p_fails)
    if chosen.word == "cannot tell":
        return chosen
    return taken_back(chosen, f"with {len(verdicts)} verdicts on the same model this could be chance.")


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

    def estimated(values: Values, error: float) -> Estimate:
        draws = np.clip(mean_draws(values, error, weights, seed=seed), 0.0, None)
        return estimate(float(np.average(values, weights=weights)), draws)

    share = estimated(over, refit_error_of_share(scores, errors, delta, weights))
    return estimated(size, refit_error(errors, weights)), replace(share, upper=min(share.upper, 1.0))


def verdict_sentence(word: Word, counted: Counted, *, allowed: float, over: str, who: str) -> str:
    """Return why a verdict is what it is: a sentence with its counts, its shares and the limit."""
    judged, significant, possible = counted.judged, counted.significant, counted.possible
    limit = f"the limit is {100 * allowed:.3g} %"
    weighted = round(counted.equal) != judged

    def share(value: float) -> str:
        return f"{100 * value:.{0 if value >= 0.2 else 1}f} %{' by weight' if weighted else ''}"

    if word == "passes" and allowed >= 1:
        return f"Everyone may be affected: {limit}."
    if word == "passes" and not possible:
        return f"Nobody's {over}; {limit}."
    if word == "passes":
        who = f"At most {possible:,} of {judged:,} {who} ({share(counted.share_possible)}) {verb(possible)} affected"
        return f"{who}: their {over}; {limit}."
    if word == "fails":
        who = f"{significant:,} of {judged:,} {who} ({share(counted.share_significant)}) {verb(significant)}"
        return f"{who} significantly affected: their {over}; {limit}."
    if allowed == 0 and counted.equal >= FEWEST:
        return "No number of people can show that nobody is affected: give a limit above 0."
    needed = max(FEWEST, math.ceil(math.log(LEVEL) / math.log1p(-allowed)) if 0 < allowed < 1 else 0)
    if counted.equal < needed:
        few = f"{judged:,} {who if judged != 1 else who.replace('people', 'person', 1)}" + (
            f" (by weight as good as {counted.equal:.0f})" if weighted else ""
        )
        return f"{few} {verb(judged)} too few. At least {needed:,} {who} are needed to pass."
    shares = f"{100 * counted.share_significant:.1f} % to {share(counted.share_possible)}"
    why = f"{significant:,} to {possible:,} of {judged:,} {who} ({shares}) may be affected: their {over}; {limit}."
    between = counted.share_significant <= allowed <= counted.share_possible
    return why if between else f"{why} The difference from the limit could be chance."


_ONE_SIDED = 1.645  # standard errors: no more in 95 % of samples


class Gap(NamedTuple):
    """How much higher the mean prediction of another group is, and the mean effect of the map that leads there."""

    group: str
    towards: str
    gap: float
    effect: float
    delta: float
    share: float  # of all people, who are in the group
    share_towards: float  # who are in the other one
    error: float = 0.0  # standard error of the gap

    @property
    def left(self) -> float:
        """How large the part that the map leaves unexplained may be: the upper end of its interval."""
        return abs(self.gap - self.effect) + _ONE_SIDED * self.error


def held_back(
    verdict: Verdict | None,
    gaps: Sequence[Gap],
    *,
    allowed: float,
    by_chance: bool,
    points: bool,
    held: Sequence[str] = (),
) -> Verdict | None:
    """Return a verdict that does not say more than is known.

    Nothing fails if chance alone gives effects over delta. Nothing passes if the map may leave more than delta of a gap
    unexplained (at a level of 5 %) and this concerns more people than are allowed. Groups of fewer people than that
    (5 % at most) do not count: the mean of a few people says little. With few people the map may change no feature,
    since none differs beyond chance; then the gap is all there is to go by.

    Args:
        verdict: on one protected variable.
        gaps: between its groups.
        allowed: share of all people that may be over delta.
        by_chance: whether shuffled protected values give effects over delta.
        points: whether predictions are probabilities.
        held: names of the columns that are held equal; the gaps are of people with the same values in them.
    """
    if verdict is not None and verdict.word == "fails" and by_chance:
        return taken_back(verdict, "shuffled protected values give effects as large.")
    if verdict is None or verdict.word != "passes":
        return verdict
    few = min(allowed, ALLOWED)
    left = [each for each in gaps if each.left > each.delta and each.share_towards > few]
    if sum({each.group: each.share for each in left}.values()) <= allowed + 1e-6:  # shares are rounded
        return verdict
    most = max(left, key=lambda each: each.left)
    sizes = (abs(most.gap), _ONE_SIDED * most.error, math.copysign(most.effect, most.effect * most.gap))
    gap, error, effect = (f"{100 * v:z.1f} points" if points else f"{v:z.3g}" for v in sizes)
    same = f" among people with the same {' and '.join(held)}" if held else ""
    than = f"{'lower' if most.gap < 0 else 'higher'} than that of {most.group}{same} (give or take {error})"
    return taken_back(
        verdict,
        f"the mean prediction of {most.towards} is {gap} {than}, and the map accounts for {effect} of that. What is "
        "left may be more than delta: audit more people, or see the map check.",
    )
