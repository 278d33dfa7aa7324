"""Scores of every fairness test for several targets at once: what does not depend on the target is done once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import FixedAuxiliary, heads_of
from fairfox.benchmark.judge import Judged, Trial, judge
from fairfox.data.dataset import Dataset, resample
from fairfox.fairtests.effect import model_alignment
from fairfox.fairtests.faux import FAux, GradientTest, dead_variables, measurement
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.fairtests.lic import LIC
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import make_test
from fairfox.gradients.alignment import covariance_metric
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.maps.move import MoveMap
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model, predict

Scores = dict[str, list[Tensor]]  # of each test, for each target (N,); NaN: the test cannot say

WITHOUT = ("fta", "fta+linear", "rank", "lic")  # use no auxiliary network
FAMILY = ("faux", "faux+ng", "faux+ig")
MAPS = ("rank", "move", "move-direct")
WITH = (*FAMILY, *(f"{name}/s" for name in FAMILY), "move", "move-direct", *(f"{name}/a" for name in MAPS))


@dataclass(frozen=True)
class FixedScores:
    """A fairness test whose scores are known already."""

    targets: Sequence[Model]
    scores: Sequence[Tensor]

    def fit(self, data: Dataset) -> Self:
        """Return self."""
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return the scores (N,) of one of the targets."""
        return next(scores for target, scores in zip(self.targets, self.scores, strict=True) if target is model)


def judge_known(targets: Sequence[Model], scores: Sequence[Tensor], trial: Trial) -> Judged:
    """Return how good known scores of the targets are, two of which are on trial."""
    return judge(FixedScores(targets, scores), trial, fitted=True)


def scores_without(targets: Sequence[Model], fitting: Dataset, people: Dataset, *, seed: int) -> Scores:
    """Return the scores of the tests that use no auxiliary network.

    A re-training of `rank` and of the linear auxiliary of `fta+linear` is a fit on resampled rows; `fta` and `lic`
    learn nothing.
    """
    sample = resampled(fitting, seed)
    gradient_tests: dict[str, GradientTest] = {
        "fta": FTA(),
        "fta+linear": FTALinear(auxiliary=LinearAuxiliary()).fit(sample),
    }
    found = _gradient_scores(gradient_tests, targets, people)
    found["rank"] = effects(RankMap().fit(sample), targets, people)
    found["lic"] = [known_scores(LIC().measure(target, people)) for target in targets]
    return found


def scores_with(
    auxiliary: FixedAuxiliary, targets: Sequence[Model], fitting: Dataset, people: Dataset, *, seed: int
) -> Scores:
    """Return the scores of the tests that use an auxiliary network, which is trained already.

    With `/a` effects are multiplied by the alignment share that this auxiliary sees; `rank` itself is fitted on
    resampled rows, as without an auxiliary.
    """
    tests = {name: _faux(name, auxiliary).fit(fitting) for base in FAMILY for name in (base, f"{base}/s")}
    found = _gradient_scores({name: test for name, test in tests.items() if not test.integrated}, targets, people)
    found |= integrated_scores({name: test for name, test in tests.items() if test.integrated}, targets, people)
    maps: dict[str, CounterfactualMap] = {
        "rank": RankMap().fit(resampled(fitting, seed)),
        "move": MoveMap(auxiliary=auxiliary).fit(fitting),
        "move-direct": MoveMap(auxiliary=auxiliary, metric="identity").fit(fitting),
    }
    metric = covariance_metric(fitting.x)
    shares = [model_alignment(target, people, auxiliary, metric)[0].value for target in targets]
    for name, one in maps.items():
        found[name] = effects(one, targets, people)
        found[f"{name}/a"] = [share * scores for share, scores in zip(shares, found[name], strict=True)]
    return {name: found[name] for name in WITH}


def effects(one: CounterfactualMap, targets: Sequence[Model], people: Dataset) -> list[Tensor]:
    """Return |f(T(x)) - f(x)| for each target (N,): people are mapped once."""
    mapped = one.map(people)
    moved = [(predict(target, mapped.rows) - predict(target, people.x)).abs() for target in targets]
    return [torch.where(mapped.abstained, torch.nan, effect) for effect in moved]


def integrated_scores(tests: Mapping[str, FAux], targets: Sequence[Model], people: Dataset) -> Scores:
    """Return the scores of tests on integrated gradients that share an auxiliary: each gradient is integrated once."""
    first = next(iter(tests.values()))
    (member,) = first.auxiliary.members
    start = first.center
    assert start is not None

    def integrated(model: Model) -> Tensor:
        return integrated_jacobian(model, people.x, baseline=start, steps=first.steps)

    jac_aux = integrated(member)
    dead = dead_variables(jac_aux, heads_of(people.protected))
    found: Scores = {name: [] for name in tests}
    for target in targets:
        grad_tar = integrated(target)[:, 0]
        for name, test in tests.items():
            found[name].append(known_scores(measurement(test, test.values(grad_tar, jac_aux)[None], dead, people)))
    return found


def _gradient_scores(tests: Mapping[str, GradientTest], targets: Sequence[Model], people: Dataset) -> Scores:
    return {name: [known_scores(test.measure(target, people)) for target in targets] for name, test in tests.items()}


def _faux(name: str, auxiliary: FixedAuxiliary) -> FAux:
    test = make_test(name, auxiliary=auxiliary)
    assert isinstance(test, FAux)
    return test


def known_scores(found: Measurement) -> Tensor:
    """Return scores (N,) with NaN for those whom the test abstains from."""
    return torch.where(found.abstained.to(found.score.device), torch.nan, found.score)


def resampled(data: Dataset, seed: int) -> Dataset:
    """Return as many people drawn with replacement."""
    return resample(data, generator=torch.Generator().manual_seed(seed))
