"""Fairness through unawareness, asked of the target itself (Themis, Galhotra et al. 2017): only c is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError, OptionError, did_you_mean
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import Measurement
from fairfox.maps.protocol import ManyGroupMap
from fairfox.maps.rank import SwapMap, lacks_own_column, own_columns
from fairfox.models.protocol import Model, predict

_FIRST_LOOK = 128  # people asked before the first look at the bound


class ChangedShare(NamedTuple):
    """The share of people whose output changes, between which bounds it lies, and how many were asked."""

    share: float
    low: float
    high: float
    asked: int


@dataclass(kw_only=True)
class Unawareness:
    """How the prediction changes when the protected column alone is changed and all else stays as it is.

    Only for targets that take the protected column. The largest change over the other values counts; a number goes
    one standard deviation up and down. What the change means is known exactly, so that one fit is enough.

    Example:
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> from fairfox.data.dataset import Feature, Protected
        >>> sex = Feature("sex", "categorical", 0, 2, ("f", "m"))
        >>> data = Dataset(
        ...     x=torch.eye(2), c=torch.tensor([[0.0], [1.0]]), protected=(Protected("sex", levels=("f", "m")),),
        ...     features=(sex,), withheld=torch.tensor([True, True]),
        ... )
        >>> bonus = LinearMember(torch.tensor([[0.0, 0.25]]), torch.zeros(1))  # for men
        >>> Unawareness().fit(data).measure(bonus, data).signed
        tensor([ 0.2500, -0.2500])
    """

    has_sign: ClassVar[bool] = True

    tolerance: float = 1e-6  # a larger change of the output counts in the verdict
    error: float = 0.05
    confidence: float = 0.99
    refits: int = 1
    seed: int = 0
    batch_size: int = 4096
    effect: Effect | None = field(default=None, init=False, repr=False)
    target: Model | None = field(default=None, init=False, repr=False)  # that was measured last

    def __post_init__(self) -> None:
        _check_settings(self.tolerance, self.error, self.confidence)

    def fit(self, data: Dataset) -> Self:
        """Learn which values of the protected columns stand for which group."""
        if not _taken(data):
            names = ", ".join(f"'{p.name}'" for p in data.protected)
            raise OptionError(
                f"unawareness changes the protected column alone, and the model does not take {names}; use rank to "
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

    def counterfactuals(self, data: Dataset, worst: Tensor) -> Tensor:
        """Return the changed rows (M, N, D), each for the contrast at their place `worst`; -1: as they are."""
        return self._fitted().counterfactuals(data, worst)

    def verdict(self, measured: Measurement, data: Dataset) -> dict[str, float]:
        """Return the share of people whose output changes: with each variable, and with all of them jointly.

        Everyone was asked about each variable; about all jointly as many as the bound needs, by the target that was
        measured last.
        """
        if self.target is None:
            raise NotFittedError("The verdict speaks of the model that was measured; call measure first")
        taken = _taken(data)
        out = {}
        for v in taken:
            places = [q for q, contrast in enumerate(measured.contrasts) if contrast.variable == v]
            values = measured.values[:, places].cpu()
            asked = ~values.isnan().all(1)
            changed = (values.abs() > self.tolerance).any(1)
            out[f"changed by {data.protected[v].name}"] = _share_of(changed, asked, data)
        simple = [v for v in taken if not data.protected[v].parts]
        if len(simple) > 1:
            swaps = [self._fitted().fitted[v][0] for v in simple]
            found = share_changed(
                self.target,
                data,
                maps=[swap for swap in swaps if isinstance(swap, ManyGroupMap)],
                tolerance=self.tolerance,
                error=self.error,
                confidence=self.confidence,
                seed=self.seed,
                batch_size=self.batch_size,
            )
            names = ("changed by any", "changed by any, low", "changed by any, high", "changed by any, asked")
            out.update(zip(names, map(float, found), strict=True))
        return out

    def _fitted(self) -> Effect:
        if self.effect is None:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        return self.effect


def share_changed(
    model: Model,
    data: Dataset,
    *,
    columns: Sequence[str] | None = None,
    maps: Sequence[ManyGroupMap] | None = None,
    tolerance: float = 1e-6,
    error: float = 0.05,
    confidence: float = 0.99,
    seed: int = 0,
    batch_size: int = 4096,
) -> ChangedShare:
    """Return the share of people whose output changes when protected variables are changed alone.

    Several variables are changed jointly: all combinations of their values are tried (a number stays, or goes one
    standard deviation up or down). People are drawn at random until the share is known within `error` at this
    confidence; where that takes everyone, the share is exact. People whose own value is unknown, or missing in the
    column, are left out; weighted people are all asked.

    Args:
        model: the target.
        data: the people; the target takes the protected columns.
        columns: names of protected variables; by default all that the target takes.
        maps: one fitted `SwapMap` per variable to change; by default fitted on these people.
        tolerance: how far an output must move to count as changed. For the share of changed decisions give a model
            that returns decisions.
        error: half the widest interval.
        confidence: the chance that the interval holds the share of all people.
        seed: of who is asked.
        batch_size: rows per block.
    """
    _check_settings(tolerance, error, confidence)
    swaps = [SwapMap(variable=v).fit(data) for v in _named(data, columns)] if maps is None else maps
    changeable = [~(data.c[:, swap.variable].isnan() | lacks_own_column(data, swap.variable)) for swap in swaps]
    known = torch.stack(changeable).all(0).cpu()
    people = known.nonzero()[:, 0]

    def asked(rows: Tensor) -> Tensor:
        return _changed(model, data[rows.to(data.x.device)], swaps, tolerance, batch_size).cpu()

    if data.weights is not None:
        changed = torch.zeros(len(data), dtype=torch.bool)
        changed[people] = asked(people)
        share = _share_of(changed, known, data)
        return ChangedShare(share, share, share, len(people))
    order = people[torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))]
    return _sampled(asked, order, error=error, confidence=confidence)


def _sampled(asked: Callable[[Tensor], Tensor], order: Tensor, *, error: float, confidence: float) -> ChangedShare:
    """Return the share among people in random order, asked until the bound is met.

    The chance to be wrong is spread over all looks at the bound that there may be.
    """
    looks = [_FIRST_LOOK]
    while looks[-1] < len(order):
        looks.append(2 * looks[-1])
    looks[-1] = len(order)
    hits = done = 0
    for upto in looks:
        hits += int(asked(order[done:upto]).sum())
        done = upto
        if done < len(order):
            low, high = exact_interval(hits, done, 1 - (1 - confidence) / len(looks))
            if high - low <= 2 * error:
                return ChangedShare(hits / done, low, high, done)
    share = hits / done if done else float("nan")
    return ChangedShare(share, share, share, done)


def exact_interval(hits: int, asked: int, confidence: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, asked - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, asked - hits)) if hits < asked else 1.0
    return low, high


def _changed(model: Model, data: Dataset, swaps: Sequence[ManyGroupMap], tolerance: float, batch_size: int) -> Tensor:
    """Return whose output (n,) changes with any combination of the variables' values."""
    here = predict(model, data.x, batch_size=batch_size)
    changed = torch.zeros(len(data), dtype=torch.bool, device=here.device)
    for choice in islice(product(*(_choices(swap, data) for swap in swaps)), 1, None):  # the first: as they are
        left = (~changed).nonzero()[:, 0].to(data.x.device)  # nobody is asked again once they have changed
        rows = data.x[left]
        for columns, mapped in choice:
            rows[:, columns] = mapped[left]
        out = predict(model, rows, batch_size=batch_size)
        moved = (out - here[left.to(here.device)]).abs() > tolerance
        changed[left.to(here.device)] = moved
    return changed


def _choices(swap: ManyGroupMap, data: Dataset) -> list[tuple[Tensor, Tensor]]:
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


def _named(data: Dataset, columns: Sequence[str] | None) -> list[int]:
    taken = _taken(data)
    if columns is None:
        chosen = [v for v in taken if not data.protected[v].parts]
    else:
        known = [p.name for p in data.protected]
        strange = [name for name in columns if name not in known]
        if strange:
            raise OptionError(f"There is no protected variable '{strange[0]}'.{did_you_mean(strange[0], known)}")
        chosen = [known.index(name) for name in columns]
    unseen = [data.protected[v].name for v in chosen if v not in taken]
    if unseen or not chosen:
        what = f"'{unseen[0]}'" if unseen else "any protected column"
        raise OptionError(
            f"The model does not take {what}, so that changing it alone changes nothing; use rank to find proxies"
        )
    return chosen


def _share_of(changed: Tensor, asked: Tensor, data: Dataset) -> float:
    """Return the share of those asked (N,) who changed (N,), each row standing for as many people as it does."""
    weights = torch.ones(len(data)) if data.weights is None else data.weights.cpu()
    total = weights[asked].double().sum()
    return float(weights[asked & changed].double().sum() / total)


def _check_settings(tolerance: float, error: float, confidence: float) -> None:
    if not 0 <= tolerance < float("inf"):
        raise OptionError(f"tolerance is {tolerance!r}; expected a number of at least 0")
    for name, value in (("error", error), ("confidence", confidence)):
        if not 0 < value < 1:
            raise OptionError(f"{name} is {value!r}; expected a number between 0 and 1")
