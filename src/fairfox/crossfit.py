"""Fit on some people, measure others: a reference scores the table, or the table's folds score each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairfox.auxiliary.inference import infer_groups
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary, centre_and_spread
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality
from fairfox.data.dataset import Dataset, assign_folds
from fairfox.errors import DataError
from fairfox.explain import proxy_strength
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import Measurement, MeasuringTest, join
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
    people: Dataset  # with the most probable group of those whose own is unknown
    inferred: Tensor  # (N, V) bool: where it is
    quality: tuple[AuxiliaryQuality, ...]  # one per protected variable, as what follows
    proxy: tuple[dict[str, float], ...]  # per feature, largest first
    alignment: tuple[Share, ...]


@dataclass(frozen=True)
class _Part:
    """Some of the people, and all that was fitted on others to measure them."""

    rows: Tensor  # their places in the table
    people: Dataset
    inferred: Tensor  # (n, V)
    tests: dict[str, MeasuringTest]
    found: dict[str, Measurement]
    auxiliary: Auxiliary
    outputs: Tensor  # (n, K) of the auxiliary
    proxy: Tensor  # (V, F)
    alignment: list[Share]


def cross_fit(
    target: Model,
    data: Dataset,
    reference: Dataset | None,
    predictions: Tensor,
    test: str,
    *,
    hold_others: bool = False,
    refits: int,
    folds: int,
    seed: int,
    batch_size: int,
    progress: Progress,
) -> Readings:
    """Return the readings of everyone in `data`, each by auxiliaries and maps that have not seen them.

    The main test, or the total reading where it has no map, comes with its counterfactual rows.
    """
    _check_sizes(data if reference is None else reference, 2 * folds if reference is None else _LEAST)
    places = _places(data, folds, seed) if reference is None else [torch.arange(len(data))]
    name = test.removesuffix("/a")
    parts = []
    for number, rows in enumerate(places):
        progress("training auxiliaries", 0.05 + 0.85 * number / len(places))
        fitting = data[_all_but(rows, len(data))] if reference is None else reference
        trained = AuxiliaryModel(refits=refits, seed=seed + number).fit(fitting)
        auxiliary = FixedAuxiliary(trained.members, trained.held_out)
        progress("measuring", 0.05 + 0.85 * (number + 0.7) / len(places))
        people, inferred = infer_groups(data[rows], auxiliary, fitting)
        tests, found = {}, {}
        for each in dict.fromkeys([name, DIRECT, TOTAL]):
            one = make_test(
                each,
                auxiliary=auxiliary,
                hold_others=hold_others,
                refits=refits,
                seed=seed + number,
                batch_size=batch_size,
            ).fit(fitting)
            known = {"predictions": predictions[rows], "rows": False} if isinstance(one, Effect) else {}
            tests[each], found[each] = one, one.measure(target, people, **known)
        strengths = [
            proxy_strength(auxiliary, fitting, variable=v, batch_size=batch_size) for v in range(len(data.protected))
        ]
        parts.append(
            _Part(
                rows=rows,
                people=people,
                inferred=inferred,
                tests=tests,
                found=found,
                auxiliary=auxiliary,
                outputs=_outputs(auxiliary, people.x, fitting),
                proxy=torch.stack(strengths).double().cpu(),
                alignment=model_alignment(
                    target,
                    people,
                    auxiliary,
                    covariance_metric(fitting.x, weights=fitting.weights),
                    seed=seed,
                    batch_size=batch_size,
                ),
            )
        )
    return _together(parts, data, name, reference, aligned=test.endswith("/a"))


def _together(
    parts: Sequence[_Part], data: Dataset, name: str, reference: Dataset | None, *, aligned: bool
) -> Readings:
    places = [part.rows for part in parts]
    c, inferred = data.c.clone(), torch.zeros(data.c.shape, dtype=torch.bool)
    for part in parts:
        c[part.rows], inferred[part.rows] = part.people.c, part.inferred.cpu()
    people = replace(data, c=c)
    main, direct, total = (
        join([part.found[each] for part in parts], places, len(data)) for each in (name, DIRECT, TOTAL)
    )
    weights = [len(rows) / len(data) for rows in places]
    alignment = tuple(_mean_share(each, weights) for each in zip(*(part.alignment for part in parts), strict=True))
    if aligned:
        main = main.scaled([each.value for each in alignment], people)
    if isinstance(parts[0].tests[name], Effect):
        main = replace(main, counterfactuals=_counterfactuals(parts, name, main))
    else:
        total = replace(total, counterfactuals=_counterfactuals(parts, TOTAL, total))
    proxy = torch.stack([weight * part.proxy for weight, part in zip(weights, parts, strict=True)]).sum(0)  # (V, F)
    return Readings(
        main=main,
        direct=direct,
        total=total,
        people=people,
        inferred=inferred,
        quality=_qualities(parts, data, reference),
        proxy=tuple(_ranked(data, strengths) for strengths in proxy.tolist()),
        alignment=alignment,
    )


def _counterfactuals(parts: Sequence[_Part], name: str, measured: Measurement) -> Tensor:
    """Return the rows x' of everyone (M, N, D), for the contrast that counts in `measured`."""
    worst = torch.where(measured.abstained.to(measured.worst.device), -1, measured.worst)
    out: Tensor | None = None
    for part in parts:
        test = part.tests[name]
        assert isinstance(test, Effect)
        rows = test.counterfactuals(part.people, worst[part.rows])
        out = rows.new_empty(len(rows), len(worst), rows.shape[2]) if out is None else out
        out[:, part.rows] = rows
    assert out is not None
    return out


def _outputs(auxiliary: Auxiliary, x: Tensor, fitting: Dataset) -> Tensor:
    """Return the auxiliary's outputs (n, K), averaged over its members; numbers in their own units."""
    with torch.no_grad():
        out = torch.stack([member(x) for member in auxiliary.members]).mean(0)
    first = 0
    for v, p in enumerate(fitting.protected):
        if p.is_continuous:
            mean, spread = centre_and_spread(fitting.c[:, v], fitting.weights)
            out[:, first] = mean + spread * out[:, first]
        first += p.outputs
    return out


def _qualities(parts: Sequence[_Part], data: Dataset, reference: Dataset | None) -> tuple[AuxiliaryQuality, ...]:
    """Return how well each protected variable is told, on the people measured.

    Where nobody's value is known, the people of the reference that the auxiliary was not trained on take their place.
    """
    outputs = data.x.new_zeros(len(data), parts[0].outputs.shape[1])
    for part in parts:
        outputs[part.rows] = part.outputs
    out, first = [], 0
    for v, p in enumerate(data.protected):
        rows, seen = data, outputs
        unseen = parts[0].auxiliary.held_out
        if bool(data.c[:, v].isnan().all()) and unseen is not None and reference is not None:
            rows, seen = unseen, _outputs(parts[0].auxiliary, unseen.x, reference)
        own = slice(first, first + p.outputs)
        out.append(measure_quality(seen[:, own], rows.c[:, v], p, weights=rows.weights))
        first += p.outputs
    return tuple(out)


def _mean_share(shares: Sequence[Share], weights: Sequence[float]) -> Share:
    value = sum(weight * share.value for weight, share in zip(weights, shares, strict=True))
    noise = sum((weight * share.error) ** 2 for weight, share in zip(weights, shares, strict=True))
    return Share(value, noise**0.5)


def _ranked(data: Dataset, strengths: Sequence[float]) -> dict[str, float]:
    pairs = zip([f.name for f in data.features], strengths, strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def _check_sizes(fitting: Dataset, least: int) -> None:
    for v, p in enumerate(fitting.protected):
        c = fitting.c[:, v]
        if p.is_continuous:
            known = int((~c.isnan()).sum())
            if known < 2 * least:
                raise DataError(
                    f"'{p.name}' is known for {known} people to learn from; at least {2 * least} are needed: "
                    "give more rows, or another reference table"
                )
            continue
        counts = [int((c == code).sum()) for code in range(len(p.levels))]
        smallest, level = min(zip(counts, p.levels, strict=True))
        if smallest < least:
            way = "put rare classes together (merge_rare, --merge-rare), " if len(p.levels) > 2 else ""
            raise DataError(
                f"Group '{level}' of '{p.name}' has {smallest} people to learn from; at least {least} are needed: "
                f"{way}give more rows, or another reference table"
            )


def _places(data: Dataset, folds: int, seed: int) -> list[Tensor]:
    """Return the rows of each fold."""
    fold = assign_folds(data.c, folds, seed=seed)
    return [(fold == k).nonzero()[:, 0] for k in range(folds)]


def _all_but(rows: Tensor, people: int) -> Tensor:
    kept = torch.ones(people, dtype=torch.bool)
    kept[rows] = False
    return kept.nonzero()[:, 0]
