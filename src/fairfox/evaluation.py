"""How well scores agree with the truth: average precision, its curve, rank correlation and NDCG.

Pure functions over tensors or arrays, one value per individual; higher scores mean less fair. Equal scores share their
place, so the order of the rows never matters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fairfox.errors import DataError, ShapeError

Values = NDArray[np.float64]
Given = Tensor | ArrayLike


class PrecisionRecall(NamedTuple):
    """Precision and recall when everyone who scores at least the threshold is flagged; thresholds rise.

    As in scikit-learn, precision and recall end with one more point, (1, 0): nobody flagged.
    """

    precision: Values
    recall: Values
    thresholds: Values


def precision_recall(truth: Given, scores: Given, *, abstained: Given | None = None) -> PrecisionRecall:
    """Return precision and recall at every score that occurs.

    Args:
        truth: 1 or True for the people who are treated unfairly, 0 or False for the others.
        scores: higher means less fair.
        abstained: True for people without a score: they come last, at the threshold -inf, whatever their score says.
    """
    positive, ranked = _binary(truth), _ranked(scores, abstained)
    _same_length(truth=positive, scores=ranked)
    thresholds, place = np.unique(ranked, return_inverse=True)
    people = np.bincount(place)[::-1].cumsum()[::-1]  # at each threshold or above
    found = np.bincount(place, weights=positive)[::-1].cumsum()[::-1]
    total = float(positive.sum())
    recall = found / total if total else np.full(len(found), np.nan)
    return PrecisionRecall(np.append(found / people, 1.0), np.append(recall, 0.0), thresholds)


def average_precision(truth: Given, scores: Given, *, abstained: Given | None = None) -> float:
    """Return the mean precision over the recall gained at each threshold; NaN when the truth holds no positive.

    The arguments are those of `precision_recall`; a perfect order gives 1, a random one the share of positives.
    """
    curve = precision_recall(truth, scores, abstained=abstained)
    return float(-np.sum(np.diff(curve.recall) * curve.precision[:-1]))


def spearman(a: Given, b: Given) -> float:
    """Return the rank correlation of a and b, equal values sharing their mean rank; NaN when either is constant."""
    left, right = _numbers(a, "a"), _numbers(b, "b")
    _same_length(a=left, b=right)
    left, right = _mid_ranks(left), _mid_ranks(right)
    left, right = left - left.mean(), right - right.mean()
    spread = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / spread if spread else float("nan")


def ndcg(relevance: Given, scores: Given) -> float:
    """Return the discounted gain of the order of the scores over the best possible; NaN when nothing is relevant.

    Gains are the relevances themselves, discounted by log2(1 + place); equal scores share the mean of their discounts.
    """
    gains, ranked = _numbers(relevance, "relevance"), _numbers(scores, "scores")
    _same_length(relevance=gains, scores=ranked)
    if (gains < 0).any():
        raise DataError(f"relevance holds {gains.min():g}; expected no negative values")
    discounts = 1.0 / np.log2(np.arange(len(gains)) + 2.0)  # first place first
    _, place, size = np.unique(-ranked, return_inverse=True, return_counts=True)
    shared = np.add.reduceat(discounts, np.cumsum(size) - size) / size
    best = float(np.sort(gains)[::-1] @ discounts)
    return float(gains @ shared[place]) / best if best else float("nan")


def _mid_ranks(values: Values) -> Values:
    _, place, size = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(size) - (size - 1) / 2.0)[place])


def _ranked(scores: Given, abstained: Given | None) -> Values:
    if abstained is None:
        return _numbers(scores, "scores")
    mask = _binary(abstained, "abstained") == 1.0
    values = _array(scores, "scores")
    _same_length(scores=values, abstained=mask)
    return _known(np.where(mask, -np.inf, values), "scores")


def _binary(values: Given, name: str = "truth") -> Values:
    numbers = _numbers(values, name)
    if not np.isin(numbers, (0.0, 1.0)).all():
        raise DataError(f"{name} holds values other than 0 and 1; give one 0 or 1 (or False or True) per individual")
    return numbers


def _numbers(values: Given, name: str) -> Values:
    return _known(_array(values, name), name)


def _known(numbers: Values, name: str) -> Values:
    if unknown := int(np.isnan(numbers).sum()):
        raise DataError(
            f"{name} holds {unknown} missing values (NaN); leave those individuals out or mark them abstained"
        )
    return numbers


def _array(values: Given, name: str) -> Values:
    found = np.asarray(
        values.cpu().double().numpy(force=True) if isinstance(values, Tensor) else values, dtype=np.float64
    )
    if found.ndim != 1 or not len(found):
        raise ShapeError(f"{name} has shape {found.shape}; expected one value for each of at least one individual")
    return found


def _same_length(**arrays: NDArray[np.generic]) -> None:
    (first, a), (second, b) = arrays.items()
    if len(a) != len(b):
        raise ShapeError(f"{len(a)} values in {first} and {len(b)} in {second}; give one each per individual, in order")
