"""The evidence gate: a feature moves only where its distributions in the groups differ beyond chance.

Otherwise sampling noise alone would move every feature of every person, also those of a fair model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import scipy  # its statistics load when they are used
import torch
from torch import Tensor

from fairfox.data.dataset import Feature
from fairfox.maps.conditional import Terms, at, is_stepped, location_and_scale, logistic, step_cuts
from fairfox.maps.ranks import present_rows

LEVEL = 0.01  # of all features together, by Holm's method
_EXPECTED = 5  # people in a cell of a contingency table


def closed_features(
    rows: Tensor,
    group: Tensor,
    classes: int,
    features: Sequence[Feature],
    *,
    strata: Tensor | None = None,
    given: Sequence[Feature] = (),
    weights: Tensor | None = None,
) -> Tensor:
    """Return which features show no difference: (K, K, F) for pairs of classes, (1, 1, F) along a number.

    `rows` (n, D) are people in groups (n,), each in a stratum (n,) or, else, compared by regression on `given`
    features. `weights` (n,) say how much people count; their effective number decides what is beyond chance.
    """
    counts = np.ones(len(rows)) if weights is None else weights.double().numpy(force=True)
    place = np.zeros(len(rows), dtype=int) if strata is None else strata.numpy(force=True)
    if not classes:
        found = [_along_number(rows, group, f, given, counts) for f in features]
        return torch.tensor(~rejected(found))[None, None]
    out = torch.zeros(classes, classes, len(features), dtype=torch.bool)
    codes = group.numpy(force=True)
    for g, h in combinations(range(classes), 2):
        both = np.isin(codes, (g, h))
        # one column after the other: they are read one by one
        among, second = rows.T[:, torch.as_tensor(both, device=rows.device)].T, codes[both] == h
        own = [_between(among, second, f, place[both], given, counts[both]) for f in features]
        out[g, h] = out[h, g] = torch.tensor(~rejected(own))
    return out


def rejected(p_values: Sequence[float]) -> np.ndarray:
    """Return which of some hypotheses are rejected at LEVEL of all together, by Holm's step-down method."""
    p = np.asarray(p_values)
    order, out = np.argsort(p), np.zeros(len(p), dtype=bool)
    out[order] = np.logical_and.accumulate(p[order] <= LEVEL / np.arange(len(p), 0, -1))
    return out


def _between(
    rows: Tensor, second: np.ndarray, f: Feature, strata: np.ndarray, given: Sequence[Feature], counts: np.ndarray
) -> float:
    """Return the p-value of a feature's being spread alike in two groups, among those who have it: who does not,
    never will."""
    there = present_rows(rows, f).numpy(force=True)
    if not there.all():  # copies of all columns
        rows = rows[torch.as_tensor(there, device=rows.device)]
        second, strata, counts = second[there], strata[there], counts[there]
    if second.all() or not second.any():
        return 1.0
    values = rows[:, f.columns].argmax(1) if f.kind == "categorical" else rows[:, f.start]
    x = values.numpy(force=True)
    if given:
        columns = Terms.of(torch.zeros(len(rows)), 1, given, rows)(torch.zeros(len(rows)), rows)
        if f.kind == "categorical" or is_stepped(values):
            codes = values if f.kind == "categorical" else torch.bucketize(values.contiguous(), step_cuts(values))
            return likelihood_ratio(columns, codes, torch.as_tensor(second).to(rows), counts)
        x = without_terms(columns, values, counts).numpy(force=True)
    p_values = []
    for own in np.unique(strata):
        who = strata == own
        groups = [np.flatnonzero(who & ~second), np.flatnonzero(who & second)]
        if not all(map(len, groups)):
            continue
        if f.kind == "categorical":
            p_values.append(chi_square(second[who], x[who].astype(int), counts[who]))
        else:
            p_values.append(two_samples(*(x[each] for each in groups), *(counts[each] for each in groups)))
    if len(p_values) < 2:
        return p_values[0] if p_values else 1.0
    return float(scipy.stats.combine_pvalues(np.clip(p_values, 1e-300, 1.0)).pvalue)


def without_terms(terms: Tensor, values: Tensor, counts: np.ndarray) -> Tensor:
    """Return values (n,) in spreads from their mean, both as terms (n, P) have them; people count (n,) each."""
    mean, spread, floor = location_and_scale(terms, values, [terms.shape[1]], counts)
    return (values - at(terms, mean)) / at(terms, spread).maximum(floor)


def two_samples(here: np.ndarray, there: np.ndarray, own: np.ndarray, other: np.ndarray) -> float:
    """Return the p-value that weighted numbers have one distribution: twice the smaller one of two tests.

    Kolmogorov-Smirnov's detects any difference, but hardly one in the share of a value that most people have (no gain);
    Mann and Whitney's, which handles ties, does.
    """
    if (own == own[0]).all() and (other == other[0]).all():
        here, there = np.sort(here), np.sort(there)  # quick, and a stable sort of the two is then a merge
    order = np.concatenate([here, there])
    place = np.argsort(order, kind="stable")
    order, counts = order[place], np.concatenate([own, other])[place]
    if order[0] == order[-1]:  # one value: rounding of weights is no difference
        return 1.0
    second = place >= len(here)
    shares = (counts / own.sum()) * ~second, (counts / other.sum()) * second
    steps = (shares[0] - shares[1]).cumsum()
    last = np.append(order[1:] != order[:-1], True)
    n, m = effective(own), effective(other)
    size = np.sqrt(n * m / (n + m))
    # Stephens' form of the limit: within some hundredths of the exact p-value, which takes a hundred times as long
    anywhere = scipy.special.kolmogorov((size + 0.12 + 0.11 / size) * np.abs(steps[last]).max())
    ends = np.flatnonzero(last) + 1
    ties = np.diff(ends, prepend=0)
    ranks = np.repeat(ends - (ties - 1) / 2, ties)  # equal values have the mean of theirs
    apart = ranks @ shares[0] - ranks @ shares[1]
    ranks -= ranks @ counts / counts.sum()
    spread = np.sqrt((ranks**2 @ counts) / counts.sum() * (1 / n + 1 / m))
    shifted = 2 * scipy.stats.norm.sf(abs(apart) / spread) if spread > 0 else 1.0
    return float(min(1.0, 2 * min(anywhere, shifted)))


def chi_square(second: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> float:
    """Return the p-value that a category has the same shares in two groups; rare levels are merged."""
    table = np.zeros((2, codes.max() + 1))
    np.add.at(table, (second.astype(int), codes), counts)
    table *= effective(counts) / counts.sum()
    table = table[:, table.sum(0) > 0]
    rare = (table.sum(0) * table.sum(1).min() / table.sum()) < _EXPECTED
    if rare.any():
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)])
    if table.shape[1] < 2 or (table.sum(1) == 0).any():
        return 1.0
    return float(scipy.stats.chi2_contingency(table, correction=False).pvalue)


def likelihood_ratio(columns: Tensor, codes: Tensor, second: Tensor, counts: np.ndarray) -> float:
    """Return the p-value that the group says nothing about a category beyond terms (n, P)."""
    levels, counts = int(codes.max()) + 1, counts * (effective(counts) / counts.sum())
    both = torch.cat([columns, second[:, None]], dim=1)
    fits = []
    for terms in (columns, both):
        logits = at(terms, logistic(terms, codes, levels, [terms.shape[1]], counts))
        lost = torch.nn.functional.cross_entropy(logits, codes, reduction="none").numpy(force=True)
        fits.append(float(counts @ lost))
    return float(scipy.stats.chi2.sf(max(0.0, 2 * (fits[0] - fits[1])), max(len(codes.unique()) - 1, 1)))


def effective(counts: np.ndarray) -> float:
    """Return the effective sample size of weighted people."""
    return float(counts.sum() ** 2 / (counts**2).sum())


def _along_number(rows: Tensor, c: Tensor, f: Feature, given: Sequence[Feature], counts: np.ndarray) -> float:
    """Return the p-value of a feature's having nothing to do with a protected number."""
    there = present_rows(rows, f)
    rows, at_c, counts = rows[there], c[there], counts[there.numpy(force=True)]
    if len(rows) < 3:
        return 1.0
    numbers = at_c.double()
    values = rows[:, f.columns].argmax(1).double() if f.kind == "categorical" else rows[:, f.start]
    if given:
        columns = Terms.of(torch.zeros(len(rows)), 1, given, rows)(torch.zeros(len(rows)), rows)
        numbers = without_terms(columns, numbers, counts)
        if f.kind != "categorical":
            values = without_terms(columns, values, counts)
    x, y = values.numpy(force=True), numbers.numpy(force=True)
    if len(np.unique(x)) < 2:
        return 1.0
    if f.kind == "categorical":
        return kruskal(y, x, counts)
    ranks = np.cov(scipy.stats.rankdata(x), scipy.stats.rankdata(y), aweights=counts)
    rho, size = float(ranks[0, 1] / np.sqrt(ranks[0, 0] * ranks[1, 1])), max(3.0, effective(counts))
    if abs(rho) >= 1:
        return 0.0
    straight = 2 * scipy.stats.t.sf(abs(rho) * np.sqrt((size - 2) / (1 - rho**2)), size - 2)
    fifth = np.searchsorted(np.quantile(y, [0.2, 0.4, 0.6, 0.8]), y)  # up and down again is no trend
    return float(min(1.0, 2 * min(straight, kruskal(x, fifth, counts))))


def kruskal(values: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> float:
    """Return Kruskal and Wallis's p-value that weighted numbers are equally high in all groups."""
    ranks, (levels, own) = scipy.stats.rankdata(values), np.unique(codes, return_inverse=True)
    apart = ranks - np.average(ranks, weights=counts)
    sizes, sums = np.bincount(own, counts), np.bincount(own, counts * apart)
    explained = (sums**2 / sizes).sum() / max((counts * apart**2).sum(), 1e-300)
    return float(scipy.stats.chi2.sf((effective(counts) - 1) * explained, len(levels) - 1)) if len(levels) > 1 else 1.0
