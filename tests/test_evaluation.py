"""Agreement between scores and truth, against hand-worked values and scikit-learn and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, ndcg_score, precision_recall_curve

from fairfox.errors import DataError, ShapeError
from fairfox.evaluation import average_precision, ndcg, precision_recall, spearman


def noisy_scores(seed, n=200, *, decimals=1):
    """Return truth and rounded scores: many ties."""
    generator = np.random.default_rng(seed)
    truth = generator.random(n) < 0.3
    return truth, np.round(generator.standard_normal(n) + truth, decimals)


def test_average_precision_by_hand():
    # best first: 1, 0, 1, 0 -> half the recall at precision 1, half at 2/3
    assert average_precision([0, 1, 0, 1], [0.3, 0.9, 0.1, 0.2]) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision([0, 1, 0, 1], [0.3, 0.9, 0.1, 0.5]) == 1.0


def test_constant_scores_have_the_share_of_positives_as_average_precision():
    assert average_precision([1, 0, 0, 0], [0.7] * 4) == pytest.approx(0.25)


def test_a_perfectly_inverted_order_tends_to_one_minus_log_two():
    truth = np.repeat([1, 0], 5000)
    assert average_precision(truth, np.arange(10_000)) == pytest.approx(1 - math.log(2), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_and_its_curve_agree_with_scikit_learn(seed):
    truth, scores = noisy_scores(seed)
    assert average_precision(truth, scores) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    for ours, theirs in zip(precision_recall(truth, scores), precision_recall_curve(truth, scores), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_precision_recall_by_hand():
    curve = precision_recall([1, 0, 1], [3.0, 2.0, 1.0])
    np.testing.assert_allclose(curve.thresholds, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(curve.precision, [2 / 3, 1 / 2, 1.0, 1.0])
    np.testing.assert_allclose(curve.recall, [1.0, 1 / 2, 1 / 2, 0.0])


def test_abstained_people_rank_last_and_count():
    truth, scores, abstained = [1, 1, 0, 0], [0.9, 0.8, 0.5, 0.1], [False, True, False, False]
    # order: 1, 0, 0, then the abstained 1 -> half the recall at precision 1, half at 2/4
    assert average_precision(truth, scores, abstained=abstained) == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)
    curve = precision_recall(truth, scores, abstained=abstained)
    assert curve.thresholds[0] == -np.inf
    assert curve.precision[0] == 0.5


def test_what_an_abstained_score_says_does_not_matter():
    truth, scores = noisy_scores(7)
    abstained = np.arange(len(truth)) % 5 == 0
    unknown = np.where(abstained, np.nan, scores)
    assert average_precision(truth, unknown, abstained=abstained) == average_precision(
        truth, scores, abstained=abstained
    )
    lowest = np.where(abstained, scores.min() - 1, scores)
    assert average_precision(truth, unknown, abstained=abstained) == pytest.approx(
        average_precision_score(truth, lowest)
    )


def test_average_precision_without_positives_is_nan():
    assert math.isnan(average_precision([0, 0], [0.1, 0.2]))


def test_spearman_by_hand():
    # ranks 1 2 3 4 and 2 1 4 3: 1 - 6 * 4 / (4 * 15) = 0.6
    assert spearman([10, 20, 30, 40], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert spearman([1, 2, 3], [8, 4, 2]) == pytest.approx(-1.0)


@pytest.mark.parametrize("seed", range(5))
def test_spearman_agrees_with_scipy_with_ties(seed):
    truth, scores = noisy_scores(seed)
    other = np.round(scores + np.random.default_rng(seed + 100).standard_normal(len(scores)))
    assert spearman(scores, other) == pytest.approx(spearmanr(scores, other).statistic, abs=1e-12)
    assert spearman(truth, scores) == pytest.approx(spearmanr(truth, scores).statistic, abs=1e-12)


def test_spearman_sees_only_the_order():
    _, scores = noisy_scores(1)
    _, other = noisy_scores(2)
    assert spearman(np.exp(scores), other) == spearman(scores, other)


def test_spearman_of_a_constant_is_nan():
    assert math.isnan(spearman([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))


def test_ndcg_by_hand():
    # places of relevance 3, 2, 0 by score: 2, 1, 3; best: 3 first
    found = 2 / math.log2(2) + 3 / math.log2(3)
    best = 3 / math.log2(2) + 2 / math.log2(3)
    assert ndcg([3, 2, 0], [0.5, 0.9, 0.1]) == pytest.approx(found / best)
    assert ndcg([3, 2, 0], [0.9, 0.5, 0.1]) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_ndcg_agrees_with_scikit_learn_with_ties(seed):
    _, scores = noisy_scores(seed, 40)
    relevance = np.random.default_rng(seed).random(40)
    assert ndcg(relevance, scores) == pytest.approx(ndcg_score([relevance], [scores]), abs=1e-12)


def test_ndcg_without_relevance_is_nan():
    assert math.isnan(ndcg([0.0, 0.0], [1.0, 2.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_and_arrays_give_the_same(dtype):
    truth, scores = noisy_scores(3)
    scores = np.round(scores * 4) / 4  # exact in every dtype
    given = torch.tensor(scores, dtype=dtype, requires_grad=True)
    assert average_precision(torch.tensor(truth), given) == average_precision(truth, scores)
    assert spearman(given, torch.tensor(truth)) == spearman(scores, truth)
    assert ndcg(torch.tensor(truth), given) == ndcg(truth, scores)


def test_the_order_of_the_rows_does_not_matter():
    truth, scores = noisy_scores(4)
    order = np.random.default_rng(0).permutation(len(truth))
    assert average_precision(truth[order], scores[order]) == average_precision(truth, scores)
    assert ndcg(truth[order], scores[order]) == pytest.approx(ndcg(truth, scores), abs=1e-12)


@pytest.mark.parametrize("function", [average_precision, precision_recall, spearman, ndcg])
def test_lengths_that_differ_are_refused(function):
    with pytest.raises(ShapeError, match=r"^3 values in \w+ and 2 in \w+; give one each per individual, in order$"):
        function([0, 1, 0], [0.1, 0.2])


@pytest.mark.parametrize("function", [average_precision, precision_recall, spearman, ndcg])
@pytest.mark.parametrize("place", [0, 1])
def test_missing_values_are_refused(function, place):
    given = [[0.0, 1.0, 0.0], [0.1, 0.2, 0.3]]
    given[place][1] = math.nan
    with pytest.raises(DataError, match=r"holds 1 missing values \(NaN\)"):
        function(*given)


def test_missing_scores_outside_the_abstained_are_refused():
    with pytest.raises(DataError, match=r"^scores holds 1 missing values"):
        average_precision([0, 1, 0], [math.nan, math.nan, 0.3], abstained=[True, False, False])


def test_an_abstained_mask_of_another_length_is_refused():
    with pytest.raises(ShapeError, match="3 values in scores and 2 in abstained"):
        average_precision([0, 1, 0], [0.1, 0.2, 0.3], abstained=[True, False])


def test_truth_that_is_not_binary_is_refused():
    with pytest.raises(DataError, match="truth holds values other than 0 and 1"):
        average_precision([0, 0.4, 1], [0.1, 0.2, 0.3])


def test_negative_relevance_is_refused():
    with pytest.raises(DataError, match="relevance holds -1"):
        ndcg([1, -1], [0.1, 0.2])


@pytest.mark.parametrize("values", [[], [[1, 0]], 1.0])
def test_anything_but_one_value_per_individual_is_refused(values):
    with pytest.raises(ShapeError, match="one value for each of at least one individual"):
        average_precision(values, values)
