"""largest_on_the_way: the one door to certificates along the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fairfox.certificates import relu, trees
from fairfox.certificates.ensembles import read_trees
from fairfox.certificates.forest import seen_in_float32
from fairfox.certificates.inputs import check_numbers, float32_columns, reasons_against
from fairfox.certificates.protocol import OnTheWay, join, spread_out
from fairfox.data.columns import column
from fairfox.data.features import encode_feature
from fairfox.data.table import load_table
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.output import Output
from fairfox.models.protocol import Model, row_blocks
from fairfox.models.torch_model import TorchModel
from fairfox.models.wrap import as_model
from fairfox.remedy import FairModel

Certify = Callable[[Tensor, Tensor], OnTheWay]


def largest_on_the_way(
    model: object, here: Tensor, there: Tensor, *, target: Model | None = None, batch_size: int = 128
) -> OnTheWay:
    """Return for everyone the largest |f(x + t (x' - x)) - f(x)| of all t from 0 to 1: exact, not sampled.

    For ReLU networks, whose output is piecewise linear in t before the last sigmoid, and for tree ensembles on numbers,
    where it is piecewise constant. Another model is refused; a tree ensemble gives no certificate to people whose
    categories change on the way. Shares of categories outside 0 and 1 are projected first, as they are for predictions.
    In float64: a network's weights are taken as they are, and the certificate holds for its predictions up to their
    own rounding.

    Args:
        model: a torch network, a fitted estimator or booster, or a FairModel.
        here: encoded rows x (N, D).
        there: encoded rows x' (N, D).
        target: the Model that an audit sees `model` as; by default the rows are what the model itself takes.
        batch_size: people per block; a wide and deep network needs some hundred kilobytes for each.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
        >>> _ = net.load_state_dict({
        ...     "0.weight": torch.tensor([[1.0], [1.0]]), "0.bias": torch.tensor([0.0, -1.0]),
        ...     "2.weight": torch.tensor([[1.0, -2.0]]), "2.bias": torch.tensor([0.0])})
        >>> way = largest_on_the_way(net, torch.zeros(1, 1), torch.full((1, 1), 2.0))  # a tent over 0 to 2
        >>> way.largest.item(), way.at.item(), way.end.item()
        (1.0, 0.5, 0.0)
    """
    _check_rows(here, there)
    certify, (here, there) = certifier(model, target), (here.detach().double(), there.detach().double())
    blocks = list(row_blocks(len(here), batch_size)) or [slice(0)]
    return join([certify(here[rows], there[rows]) for rows in blocks])


def certifier(model: object, target: Model | None = None) -> Certify:
    """Return what certifies ways between rows (N, D) in float64, or say why nothing can certify this model.

    Reading the model is all it does: an audit can ask before it begins.
    """
    if isinstance(model, FairModel) and target is None:
        return certifier(model.model)
    seen = as_model(model) if target is None else target
    if isinstance(seen, TorchModel):
        return partial(relu.on_the_way, relu.read_network(seen))
    if not isinstance(seen, BlackBoxModel) or isinstance(model, BlackBoxModel):
        raise OptionError(
            f"This is a {type(model).__name__}, which can only be asked for predictions; certificates along the way "
            "read the model itself: give the network, the fitted estimator or the booster"
        )
    if isinstance(model, FairModel):
        return partial(_where_straight, seen, _fair_certifier(model, seen))
    ensemble = read_trees(model, seen.output.column)
    check_numbers(seen, ensemble.columns)
    ensemble = seen_in_float32(ensemble, float32_columns(seen))
    return partial(_where_straight, seen, partial(trees.on_the_way, ensemble, seen))


def _where_straight(model: BlackBoxModel, certify: Certify, here: Tensor, there: Tensor) -> OnTheWay:
    """Return certificates for those whose way is a straight one in the numbers that the model receives."""
    reasons = reasons_against(model, here, there)
    kept = torch.tensor([row for row, reason in enumerate(reasons) if reason is None], device=here.device).long()
    return spread_out(certify(here[kept], there[kept]), kept, reasons)


def _fair_certifier(model: FairModel, seen: BlackBoxModel) -> Certify:
    """Return what certifies a FairModel that gets tables: its network, on rows in the network's own encoding."""
    output = Output("logit", seen.output.wanted, seen.output.column)
    network = relu.read_network(TorchModel(model.net, output=output))

    def encoded(x: Tensor) -> Tensor:
        assert seen.decoder is not None
        rows = load_table(seen.decoder.table(x))
        out = np.zeros((len(x), model.features[-1].stop))
        for f in model.features:
            encode_feature(f, column(rows, f.name), out)
        return torch.as_tensor(out).to(x)

    return lambda here, there: relu.on_the_way(network, encoded(here), encoded(there))


def _check_rows(here: Tensor, there: Tensor) -> None:
    if here.ndim != 2 or here.shape != there.shape:
        raise ShapeError(
            f"The ways begin at {tuple(here.shape)} and end at {tuple(there.shape)}; "
            "give encoded rows of one shape (N, D)"
        )
    if bool((here.isinf() | there.isinf()).any()):
        raise DataError("An end of a way is infinite; numbers must be finite or missing")
