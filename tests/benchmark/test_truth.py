"""The true score of everyone, the labels made from it, and targets, plain and perfectly fair."""

from dataclasses import replace

import pytest
import torch
from fused import KEEP_Y, fused
from populations import linear

from fairfox.benchmark.truth import (
    TargetTraining,
    biased_labels,
    individual_fairness_score,
    train_target,
    unbiased_variance,
)
from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import predict


def people() -> Dataset:
    data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]], c=[0, 1, 1])
    return replace(data, truth=Truth(torch.tensor([[3.0, 1.0], [2.0, 0.0], [1.0, 1.0]])))


def test_the_true_score_is_the_change_of_the_prediction():
    # 1 * (0 - 3), 1 * (2 - 2) + 2 * (1 - 0), nothing
    assert individual_fairness_score(linear(1.0, 2.0), people()).tolist() == [3.0, 2.0, 0.0]


def test_people_without_a_truth_are_refused():
    with pytest.raises(DataError, match=r"true score needs counterfactuals.*give generated people"):
        individual_fairness_score(linear(1.0, 2.0), replace(people(), truth=None))


def test_the_threshold_is_the_variance_of_the_true_score():
    # 3, 2, 0: mean 5/3, squares 16/9 + 1/9 + 25/9 = 42/9
    assert unbiased_variance(linear(1.0, 2.0), people()) == pytest.approx(42 / 9 / 3)


def test_above_the_threshold_is_unfair_and_on_it_is_not():
    assert biased_labels(torch.tensor([0.1, 0.2, 0.3]), 0.2).tolist() == [False, False, True]


# --- targets --------------------------------------------------------------------------------------------------------

SMALL = {"width": 16, "depth": 1}
BRIEF = TargetTraining(max_epochs=3)


def accuracy(model, data: Dataset) -> float:
    return float(((predict(model, data.x) > 0.5) == (data.y == 1)).double().mean())


def test_a_target_learns_the_label_and_the_bias_in_it():
    fitting, people = fused(2000, bias=0.8, seed=0), fused(2000, bias=0.8, seed=1)
    model = train_target(fitting, **SMALL)
    out = predict(model, people.x)
    assert ((out >= 0) & (out <= 1)).all()
    assert accuracy(model, people) > 0.75
    assert float(individual_fairness_score(model, people).mean()) > 0.2


def test_a_target_behind_the_projection_of_y_is_perfectly_fair_and_learns_all_the_same():
    fitting, people = fused(2000, bias=0.8, seed=0), fused(2000, bias=0.8, seed=1)
    model = train_target(fitting, projection=KEEP_Y, **SMALL)
    assert float(individual_fairness_score(model, people).max()) <= 1e-6
    assert (jacobian(model, people.x)[:, 0, :2] == 0).all()
    assert accuracy(model, people) > 0.55


def test_the_same_seed_gives_the_same_target_and_the_global_generator_is_left_alone():
    data, before = fused(300, bias=0.5, seed=0), torch.get_rng_state()
    first, again, other = (predict(train_target(data, seed=s, training=BRIEF, **SMALL), data.x) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_people_to_stop_on_can_be_given():
    data, valid = fused(300, bias=0.5, seed=0), fused(100, bias=0.5, seed=1)
    flipped = replace(valid, y=1 - valid.y)
    with_valid, with_flipped = (
        predict(train_target(data, valid=v, training=TargetTraining(patience=3), **SMALL), valid.x)
        for v in (valid, flipped)
    )
    # on the opposite labels only the first epochs look good
    assert float((with_flipped - 0.5).abs().mean()) < float((with_valid - 0.5).abs().mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2.5}, r"batch_size is 2\.5; expected a whole number of at least 1"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"patience": "5"}, "patience is '5'"),
        ({"rate": 0.0}, "rate is 0.0; expected a number above 0"),
        ({"rate": float("nan")}, "rate is nan"),
    ],
)
def test_training_that_cannot_be_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        TargetTraining(**options)


def test_people_without_labels_are_refused():
    with pytest.raises(DataError, match="These people have no labels y"):
        train_target(replace(fused(50, bias=0.5, seed=0), y=None))


def test_labels_other_than_0_and_1_are_refused():
    data = fused(50, bias=0.5, seed=0)
    with pytest.raises(DataError, match=r"The labels y hold \[1\.0, 2\.0\]; expected 0 and 1 only"):
        train_target(replace(data, y=data.y + 1))


def test_a_projection_of_other_columns_is_refused():
    with pytest.raises(ShapeError, match=r"The projection has shape \(4, 2\), but x has 5 columns"):
        train_target(fused(50, bias=0.5, seed=0), projection=torch.eye(4)[:, :2])
