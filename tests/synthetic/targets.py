"""A target model for people of a generated world."""

from __future__ import annotations

from torch import nn

from fairfox.data.dataset import Dataset
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP
from fairfox.nets.training import binary_loss, train


def trained(data: Dataset, *, batch_size: int = 64) -> TorchModel:
    """Return a network that has learned the label, a fifth of the people held out for early stopping."""
    fitting, held_out = data.split(0.8, seed=0)
    net = MLP(data.x.shape[1], seed=0)
    train(
        net,
        fitting.x,
        fitting.y.float(),
        loss=binary_loss,
        valid_x=held_out.x,
        valid_targets=held_out.y.float(),
        batch_size=batch_size,
    )
    return TorchModel(nn.Sequential(net.member(0), nn.Sigmoid()))
