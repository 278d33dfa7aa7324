"""Certificates: the largest change of a model's prediction at any point between two rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fairfox.certificates.path import (
    Certificates,
    PathChange,
    check_numbers,
    float32_columns,
    join_blocks,
    reasons_against,
    with_reasons,
)
from fairfox.certificates.relu import network_on_path, read_network
from fairfox.certificates.trees import read_trees, seen_in_float32, trees_on_path
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.models.adapters import BlackBoxModel, as_model
from fairfox.models.protocol import Model, Output, row_blocks
from fairfox.models.torch import TorchModel

Certify = Callable[[Tensor, Tensor], PathChange]


@runtime_checkable
class TableNetwork(Protocol):
    """A network with its own encoding of tables, as `fairfox.train_fair` returns it."""

    @property
    def net(self) -> nn.Sequential:
        """Encoded x (N, D) -> logit (N, 1)."""

    def encode_table(self, table: object) -> Tensor:
        """Return the encoded rows x (N, D) of a table, in float64."""


def largest_on_path(
    model: object, here: Tensor, there: Tensor, *, target: Model | None = None, batch_size: int = 128
) -> PathChange:
    """Return for everyone the largest |f(x + t (x' - x)) - f(x)| of all t from 0 to 1: exact, not sampled.

    It works for ReLU networks, whose output is piecewise linear in t before the last sigmoid, and for tree ensembles on
    numbers, where it is piecewise constant. Other models are refused. A tree ensemble gives no certificate to people
    whose categories change along the path. Shares of categories outside 0 and 1 are projected first, as for
    predictions. All is in float64; the certificate holds for a network's predictions up to their own rounding.

    Args:
        model: a torch network, a fitted estimator or booster, or what `fairfox.train_fair` returned.
        here: encoded rows x (N, D).
        there: encoded rows x' (N, D).
        target: `model` as the Model of an audit; by default the rows are what the model itself takes.
        batch_size: people per block; a wide and deep network needs some hundred kilobytes for each.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
        >>> _ = net.load_state_dict({
        ...     "0.weight": torch.tensor([[1.0], [1.0]]), "0.bias": torch.tensor([0.0, -1.0]),
        ...     "2.weight": torch.tensor([[1.0, -2.0]]), "2.bias": torch.tensor([0.0])})
        >>> path = largest_on_path(net, torch.zeros(1, 1), torch.full((1, 1), 2.0))  # a tent over 0 to 2
        >>> path.largest.item(), path.at.item(), path.end.item()
        (1.0, 0.5, 0.0)
    """
    if here.ndim != 2 or here.shape != there.shape:
        raise ShapeError(
            f"The paths begin at {tuple(here.shape)} and end at {tuple(there.shape)}; "
            "give encoded rows of one shape (N, D)"
        )
    if bool((here.isinf() | there.isinf()).any()):
        raise DataError("An end of a path is infinite; numbers must be finite or missing")
    certify, (here, there) = certifier(model, target), (here.detach().double(), there.detach().double())
    blocks = list(row_blocks(len(here), batch_size)) or [slice(0)]
    return join_blocks([certify(here[rows], there[rows]) for rows in blocks])


def certifier(model: object, target: Model | None = None) -> Certify:
    """Return a function that certifies paths between rows (N, D) in float64; raise where the model has no certificates.

    It only reads the model, so an audit can call it first.
    """
    if isinstance(model, TableNetwork) and target is None:
        return certifier(TorchModel(model.net, output=Output("logit")))
    audited = as_model(model) if target is None else target
    if isinstance(audited, TorchModel):
        return partial(network_on_path, read_network(audited))
    if not isinstance(audited, BlackBoxModel) or isinstance(model, BlackBoxModel):
        raise OptionError(
            f"This is a {type(model).__name__}, which only returns predictions; certificates along the path "
            "read the model itself: give the network, the fitted estimator or the booster"
        )
    if isinstance(model, TableNetwork):
        return partial(_where_straight, audited, _table_certifier(model, audited))
    ensemble = read_trees(model, audited.output.column)
    check_numbers(audited, ensemble.columns)
    ensemble = seen_in_float32(ensemble, float32_columns(audited))
    return partial(_where_straight, audited, partial(trees_on_path, ensemble, audited))


def _where_straight(model: BlackBoxModel, certify: Certify, here: Tensor, there: Tensor) -> PathChange:
    """Return certificates for those whose path is straight in the numbers that the model receives."""
    reasons = reasons_against(model, here, there)
    kept = torch.tensor([row for row, reason in enumerate(reasons) if reason is None], device=here.device).long()
    return with_reasons(certify(here[kept], there[kept]), kept, reasons)


def _table_certifier(model: TableNetwork, audited: BlackBoxModel) -> Certify:
    """Return what certifies a network that gets tables, on rows in the network's own encoding."""
    network = read_network(TorchModel(model.net, output=Output("logit", audited.output.wanted, audited.output.column)))

    def encoded(x: Tensor) -> Tensor:
        assert audited.decoder is not None
        return model.encode_table(audited.decoder.table(x)).to(x)

    return lambda here, there: network_on_path(network, encoded(here), encoded(there))


# --- Everyone in an audit --------------------------------------------------------------------------------------------


def certify(
    model: object,
    target: Model,
    x: Tensor,
    counterfactuals: Tensor,
    *,
    scores: Tensor,
    factor: Tensor,
    judged: Tensor,
    reasons: Sequence[str | None],
    delta: float,
    limits: float | Tensor,
    total: bool,
    progress: Callable[[float], None],
) -> Certificates:
    """Return everyone's certificate on the paths from x (N, D) to their counterfactual rows.

    Args:
        model: as it was given.
        target: as the audit sees it.
        x: encoded rows (N, D).
        counterfactuals: the rows of each refit (M, N, D).
        scores: of the same refits (N,); no certificate is smaller.
        factor: what effects are multiplied by, of each person (N,).
        judged: who gets a certificate (N,) bool.
        reasons: why the others get none.
        delta: of the reading whose rows are taken.
        limits: the same, of each person (N,) where some have their own.
        total: these are the rows of the total reading, because the test itself has none.
        progress: called with the fraction done.
    """
    people = judged.nonzero()[:, 0]
    paths = []
    for m, rows in enumerate(counterfactuals):
        progress(m / len(counterfactuals))
        paths.append(largest_on_path(model, x[people], rows[people], target=target))
    share = factor[people.cpu()].double()
    # a network is audited in float32, where the score may be larger by its rounding
    largest = torch.maximum(share * _mean(path.largest for path in paths), scores[people].cpu().double())
    inside = share * _mean(path.largest - path.end.abs() for path in paths)
    why = list(reasons)
    for person, each in zip(people.tolist(), zip(*(path.reasons for path in paths), strict=True), strict=True):
        why[person] = next((reason for reason in each if reason is not None), None)
    everyone = torch.full((len(x),), torch.nan, dtype=torch.float64)
    return Certificates(
        largest=everyone.index_copy(0, people.cpu(), largest),
        inside=everyone.index_copy(0, people.cpu(), inside),
        reasons=tuple(why),
        delta=delta,
        limits=torch.as_tensor(limits, dtype=torch.float64).expand(len(x)),
        total=total,
    )


def _mean(each: Iterable[Tensor]) -> Tensor:
    """Return the mean over the refits (n,); NaN where one of them has no certificate."""
    return torch.stack(list(each)).mean(0).cpu()
