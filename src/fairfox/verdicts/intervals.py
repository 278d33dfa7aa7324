"""How sure an effect is: the error of a mean over re-fits, an interval around it, the chance of it without bias.

Re-fits on resampled rows scatter around the estimate as the estimate scatters around the truth. So the error of the
mean over M re-fits is about as large as the scatter of one, however many there are; M decides how well it is known.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairfox.errors import OptionError, ShapeError

_FREEDOM = 1e-2, 1e6  # degrees of freedom, from few to many, between which those of people are looked for


def interval(refits: Tensor, *, level: float = 0.9) -> Tensor:
    """Return the lower and upper end (N, 2) of what holds each person's effect with probability `level`.

    `refits` (N, M) has the signed effect of each re-fit; the interval is mean ± t · standard error.
    """
    if not 0 < level < 1:
        raise OptionError(f"The level of an interval is {level}; give a number between 0 and 1, such as 0.9")
    error, freedom = standard_errors(refits)
    from scipy.stats import t

    half = error * float(t.ppf((1 + level) / 2, freedom))
    mean = refits.mean(1)
    return torch.stack([mean - half, mean + half], dim=1)


def p_values(refits: Tensor, delta: float | Tensor) -> Tensor:
    """Return (N,) how probable a mean effect so large in size is where the true one is no larger than `delta`.

    The null hypothesis is |effect| <= delta, at its worst: an effect of delta itself (McCarthy and Smyth 2009).
    `delta` is one for all or one each (N,). Small values speak for an effect of more than delta.
    """
    limit = torch.as_tensor(delta, dtype=torch.float64)
    if not bool((limit >= 0).all()):
        raise OptionError(f"delta is {float(limit.min())}; give a size of the effect, at least 0")
    if limit.ndim and len(limit) != len(refits):
        raise ShapeError(f"{len(limit)} values of delta for {len(refits)} people; give one for all, or one each")
    error, freedom = standard_errors(refits)
    from scipy.stats import t

    size, error = refits.mean(1).abs().double().cpu(), error.double().cpu()
    limit = limit.cpu().expand(len(refits))
    known = error > 0
    scale = torch.where(known, error, 1.0)
    above, below = ((size - limit) / scale).numpy(), ((size + limit) / scale).numpy()
    p = torch.as_tensor(t.sf(above, freedom) + t.sf(below, freedom))
    certain = torch.where(size > limit, 0.0, 1.0).double()
    return torch.where(known, p.clamp(max=1.0), certain).to(refits)


def standard_errors(refits: Tensor) -> tuple[Tensor, float]:
    """Return the standard error (N,) of each person's mean effect, and its degrees of freedom.

    It is s · √(1 + 1/M), s the scatter of one re-fit. The scatter of a few re-fits is itself noise, so everyone's is
    drawn to what people have in common, as far as they have it (Smyth 2004): see `moderated`. Where nobody's
    re-fits differ there is no error.
    """
    if refits.ndim != 2 or refits.shape[1] < 2:
        raise ShapeError(f"Re-fits of shape {tuple(refits.shape)}; give (people, re-fits) with at least two re-fits")
    fits, values = refits.shape[1], refits.double()
    variance = (values - values.mean(1, keepdim=True)).square().sum(1) / (fits - 1)
    equal = (values == values[:, :1]).all(1)  # exactly: rounding of their mean is no scatter
    variance, freedom = moderated(torch.where(equal, 0.0, variance), fits - 1)
    return (variance * (1 + 1 / fits)).sqrt().to(refits), freedom


def moderated(variance: Tensor, freedom: int) -> tuple[Tensor, float]:
    """Return variances (N,) drawn to a common one, and their degrees of freedom, from ones with `freedom` each.

    True variances are taken to scatter as a scaled inverse chi-square whose scale and degrees of freedom fit the mean
    and variance of log s² over people; who has no variance at all takes no part in that. What is common counts with
    those degrees of freedom, but no more than a person's own: the same re-fits measure everyone, so that where one is
    lucky all are, and thousands of people know hardly more about the scatter than a few.
    """
    seen = variance[variance > 0].log()
    if len(seen) < 2:
        return variance, float(freedom)
    fitted = _freedom_of(float(seen.var()) - _log_variance(freedom))
    common = math.exp(float(seen.mean()) - _log_bias(freedom) + _log_bias(fitted))
    weight = min(fitted, float(freedom))
    return (weight * common + freedom * variance) / (weight + freedom), weight + freedom


def _log_bias(freedom: float) -> float:
    """Return the mean of log s² for a true variance of one."""
    from scipy.special import digamma

    return float(digamma(freedom / 2)) - math.log(freedom / 2)


def _log_variance(freedom: float) -> float:
    """Return the variance of log s²."""
    from scipy.special import polygamma

    return float(polygamma(1, freedom / 2))


def _freedom_of(log_variance: float) -> float:
    """Return the degrees of freedom for which log s² has this variance; the last that are looked at for less."""
    from scipy.optimize import brentq

    few, many = _FREEDOM
    if not _log_variance(many) < log_variance < _log_variance(few):
        return few if log_variance > _log_variance(few) else many
    return float(brentq(lambda freedom: _log_variance(freedom) - log_variance, few, many))
