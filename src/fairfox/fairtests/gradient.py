"""Tests that read gradients share them: one pass over the rows, in blocks, for any number of tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fairfox.alignment import dead_rows
from fairfox.auxiliary.model import Auxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.protocol import Measurement, combine, own_sign
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
    blocks = [_block(tests, model, data.x[rows]) for rows in row_blocks(len(data), batch_size)]
    out = []
    for i, test in enumerate(tests):
        values = torch.cat([values[i] for values, _ in blocks], dim=1)  # (M, N, K)
        dead = torch.cat([dead[i] for _, dead in blocks])
        if test.has_sign:
            values = values * own_sign(data)
        out.append(combine(values, data, signed=test.has_sign, abstained=dead, reason=FLAT))
    return out


def _block(tests: Sequence[GradientTest], model: Model, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    grad_tar = jacobian(model, x, batch_size=len(x))[:, 0]  # (n, D)
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
