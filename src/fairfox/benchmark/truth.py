"""The truth of generated people: how differently a model treats each, and target models to judge tests by.

Targets are plain networks, or, behind a projection, networks that cannot see the protected variable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP, behind, project
from fairfox.auxiliary.training import binary_loss, train
from fairfox.benchmark.source import positive_number, whole_number
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, OptionError
from fairfox.models.protocol import Model, predict
from fairfox.models.torch import TorchModel


def individual_fairness_score(model: Model, data: Dataset) -> Tensor:
    """Return |f(x) - f(x')| for everyone (N,), the IFS: x' is the same person as a member of the other group.

    With more than two groups it is the largest over those that the truth holds. Where that is each other group
    it is what fairness tests measure, the worst over all; where it is one of them
    (`SyntheticBias.sample`: the next class) it is another quantity.
    """
    if data.truth is None:
        raise DataError(
            "The true score needs counterfactuals, which these people do not have; "
            "give generated people, such as those of SyntheticBias.sample"
        )
    here, others = predict(model, data.x), data.truth.counterfactual
    if others.ndim == 2:
        return (here - predict(model, others)).abs()
    return torch.stack([(here - predict(model, rows)).abs() for rows in others.unbind(1)]).amax(0)


def unbiased_variance(model: Model, data: Dataset) -> float:
    """Return the variance of the true score: from a model trained at bias 0, the threshold of the labels.

    Such a model has no reason to use the protected variable, so its differences are noise.
    """
    return float(individual_fairness_score(model, data).double().var(correction=0))


def biased_labels(ifs: Tensor, threshold: float) -> Tensor:
    """Return who is treated unfairly (N,) bool: everyone whose true score is above the threshold."""
    if not threshold >= 0:
        raise OptionError(f"The threshold is {threshold}; expected a number from 0 upwards")
    return ifs > threshold


@dataclass(frozen=True)
class TargetTraining:
    """How targets are trained; the values are those that the paper gives for its networks."""

    batch_size: int = 64  # people per step
    rate: float = 1e-3  # the step size of Adam
    max_epochs: int = 60  # passes over the people at most
    patience: int = 5  # epochs without progress before training stops

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "patience"):
            whole_number(name, getattr(self, name))
        positive_number("rate", self.rate)


def train_target(
    data: Dataset,
    *,
    width: int = 64,
    depth: int = 2,
    seed: int = 0,
    projection: Tensor | None = None,
    valid: Dataset | None = None,
    training: TargetTraining | None = None,
) -> TorchModel:
    """Return a network that has learned the probability of the label y from x.

    Args:
        data: people with labels 0 and 1.
        width: units of each hidden layer.
        depth: hidden layers.
        seed: same seed, same machine, same network.
        projection: a fixed first layer (D, P); `SyntheticBias.keep_y` makes a perfectly fair target.
        valid: the people who decide when training stops; by default a fifth of `data`.
        training: how it is trained; by default as in the benchmark.
    """
    whole_number("width", width)
    whole_number("depth", depth, least=0)
    fitting, held_out = data.split(0.8, seed=seed) if valid is None else (data, valid)
    net = MLP(_project(data.x[:0], projection).shape[1], width=width, depth=depth, seed=seed).to(data.x.device)
    (x, y), (valid_x, valid_y) = ((_project(part.x, projection), _labels(part)) for part in (fitting, held_out))
    how = asdict(training or TargetTraining())
    train(net, x, y, loss=binary_loss, valid_x=valid_x, valid_targets=valid_y, seed=seed, **how)
    member = net.member(0) if projection is None else behind(projection, net.member(0))
    return TorchModel(nn.Sequential(*member, nn.Sigmoid()).eval().requires_grad_(False))


def _project(x: Tensor, projection: Tensor | None) -> Tensor:
    return (x if projection is None else project(x, projection)).float()


def _labels(data: Dataset) -> Tensor:
    if data.y is None:
        raise DataError("These people have no labels y, which a target learns to predict; give people with labels")
    if not bool(((data.y == 0) | (data.y == 1)).all()):
        values = torch.unique(data.y)[:5].tolist()
        raise DataError(f"The labels y hold {values}; expected 0 and 1 only")
    return data.y.float()
