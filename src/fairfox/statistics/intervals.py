"""Intervals and p-values of people's effects, and standard errors of means over people.

Refits on resampled rows scatter around the estimate as the estimate scatters around the truth. So the error of the
mean over M refits is about as large as the scatter of one, for any M; more refits only show it better.

A mean over people has two errors: people are a sample, and the maps that judge them were learnt from one. The second is
usually the larger. A map's error is the same for everyone, so it does not average out over people; the
refits show how large it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]
DRAWS = 1_000  # of the bootstrap
LEVEL = 0.95  # of intervals of means
_AT_ONCE = 1_000_000  # people drawn
_MANY, _ALIKE = 50_000, 1_000  # people, and how many of them decide about a mean, above which it is taken to be normal
_FREEDOM = 1e-2, 1e6  # the degrees of freedom of what people have in common are looked for in this range


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and an interval around it."""

    value: float
    error: float
    lower: float
    upper: float

    def around(self, value: float | None, most: float) -> Estimate:
        """Return the same around another value, clipped between 0 and its maximum; unchanged without a value."""
        if value is None:
            return self
        by = value - self.value
        return Estimate(value, self.error, max(self.lower + by, 0.0), min(self.upper + by, most))


class CommonVariance(NamedTuple):
    """The variance that people's refits have in common, and its degrees of freedom."""

    variance: float
    freedom: float


def interval(refits: Tensor, *, level: float = 0.9, common: CommonVariance | None = None) -> Tensor:
    """Return the interval (N, 2) that contains each person's effect with probability `level`.

    `refits` (N, M) has the signed effect of each refit; the interval is mean ± t · standard error.
    """
    error, freedom = standard_errors(refits, common)
    half = error * float(scipy.stats.t.ppf((1 + level) / 2, freedom))
    mean = refits.mean(1)
    return torch.stack([mean - half, mean + half], dim=1)


def interval_of(refits: Tensor, abstained: Tensor, *, common: CommonVariance | None = None) -> Tensor | None:
    """Return the 90 % interval of everyone's effect (N, 2), 0 for abstained people; None with fewer than two refits."""
    if refits.shape[1] < 2:
        return None
    judged = ~abstained.to(refits.device)
    out = refits.new_zeros(len(refits), 2)
    out[judged] = interval(refits[judged], common=common)
    return out


def robust_interval(sampling: Tensor, drawn: Tensor) -> Tensor:
    """Return intervals (N, 2) that allow for sampling, as those given (N, 2) do, and for what draws (N, K) add.

    The distance from the middle of the draws to their 5 % and 95 % quantiles and half a sampling interval add in
    quadrature. The result contains the sampling intervals.
    """
    low, middle, high = _quantiles(drawn, (0.05, 0.5, 0.95))
    mean, half = sampling.mean(1), (sampling[:, 1] - sampling[:, 0]) / 2
    lower = mean + middle - torch.hypot(middle - low, half)
    upper = mean + middle + torch.hypot(high - middle, half)
    return torch.stack([lower.minimum(sampling[:, 0]), upper.maximum(sampling[:, 1])], dim=1)


def _quantiles(values: Tensor, shares: Sequence[float]) -> list[Tensor]:
    """Return quantiles (N,) of values (N, K): as large a share of further values lies below each, on average."""
    ordered = torch.as_tensor(np.sort(values.numpy(force=True), axis=1), device=values.device)  # without the places
    last, out = values.shape[1] - 1, []
    for share in shares:
        place = min(max(share * (last + 2) - 1, 0.0), float(last))
        below = int(place)
        out.append(torch.lerp(ordered[:, below], ordered[:, min(below + 1, last)], place - below))
    return out


def p_values(
    refits: Tensor, delta: float | Tensor, *, common: CommonVariance | None = None, drawn: Tensor | None = None
) -> Tensor:
    """Return (N,) the probability of a mean effect this large where the true one is at most `delta`.

    The null hypothesis is |effect| <= delta, at its worst: an effect of delta itself (McCarthy and Smyth 2009). `delta`
    is one for all or one each (N,). Small values are evidence of an effect above delta. What draws (N, K) add moves the
    effect and widens its error; it never lowers a p-value.
    """
    limit = torch.as_tensor(delta, dtype=torch.float64)
    error, own = standard_errors(refits, common)
    effect, error, limit = refits.mean(1).double().cpu(), error.double().cpu(), limit.cpu().expand(len(refits))
    p = _p_values(effect, error, np.full(len(refits), own), limit)
    if drawn is not None:
        more = drawn.double().cpu()
        variances = error.square(), more.var(1)
        parts = sum(v.square() / f for v, f in zip(variances, (own, more.shape[1] - 1), strict=True))
        total = variances[0] + variances[1]  # with the degrees of freedom of Welch and Satterthwaite
        freedom = torch.where(total > 0, total.square() / torch.where(total > 0, parts, 1.0), own).numpy()
        p = p.maximum(_p_values(effect + more.mean(1), total.sqrt(), freedom, limit))
    return p.to(refits)


def _p_values(effect: Tensor, error: Tensor, freedom: Values, limit: Tensor) -> Tensor:
    size, known = effect.abs(), error > 0
    scale = torch.where(known, error, 1.0)
    above, below = ((size - limit) / scale).numpy(), ((size + limit) / scale).numpy()
    p = torch.as_tensor(scipy.stats.t.sf(above, freedom) + scipy.stats.t.sf(below, freedom))
    certain = torch.where(size > limit, 0.0, 1.0).double()
    return torch.where(known, p.clamp(max=1.0), certain)


def standard_errors(refits: Tensor, common: CommonVariance | None = None) -> tuple[Tensor, float]:
    """Return the standard error (N,) of each person's mean effect, and its degrees of freedom.

    It is s · √(1 + 1/M), s the scatter of one refit. The scatter of a few refits is itself noisy, so everyone's is
    shrunk towards a common value (Smyth 2004): see `moderated`. Where nobody's refits differ there is no error.
    `common` comes from these people unless given, as for a batch.
    """
    fits = refits.shape[1]
    variance, freedom = moderated(_variances(refits), fits - 1, common)
    return (variance * (1 + 1 / fits)).sqrt().to(refits), freedom


def common_variance(refits: Tensor) -> CommonVariance:
    """Return what the refits (N, M) of people have in common; nothing, (0, 0), with fewer than two refits."""
    own = refits.shape[1] - 1
    return CommonVariance(0.0, 0.0) if own < 1 else _common(_variances(refits), own)


def _variances(refits: Tensor) -> Tensor:
    """Return the variance of everyone's refits (N,); exactly zero where they are all the same."""
    values = refits.double()
    variance = (values - values.mean(1, keepdim=True)).square().sum(1) / (values.shape[1] - 1)
    equal = (values == values[:, :1]).all(1)  # exactly: rounding of their mean is no scatter
    return torch.where(equal, 0.0, variance)


def moderated(variance: Tensor, freedom: int, common: CommonVariance | None = None) -> tuple[Tensor, float]:
    """Return variances (N,) shrunk towards a common one, and their degrees of freedom, from ones with `freedom` each.

    True variances are assumed to follow a scaled inverse chi-square, whose scale and degrees of freedom fit the mean
    and variance of log s² over people with any variance. The common variance counts with those degrees of freedom, but
    no more than a person's own: the same refits measure everyone, so their errors are shared.
    """
    common = _common(variance, freedom) if common is None else common
    if common.freedom == 0:
        return variance, float(freedom)
    total = common.freedom + freedom
    return (common.freedom * common.variance + freedom * variance) / total, total


def _common(variance: Tensor, freedom: int) -> CommonVariance:
    logs = variance[variance > 0].log()
    if len(logs) < 2:
        return CommonVariance(0.0, 0.0)
    fitted = _freedom_of(float(logs.var()) - _log_variance(freedom))
    common = math.exp(float(logs.mean()) - _log_bias(freedom) + _log_bias(fitted))
    return CommonVariance(common, min(fitted, float(freedom)))


def _log_bias(freedom: float) -> float:
    """Return the mean of log s² for a true variance of one."""
    return float(scipy.special.digamma(freedom / 2)) - math.log(freedom / 2)


def _log_variance(freedom: float) -> float:
    """Return the variance of log s²."""
    return float(scipy.special.polygamma(1, freedom / 2))


def _freedom_of(log_variance: float) -> float:
    """Return the degrees of freedom for which log s² has this variance; the end of the range beyond it."""
    few, many = _FREEDOM
    if not _log_variance(many) < log_variance < _log_variance(few):
        return few if log_variance > _log_variance(few) else many
    return float(scipy.optimize.brentq(lambda freedom: _log_variance(freedom) - log_variance, few, many))


def errors_of_intervals(effects: Values, lower: Values, upper: Values, refits: int) -> Values:
    """Return the standard errors (N,) behind 90 % intervals of people's effects; 0 where there is none.

    An interval uses t with the degrees of freedom of its refits, about doubled by the common variance. Where one end
    was clipped at the limits of probabilities, the other counts.
    """
    reach = np.fmax(upper - effects, effects - lower)
    return np.nan_to_num(reach / float(scipy.stats.t.ppf(0.95, 2 * max(refits - 1, 1))))


def left_over(refits: int, folds: int | None) -> float:
    """Return the fraction of the variance of one person's error that remains in a mean over all people.

    It is 1 where everyone is judged by the same maps. With K folds each has its own maps, but these share most of their
    people: a mean has (K - 1) / K of the variance of one fold. The scatter of M refits then counts 1 / (M K) instead of
    1 / M; a person's own error has 1 + 1 / M.
    """
    return 1.0 if folds is None else (refits * (folds - 1) + 1) / (folds * (refits + 1))


def refit_error(errors: Values, weights: Values | None = None, *, fraction: float = 1.0) -> float:
    """Return the standard error from maps of a mean over people, given each person's own (N,).

    All are assumed to point in the same direction; `fraction` comes from `left_over`.
    """
    return float(np.average(errors, weights=weights)) * math.sqrt(fraction) if len(errors) else 0.0


def refit_error_of_share(scores: Values, errors: Values, delta: float | Values, weights: Values | None = None) -> float:
    """Return the same for the share of scores above delta: half its change from one error below to one above."""
    more, less = (np.average(scores + sign * errors > delta, weights=weights) for sign in (1, -1))
    return float(more - less) / 2


def mean_draws(values: Values, refit_error: float, weights: Values | None = None, *, seed: int) -> Values:
    """Return bootstrap draws of a weighted mean: people are resampled, and maps have a normal error."""
    generator = np.random.default_rng(seed)
    out = _means_of_many(values, weights, generator) if len(values) > _MANY else None
    if out is None:
        w = np.ones(len(values)) if weights is None else weights
        counted, out = values * w, np.empty(DRAWS)
        step = max(1, _AT_ONCE // len(values))
        for first in range(0, DRAWS, step):
            rows = generator.integers(len(values), size=(min(step, DRAWS - first), len(values)))
            out[first : first + step] = counted[rows].sum(1) / np.maximum(w[rows].sum(1), np.finfo(np.float64).tiny)
    return out + refit_error * generator.standard_normal(DRAWS)


def _means_of_many(values: Values, weights: Values | None, generator: np.random.Generator) -> Values | None:
    """Return draws of the mean of many people without drawing them: of flags exactly, else by the central limit theorem
    where no few of them decide; None there."""
    if weights is None and np.isin(values, (0.0, 1.0)).all():
        return generator.binomial(len(values), values.mean(), size=DRAWS) / len(values)
    w = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    mean = (w * values).sum()
    parts = (w * (values - mean)) ** 2
    if parts.sum() ** 2 < _ALIKE * (parts**2).sum():
        return None
    return np.asarray(mean + np.sqrt(parts.sum()) * generator.standard_normal(DRAWS))


def estimate(value: float, draws: Values) -> Estimate:
    """Return a number with the spread of its draws."""
    lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(draws.std()), float(lower), float(upper))


def standard_error(values: Values, refit_error: float, weights: Values | None = None) -> float:
    """Return the standard error of a weighted mean, without a bootstrap: that of people and that of maps."""
    if len(values) < 2 or (weights is not None and not weights.any()):
        return math.nan
    w = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    apart = values - (w * values).sum()
    return math.hypot(float(np.sqrt((w**2 * apart**2).sum() * len(values) / (len(values) - 1))), refit_error)
