"""Target models for generated people: plain ones, and ones that cannot see the protected variable."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, ShapeError
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP
from fairfox.nets.projection import behind
from fairfox.nets.training import binary_loss, train
from fairfox.synthetic.options import check_number, check_whole


@dataclass(frozen=True)
class TargetTraining:
    """How targets are trained; the values are those of the benchmark and of Table 1.

    Batches are large and weights shrink fast: a target trained without bias must hardly use the protected variable,
    since how much it does is the threshold of unfair treatment.
    """

    batch_size: int = 256  # people per step
    rate: float = 1e-3  # the step size of Adam
    decay: float = 6.0  # how fast weights shrink, times the rate at each step
    max_epochs: int = 60  # passes over the people at most
    patience: int = 5  # epochs without progress before training stops

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "patience"):
            check_whole(name, getattr(self, name))
        check_number("rate", self.rate, above_zero=True)
        check_number("decay", self.decay, above_zero=False)


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
        valid: the people on whom it is seen when to stop; by default a fifth of `data`.
        training: how it is trained; by default as in the benchmark.
    """
    check_whole("width", width)
    check_whole("depth", depth, least=0)
    fitting, held_out = data.split(0.8, seed=seed) if valid is None else (data, valid)
    net = MLP(_project(data.x[:0], projection).shape[1], width=width, depth=depth, seed=seed).to(data.x.device)
    train(
        net,
        _project(fitting.x, projection),
        _labels(fitting),
        loss=binary_loss,
        valid_x=_project(held_out.x, projection),
        valid_targets=_labels(held_out),
        seed=seed,
        **asdict(training or TargetTraining()),
    )
    member = net.member(0) if projection is None else behind(projection, net.member(0))
    return TorchModel(nn.Sequential(*member, nn.Sigmoid()).eval().requires_grad_(False))


def _project(x: Tensor, projection: Tensor | None) -> Tensor:
    if projection is None:
        return x.float()
    if projection.ndim != 2 or len(projection) != x.shape[1]:
        raise ShapeError(
            f"The projection has shape {tuple(projection.shape)} and x has {x.shape[1]} columns; "
            "give one row per column of x"
        )
    return (x @ projection.to(x)).float()


def _labels(data: Dataset) -> Tensor:
    if data.y is None:
        raise DataError("These people have no labels y, and a target learns to predict them; give people with labels")
    if not bool(((data.y == 0) | (data.y == 1)).all()):
        found = torch.unique(data.y)[:5].tolist()
        raise DataError(f"The labels y hold {found}; expected 0 and 1 only")
    return data.y.float()
