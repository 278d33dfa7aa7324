"""A linear auxiliary: one weight per feature, for the weighted and projected tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fairfox.auxiliary.model import check_groups, usable_columns
from fairfox.data.dataset import Dataset, resample
from fairfox.models.protocol import Model


class LinearMember:
    """Logits x @ weightsᵀ + bias, seen as a Model."""

    differentiable = True

    def __init__(self, weights: Tensor, bias: Tensor) -> None:
        self.weights, self.bias = weights, bias  # (K, D), (K,)

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
        """Fit on the rows whose protected values are known (x and c, never y)."""
        known = data[~data.c.isnan().any(1)]
        check_groups(known)
        generator = torch.Generator().manual_seed(self.seed)
        samples = [known] if self.refits == 1 else [resample(known, generator=generator) for _ in range(self.refits)]
        self.members = [self._fit_one(sample) for sample in samples]
        return self

    def _fit_one(self, data: Dataset) -> LinearMember:
        from sklearn.linear_model import LogisticRegression, Ridge

        mask = usable_columns(data)
        x = torch.where(mask, data.x, 0.0).numpy(force=True)
        weights, bias = [], []
        for v, p in enumerate(data.protected):
            c = data.c[:, v].numpy(force=True)
            model = Ridge() if p.kind == "continuous" else LogisticRegression(C=self.strength, max_iter=1000)
            target = (c - c.mean()) / c.std() if p.kind == "continuous" else c.astype(int)
            model.fit(x, target)
            coef, shift = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
            if p.kind == "categorical" and len(coef) == 1:  # of two classes only the second has coefficients
                coef, shift = np.vstack([-coef / 2, coef / 2]), np.append(-shift / 2, shift / 2)
            if p.kind == "categorical":
                coef, shift = coef - coef.mean(0), shift - shift.mean()
            weights.append(torch.as_tensor(coef))
            bias.append(torch.as_tensor(shift))
        return LinearMember(torch.cat(weights).to(data.x), torch.cat(bias).to(data.x))
