"""Tests that read gradients share them: one pass over the rows, in blocks, for any number of tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fairfox.alignment import dead_rows, worst_case
from fairfox.auxiliary.model import Auxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.protocol import Measurement, combine, own_sign
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import Model, row_blocks

FLAT = "no evidence about the protected variable (the auxiliary is flat here)"


class GradientTest(Protocol):
    """A test whose values follow from the target's gradient and the auxiliaries' Jacobians."""

    has_sign: ClassVar[bool]

    @property
    def gradients_of(self) -> Auxiliary | None:
        """The auxiliary whose Jacobians are wanted; None for none."""
        ...

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return (n, K) for one block of rows and one member of the auxiliary."""
        ...


def measure_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096
) -> list[Measurement]:
    """Return each test's Measurement; gradients are formed once per block and used by all."""
    out = []
    for test, values, dead in _signed_values(tests, model, data, batch_size):
        out.append(combine(values, data, signed=test.has_sign, abstained=dead, reason=FLAT))
    return out


def score_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096
) -> list[Tensor]:
    """Return each test's scores (N,) as `measure_together` does, without what stands behind them."""
    return [
        torch.where(dead, 0.0, worst_case(values.mean(0)))
        for _, values, dead in _signed_values(tests, model, data, batch_size)
    ]


def _signed_values(
    tests: Sequence[GradientTest], model: Model, data: Dataset, batch_size: int
) -> Iterator[tuple[GradientTest, Tensor, Tensor]]:
    """Yield each test with its values (M, N, K), turned away from the own group, and where they are dead (N,)."""
    step = None if model.differentiable else suited_step(model, data.x)
    blocks = [_block(tests, model, data.x[rows], step) for rows in row_blocks(len(data), batch_size)]
    sign = own_sign(data)
    for i, test in enumerate(tests):
        values = torch.cat([values[i] for values, _ in blocks], dim=1)
        dead = torch.cat([dead[i] for _, dead in blocks])
        yield test, values * sign if test.has_sign else values, dead


def _block(
    tests: Sequence[GradientTest], model: Model, x: Tensor, step: float | None
) -> tuple[list[Tensor], list[Tensor]]:
    grad_tar = jacobian(model, x, batch_size=len(x), step=step)[:, 0]  # (n, D)
    jacobians: dict[int, tuple[list[Tensor], Tensor]] = {}  # of each auxiliary, and where one of them is dead
    values, dead = [], []
    for test in tests:
        auxiliary = test.gradients_of
        if auxiliary is None:
            values.append(test.values(grad_tar, None)[None])
            dead.append(torch.zeros(len(x), dtype=torch.bool, device=x.device))
            continue
        if id(auxiliary) not in jacobians:
            jacs = [jacobian(member, x, batch_size=len(x)) for member in auxiliary.members]
            jacobians[id(auxiliary)] = jacs, torch.stack([dead_rows(jac) for jac in jacs]).any(0)
        jacs, flat = jacobians[id(auxiliary)]
        values.append(torch.stack([test.values(grad_tar, jac) for jac in jacs]))
        dead.append(flat)
    return values, dead
