"""Agreement between scores and truth, against hand-worked values and scikit-learn and SciPy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fused import KEEP_Y, Fused, fused, trial

from fairfox.auxiliary.linear import LinearMember
from fairfox.benchmark.judge import Trial, average_precision, judge, make_trial, spearman
from fairfox.benchmark.truth import train_target, unbiased_variance
from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.fairtests.protocol import combine
from fairfox.fairtests.registry import make_test


def noisy_scores(seed, n=200, *, decimals=1):
    """Return truth and rounded scores: many ties."""
    generator = np.random.default_rng(seed)
    truth = generator.random(n) < 0.3
    return truth, np.round(generator.standard_normal(n) + truth, decimals)


def test_average_precision_by_hand():
    # best first: 1, 0, 1, 0 -> half the recall at precision 1, half at 2/3
    assert average_precision([0, 1, 0, 1], [0.3, 0.9, 0.1, 0.2]) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision([0, 1, 0, 1], [0.3, 0.9, 0.1, 0.5]) == 1.0
    assert math.isnan(average_precision([0, 0], [0.1, 0.2]))  # nobody is treated unfairly


def test_spearman_by_hand():
    # ranks 1 2 3 4 and 2 1 4 3: 1 - 6 * 4 / (4 * 15) = 0.6
    assert spearman([10, 20, 30, 40], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert spearman([1, 2, 3], [8, 4, 2]) == pytest.approx(-1.0)
    assert math.isnan(spearman([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_and_arrays_give_the_same(dtype):
    truth, scores = noisy_scores(3)
    scores = np.round(scores * 4) / 4  # exact in every dtype
    given = torch.tensor(scores, dtype=dtype, requires_grad=True)
    assert average_precision(torch.tensor(truth), given) == average_precision(truth, scores)
    assert spearman(given, torch.tensor(truth)) == spearman(scores, truth)


@pytest.mark.parametrize("function", [average_precision, spearman])
def test_lengths_that_differ_are_refused(function):
    with pytest.raises(ShapeError, match=r"^3 values in \w+ and 2 in \w+; give one each per individual, in order$"):
        function([0, 1, 0], [0.1, 0.2])


@pytest.mark.parametrize("function", [average_precision, spearman])
@pytest.mark.parametrize("place", [0, 1])
def test_missing_values_are_refused(function, place):
    given = [[0.0, 1.0, 0.0], [0.1, 0.2, 0.3]]
    given[place][1] = math.nan
    with pytest.raises(DataError, match=r"holds 1 missing values \(NaN\)"):
        function(*given)


def test_truth_that_is_not_binary_is_refused():
    with pytest.raises(DataError, match="truth holds values other than 0 and 1"):
        average_precision([0, 0.4, 1], [0.1, 0.2, 0.3])


@pytest.mark.parametrize("values", [[], [[1, 0]], 1.0])
def test_anything_but_one_value_per_individual_is_refused(values):
    with pytest.raises(ShapeError, match="one value for each of at least one individual"):
        average_precision(values, values)


# --- judging a test --------------------------------------------------------------------------------------------------


def four_people():
    """Return a trial of four people who would be moved by 0, 1, 2 and 3; the fair target ignores them."""
    x = torch.arange(4.0)[:, None]
    data = replace(Dataset.from_arrays(x, c=[0, 1, 0, 1]), truth=Truth(counterfactual=2 * x))
    unfair, fair = (LinearMember(torch.tensor([[w]]), torch.zeros(1)) for w in (1.0, 0.0))
    return Trial(fitting=data, people=data, unfair=unfair, fair=fair, threshold=1.5)


class Foreign:
    """A test that knows nothing of fairfox but `fit` and `score`, and gives its scores for the unfair target."""

    def __init__(self, unfair, fair=(0.0, 0.0, 0.0, 0.0)):
        self.scores = {1.0: unfair, 0.0: fair}
        self.fitted_on = []

    def fit(self, data):
        self.fitted_on.append(data)  # and returns nothing

    def score(self, model, data):
        return self.scores[float(model(torch.ones(1, 1)))]


def test_both_protocols_by_hand():
    # truly unfair: the last two people as treated by the unfair target, two of eight
    found = judge(Foreign([0.0, 0.9, 0.2, 0.4], [0.3, 0.1, 0.1, 0.0]), four_people())
    assert found.labels.tolist() == [False, False, True, True, False, False, False, False]
    assert found.truth.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    assert found.prevalence == 0.25
    # best first: .9 no, .4 yes (1 of 2), .3 no, .2 yes (2 of 4)
    assert found.ap == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 4)
    # inside the unfair target: .9 no, .4 yes, .2 yes (2 of 3)
    assert found.ap_within == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 3)
    # ranks 1 4 2 3 against 1 2 3 4: differences 0 2 1 1, 1 - 6 * 6 / 60
    assert found.rho == pytest.approx(0.4)


def test_a_test_is_fitted_once_unless_it_comes_fitted():
    test, given = Foreign([0.0, 1.0, 2.0, 3.0]), four_people()
    found = judge(test, given)
    assert test.fitted_on == [given.fitting]
    assert (found.ap, found.rho, found.ap_within) == (1.0, pytest.approx(1.0), 1.0)
    judge(test, given, fitted=True)
    assert len(test.fitted_on) == 1


class Abstaining:
    """A test that scores by x and abstains from the third person."""

    def fit(self, data):
        return self

    def score(self, model, data):
        return self.measure(model, data).score

    def measure(self, model, data):
        values = model(data.x).reshape(1, -1, 1).abs()
        values[0, 2] = torch.nan
        return combine(values, data, contrasts=(), signed=False, reasons="cannot say")


def test_people_without_a_score_come_last_and_count():
    nan = float("nan")
    for test in (Abstaining(), Foreign([0.0, 1.0, nan, 3.0], [0.0, 0.0, nan, 0.0])):
        found = judge(test, four_people())
        assert found.scores.tolist() == [0, 1, -math.inf, 3, 0, 0, -math.inf, 0]
        # 3 yes (1 of 1), then everyone with a score, then the two without, one of whom is truly unfair (2 of 8)
        assert found.ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 8)
        # ranks 2 3 1 4 against 1 2 3 4: differences 1 1 2 0
        assert found.rho == pytest.approx(1 - 6 * 6 / 60)


def test_a_test_that_forgets_people_is_refused():
    with pytest.raises(ShapeError, match="The test gave 3 scores for 4 individuals"):
        judge(Foreign([0.0, 1.0, 2.0]), four_people())
    with pytest.raises(ShapeError, match=r"scores has shape \(4, 1\)"):
        judge(Foreign([[0.0], [1.0], [2.0], [3.0]]), four_people())


def test_where_nobody_is_treated_unfairly_there_is_no_average_precision():
    found = judge(Foreign([0.0, 1.0, 2.0, 3.0]), replace(four_people(), threshold=5.0))
    assert found.prevalence == 0.0
    assert math.isnan(found.ap)
    assert found.rho == pytest.approx(1.0)


def test_a_trial_is_made_of_different_people_and_a_threshold_from_bias_zero():
    made = make_trial(Fused(), bias=0.6, fusion="concat", rows=(300, 100, 200), width=8, depth=1, seed=5)
    fitting, people = fused(400, bias=0.6, seed=10), fused(200, bias=0.6, seed=11)
    assert torch.equal(made.fitting.x, fitting.x)
    assert torch.equal(made.people.x, people.x)
    assert made.people.truth.dx_dc is not None
    options = {"width": 8, "depth": 1, "seed": 5}
    for model, projection in ((made.unfair, None), (made.fair, KEEP_Y)):
        expected = train_target(fitting[:300], valid=fitting[300:], projection=projection, **options)
        torch.testing.assert_close(model(people.x), expected(people.x))
    fitting, people = fused(400, bias=0.0, seed=10), fused(200, bias=0.0, seed=11)
    plain = train_target(fitting[:300], valid=fitting[300:], **options)
    assert made.threshold == pytest.approx(unbiased_variance(plain, people))


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(OptionError, match=r"Foreign is a class; give an instance: judge\(Foreign\(\), trial\)"):
        judge(Foreign, four_people())
    with pytest.raises(OptionError, match=r"A list has no fit; a fairness test has fit\(data\) and score"):
        judge([0.0, 1.0], four_people())


def test_trained_targets_are_told_apart_by_lic_and_rank_and_not_by_chance():
    given = trial()
    lic, rank = judge(make_test("lic"), given), judge(make_test("rank", refits=1), given)
    people = len(given.people)
    assert lic.truth[people:].max() <= 1e-6
    assert not lic.labels[people:].any()  # nobody of the fair target
    assert 0.4 <= lic.prevalence == rank.prevalence <= 0.5  # and nearly everyone of the other
    assert lic.ap > 0.98
    assert rank.ap > 0.95
    assert rank.rho > 0.9
    shuffled = np.random.default_rng(0).permutation(lic.labels)
    assert average_precision(shuffled, lic.scores) == pytest.approx(lic.prevalence, abs=0.03)
