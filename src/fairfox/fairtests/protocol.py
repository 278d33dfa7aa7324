"""What a fairness test is, and what fairfox's own tests measure beyond a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.models.protocol import Model

UNKNOWN = "protected value unknown"


class FairnessTest(Protocol):
    """Anything with `fit` and `score`; that is all a foreign test needs to be benchmarked."""

    def fit(self, data: Dataset) -> Self:
        """Learn from the reference rows (x and c)."""
        ...

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        ...


class MeasuringTest(FairnessTest, Protocol):
    """A fairness test that also says in which direction, how surely, and for whom it cannot say."""

    def measure(self, model: Model, data: Dataset) -> Measurement:
        """Return the score with all that stands behind it."""
        ...


@dataclass(frozen=True)
class Measurement:
    """One value per person, and what stands behind it.

    Signed values point from the person's own group to the other: above zero they would get a higher prediction
    as a member of the other group. Abstained people have 0.0 everywhere.
    """

    score: Tensor  # (N,)
    signed: Tensor | None  # (N,); None for tests without a direction
    variable: Tensor  # (N,) which protected variable attained the score
    klass: Tensor  # (N,) towards which of its classes; -1 where there is none
    refits: Tensor  # (N, M) value of each re-fit, signed where there is a sign
    abstained: Tensor  # (N,) bool
    reasons: tuple[str | None, ...]
    counterfactuals: Tensor | None = None  # (M, N, D) the rows x' of each re-fit
    overshoot: Tensor | None = None  # (N,) how far one-hot entries left [0, 1] on the way

    @property
    def interval(self) -> Tensor | None:
        """Mean ± t(.95, M-1) sd/√M over the re-fits (N, 2); None with fewer than two."""
        fits = self.refits.shape[1]
        if fits < 2:
            return None
        from scipy.stats import t

        mean = self.refits.mean(1)
        half = self.refits.std(1) * (float(t.ppf(0.95, fits - 1)) / fits**0.5)
        return torch.stack([mean - half, mean + half], dim=1)

    @property
    def counterfactual(self) -> Tensor | None:
        """The mean of the rows x' over re-fits (N, D)."""
        return None if self.counterfactuals is None else self.counterfactuals.mean(0)


def combine(
    values: Tensor,
    data: Dataset,
    *,
    signed: bool,
    abstained: Tensor | None = None,
    reason: str = "",
    counterfactuals: Tensor | None = None,
    overshoot: Tensor | None = None,
) -> Measurement:
    """Return the Measurement of values (M, N, K): averaged over re-fits, then the worst output counts.

    Values come with a column per protected output (K of the auxiliary), or a single one for tests that know
    no protected outputs. A signed value needs an own group to point away from: who has none known is abstained.
    """
    abstained = torch.zeros(values.shape[1], dtype=torch.bool) if abstained is None else abstained.cpu()
    unknown = data.c.isnan().all(1).cpu() & signed
    abstained = abstained | unknown
    values = torch.where(abstained.to(values.device)[:, None], 0.0, values)
    mean = values.mean(0)  # (N, K)
    score, worst = mean.abs().max(dim=1)
    refits = values.gather(2, worst.expand(len(values), -1)[..., None])[..., 0].T  # (N, M)
    variable, klass = _attained(worst.cpu(), data) if values.shape[2] > 1 or signed else (torch.zeros_like(worst), None)
    return Measurement(
        score=score,
        signed=mean.gather(1, worst[:, None])[:, 0] if signed else None,
        variable=variable,
        klass=torch.full_like(worst, -1) if klass is None else klass,
        refits=refits,
        abstained=abstained,
        reasons=tuple(
            UNKNOWN if lacking else reason if gone else None
            for gone, lacking in zip(abstained.tolist(), unknown.tolist(), strict=True)
        ),
        counterfactuals=counterfactuals,
        overshoot=overshoot,
    )


def join(parts: Sequence[Measurement], places: Sequence[Tensor], people: int) -> Measurement:
    """Return one Measurement from those of disjoint groups of rows, each with the places of its rows."""

    def put(pieces: Sequence[Tensor | None], dim: int = 0) -> Tensor | None:
        given = [piece for piece in pieces if piece is not None]
        if len(given) < len(parts):
            return None
        shape = list(given[0].shape)
        shape[dim] = people
        out = given[0].new_zeros(shape)
        for piece, rows in zip(given, places, strict=True):
            out.index_copy_(dim, rows.to(out.device), piece)
        return out

    def whole(pieces: Sequence[Tensor]) -> Tensor:
        out = put(pieces)
        assert out is not None
        return out

    reasons: list[str | None] = [None] * people
    for part, rows in zip(parts, places, strict=True):
        for row, why in zip(rows.tolist(), part.reasons, strict=True):
            reasons[row] = why
    return Measurement(
        score=whole([p.score for p in parts]),
        signed=put([p.signed for p in parts]),
        variable=whole([p.variable for p in parts]),
        klass=whole([p.klass for p in parts]),
        refits=whole([p.refits for p in parts]),
        abstained=whole([p.abstained for p in parts]),
        reasons=tuple(reasons),
        counterfactuals=put([p.counterfactuals for p in parts], dim=1),
        overshoot=put([p.overshoot for p in parts]),
    )


def own_sign(data: Dataset) -> Tensor:
    """Return +1 or -1 per person and protected output (N, K): derivatives turned away from the own group.

    0 where the own group is unknown: that variable does not count.
    """
    columns = []
    for v, p in enumerate(data.protected):
        c = data.c[:, v]
        if p.kind == "continuous":
            columns.append(torch.ones_like(c)[:, None])
        elif p.kind == "binary":
            columns.append(torch.where(c == 1, -1.0, 1.0)[:, None].to(c))
        else:
            codes = torch.arange(p.outputs, device=c.device)
            columns.append(torch.where(c[:, None] == codes, -1.0, 1.0).to(c))
        columns[-1] = torch.where(c.isnan()[:, None], 0.0, columns[-1])
    return torch.cat(columns, dim=1)


def _attained(worst: Tensor, data: Dataset) -> tuple[Tensor, Tensor]:
    """Return which variable and class each person's worst output belongs to."""
    variables, classes = [], []
    for v, p in enumerate(data.protected):
        variables += [v] * p.outputs
        classes += list(range(p.outputs)) if p.kind == "categorical" else [-1]
    variable = torch.tensor(variables)[worst]
    klass = torch.tensor(classes)[worst]
    for v, p in enumerate(data.protected):
        if p.kind == "binary":  # the other class
            c = data.c[:, v].cpu().nan_to_num()
            klass = torch.where(variable == v, 1 - c.long(), klass)
    return variable, klass
