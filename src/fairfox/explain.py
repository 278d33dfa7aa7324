"""Which features an effect goes through, which ones are proxies, and what a common cause would have to be."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.data.contrasts import directions
from fairfox.data.dataset import Feature, group_name
from fairfox.fairtests.readings import Readings
from fairfox.findings import CommonCause, FeatureEffect, Features
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.models.protocol import Model, predict, predict_once
from fairfox.statistics.groups import people_weights

_STEPS = 16  # of the path from x to x'
_MOST_SHIFT = 3.0  # standard deviations of a proxy that a common cause is looked for in
_ORDERS = 8  # of the features, of a person who is explained on request
_CELLS = 8_000_000  # of the rows that are predicted at once


def contributions(
    model: Model, x: Tensor, mapped: Tensor, features: Sequence[Feature], *, batch_size: int = 4096
) -> Tensor:
    """Return what each original feature adds to f(x') - f(x) (N, F), by gradients integrated from x to x'.

    The rows sum to the effect: the quadrature's error is spread in proportion to the contributions, or, where the
    model is flat along the path, to how far each feature moved.
    """
    going = (mapped != x).any(1)
    if not bool(going.all()):  # who stays gets nothing
        out = x.new_zeros(len(x), len(features))
        if bool(going.any()):
            out[going] = contributions(model, x[going], mapped[going], features, batch_size=batch_size)
        return out
    path = integrated_jacobian(model, mapped, baseline=x, steps=_STEPS, batch_size=batch_size)[:, 0]  # (N, D)
    each = sum_by_feature(path, features)
    effect = predict(model, mapped, batch_size=batch_size) - predict(model, x, batch_size=batch_size)
    return summing_to(effect, each, sum_by_feature((mapped - x).abs(), features))


def summing_to(effect: Tensor, each: Tensor, moved: Tensor) -> Tensor:
    """Return contributions (N, F) that sum to an effect (N,).

    What is missing is spread in proportion to their sizes or, where all are zero, to how far features moved (N, F).
    """
    size = each.abs()
    size = torch.where(size.sum(1, keepdim=True) > 0, size, moved)
    total = size.sum(1, keepdim=True)
    return each + (effect - each.sum(1))[:, None] * size / torch.where(total > 0, total, 1.0)


def common_cause(
    model: Model, readings: Readings, variable: int, *, delta: float, batch_size: int = 4096
) -> CommonCause | None:
    """Return which shift of a number would explain the largest mean effect on a group.

    The shift is subtracted from the counterfactual values of one number: of those that move, the one that the mean
    effect depends on most. None where it depends on none, no group's mean effect is above delta, or no such shift
    explains it and numbers carry less than half of it. Numbers that tell the protected variable do not count.
    """
    data, moved = readings.people, readings.moved
    p = data.protected[variable]
    if not readings.drawn or p.is_continuous:
        return None
    own = moved.of_variable(variable, data)
    weights = torch.as_tensor(people_weights(data.weights, len(data)))
    assert own.effect is not None
    groups = {g: (data.c[:, variable] == g).cpu() & ~own.abstained.cpu() for g in range(len(p.levels))}
    signed = own.effect.cpu()
    means = {g: float((signed * weights)[who].sum() / weights[who].sum()) for g, who in groups.items() if who.any()}
    worst = max(means, key=lambda g: abs(means[g]), default=None)
    if worst is None or abs(means[worst]) <= delta:
        return None
    chosen = groups[worst][readings.drawn[variable].people]
    if not bool(chosen.any()):
        return None
    people, there = (part[chosen] for part in readings.drawn[variable])
    x, counts = data.x[people], weights[people]
    here = predict(model, x, batch_size=batch_size)

    def effects(rows: Sequence[Tensor]) -> Tensor:
        """Return the mean effect of each of several versions of the counterfactual rows."""
        changes = predict_once(model, torch.cat(list(rows)), batch_size).view(len(rows), -1) - here
        return (changes.double().cpu() * counts).sum(1) / counts.sum()

    moving = (there != x).any(0) & ~data.withheld
    numbers = [f for f in data.features if f.kind == "continuous" and bool(moving[f.start])]
    if not numbers:
        return None
    apart = effects([there, *(_with_column(there, f.start, x[:, f.start]) for f in numbers)])
    parts = (apart[1:] - apart[0]).abs()  # what is gone of it where a number keeps its value
    if not bool(parts.any()):
        return None
    strongest = numbers[int(parts.argmax())]
    own_values, column = there[:, strongest.start], strongest.start
    step = float(data.x[:, column].std(correction=0)) * (1 if float((own_values - x[:, column]).mean()) > 0 else -1)
    shifts, found = torch.linspace(0, _MOST_SHIFT, 31), None
    sizes = effects([_with_column(there, column, own_values - float(shift) * step) for shift in shifts])
    crossed = (sizes * sizes[0].sign() <= 0).nonzero()[:, 0]
    if len(crossed) and int(crossed[0]) > 0:
        after = int(crossed[0])
        share = float(sizes[after - 1] / (sizes[after - 1] - sizes[after]))
        found = float(shifts[after - 1]) + share * float(shifts[1])
    elif 2 * float(parts.max()) < abs(float(apart[0])):  # categories carry it
        return None
    return CommonCause(group_name(p.name, p.levels[worst]), strongest.name, found)


def _with_column(rows: Tensor, column: int, values: Tensor) -> Tensor:
    out = rows.clone()
    out[:, column] = values
    return out


def shapley(
    model: Model,
    x: Tensor,
    mapped: Tensor,
    features: Sequence[Feature],
    *,
    orders: Sequence[Sequence[int]],
    batch_size: int = 4096,
) -> Tensor:
    """Return what each original feature adds to f(x') - f(x) (R, N, F) when features change one after the other.

    Each row of x' (R, N, D) has its own order. Averaged over random orders these are Shapley values; for any order,
    each row sums exactly to the effect.
    """
    row = x.expand(len(mapped), -1, -1).clone()
    before = predict(model, x).expand(len(mapped), -1)
    out = x.new_zeros(len(mapped), len(x), len(features))
    steps = list(zip(*orders, strict=True))
    size = max(1, _CELLS // max(row.numel(), 1))
    for first in range(0, len(steps), size):
        rows = []
        for step in steps[first : first + size]:
            for r, i in enumerate(step):
                row[r, :, features[i].columns] = mapped[r, :, features[i].columns]
            rows.append(row.flatten(0, 1).clone())
        found = predict_once(model, torch.cat(rows), batch_size).view(len(rows), len(mapped), -1)
        for step, after in zip(steps[first : first + size], found, strict=True):
            for r, i in enumerate(step):
                moved = (mapped[r, :, features[i].columns] != x[:, features[i].columns]).any(1)
                after[r] = torch.where(moved, after[r], before[r])  # the same row: rounding is no effect
                out[r, :, i] = after[r] - before[r]
            before = after
    return out


def random_orders(length: int, count: int, *, seed: int) -> list[list[int]]:
    """Return `count` random orders of `length` things, every second one the reverse of the one before it."""
    generator = torch.Generator().manual_seed(seed)
    orders: list[list[int]] = []
    while len(orders) < count:
        order = torch.randperm(length, generator=generator).tolist()
        orders += [order, order[::-1]]
    return orders[:count]


def effect_by_feature(
    model: Model,
    x: Tensor,
    mapped: Tensor,
    features: Sequence[Feature],
    *,
    by_gradients: bool,
    seed: int = 0,
    batch_size: int = 4096,
) -> Tensor:
    """Return contributions (N, F) averaged over rows x' (R, N, D); they sum to the mean effect.

    They are integrated gradients, or sampled Shapley values with one order of the features per row.
    """
    if by_gradients:
        each = [contributions(model, x, rows, features, batch_size=batch_size) for rows in mapped]
        return torch.stack(each).mean(0)
    orders = random_orders(len(features), len(mapped), seed=seed)
    return shapley(model, x, mapped, features, orders=orders, batch_size=batch_size).mean(0)


def sum_by_feature(values: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return (N, F) from (N, D): a one-hot group's displacements belong to one feature."""
    return torch.stack([values[:, f.columns].sum(1) for f in features], dim=1)


def explain(target: Model, readings: Readings, *, seed: int, batch_size: int, aligned: bool) -> Features:
    """Return each feature's strength as a proxy, and its contribution to the effects of everyone, or of a sample."""
    strongest = {name: max(proxy[name] for proxy in readings.proxy) for name in readings.proxy[0]}
    proxies = dict(sorted(strongest.items(), key=lambda pair: -pair[1]))
    data, moved, sample = readings.people, readings.moved, readings.explained
    if moved.counterfactuals is None or moved.effect is None or sample is None:
        return Features(proxies, None)
    factors = torch.tensor([share.value for share in readings.alignment] if aligned else [1.0] * len(data.protected))
    scale = directions(moved.contrasts)[moved.worst.cpu()] * factors[readings.main.variable.cpu()]
    effect, by_gradients = moved.effect, sample.by_gradients

    def contributed(own: Tensor, mapped: Tensor) -> Tensor:
        """Return the contributions of people at some places (n,), moved to rows (R, n, D)."""
        each = effect_by_feature(
            target, data.x[own], mapped, data.features, by_gradients=by_gradients, seed=seed, batch_size=batch_size
        )
        distance = sum_by_feature((mapped - data.x[own]).abs().mean(0), data.features)
        return summing_to(effect[own].double(), each.double() * scale[own, None].to(each), distance.double())

    def explain_one(place: int, mapped: Tensor) -> Tensor:
        rows = mapped.to(data.x).expand(1 if by_gradients else _ORDERS, 1, -1)
        return contributed(torch.tensor([place]), rows)[0]

    per_person = data.x.new_full((len(data), len(data.features)), torch.nan, dtype=torch.float64)
    for people, rows in sample.parts:
        known = ~moved.abstained.cpu()[people]
        per_person[people[known]] = contributed(people[known], rows[:, known])
    method = "integrated gradients" if by_gradients else "sampled Shapley values"
    names = tuple(f.name for f in data.features)
    effects = FeatureEffect(names, per_person, method, sample.drawn, data.weights, explain_one)
    return Features(proxies, effects)
