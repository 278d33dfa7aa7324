"""The true score of everyone, and the labels made from it."""

from dataclasses import replace

import pytest
import torch
from fused import fused

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import DataError, OptionError
from fairfox.synthetic.truth import biased_labels, individual_fairness_score, unbiased_spread


def linear(*weights: float) -> LinearMember:
    return LinearMember(torch.tensor([weights]), torch.zeros(1))


def people() -> Dataset:
    data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]], c=[0, 1, 1])
    return replace(data, truth=Truth(torch.tensor([[3.0, 1.0], [2.0, 0.0], [1.0, 1.0]])))


def test_the_true_score_is_the_change_of_the_prediction():
    # 1 * (0 - 3), 1 * (2 - 2) + 2 * (1 - 0), nothing
    assert individual_fairness_score(linear(1.0, 2.0), people()).tolist() == [3.0, 2.0, 0.0]


def test_black_boxes_have_a_true_score_too():
    class Box:
        differentiable = False

        def __call__(self, x):
            return (x[:, :1] > 1.5).to(x)

    assert individual_fairness_score(Box(), people()).tolist() == [1.0, 0.0, 0.0]


def test_people_without_a_truth_are_refused():
    with pytest.raises(DataError, match=r"counterfactuals of these people are not known.*give generated people"):
        individual_fairness_score(linear(1.0, 2.0), replace(people(), truth=None))


def test_the_spread_is_the_standard_deviation_of_the_true_score():
    # 3, 2, 0: mean 5/3, squares 16/9 + 1/9 + 25/9 = 42/9
    assert unbiased_spread(linear(1.0, 2.0), people()) == pytest.approx((42 / 9 / 3) ** 0.5)


def test_above_the_threshold_is_unfair_and_on_it_is_not():
    assert biased_labels(torch.tensor([0.1, 0.2, 0.3]), 0.2).tolist() == [False, False, True]


@pytest.mark.parametrize("threshold", [-0.1, float("nan")])
def test_a_threshold_is_not_negative(threshold: float):
    with pytest.raises(OptionError, match="expected a number from 0 upwards"):
        biased_labels(torch.zeros(3), threshold)


def test_the_truth_follows_the_chosen_people():
    data, model = fused(50, bias=0.5, seed=0), linear(1.0, 0.5, 0.0, 0.0, 0.0)
    rows = torch.tensor([7, 3, 30])
    expected = individual_fairness_score(model, data)
    torch.testing.assert_close(individual_fairness_score(model, data[rows]), expected[rows])
    torch.testing.assert_close(expected, torch.ones(50))  # 1.5 - 0.5
