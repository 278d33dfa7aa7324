"""A linear auxiliary: one weight per feature, for the weighted and projected tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fairfox.auxiliary.training import centre_and_spread, check_groups, usable_columns
from fairfox.data.dataset import Dataset, Protected, resample
from fairfox.models.protocol import Model


@dataclass(frozen=True, eq=False)
class LinearMember:
    """Logits x @ weightsᵀ + bias, as a Model."""

    weights: Tensor  # (K, D)
    bias: Tensor  # (K,)
    differentiable = True

    def __call__(self, x: Tensor) -> Tensor:
        """Return the protected outputs (N, K)."""
        return x @ self.weights.to(x).T + self.bias.to(x)


@dataclass(kw_only=True)
class LinearAuxiliary:
    """`refits` logistic (or ridge) regressions from x to c: one on all rows, or each on resampled rows."""

    refits: int = 1
    strength: float = 1.0  # scikit-learn's C
    seed: int = 0
    members: Sequence[Model] = field(default=(), init=False, repr=False)
    held_out: Dataset | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Fit each variable on the rows whose value of it is known (x and c, never y)."""
        known = data[~data.c.isnan().all(1)]
        check_groups(known)
        scales = [centre_and_spread(c, known.weights) for c in known.c.unbind(1)]
        generator = torch.Generator().manual_seed(self.seed)
        samples = [known] if self.refits == 1 else [resample(known, generator=generator) for _ in range(self.refits)]
        self.members = [self._fit_one(sample, scales) for sample in samples]
        return self

    def _fit_one(self, data: Dataset, scales: Sequence[tuple[Tensor, Tensor]]) -> LinearMember:
        fits = []
        for v, (mean, spread) in enumerate(scales):
            rows = data[~data.c[:, v].isnan()]
            c = rows.c[:, v]
            target = (c - mean) / spread if data.protected[v].is_continuous else c
            fits.append(self._fit_head(rows, target, data.protected[v]))
        weights, bias = (torch.cat(parts).to(data.x) for parts in zip(*fits, strict=True))
        return LinearMember(weights, bias)

    def _fit_head(self, rows: Dataset, target: Tensor, p: Protected) -> tuple[Tensor, Tensor]:
        """Return the weights (K, D) and biases (K,) of one variable's outputs."""
        from sklearn.linear_model import LogisticRegression, Ridge

        x = torch.where(usable_columns(rows), rows.x, 0.0).numpy(force=True)
        y = target.numpy(force=True)
        # of mean one: sums of large weights would outweigh the penalty
        weights = None if rows.weights is None else (rows.weights / rows.weights.mean()).numpy(force=True)
        model = Ridge() if p.is_continuous else LogisticRegression(C=self.strength, max_iter=1000)
        model.fit(x, y if p.is_continuous else y.astype(int), sample_weight=weights)
        coef, shift = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
        if p.kind == "categorical" and len(coef) == 1:  # of two classes only the second has coefficients
            coef, shift = np.vstack([-coef / 2, coef / 2]), np.append(-shift / 2, shift / 2)
        if p.kind == "categorical":
            coef, shift = coef - coef.mean(0), shift - shift.mean()
        return torch.as_tensor(coef), torch.as_tensor(shift)
