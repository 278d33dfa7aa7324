"""Fit on some people, measure others: a reference scores the table, or the table's folds score each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality
from fairfox.data.dataset import Dataset, assign_folds
from fairfox.errors import DataError
from fairfox.explain import proxy_strength
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import Measurement, join
from fairfox.fairtests.registry import make_test
from fairfox.fairtests.share import Share, model_alignment
from fairfox.models.protocol import Model
from fairfox.similarity import covariance_metric

Progress = Callable[[str, float], None]  # what is being done, and the fraction of the whole
TOTAL, DIRECT = "rank", "move-direct"
_LEAST = 10  # people of a group in a reference


@dataclass(frozen=True)
class Readings:
    """What all parts found together, one entry per person in the order of the table."""

    main: Measurement  # the chosen test
    direct: Measurement  # the smallest edit that changes c
    total: Measurement  # the same ranks in the other group
    quality: AuxiliaryQuality
    proxy: dict[str, float]  # per feature, largest first
    alignment: Share


def cross_fit(
    target: Model,
    data: Dataset,
    reference: Dataset | None,
    predictions: Tensor,
    test: str,
    *,
    refits: int,
    folds: int,
    seed: int,
    batch_size: int,
    progress: Progress,
) -> Readings:
    """Return the readings of everyone in `data`, each by auxiliaries and maps that have not seen them."""
    _check_sizes(data if reference is None else reference, 2 * folds if reference is None else _LEAST)
    places = _places(data, folds, seed) if reference is None else [torch.arange(len(data))]
    names = dict.fromkeys([test, DIRECT, TOTAL])
    parts: dict[str, list[Measurement]] = {name: [] for name in names}
    outputs = data.x.new_zeros(len(data), 1)
    proxy = torch.zeros(len(data.features), dtype=torch.float64)
    alignment, noise = 0.0, 0.0
    for number, rows in enumerate(places):
        progress("training auxiliaries", 0.05 + 0.85 * number / len(places))
        part, fitting = data[rows], data[_all_but(rows, len(data))] if reference is None else reference
        trained = AuxiliaryModel(refits=refits, seed=seed + number).fit(fitting)
        auxiliary = FixedAuxiliary(trained.members, trained.held_out)
        progress("measuring", 0.05 + 0.85 * (number + 0.7) / len(places))
        for name in names:
            one = make_test(name, auxiliary=auxiliary, refits=refits, seed=seed + number, batch_size=batch_size)
            one.fit(fitting)
            known = {"predictions": predictions[rows]} if isinstance(one, Effect) else {}
            parts[name].append(one.measure(target, part, **known))
        weight = len(rows) / len(data)
        with torch.no_grad():
            outputs[rows] = torch.stack([member(part.x) for member in auxiliary.members]).mean(0)
        proxy += weight * proxy_strength(auxiliary, fitting, batch_size=batch_size).double().cpu()
        metric = covariance_metric(fitting.x)
        share = model_alignment(target, part, auxiliary, metric, seed=seed, batch_size=batch_size)[0]
        alignment += weight * share.value
        noise += (weight * share.error) ** 2
    joined = {name: join(measured, places, len(data)) for name, measured in parts.items()}
    ranked = sorted(zip([f.name for f in data.features], proxy.tolist(), strict=True), key=lambda pair: -pair[1])
    return Readings(
        main=joined[test],
        direct=joined[DIRECT],
        total=joined[TOTAL],
        quality=measure_quality(outputs, data.c[:, 0], data.protected[0]),
        proxy=dict(ranked),
        alignment=Share(alignment, noise**0.5),
    )


def _check_sizes(fitting: Dataset, least: int) -> None:
    p = fitting.protected[0]
    counts = [int((fitting.c[:, 0] == code).sum()) for code in range(len(p.levels))]
    smallest, level = min(zip(counts, p.levels, strict=True))
    if smallest < least:
        raise DataError(
            f"Group '{level}' of '{p.name}' has {smallest} people to learn from; at least {least} are needed: "
            "give more rows, or another reference table"
        )


def _places(data: Dataset, folds: int, seed: int) -> list[Tensor]:
    """Return the rows of each fold."""
    fold = assign_folds(data.c, folds, seed=seed)
    return [(fold == k).nonzero()[:, 0] for k in range(folds)]


def _all_but(rows: Tensor, people: int) -> Tensor:
    kept = torch.ones(people, dtype=torch.bool)
    kept[rows] = False
    return kept.nonzero()[:, 0]
