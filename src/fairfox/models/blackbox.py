"""Any prediction function that autograd cannot see through, seen as a Model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.errors import FairfoxError, ModelError
from fairfox.models.output import Output
from fairfox.models.protocol import Decoder, row_blocks

_ROWS_A_CALL = 65_536  # tree ensembles want large blocks; this bounds the memory of one call
_PEOPLE_A_CALL = 8192  # each may become 32 rows


class BlackBoxModel:
    """A prediction function on tables, matrices or encoded rows.

    Where a one-hot block holds a distribution over categories, the prediction is the expectation over it:
    exact up to 32 combinations of categories, else 32 draws with common random numbers.
    """

    differentiable = False

    def __init__(
        self, predict: Callable[[Any], Any], *, decoder: Decoder | None, kind: str, output: Output | None = None
    ) -> None:
        self.predict = predict
        self.decoder = decoder
        self.kind = kind  # "table", "matrix" or "encoded"
        self.output = output or Output()

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks among x's columns."""
        return self.decoder.blocks if self.decoder is not None else ()

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for encoded x (N, D)."""
        if self.decoder is None or not self.blocks:
            return self._mean_of(x, torch.ones(len(x)), torch.arange(len(x)), len(x)).to(x)
        parts = []
        for block in row_blocks(len(x), _PEOPLE_A_CALL):
            rows, weights, owner = self.decoder.expand(x[block])
            parts.append(self._mean_of(rows, weights, owner, len(x[block])))
        return torch.cat(parts).to(x) if parts else x.new_zeros(0, 1)

    def raw(self, x: Tensor) -> Tensor:
        """Return what the function itself returns for encoded rows with whole categories."""
        return torch.cat([self._call(x[block]) for block in row_blocks(len(x), _ROWS_A_CALL)])

    def _mean_of(self, rows: Tensor, weights: Tensor, owner: Tensor, people: int) -> Tensor:
        values = self.output(self.raw(rows)).double() if len(rows) else torch.zeros(0, 1, dtype=torch.float64)
        if len(rows) == people:
            return values
        # around one of each person's own values, so that equal values have exactly that mean
        base = torch.zeros(people, 1, dtype=torch.float64).index_copy(0, owner, values)
        return base.index_add(0, owner, (values - base[owner]) * weights[:, None].double())

    def _call(self, x: Tensor) -> Tensor:
        inputs: Any
        if self.kind == "table" and self.decoder is not None:
            inputs = self.decoder.table(x)
        elif self.kind == "matrix" and self.decoder is not None:
            inputs = self.decoder.matrix(x).numpy(force=True)
        else:
            inputs = x.numpy(force=True)
        try:
            out = np.asarray(self.predict(inputs))
        except FairfoxError:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # a model may raise anything, and must not end the audit with its own code
            columns = ", ".join(self.decoder.columns) if self.decoder is not None else f"{x.shape[1]} columns"
            detail = (str(error).splitlines() or [""])[0]
            raise ModelError(
                f"The model failed on a {self.kind} of {len(x)} rows ({columns}): {type(error).__name__}: {detail}"
            ) from error
        if out.dtype.kind not in "fiub":
            raise ModelError(
                f"The model returned {out.dtype} values such as {out.reshape(-1)[:1].tolist()}; expected numbers: "
                "return a probability or a value per individual, not a class name"
            )
        if out.ndim == 0 or len(out) != len(x):
            found = "a single number" if out.ndim == 0 else f"{len(out)} predictions"
            raise ModelError(f"The model returned {found} for {len(x)} individuals; return one row each, in order")
        return torch.as_tensor(out.astype(np.float64)).reshape(len(x), -1)
