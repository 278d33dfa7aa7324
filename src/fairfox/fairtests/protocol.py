"""The protocol of fairness tests, and what fairfox's own tests measure beyond a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from fairfox.data.contrasts import Contrast, concerned
from fairfox.data.dataset import Dataset
from fairfox.maps.protocol import UNKNOWN
from fairfox.models.protocol import Model

NOBODY = "nobody to compare with"
UNSEEN = "a category that no fitting row has"


class FairnessTest(Protocol):
    """Anything with `fit` and `score`; that is all a foreign test needs to be benchmarked."""

    def fit(self, data: Dataset) -> Self:
        """Learn from the reference rows (x and c)."""
        ...

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        ...


class MeasuringTest(FairnessTest, Protocol):
    """A fairness test that also measures the direction and the refits of each score, and who has none."""

    def measure(self, model: Model, data: Dataset) -> Measurement:
        """Return the score with its sign, its refits, and for whom there is none."""
        ...


_PEOPLE_IN = {"each": 1, "counterfactuals": 1, "deviations": 1}  # which dimension of a Measurement's part; else 0


@runtime_checkable
class CounterfactualTest(Protocol):
    """A fairness test that says how people would look in another group."""

    def measure(
        self, model: Model, data: Dataset, *, predictions: Tensor | None = None, rows: bool = True
    ) -> Measurement:
        """Return the measurement, with counterfactual rows where asked; `predictions` are f(x) where known already."""
        ...

    def counterfactuals(self, data: Dataset, worst: Tensor, *, refits: int | None = None) -> Tensor:
        """Return the rows x' of the first refits (M, N, D), or of all: everyone where their contrast takes them."""
        ...


@runtime_checkable
class JudgingTest(Protocol):
    """A fairness test with a statement about the whole model."""

    def verdict(self, measured: Measurement, data: Dataset) -> dict[str, float]:
        """Return numbers about the model, by name, from what was measured on everyone."""
        ...


@dataclass(frozen=True)
class Measurement:
    """One value per person, with the contrasts and refits it comes from.

    Signed values point from the person's own group to another: above zero they would get a higher prediction as a
    member of that group (of a number: they would get it with a higher value). Every contrast is averaged over the
    refits, and the largest counts. Abstained people have 0.0 everywhere but in `each`.
    """

    score: Tensor  # (N,)
    effect: Tensor | None  # (N,); None for tests without a direction
    variable: Tensor  # (N,) which protected variable attained the score
    klass: Tensor  # (N,) towards which of its classes; -1 where there is none
    refits: Tensor  # (N, M) value of each refit, signed where there is a sign
    abstained: Tensor  # (N,) bool
    reasons: tuple[str | None, ...]
    each: Tensor  # (M, N, Q) value of each refit for each contrast; NaN where it does not concern the person
    worst: Tensor  # (N,) the place of the largest among the contrasts
    contrasts: tuple[Contrast, ...] = ()  # Q; () for tests that know no protected variable
    counterfactuals: Tensor | None = None  # (M, N, D) rows x' of all refits or the first, for the contrast that counts
    overshoot: Tensor | None = None  # (N,) how far one-hot entries left [0, 1] before they were put back
    borrowed: Tensor | None = None  # (N,) bool: at whose given values a group is missing
    deviations: Tensor | None = None  # (K, N, Q) what draws add to each contrast where ranks persist in part

    @property
    def drawn(self) -> Tensor | None:
        """What draws add to the value (N, K) where ranks persist in part; 0 for abstained people."""
        if self.deviations is None:
            return None
        own = self.deviations.gather(2, self.worst.expand(len(self.deviations), -1)[..., None])[..., 0].T
        return own.nan_to_num()

    @property
    def counterfactual(self) -> Tensor | None:
        """The mean of the rows x' over refits (N, D)."""
        return None if self.counterfactuals is None else self.counterfactuals.mean(0)

    @property
    def values(self) -> Tensor:
        """The mean over refits of every contrast (N, Q); NaN where it does not concern the person."""
        return self.each.mean(0)

    def of_variable(self, variable: int, data: Dataset) -> Measurement:
        """Return what was measured for one protected variable; all of it for a test that knows none."""
        if not self.contrasts:
            return self
        places = [q for q, contrast in enumerate(self.contrasts) if contrast.variable == variable]
        found = self._with(self.each[:, :, places], [self.contrasts[q] for q in places], data)
        return replace(found, deviations=None if self.deviations is None else self.deviations[:, :, places])

    def taken(self, rows: Tensor) -> Measurement:
        """Return the measurement of the people in these rows (n,)."""
        own: dict[str, Any] = {}
        for name in (f.name for f in fields(self) if f.name not in ("reasons", "contrasts")):
            value = getattr(self, name)
            own[name] = None if value is None else value.index_select(_PEOPLE_IN.get(name, 0), rows.to(value.device))
        return replace(self, **own, reasons=tuple(self.reasons[row] for row in rows.tolist()))

    def without(self, who: Tensor, reason: str, x: Tensor) -> Measurement:
        """Return the same with these people (N,) bool abstained; they keep their rows x (N, D)."""
        gone, rows = who.to(self.score.device), self.counterfactuals
        return replace(
            self,
            score=torch.where(gone, 0.0, self.score),
            effect=None if self.effect is None else torch.where(gone, 0.0, self.effect),
            refits=torch.where(gone[:, None], 0.0, self.refits),
            abstained=self.abstained | who.to(self.abstained.device),
            reasons=tuple(reason if out else why for out, why in zip(who.tolist(), self.reasons, strict=True)),
            each=torch.where(gone[:, None], torch.nan, self.each),
            counterfactuals=None if rows is None else torch.where(gone[:, None], x, rows),
        )

    def scaled(self, factors: Sequence[float], data: Dataset) -> Measurement:
        """Return the same people with the values of each protected variable times its factor."""
        if not self.contrasts:
            return self
        factor = torch.tensor([factors[contrast.variable] for contrast in self.contrasts]).to(self.each)
        found = self._with(self.each * factor, self.contrasts, data)
        deviations = None if self.deviations is None else self.deviations * factor
        return replace(found, overshoot=self.overshoot, borrowed=self.borrowed, deviations=deviations)

    def _with(self, values: Tensor, contrasts: Sequence[Contrast], data: Dataset) -> Measurement:
        """Return the Measurement of the same people with other values (M, N, Q)."""
        return combine(values, data, contrasts=contrasts, signed=self.effect is not None, reasons=self.reasons)


def combine(
    values: Tensor,
    data: Dataset,
    *,
    contrasts: Sequence[Contrast],
    signed: bool,
    reasons: str | Sequence[str | None] = "",
    overshoot: Tensor | None = None,
) -> Measurement:
    """Return the Measurement of values (M, N, Q): averaged over refits, then the worst contrast counts.

    A value that is NaN in any refit does not count; people without another are abstained, for the given reason (one for
    all, or one each), or because no protected value is known. Tests without a protected variable have one column and no
    contrasts.
    """
    mean = values.mean(0)  # (N, Q)
    lacking = mean.isnan()
    score, worst = torch.where(lacking, -1.0, mean.abs()).max(dim=1)
    gone = lacking.all(1)
    refits = values.gather(2, worst.expand(len(values), -1)[..., None])[..., 0].T  # (N, M)
    refits = torch.where(gone[:, None], 0.0, refits)
    attained = mean.gather(1, worst[:, None])[:, 0]
    score, attained = (torch.where(gone, 0.0, part) for part in (score, attained))
    abstained = gone.cpu()
    variable, klass = _attained(worst.cpu(), data, contrasts)
    return Measurement(
        score=score,
        effect=attained if signed else None,
        variable=variable,
        klass=klass,
        refits=refits,
        abstained=abstained,
        reasons=_reasons(abstained, data, reasons),
        each=values,
        worst=worst,
        contrasts=tuple(contrasts),
        overshoot=overshoot,
    )


def join_measurements(parts: Sequence[Measurement], places: Sequence[Tensor], people: int) -> Measurement:
    """Return one Measurement from those of disjoint groups of rows, each with its row numbers."""

    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(Measurement) if f.name not in ("reasons", "contrasts")):
        values, dim = [getattr(part, name) for part in parts], _PEOPLE_IN.get(name, 0)
        if any(value is None for value in values):
            joined[name] = None
            continue
        shape = list(values[0].shape)
        shape[dim] = people
        joined[name] = values[0].new_zeros(shape)
        for value, rows in zip(values, places, strict=True):
            joined[name].index_copy_(dim, rows.to(value.device), value)
    reasons: list[str | None] = [None] * people
    for part, rows in zip(parts, places, strict=True):
        for row, why in zip(rows.tolist(), part.reasons, strict=True):
            reasons[row] = why
    return Measurement(**joined, reasons=tuple(reasons), contrasts=parts[0].contrasts)


def away_from_own(data: Dataset, contrasts: Sequence[Contrast]) -> Tensor:
    """Return factors (N, Q) that make derivatives point away from the person's own group.

    These are -1 for the output of the own class, else +1; numbers always point upwards. NaN where the contrast does not
    concern the person: the own group is unknown, or neither class is the reference group.
    """
    columns = []
    for contrast in contrasts:
        p, c = data.protected[contrast.variable], data.c[:, contrast.variable]
        own = 1 if contrast.towards is None else contrast.towards
        sign = torch.where(c == own, -1.0, 1.0).to(c) if not p.is_continuous else torch.ones_like(c)
        columns.append(torch.where(concerned(data, contrast), sign, torch.nan))
    return torch.stack(columns, dim=1)


def _reasons(abstained: Tensor, data: Dataset, reasons: str | Sequence[str | None]) -> tuple[str | None, ...]:
    if not bool(abstained.any()):
        return (None,) * len(abstained)
    unknown = data.c.isnan().all(1).tolist()
    each = [reasons] * len(unknown) if isinstance(reasons, str) else reasons
    return tuple(
        (UNKNOWN if lacking else why or NOBODY) if gone else None
        for gone, lacking, why in zip(abstained.tolist(), unknown, each, strict=True)
    )


def _attained(worst: Tensor, data: Dataset, contrasts: Sequence[Contrast]) -> tuple[Tensor, Tensor]:
    """Return which variable and class each person's worst contrast belongs to."""
    if not contrasts:
        return torch.zeros_like(worst), torch.full_like(worst, -1)
    variable = torch.tensor([contrast.variable for contrast in contrasts])[worst]
    klass = torch.tensor([-1 if contrast.towards is None else contrast.towards for contrast in contrasts])[worst]
    for v, p in enumerate(data.protected):
        if p.kind == "binary":  # the other class
            c = data.c[:, v].cpu()
            klass = torch.where((variable == v) & ~c.isnan(), 1 - c.nan_to_num().long(), klass)
    return variable, klass
