"""Targets of generated people, plain and perfectly fair."""

from dataclasses import replace

import pytest
import torch
from fused import KEEP_C, KEEP_Y, fused

from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import predict
from fairfox.synthetic.targets import TargetTraining, train_target
from fairfox.synthetic.truth import individual_fairness_score

SMALL = {"width": 16, "depth": 1}
BRIEF = TargetTraining(max_epochs=3)


def accuracy(model, data: Dataset) -> float:
    return float(((predict(model, data.x) > 0.5) == (data.y == 1)).double().mean())


def test_a_target_learns_the_label_and_the_bias_in_it():
    fitting, people = fused(2000, bias=0.8, seed=0), fused(2000, bias=0.8, seed=1)
    model = train_target(fitting, training=TargetTraining(decay=0.0), **SMALL)
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


def outer(people: int, *, seed: int) -> tuple[Dataset, torch.Tensor]:
    """Return people whose columns are products of what depends on c and on y, and the projection that keeps y.

    Both blocks are two features of three modes each, so that each block sums to 2.
    """
    generator = torch.Generator().manual_seed(seed)
    c, y = torch.randint(2, (2, people), generator=generator).float()
    z_c, z_y = torch.randn(2, people, 6, generator=generator)

    def block(z: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return (z + 2 * label[:, None] * torch.tensor([1.0, 0, 0, 0, 1, 0])).unflatten(1, (2, 3)).softmax(2).flatten(1)

    def fuse(label_c: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ni,nj->nij", block(z_c, label_c), block(z_y, y)).flatten(1)

    keep_y = torch.eye(6).repeat(6, 1) / 2
    data = Dataset.from_arrays(fuse(c), c, y)
    return replace(data, truth=Truth(fuse(1 - c))), keep_y


def test_a_fair_target_of_products_is_fair_to_a_millionth():
    (data, keep_y), (people, _) = outer(2000, seed=0), outer(2000, seed=1)
    model = train_target(data, projection=keep_y, **SMALL)
    assert float(individual_fairness_score(model, people).max()) <= 1e-6
    assert accuracy(model, people) > 0.7


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
        predict(train_target(data, valid=v, training=TargetTraining(batch_size=64, patience=3), **SMALL), valid.x)
        for v in (valid, flipped)
    )
    # on the opposite labels only the first epochs look good
    assert float((with_flipped - 0.5).abs().mean()) < float((with_valid - 0.5).abs().mean())


def test_width_and_depth_are_those_of_the_network():
    model = train_target(fused(200, bias=0.5, seed=0), width=7, depth=3, training=BRIEF)
    assert [tuple(p.shape) for p in model.module.parameters() if p.ndim == 2] == [(7, 5), (7, 7), (7, 7), (1, 7)]


def test_predictions_follow_the_dtype_of_x():
    data = fused(200, bias=0.5, seed=0).to(torch.float64)
    assert predict(train_target(data, training=BRIEF, projection=KEEP_C, **SMALL), data.x).dtype == torch.float64


def test_strong_decay_keeps_a_target_that_has_no_reason_to_from_using_c():
    fitting, people = fused(1000, bias=0.0, seed=0), fused(1000, bias=0.0, seed=1)
    strong, none = (
        individual_fairness_score(train_target(fitting, training=TargetTraining(decay=decay), **SMALL), people).mean()
        for decay in (6.0, 0.0)
    )
    assert float(strong) < 0.5 * float(none)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2.5}, r"batch_size is 2\.5; expected a whole number of at least 1"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"patience": "5"}, "patience is '5'"),
        ({"rate": 0.0}, "rate is 0.0; expected a number above 0"),
        ({"decay": -1.0}, "decay is -1.0; expected a number from 0 upwards"),
        ({"decay": float("nan")}, "decay is nan"),
    ],
)
def test_training_that_cannot_be_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        TargetTraining(**options)


def test_a_network_that_cannot_be_is_refused():
    with pytest.raises(OptionError, match=r"width is 1\.5; expected a whole number"):
        train_target(fused(50, bias=0.5, seed=0), width=1.5)


def test_people_without_labels_are_refused():
    with pytest.raises(DataError, match="These people have no labels y"):
        train_target(replace(fused(50, bias=0.5, seed=0), y=None))


def test_labels_other_than_0_and_1_are_refused():
    data = fused(50, bias=0.5, seed=0)
    with pytest.raises(DataError, match=r"The labels y hold \[1\.0, 2\.0\]; expected 0 and 1 only"):
        train_target(replace(data, y=data.y + 1))


def test_a_projection_of_other_columns_is_refused():
    with pytest.raises(ShapeError, match=r"The projection has shape \(4, 2\) and x has 5 columns"):
        train_target(fused(50, bias=0.5, seed=0), projection=torch.eye(4)[:, :2])
