"""Tests that read gradients share them: one pass over the rows, in blocks, for any number of tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fairfox.alignment import Head, dead_rows
from fairfox.auxiliary.model import Auxiliary, heads_of
from fairfox.data.contrasts import Contrast
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import Measurement, away_from_own, combine
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.jacobian import jacobian
from fairfox.maps.protocol import FLAT
from fairfox.models.protocol import Model, row_blocks


class GradientTest(Protocol):
    """A test whose values follow from the target's gradient and the auxiliaries' Jacobians."""

    has_sign: ClassVar[bool]

    @property
    def gradients_of(self) -> Auxiliary | None:
        """The auxiliary whose Jacobians are wanted; None for none."""
        ...

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return what each column of `values` speaks of; () for a test that knows no protected variable."""
        ...

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return (n, Q) for one block of rows and one member of the auxiliary."""
        ...


def measure_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096
) -> list[Measurement]:
    """Return each test's Measurement; gradients are formed once per block and used by all."""
    return [measurement(test, values, dead, data) for test, values, dead in _all_values(tests, model, data, batch_size)]


def score_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096
) -> list[Tensor]:
    """Return each test's scores (N,) as `measure_together` does, without what stands behind them."""
    scores = []
    for test, values, dead in _all_values(tests, model, data, batch_size):
        size = _counted(test, values, dead, data).mean(0).abs()
        scores.append(torch.where(size.isnan(), 0.0, size).amax(1))
    return scores


def measurement(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Measurement:
    """Return the Measurement of values (M, N, Q), given for which protected variables an auxiliary is dead (N, V)."""
    contrasts = test.contrasts(data.protected)
    counted = _counted(test, values, dead, data)
    return combine(counted, data, contrasts=contrasts, signed=test.has_sign, reasons=FLAT)


def dead_variables(jac_aux: Tensor, heads: Sequence[Head]) -> Tensor:
    """Return for which protected variables (N, V) J is numerically zero: no evidence about them there."""
    parts = jac_aux.split([h.outputs for h in heads], dim=1)
    return torch.stack([dead_rows(part) for part in parts], dim=1)


def _counted(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Tensor:
    """Return the values (M, N, Q), turned away from the own group, NaN where they do not count."""
    contrasts = test.contrasts(data.protected)
    if test.has_sign:
        values = values * away_from_own(data, contrasts)
    if contrasts and bool(dead.any()):
        values = torch.where(dead[:, [contrast.variable for contrast in contrasts]], torch.nan, values)
    return values


def _all_values(
    tests: Sequence[GradientTest], model: Model, data: Dataset, batch_size: int
) -> Iterator[tuple[GradientTest, Tensor, Tensor]]:
    """Yield each test with its values (M, N, Q), and for which variables an auxiliary is dead (N, V)."""
    step = None if model.differentiable else suited_step(model, data.x)
    heads = heads_of(data.protected)
    blocks = [_block(tests, model, data.x[rows], heads, step) for rows in row_blocks(len(data), batch_size)]
    for i, test in enumerate(tests):
        values = torch.cat([values[i] for values, _ in blocks], dim=1)
        yield test, values, torch.cat([dead[i] for _, dead in blocks])


def _block(
    tests: Sequence[GradientTest], model: Model, x: Tensor, heads: Sequence[Head], step: float | None
) -> tuple[list[Tensor], list[Tensor]]:
    grad_tar = jacobian(model, x, batch_size=len(x), step=step)[:, 0]  # (n, D)
    jacobians: dict[int, tuple[list[Tensor], Tensor]] = {}  # of each auxiliary, and where one of them is dead
    values, dead = [], []
    for test in tests:
        auxiliary = test.gradients_of
        if auxiliary is None:
            values.append(test.values(grad_tar, None)[None])
            dead.append(torch.zeros(len(x), len(heads), dtype=torch.bool, device=x.device))
            continue
        if id(auxiliary) not in jacobians:
            jacs = [jacobian(member, x, batch_size=len(x)) for member in auxiliary.members]
            jacobians[id(auxiliary)] = jacs, torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0)
        jacs, flat = jacobians[id(auxiliary)]
        values.append(torch.stack([test.values(grad_tar, jac) for jac in jacs]))
        dead.append(flat)
    return values, dead
