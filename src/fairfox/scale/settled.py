"""What the score of one person owes to everyone else, settled on some of the people before the first batch.

Five numbers of an audit are read off all people together: the default delta of a model that returns values, what a
model returns, how far re-fits scatter in common, the alignment share of the tests with /a, and the step of finite
differences of a black box; and a protected number has quarters. A stream never has all people together, so these are
settled once, on a pilot, and written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from fairfox.data.dataset import Protected
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.gradient import SteppedTest
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import about
from fairfox.fairtests.share import model_alignment
from fairfox.fitted import FittedTest, Scored, unit_of
from fairfox.gradients.finite_difference import suited_step
from fairfox.thresholds import default_delta
from fairfox.verdicts.intervals import moderated

PILOT = 20_000  # people; a table of no more is settled on all of them
_LEVEL = 0.9  # of the intervals, as in an audit
_QUARTERS = (0.25, 0.5, 0.75)


class Scatter(NamedTuple):
    """The variance of re-fits that people have in common, and with how many degrees of freedom it counts."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Settled:
    """What was settled before the first batch; plain numbers and texts, so that JSON can hold it."""

    delta: float
    unit: str  # of the score
    output: dict[str, Any] | None  # fields of the model's Output; None for a model that has none
    scatter: tuple[Scatter, ...]  # of the worst case, then of each protected variable
    shares: tuple[float, ...] | None  # alignment shares of each protected variable; None for tests without /a
    cuts: tuple[tuple[float, ...], ...]  # between the groups of each protected number; () for classes
    people: int  # it was settled on
    step: float | None = None  # of finite differences; None for models with gradients, and tests that ask for none

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)

    @classmethod
    def of_dict(cls, fields: dict[str, Any]) -> Self:
        """Return what `as_dict` gave, also after JSON."""
        given = dict(fields)
        given["scatter"] = tuple(Scatter(*pair) for pair in given["scatter"])
        given["cuts"] = tuple(tuple(cuts) for cuts in given["cuts"])
        given["shares"] = None if given["shares"] is None else tuple(given["shares"])
        return cls(**given)


def settle(fitted: FittedTest, seen: Scored, *, delta: float | None = None) -> Settled:
    """Return what is settled on the people of a pilot; a delta that is given stands."""
    what, unit = about(fitted.name, fitted.options), unit_of(seen.target)
    if delta is None:
        delta = default_delta(what.delta, seen.predictions, unit=unit) if what.of_prediction else what.delta
    shares = None
    if is_aligned(fitted):
        found = model_alignment(
            seen.target, seen.people, fitted.auxiliary, fitted.metric, seed=fitted.seed, batch_size=fitted.batch_size
        )
        shares = tuple(share.value for share in found)
    step = None
    if isinstance(fitted.test, SteppedTest) and not seen.target.differentiable:
        step = suited_step(seen.target, seen.people.x)
    main = fitted.measured(fitted.name, seen, step=step)
    each = [main.of_variable(v, seen.people) for v in range(len(seen.people.protected))]
    output = getattr(seen.target, "output", None)
    return Settled(
        delta=delta,
        unit=f"{what.unit} ({unit})" if what.of_prediction else what.unit,
        output=None if output is None else asdict(output),
        scatter=tuple(common_scatter(one) for one in (main, *each)),
        shares=shares,
        cuts=tuple(_quarters(p, seen.people.c[:, v]) for v, p in enumerate(seen.people.protected)),
        people=len(seen.data),
        step=step,
    )


def is_aligned(fitted: FittedTest) -> bool:
    """Return whether the test multiplies effects by the alignment share (/a)."""
    return isinstance(fitted.test, Effect) and fitted.test.aligned


def common_scatter(measured: Measurement) -> Scatter:
    """Return what the judged people's re-fits have in common; nothing with fewer than two re-fits."""
    refits = measured.refits
    if refits.shape[1] < 2:
        return Scatter(0.0, 0.0)
    own = refits.shape[1] - 1
    # somebody without scatter takes no part, and is drawn to what is common alone
    drawn, freedom = moderated(torch.cat([_variances(refits), torch.zeros(1, dtype=torch.float64)]), own)
    common = freedom - own
    return Scatter(float(drawn[-1]) * freedom / common, common) if common > 0 else Scatter(0.0, 0.0)


def standard_errors(refits: Tensor, scatter: Scatter) -> tuple[Tensor, float]:
    """Return what `verdicts.intervals.standard_errors` does, with the common scatter given."""
    own = refits.shape[1] - 1
    freedom = own + scatter.freedom
    variance = (scatter.freedom * scatter.variance + own * _variances(refits)) / freedom
    return (variance * (1 + 1 / refits.shape[1])).sqrt(), freedom


class Sureness(NamedTuple):
    """How sure everyone's effect is."""

    lower: Tensor  # (N,)
    upper: Tensor  # (N,)
    confident: Tensor  # (N,) bool
    p_values: Tensor  # (N,)


def sureness(measured: Measurement, delta: float, scatter: Scatter) -> Sureness | None:
    """Return intervals, confident flags and p-values as `certainty` does; None with fewer than two re-fits."""
    if measured.refits.shape[1] < 2:
        return None
    from scipy.stats import t

    refits = measured.refits.double().cpu()
    error, freedom = standard_errors(refits, scatter)
    mean, half = refits.mean(1), error * float(t.ppf((1 + _LEVEL) / 2, freedom))
    lower, upper = mean - half, mean + half
    confident = ((lower > delta) | (upper < -delta)) & ~measured.abstained
    known, size = error > 0, mean.abs()
    scale = torch.where(known, error, 1.0)
    tails = [torch.as_tensor(t.sf(((size + d) / scale).numpy(), freedom)) for d in (-delta, delta)]
    p = torch.where(known, (tails[0] + tails[1]).clamp(max=1.0), torch.where(size > delta, 0.0, 1.0))
    compared = (~measured.each.isnan().any(0)).sum(1).clamp(min=1).cpu()  # contrasts
    return Sureness(lower, upper, confident, (p * compared).clamp(max=1.0))


def group_names(p: Protected, cuts: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the groups of a protected variable: its classes, or the ranges between the cuts.

    Example:
        >>> group_names(Protected("age", "continuous", ()), [30.0, 45.5])
        ('below 30', '30 to below 45.5', '45.5 and above')
    """
    if not p.is_continuous:
        return p.levels
    if not cuts:
        return (f"any {p.name}",)
    ends = [f"{cut:.6g}" for cut in cuts]
    middle = [f"{low} to below {high}" for low, high in pairwise(ends)]
    return (f"below {ends[0]}", *middle, f"{ends[-1]} and above")


def group_places(p: Protected, own: Tensor, cuts: Sequence[float]) -> Tensor:
    """Return the place of everyone's group among `group_names` (N,), -1 where the own value is unknown."""
    values = own.double().cpu().contiguous()
    place = torch.bucketize(values, torch.tensor(cuts, dtype=torch.float64), right=True) if p.is_continuous else values
    return torch.where(values.isnan(), -1, place.nan_to_num(-1.0).long())


def _variances(refits: Tensor) -> Tensor:
    """Return the variance of everyone's re-fits (N,); exactly zero where they are all the same."""
    values = refits.double().cpu()
    variance = (values - values.mean(1, keepdim=True)).square().sum(1) / (values.shape[1] - 1)
    return torch.where((values == values[:, :1]).all(1), 0.0, variance)


def _quarters(p: Protected, own: Tensor) -> tuple[float, ...]:
    known = own[~own.isnan()].double().cpu()
    if not p.is_continuous or not len(known):
        return ()
    cuts = torch.quantile(known, torch.tensor(_QUARTERS, dtype=torch.float64)).tolist()
    # as short as tells them apart: they are published, and must not be somebody's value to the last digit
    rounded = [tuple(dict.fromkeys(float(f"{cut:.{digits}g}") for cut in cuts)) for digits in range(2, 7)]
    return next(each for each in rounded if len(each) == len(rounded[-1]))
