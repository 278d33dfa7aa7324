"""What an audit proves: certificates along everyone's way to another group, over all re-fits of its maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.certificates.protocol import OnTheWay
from fairfox.certificates.way import largest_on_the_way
from fairfox.crossfit import Readings
from fairfox.models.protocol import Model


@dataclass(frozen=True)
class Certificates:
    """How far the prediction changes at most on the way to the contrast that counts, one entry per person.

    Averaged over the re-fits, which makes it no smaller than the size of the mean effect; of tests with /a times the
    alignment share, as the score is. People without a certificate have NaN and a reason.
    """

    largest: Tensor  # (N,) no point on the way changes the prediction by more
    inside: Tensor  # (N,) by how much the worst point on the way exceeds its end
    reasons: tuple[str | None, ...]  # why somebody has none
    delta: float
    limits: Tensor  # (N,) everyone's own delta
    total: bool  # of the total reading, as the test itself moves nobody

    @property
    def certified(self) -> Tensor:
        """Who has a certificate (N,) bool."""
        return ~self.largest.isnan()

    @property
    def within(self) -> Tensor:
        """For whom (N,) no point on the way changes the prediction by more than delta."""
        return self.largest <= self.limits

    @property
    def worse_inside(self) -> Tensor:
        """For whom (N,) a point on the way is worse than its end by more than delta."""
        return self.inside > self.limits


def certify(
    model: object,
    target: Model,
    readings: Readings,
    *,
    aligned: bool,
    delta: float,
    limits: float | Tensor,
    progress: Callable[[float], None],
) -> Certificates:
    """Return everyone's certificate, for the rows that the main test or else the total reading moves them to.

    Args:
        model: as it was given.
        target: as the audit sees it.
        readings: of everyone.
        aligned: the test multiplies effects by the alignment share.
        delta: of the reading whose rows are taken.
        limits: the same, of each person (N,) where some have their own.
        progress: called with the fraction done.
    """
    main, x = readings.main, readings.people.x
    measured = readings.total if main.counterfactuals is None else main
    assert measured.counterfactuals is not None  # one of them always has rows
    asked = (~main.abstained & ~measured.abstained).nonzero()[:, 0]
    ways = []
    for m, rows in enumerate(measured.counterfactuals):
        progress(m / len(measured.counterfactuals))
        ways.append(largest_on_the_way(model, x[asked], rows[asked], target=target))
    shares = torch.tensor([share.value if aligned else 1.0 for share in readings.alignment], dtype=torch.float64)
    factor = shares[main.variable[asked].cpu()]
    # a network is audited in float32, where the score may be larger by its rounding
    largest = torch.maximum(factor * _mean(way.largest for way in ways), measured.score[asked].cpu().double())
    inside = factor * _mean(way.largest - way.end.abs() for way in ways)
    everyone = torch.full((len(x),), torch.nan, dtype=torch.float64)
    return Certificates(
        largest=everyone.index_copy(0, asked, largest),
        inside=everyone.index_copy(0, asked, inside),
        reasons=_reasons(ways, asked, [a or b for a, b in zip(main.reasons, measured.reasons, strict=True)]),
        delta=delta,
        limits=torch.as_tensor(limits, dtype=torch.float64).expand(len(x)),
        total=measured is not main,
    )


def _mean(each: Iterable[Tensor]) -> Tensor:
    """Return the mean over the re-fits (n,); NaN where one of them has no certificate."""
    return torch.stack(list(each)).mean(0).cpu()


def _reasons(ways: Sequence[OnTheWay], asked: Tensor, abstained: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return why people were not judged, or else why the first of their ways without a certificate has none."""
    reasons = list(abstained)
    for place, each in zip(asked.tolist(), zip(*(way.reasons for way in ways), strict=True), strict=True):
        reasons[place] = next((reason for reason in each if reason is not None), None)
    return tuple(reasons)
