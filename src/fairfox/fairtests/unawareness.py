"""Fairness through unawareness, tested on the target (Themis, Galhotra et al. 2017): only c is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Self

import torch
from torch import Tensor

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import Measurement
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.rank import SwapMap, lacks_own_column, own_columns
from fairfox.models.protocol import Model, predict


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
    target: Model | None = field(default=None, init=False, repr=False)  # that was measured last

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < float("inf"):
            raise OptionError(f"tolerance is {self.tolerance!r}; expected a number of at least 0")

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
        measured = self._fitted().measure(model, data, predictions=predictions, rows=rows)
        self.target = model
        return measured

    def counterfactuals(self, data: Dataset, worst: Tensor, *, refits: int | None = None) -> Tensor:
        """Return the changed rows (M, N, D), each for their contrast number `worst`; -1: unchanged."""
        return self._fitted().counterfactuals(data, worst, refits=refits)

    def verdict(self, measured: Measurement, data: Dataset) -> dict[str, float]:
        """Return the share of people whose output changes: with each variable, and with all of them jointly.

        Jointly, all combinations of their values are tried, with the target measured last. People who lack a value are
        left out of shares that need it.
        """
        if self.target is None:
            raise NotFittedError("No model has been measured; call measure first")
        taken, out = _taken(data), {}
        for v in taken:
            places = [q for q, contrast in enumerate(measured.contrasts) if contrast.variable == v]
            values = measured.values[:, places].cpu()
            changed = (values.abs() > self.tolerance).any(1)
            out[f"changed by {data.protected[v].name}"] = _share_of(changed, ~values.isnan().all(1), data)
        simple = [v for v in taken if not data.protected[v].parts]
        if len(simple) > 1:
            lacking = [data.c[:, v].isnan() | lacks_own_column(data, v) for v in simple]
            asked = ~torch.stack(lacking).any(0)
            changed = torch.zeros_like(asked)
            swaps = [self._fitted().fitted[v][0] for v in simple]
            changed[asked] = self._changed(self.target, data[asked], swaps).to(changed.device)
            out["changed by any"] = _share_of(changed.cpu(), asked.cpu(), data)
        return out

    def _changed(self, model: Model, data: Dataset, swaps: Sequence[CounterfactualMap]) -> Tensor:
        """Return whose output (n,) changes with any combination of the variables' values."""
        here = predict(model, data.x, batch_size=self.batch_size)
        changed = torch.zeros(len(data), dtype=torch.bool, device=here.device)
        for choice in islice(product(*(_choices(swap, data) for swap in swaps)), 1, None):  # the first: as they are
            left = (~changed).nonzero()[:, 0].to(data.x.device)  # nobody is asked again once they have changed
            rows = data.x[left]
            for columns, mapped in choice:
                rows[:, columns] = mapped[left]
            out = predict(model, rows, batch_size=self.batch_size)
            changed[left.to(here.device)] = (out - here[left.to(here.device)]).abs() > self.tolerance
        return changed

    def _fitted(self) -> Effect:
        if self.effect is None:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        return self.effect


def _choices(swap: CounterfactualMap, data: Dataset) -> list[tuple[Tensor, Tensor]]:
    """Return what one variable's columns (D,) may hold (n, columns): as they are, and with every other value."""
    columns = own_columns(data, swap.variable)
    choices = [(columns, data.x[:, columns])]
    for contrast in moves(data.protected):
        if contrast.variable == swap.variable:
            choices.append((columns, swap.map(data, destinations(data, contrast)).rows[:, columns]))
    return choices


def _taken(data: Dataset) -> list[int]:
    """Return the protected variables that the target takes."""
    return [v for v in range(len(data.protected)) if bool(own_columns(data, v).any())]


def _share_of(changed: Tensor, asked: Tensor, data: Dataset) -> float:
    """Return the share of those asked (N,) who changed (N,), each row standing for as many people as it does."""
    weights = torch.ones(len(data)) if data.weights is None else data.weights.cpu()
    total = weights[asked].double().sum()
    return float(weights[asked & changed].double().sum() / total)
