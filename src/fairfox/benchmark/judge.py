"""Agreement of scores with the truth: average precision and rank correlation.

Pure functions over tensors or arrays, one value per individual; higher scores mean less fair. Equal scores share their
rank, so the order of the rows never matters. `judge` applies any fairness test to people with a known truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fairfox.benchmark.fusion import Fusion
from fairfox.benchmark.generator import SyntheticBias
from fairfox.benchmark.source import whole_number
from fairfox.benchmark.truth import (
    TargetTraining,
    biased_labels,
    individual_fairness_score,
    train_target,
    unbiased_variance,
)
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.fairtests.protocol import FairnessTest
from fairfox.models.protocol import Model

Values = NDArray[np.float64]
Given = Tensor | ArrayLike


@dataclass(frozen=True)
class Trial:
    """What a fairness test is judged by: an unfair and a fair target, and people whose truth is known.

    The test learns from `fitting` and scores `people` (generated, with truth) for both targets. People are truly
    treated unfairly if |f(x) - f(x')| is above the threshold (`fairfox.benchmark.truth.unbiased_variance`).
    """

    fitting: Dataset
    people: Dataset
    unfair: Model
    fair: Model
    threshold: float


@dataclass(frozen=True)
class Judged:
    """How well a test did: AP separates the unfair model's people from the fair model's, rho ranks people in one model.

    Everyone counts twice in the arrays: first as treated by the unfair target, then by the fair one.
    """

    ap: float  # average precision over both models' people together
    prevalence: float  # share of the truly unfair among them: the AP of a test that knows nothing
    rho: float  # Spearman of the score with the true |f(x) - f(x')| inside the unfair model
    ap_within: float  # average precision inside the unfair model
    labels: NDArray[np.bool_]  # (2N,) truly unfair
    truth: Values  # (2N,) |f(x) - f(x')|
    scores: Values  # (2N,) -inf for people without a score


def average_precision(truth: Given, scores: Given) -> float:
    """Return the mean precision over the recall gained at each threshold; NaN when the truth holds no positive.

    A perfect order gives 1, a random one the share of positives.

    Args:
        truth: 1 or True for the people who are treated unfairly, 0 or False for the others.
        scores: higher means less fair; -inf for people without a score, who come last.
    """
    from sklearn.metrics import average_precision_score

    positive, values = _numbers(truth, "truth"), _numbers(scores, "scores")
    if not np.isin(positive, (0.0, 1.0)).all():
        raise DataError("truth holds values other than 0 and 1; give one 0 or 1 (or False or True) per individual")
    _same_length(truth=positive, scores=values)
    ranks = np.unique(values, return_inverse=True)[1]  # scikit-learn takes no infinite scores
    return float(average_precision_score(positive, ranks)) if positive.any() else float("nan")


def spearman(a: Given, b: Given) -> float:
    """Return the rank correlation of a and b, equal values sharing their mean rank; NaN when either is constant."""
    from scipy.stats import spearmanr

    left, right = _numbers(a, "a"), _numbers(b, "b")
    _same_length(a=left, b=right)
    constant = (left == left[0]).all() or (right == right[0]).all()
    return float("nan") if constant else float(spearmanr(left, right).statistic)


def make_trial(
    generator: SyntheticBias,
    *,
    bias: float,
    fusion: Fusion,
    rows: tuple[int, int, int] = (10_000, 2_000, 5_000),
    width: int = 64,
    depth: int = 2,
    seed: int = 0,
    training: TargetTraining | None = None,
) -> Trial:
    """Return a trial over generated people: an unfair target, a perfectly fair one, and the threshold of bias 0.

    Targets are trained and tests fitted as in Table 1: tests learn from all the people that targets are trained or
    stopped on.

    Args:
        generator: what people are drawn from.
        bias: how much the label depends on the protected variable, 0 to 1.
        fusion: how the features of both are put together, "concat" or "outer".
        rows: how many people targets learn from, are stopped on, and are tested on.
        width: units of each hidden layer of the targets.
        depth: hidden layers of the targets.
        seed: same seed, same machine, same trial.
        training: how targets are trained; by default as in Table 1.
    """
    train, valid, tested = (whole_number(f"rows[{index}]", count) for index, count in enumerate(rows))

    def draw(bias: float, *, derivative: bool) -> tuple[Dataset, Dataset]:
        """Return people to learn from, and people to test on, these with the true dx/dc where it is asked for."""
        fitting = generator.sample(train + valid, bias=bias, fusion=fusion, seed=2 * seed, derivative=False)
        return fitting, generator.sample(tested, bias=bias, fusion=fusion, seed=2 * seed + 1, derivative=derivative)

    def target(fitting: Dataset, projection: Tensor | None = None) -> Model:
        how = {"width": width, "depth": depth, "seed": seed}
        return train_target(fitting[:train], valid=fitting[train:], projection=projection, training=training, **how)

    (fitting, people), (unbiased, unbiased_people) = draw(bias, derivative=True), draw(0.0, derivative=False)
    return Trial(
        fitting=fitting,
        people=people,
        unfair=target(fitting),
        fair=target(fitting, generator.keep_y(fusion)),
        threshold=unbiased_variance(target(unbiased), unbiased_people),
    )


def judge(test: FairnessTest, trial: Trial, *, fitted: bool = False) -> Judged:
    """Return how well a fairness test finds the people who are truly treated unfairly.

    Pooled protocol: the same people are scored for the unfair and for the fair target, and average precision is taken
    over both together. Within-model protocol: rank correlation and average precision inside the unfair target. People
    without a score are ranked below all others and counted: those that a test with `measure` abstains from (its tensors
    hold 0.0 for them), and those whose score is NaN.

    Args:
        test: any object with `fit` and `score`; where it has `measure` (`fairfox.fairtests.protocol`), that is used.
        trial: the two targets and their people.
        fitted: the test has been fitted already.
    """
    _check_judgeable(test, ("score",) if fitted else ("fit", "score"))
    if not fitted:
        test.fit(trial.fitting)
    targets = (trial.unfair, trial.fair)
    ifs = [individual_fairness_score(model, trial.people) for model in targets]
    labels = np.concatenate([biased_labels(score, trial.threshold).numpy(force=True) for score in ifs])
    truth = np.concatenate([_numbers(score, "truth") for score in ifs])
    scores = np.concatenate([_scores(test, model, trial.people) for model in targets])
    unfair = slice(0, len(trial.people))
    return Judged(
        ap=average_precision(labels, scores),
        prevalence=float(labels.mean()),
        rho=spearman(scores[unfair], truth[unfair]),
        ap_within=average_precision(labels[unfair], scores[unfair]),
        labels=labels,
        truth=truth,
        scores=scores,
    )


def _check_judgeable(test: object, methods: tuple[str, ...]) -> None:
    if isinstance(test, type):
        raise OptionError(f"{test.__name__} is a class; give an instance: judge({test.__name__}(), trial)")
    for method in methods:
        if not callable(getattr(test, method, None)):
            raise OptionError(
                f"A {type(test).__name__} has no {method}; a fairness test has fit(data) and score(model, data)"
            )


def _scores(test: FairnessTest, model: Model, people: Dataset) -> Values:
    """Return a test's scores (N,), -inf for people without one."""
    measure = getattr(test, "measure", None)
    measured = None if measure is None else measure(model, people)
    values = _array(test.score(model, people) if measured is None else measured.score, "scores")
    if len(values) != len(people):
        raise ShapeError(f"The test gave {len(values)} scores for {len(people)} individuals; give one each, in order")
    gone = np.isnan(values)
    if measured is not None:
        gone |= measured.abstained.numpy(force=True)
    return np.where(gone, -np.inf, values)


def _numbers(values: Given, name: str) -> Values:
    numbers = _array(values, name)
    if unknown := int(np.isnan(numbers).sum()):
        raise DataError(f"{name} holds {unknown} missing values (NaN); leave those individuals out")
    return numbers


def _array(values: Given, name: str) -> Values:
    plain = values.cpu().double().numpy(force=True) if isinstance(values, Tensor) else values
    array = np.asarray(plain, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ShapeError(f"{name} has shape {array.shape}; expected one value for each of at least one individual")
    return array


def _same_length(**arrays: NDArray[np.generic]) -> None:
    (first, a), (second, b) = arrays.items()
    if len(a) != len(b):
        raise ShapeError(f"{len(a)} values in {first} and {len(b)} in {second}; give one each per individual, in order")
