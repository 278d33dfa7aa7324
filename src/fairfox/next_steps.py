"""What to do next: which single feature, if dropped or repaired, lowers the effect most, and what that costs."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairfox.data.columns import listed
from fairfox.data.dataset import Dataset, Feature, Level
from fairfox.errors import ColumnError, FairfoxError, ShapeError, did_you_mean
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.protocol import Model
from fairfox.models.sklearn_model import is_estimator
from fairfox.models.torch_model import TorchModel
from fairfox.outcomes import Outcome, labels_as_trained, outcome_of
from fairfox.repair import (
    Answers,
    People,
    anybodys,
    mean_answers,
    repaired,
    rows_a_person,
    some_of,
    trained_again,
)
from fairfox.steps import Method, NextSteps, Step, Way

CANDIDATES = 5  # features that are tried, those with the largest contributions
MOST_PEOPLE = 2000  # who are asked about
MOST_PREDICTIONS = 100_000  # that a black box is asked for, about
AS_THEY_ARE = 0.25  # of these predictions at least for people as they are, the others for their counterfactual rows
DRAWS = 8  # of other people's values, where dropping is estimated
MOST_TRAINED = 4000  # people whom an estimator is trained again on
ALIKE = 0.05  # shares of the effect that differ by less: the cheaper way is suggested
WORTHWHILE = 0.05  # share of the effect that a suggestion takes away at least
HALF = 0.5  # of the effect; where no feature takes away as much, more than a feature must change
_log = logging.getLogger("fairfox")


def next_steps(
    target: Model,
    data: Dataset,
    counterfactual: Tensor,
    contributions: Mapping[str, float],
    *,
    abstained: Tensor | None = None,
    estimator: object | None = None,
    label_values: Sequence[Level] | None = None,
    candidates: int = CANDIDATES,
    most_predictions: int = MOST_PREDICTIONS,
    seed: int = 0,
    batch_size: int = 4096,
) -> NextSteps:
    """Return which single feature, if dropped or repaired, lowers the effect most, and at what cost.

    Repaired: everyone's value is half way between their own and that of their counterfactual row, for the model as it
    is. Dropped: the model cannot see the feature. A scikit-learn estimator is trained again on the labelled people
    without it; for any other model it is estimated: the mean prediction with other people's values of the feature.

    Args:
        target: the model over encoded x.
        data: the people, with labels y where they are known.
        counterfactual: everyone as a member of the other group (N, D), encoded.
        contributions: mean |contribution| to the effect by feature; the largest are tried.
        abstained: people (N,) nothing is said about.
        estimator: what `target` wraps, where it may be trained again.
        label_values: what the codes in y stand for; None: y holds 0 and 1, or numbers.
        candidates: how many features are tried.
        most_predictions: that a black box is asked for, about.
        seed: of samples, draws and halves.
        batch_size: rows per block.
    """
    _check(data, counterfactual, contributions)
    judged = torch.ones(len(data), dtype=torch.bool) if abstained is None else ~abstained.cpu()
    trial = _Trial(
        target=target,
        data=data,
        counterfactual=counterfactual.to(data.x),
        judged=judged,
        features=_candidates(data.features, contributions, candidates),
        outcome=outcome_of(target, data.y, label_values, getattr(estimator, "classes_", None)),
        most=math.inf if target.differentiable else most_predictions,
        rows=rows_a_person(target, counterfactual[judged].to(data.x)),
        seed=seed,
        batch_size=batch_size,
    )
    again, trained_on, why = trial.trained_again(estimator, label_values)
    return replace(trial.asked(again), retrained_on=trained_on, not_retrained=why)


@dataclass(frozen=True)
class _Judge:
    """Some of the people, by whom answers are compared."""

    weights: Tensor  # (n,)
    outcome: Outcome | None

    def mean(self, values: Tensor) -> float:
        weights = self.weights[: len(values)].to(values)
        return float((values * weights).sum() / weights.sum()) if len(values) else math.nan

    def accuracy(self, predictions: Tensor) -> float | None:
        return None if self.outcome is None else self.outcome.accuracy(predictions, self.weights)

    def step(self, f: Feature, way: Way, method: Method, before: Answers, after: Answers) -> Step:
        was, now = (self.mean(a.effect.abs()) for a in (before, after))
        return Step(
            feature=f.name,
            way=way,
            method=method,
            before=was,
            after=now,
            share=1 - now / was if was > 0 else 0.0,
            accuracy_before=self.accuracy(before.here),
            accuracy_after=self.accuracy(after.here),
            change=self.mean((after.here - before.here).abs()),
        )


@dataclass(frozen=True)
class _Trial:
    """Features that are tried on a model and its people."""

    target: Model
    data: Dataset
    counterfactual: Tensor  # (N, D)
    judged: Tensor  # (N,) bool
    features: list[Feature]
    outcome: Outcome | None
    most: float  # predictions
    rows: float  # that a model is asked about for one counterfactual person
    seed: int
    batch_size: int

    @property
    def here(self) -> float:
        """How many predictions may be asked for about people as they are."""
        return self.most * max(AS_THEY_ARE, 1 / (1 + self.rows))

    def people(self, drawn: Tensor, versions: int) -> People:
        """Return the people drawn; as many on both sides as may be asked about in so many versions."""
        most = math.inf if self.target.differentiable else (self.most - self.here) / versions / self.rows
        return People.of(self.data.x, self.counterfactual, drawn, most=most)

    def judge(self, drawn: Tensor) -> _Judge:
        weights = self.data.x.new_ones(len(self.data)) if self.data.weights is None else self.data.weights
        return _Judge(weights[drawn], None if self.outcome is None else self.outcome.of(drawn))

    def trained_again(
        self, estimator: object, label_values: Sequence[Level] | None
    ) -> tuple[dict[str, tuple[Step, float | None]], int, str | None]:
        """Return by feature what dropping it does and the accuracy once it is repaired, on so many held-out people.

        Nothing for what is no estimator with labels, and why not for one that cannot be trained again.
        """
        y, target, features = self.data.y, self.target, self.features
        if not (is_estimator(estimator) and isinstance(target, BlackBoxModel) and y is not None and features):
            return {}, 0, None
        drawn = some_of(self.judged & ~y.isnan().cpu(), MOST_TRAINED, seed=self.seed)
        judge, people = self.judge(drawn), self.people(drawn, 1 + len(features))
        try:
            labels = labels_as_trained(estimator, y[drawn], label_values)
            found = trained_again(estimator, target, people, labels, self.data.features, features, seed=self.seed)
        except Exception as error:  # a training may raise anything; then dropping is estimated
            known, detail = isinstance(error, FairfoxError), (str(error).splitlines() or [""])[0]
            _log.info("the model is not trained again", exc_info=not known)
            return {}, 0, detail if known else f"{type(error).__name__}: {detail}"
        pairs = zip(features, found.without, found.repaired, strict=True)
        steps = {
            f.name: (judge.step(f, "dropped", "re-trained", found.whole, without), judge.accuracy(fixed))
            for f, without, fixed in pairs
        }
        return steps, len(drawn), None

    def asked(self, again: Mapping[str, tuple[Step, float | None]]) -> NextSteps:
        """Return what the audited model says, and what newly trained ones have said."""
        versions = 1 + len(self.features) * (1 if again else 1 + DRAWS)  # that everyone is asked about in
        drawn = some_of(self.judged, int(min(MOST_PEOPLE, self.here / versions)), seed=self.seed)
        judge, people = self.judge(drawn), self.people(drawn, versions)
        plain = Answers.of(self.target, people, batch_size=self.batch_size)
        steps: list[Step] = []
        for f in self.features:
            fixed = Answers.of(self.target, repaired(people, f), batch_size=self.batch_size)
            step = judge.step(f, "repaired", "as it is", plain, fixed)
            if f.name in again:
                dropped, accuracy = again[f.name]
                steps += [replace(step, accuracy_before=dropped.accuracy_before, accuracy_after=accuracy), dropped]
            else:
                several = anybodys(people, f, draws=DRAWS, seed=self.seed)
                blind = mean_answers(self.target, several, batch_size=self.batch_size)
                steps += [step, judge.step(f, "dropped", "estimated", plain, blind)]
        steps.sort(key=lambda step: -step.share)
        return NextSteps(
            effect=judge.mean(plain.effect.abs()),
            steps=tuple(steps),
            suggestion=_suggested(steps),
            measure=None if self.outcome is None else self.outcome.measure,
            train_fair=_about_train_fair(self.target, self.data, steps, self.outcome),
            people=len(drawn),
            compared=people.both,
            predictions=round(versions * (len(drawn) + people.both * self.rows)),
        )


def _candidates(features: Sequence[Feature], contributions: Mapping[str, float], most: int) -> list[Feature]:
    """Return the features with the largest contributions, of those that have any."""
    order = sorted((-value, name) for name, value in contributions.items() if value > 0)
    named = {f.name: f for f in features}
    return [named[name] for _, name in order[:most]]


def _suggested(steps: Sequence[Step]) -> Step | None:
    """Return the step that takes away most; of the two for its feature the cheaper, where both do about as much."""
    if not steps or steps[0].share < WORTHWHILE:
        return None
    ways = [s for s in steps if s.feature == steps[0].feature and s.share >= steps[0].share - ALIKE]
    return min(ways, key=lambda s: s.change if s.cost is None else s.cost)


def _about_train_fair(target: Model, data: Dataset, steps: Sequence[Step], outcome: Outcome | None) -> str | None:
    """Return a sentence where a network or labels are at hand, and no single feature takes away half of the effect."""
    labelled = outcome is not None and outcome.measure == "AUC"
    if not steps or steps[0].share >= HALF or not (labelled or isinstance(target, TorchModel)):
        return None
    hidden = listed(f'"{p.name}"' for p in data.protected)
    needs = "" if labelled else "; it needs a column of true outcomes"
    return (
        f"No single feature takes away half of the effect: fairfox.train_fair trains a network that hides {hidden} in "
        f"all of them together{needs}."
    )


def _check(data: Dataset, counterfactual: Tensor, contributions: Mapping[str, float]) -> None:
    if counterfactual.shape != data.x.shape:
        raise ShapeError(
            f"The counterfactual rows have shape {tuple(counterfactual.shape)}; expected {tuple(data.x.shape)}: one "
            "encoded row for each individual"
        )
    names = [f.name for f in data.features]
    for name in contributions:
        if name not in names:
            raise ColumnError(f"There is no feature '{name}' to drop or repair.{did_you_mean(name, names)}")
