"""Fairness through unawareness, tested on the target (Themis, Galhotra et al. 2017): only c is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import Measurement
from fairfox.maps.rank import SwapMap, own_columns
from fairfox.models.protocol import Model


@dataclass(kw_only=True)
class Unawareness:
    """How the prediction changes when only the protected column is changed.

    Only for targets that take the protected column. The largest change over the other values counts; a number goes
    one standard deviation up and down. The change is known exactly, so one fit is enough.

    Example:
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> from fairfox.data.dataset import Feature, Protected
        >>> sex = Feature("sex", "categorical", 0, 2, ("f", "m"))
        >>> data = Dataset(
        ...     x=torch.eye(2), c=torch.tensor([[0.0], [1.0]]), protected=(Protected("sex", levels=("f", "m")),),
        ...     features=(sex,), withheld=torch.tensor([True, True]),
        ... )
        >>> bonus = LinearMember(torch.tensor([[0.0, 0.25]]), torch.zeros(1))  # for men
        >>> Unawareness().fit(data).measure(bonus, data).effect
        tensor([ 0.2500, -0.2500])
    """

    tolerance: float = 1e-6  # a larger change of the output counts in the verdict
    refits: int = 1
    seed: int = 0
    batch_size: int = 4096
    effect: Effect | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        Number(0).required("tolerance", self.tolerance)

    def fit(self, data: Dataset) -> Self:
        """Learn which values of the protected columns mean which group."""
        if not _taken(data):
            names = ", ".join(f"'{p.name}'" for p in data.protected)
            raise OptionError(
                f"unawareness changes only the protected column, but the model does not take {names}; use rank to "
                "find proxies"
            )
        effect = Effect(map=SwapMap(), refits=self.refits, seed=self.seed, batch_size=self.batch_size)
        self.effect = effect.fit(data)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data, rows=False).score

    def measure(
        self, model: Model, data: Dataset, *, predictions: Tensor | None = None, rows: bool = True
    ) -> Measurement:
        """Return the signed change and, with `rows`, the changed rows; `predictions` are f(x) where known already."""
        return self._fitted().measure(model, data, predictions=predictions, rows=rows)

    def counterfactuals(self, data: Dataset, worst: Tensor, *, refits: int | None = None) -> Tensor:
        """Return the changed rows (M, N, D), each for their contrast number `worst`; -1: unchanged."""
        return self._fitted().counterfactuals(data, worst, refits=refits)

    def verdict(self, measured: Measurement, data: Dataset) -> dict[str, float]:
        """Return the share of people whose output changes, with each variable; people who lack it are left out."""
        out, weights = {}, torch.ones(len(data)) if data.weights is None else data.weights.cpu()
        for v in _taken(data):
            places = [q for q, contrast in enumerate(measured.contrasts) if contrast.variable == v]
            values = measured.values[:, places].cpu()
            changed, asked = (values.abs() > self.tolerance).any(1), ~values.isnan().all(1)
            share = weights[asked & changed].double().sum() / weights[asked].double().sum()
            out[f"changed by {data.protected[v].name}"] = float(share)
        return out

    def _fitted(self) -> Effect:
        if self.effect is None:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        return self.effect


def _taken(data: Dataset) -> list[int]:
    """Return the protected variables that the target takes."""
    return [v for v in range(len(data.protected)) if bool(own_columns(data, v).any())]
