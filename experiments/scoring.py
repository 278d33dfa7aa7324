"""Scores of every fairness test for several targets at once: what does not depend on the target is done once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from math import nan

import torch
from torch import Tensor

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.benchmark.judge import Trial, average_precision, spearman
from fairfox.benchmark.truth import biased_labels, individual_fairness_score
from fairfox.data.dataset import Dataset, resample
from fairfox.fairtests.effect import alignment_metric, model_alignment
from fairfox.fairtests.fta import FTALinear
from fairfox.fairtests.protocol import Measurement, MeasuringTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model, predict

Scores = dict[str, list[Tensor]]  # of each test, for each target (N,); NaN: the test cannot say

FAMILY = ("faux", "faux+ng", "faux+ig")
RANKS: dict[str, tuple[str, ...]] = {"rank": (), "rank given y": ("y",)}  # what is held equal; both with the gate
ALIGNED = {"plain": "rank", "balanced": "rank given y"}  # which effect is multiplied by an auxiliary's share


def agreement(scores: Sequence[Tensor], truths: Sequence[Tensor], threshold: float) -> dict[str, float]:
    """Return AP over the people of an unfair and a fair target, rho inside the unfair one, and the prevalence.

    People without a score come last. AP is NaN where all people are treated alike: there is nothing to find, or nothing
    to miss.
    """
    labels = torch.cat([biased_labels(truth, threshold) for truth in truths])
    known = [torch.where(each.isnan(), -torch.inf, each) for each in scores]
    prevalence = float(labels.double().mean())
    ap = average_precision(labels, torch.cat(known)) if 0.0 < prevalence < 1.0 else nan
    return {"ap": ap, "rho": spearman(known[0], truths[0]), "prevalence": prevalence}


def judge_known(scores: Sequence[Tensor], trial: Trial) -> dict[str, float]:
    """Return how good known scores of the two targets on trial are."""
    truths = [individual_fairness_score(target, trial.people) for target in (trial.unfair, trial.fair)]
    return agreement(scores, truths, trial.threshold)


def fair_over_unfair(unfair: Tensor, fair: Tensor) -> float | None:
    """Return the mean score of a fair target over that of the unfair one, of people with a score."""
    own, other = (float(each[each.isfinite()].double().mean()) for each in (fair, unfair))
    return own / other if other else None


def scores_of(tests: Mapping[str, MeasuringTest], targets: Sequence[Model], people: Dataset) -> Scores:
    """Return the scores of fitted tests."""
    return {name: [known_scores(test.measure(target, people)) for target in targets] for name, test in tests.items()}


def untrained_scores(targets: Sequence[Model], people: Dataset) -> Scores:
    """Return the scores of the tests that learn nothing."""
    return scores_of({"fta": make_test("fta"), "lic": make_test("lic")}, targets, people)


def linear_scores(targets: Sequence[Model], fitting: Dataset, people: Dataset, *, seed: int) -> Scores:
    """Return the scores of `fta+linear`; a re-training is a fit on resampled rows."""
    test = FTALinear(auxiliary=LinearAuxiliary()).fit(resampled(fitting, seed))
    return scores_of({"fta+linear": test}, targets, people)


def rank_maps(fitting: Dataset, given: tuple[str, ...], seeds: Sequence[int]) -> Iterator[RankMap]:
    """Yield re-trainings of the rank map on resampled rows; which features may move is decided once, on all rows."""
    first = RankMap(given=given, gate=True)
    first.prepare(fitting)
    for seed in seeds:
        yield copy(first).fit(resampled(fitting, seed))


def family_scores(
    auxiliary: FixedAuxiliary, targets: Sequence[Model], fitting: Dataset, people: Dataset, *, steps: int | None = None
) -> Scores:
    """Return the scores of the paper's tests with an auxiliary; `steps` of integrated gradients, None: as needed."""
    made = {name: make_test(name, auxiliary=auxiliary, settings={"steps": steps}) for name in FAMILY}
    return scores_of({name: test.fit(fitting) for name, test in made.items()}, targets, people)


def aligned_name(name: str) -> str:
    """Return the name of a test times the alignment share."""
    return name.replace("rank", "rank/a")


def alignment_shares(
    auxiliary: FixedAuxiliary, targets: Sequence[Model], fitting: Dataset, people: Dataset
) -> list[float]:
    """Return the share of each target's variation along what tells c."""
    metric = alignment_metric(fitting, auxiliary)
    return [model_alignment(target, people, auxiliary, metric)[0].value for target in targets]


def effects(one: CounterfactualMap, targets: Sequence[Model], people: Dataset) -> list[Tensor]:
    """Return |f(T(x)) - f(x)| for each target (N,): people are mapped once."""
    mapped = one.map(people)
    moved = [(predict(target, mapped.rows) - predict(target, people.x)).abs() for target in targets]
    return [torch.where(mapped.abstained, torch.nan, effect) for effect in moved]


def known_scores(found: Measurement) -> Tensor:
    """Return scores (N,) with NaN for those whom the test abstains from."""
    return torch.where(found.abstained.to(found.score.device), torch.nan, found.score)


def resampled(data: Dataset, seed: int) -> Dataset:
    """Return as many people drawn with replacement."""
    return resample(data, generator=torch.Generator().manual_seed(seed))
