"""Fit on some people, measure others: a reference scores the table, or the table's folds score each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

import torch
from torch import Tensor

from fairfox.auxiliary.inference import infer_groups
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary, centre_and_spread
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality
from fairfox.costs import Cost, measured_cost
from fairfox.data.dataset import Dataset, assign_folds
from fairfox.errors import DataError, FairfoxError
from fairfox.explain import proxy_strength
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import (
    CheckedTest,
    CounterfactualTest,
    JudgingTest,
    Measurement,
    MeasuringTest,
    join,
)
from fairfox.fairtests.registry import make_test
from fairfox.fairtests.share import Share, model_alignment
from fairfox.maps.move import MoveMap
from fairfox.maps.rank import RankMap
from fairfox.maps.resampled import fit_resampled
from fairfox.models.protocol import Model
from fairfox.similarity import covariance_metric

Progress = Callable[[str, float], None]  # what is being done, and the fraction of the whole
Options = Mapping[str, Mapping[str, object]]  # settings by test
TOTAL, DIRECT = "rank", "move-direct"
_log = logging.getLogger("fairfox")
_LEAST = 10  # people of a group in a reference
_MANY = 50_000  # people: with more, what follows saves time, at some cost in accuracy of single readings
_BATCH, _EPOCHS = 256, 15  # of auxiliaries
_STEPS = 2  # of the direct reading: people rank about as with eight, single effects differ by some per cent or more
_ALIGNED = 20_000  # people whom the alignment share is read off


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
    others: dict[str, Measurement] = field(default_factory=dict)  # tests to compare with, the chosen one first
    costs: dict[str, Cost] = field(default_factory=dict)  # of each of them
    training: Cost = field(default_factory=Cost)  # of the auxiliaries that all share
    failures: dict[str, str] = field(default_factory=dict)  # why one of them could not be run
    checks: dict[str, dict[str, float]] = field(default_factory=dict)  # what tests say about their fits and the model
    doubts: list[str] = field(default_factory=list)  # and where their fits are poor


@dataclass(frozen=True)
class _Part:
    """Some of the people, and all that was fitted on others to measure them."""

    rows: Tensor  # their places in the table
    people: Dataset
    inferred: Tensor  # (n, V)
    tests: dict[str, MeasuringTest]
    found: dict[str, Measurement]
    costs: dict[str, Cost]
    training: Cost
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
    others: Sequence[str] = (),
    options: Options | None = None,
    hold_others: bool = False,
    legitimate: Sequence[str] = (),
    refits: int,
    folds: int,
    seed: int,
    batch_size: int,
    progress: Progress,
) -> Readings:
    """Return the readings of everyone in `data`, each by auxiliaries and maps that have not seen them.

    The main test, or the total reading where it has no map, comes with its counterfactual rows. `others` are tests to
    compare it with; one of them that cannot be run is left out with its reason. `options` are settings by test.
    """
    _check_sizes(data if reference is None else reference, 2 * folds if reference is None else _LEAST)
    places = _places(data, folds, seed) if reference is None else [torch.arange(len(data))]
    name, many = test.removesuffix("/a"), max(map(len, (data, reference or ()))) > _MANY
    settings = _settings(options or {}, name, many=many)
    wanted = list(dict.fromkeys([name, DIRECT, TOTAL, *others]))
    parts: list[_Part] = []
    failures: dict[str, str] = {}
    for number, rows in enumerate(places):
        progress("training auxiliaries", 0.05 + 0.85 * number / len(places))
        fitting = data[_all_but(rows, len(data))] if reference is None else reference
        with measured_cost() as training:
            trained = _unfitted(refits, seed + number, many=many).fit(fitting)
        auxiliary = FixedAuxiliary(trained.members, trained.held_out)
        people, inferred = infer_groups(data[rows], auxiliary, fitting)
        tests, found, costs = {}, {}, {}
        for place, each in enumerate(wanted):
            if each in failures:
                continue
            share = 0.425 / len(wanted) / len(places)  # of the whole
            begin = 0.05 + 0.85 * (number + 0.5) / len(places) + place * share
            told = partial(_tell, progress, f"measuring: {each}", begin, share)
            told(0, 1)
            try:
                with measured_cost() as costs[each]:
                    one = make_test(
                        each,
                        auxiliary=auxiliary,
                        hold_others=hold_others,
                        legitimate=legitimate,
                        refits=refits,
                        seed=seed + number,
                        batch_size=batch_size,
                        options=settings.get(each),
                        progress=told,
                    )
                    _fit(one, fitting, many=many)
                    known = {"predictions": predictions[rows], "rows": False}
                    own = known if isinstance(one, CounterfactualTest) else {}
                    found[each] = one.measure(target, people, **own)
            except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
                if each in (name, DIRECT, TOTAL):
                    raise
                _log.warning("%s could not be run", each, exc_info=not isinstance(error, FairfoxError))
                failures[each] = str(error)
                continue
            tests[each] = one
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
                costs=costs,
                training=training,
                auxiliary=auxiliary,
                outputs=_outputs(auxiliary, people.x, fitting),
                proxy=torch.stack(strengths).double().cpu(),
                alignment=model_alignment(
                    target,
                    _drawn(people, _ALIGNED // len(places), seed) if many else people,
                    auxiliary,
                    covariance_metric(fitting.x, weights=fitting.weights),
                    seed=seed,
                    batch_size=batch_size,
                ),
            )
        )
    compared = [each for each in dict.fromkeys([name, *others]) if each not in failures] if others else []
    return _together(parts, data, name, reference, compared, failures, aligned=test.endswith("/a"))


def _unfitted(refits: int, seed: int, *, many: bool) -> AuxiliaryModel:
    """Return the auxiliaries of an audit; many rows need neither small batches nor many epochs."""
    if many:
        return AuxiliaryModel(refits=refits, seed=seed, batch_size=_BATCH, max_epochs=_EPOCHS)
    return AuxiliaryModel(refits=refits, seed=seed)


def _settings(options: Options, main: str, *, many: bool) -> Options:
    """Return the settings by test; for many people the direct reading takes fewer steps, unless it was asked for."""
    if not many or main == DIRECT or DIRECT in options:
        return options
    return {**options, DIRECT: {"steps": _STEPS}}


def _fit(test: MeasuringTest, fitting: Dataset, *, many: bool) -> None:
    """Fit a test; for many people in ways that give the same numbers, but for rounding, in less time."""
    if many and isinstance(test, Effect) and isinstance(test.map, RankMap):
        test.fitted = fit_resampled(test.map, fitting, test.refits, seed=test.seed)
        return
    if many and isinstance(test, Effect) and isinstance(test.map, MoveMap):
        test.map.by_hand = True
    test.fit(fitting)


def _drawn(people: Dataset, count: int, seed: int) -> Dataset:
    """Return at most so many of the people, drawn at random."""
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))
    return people[order[:count].sort().values]


def _together(
    parts: Sequence[_Part],
    data: Dataset,
    name: str,
    reference: Dataset | None,
    compared: Sequence[str],
    failures: dict[str, str],
    *,
    aligned: bool,
) -> Readings:
    places = [part.rows for part in parts]
    c, inferred = data.c.clone(), torch.zeros(data.c.shape, dtype=torch.bool)
    for part in parts:
        c[part.rows], inferred[part.rows] = part.people.c, part.inferred.cpu()
    people = replace(data, c=c)
    joined = {
        each: join([part.found[each] for part in parts], places, len(data))
        for each in dict.fromkeys([name, DIRECT, TOTAL, *compared])
    }
    main, direct, total = joined[name], joined[DIRECT], joined[TOTAL]
    weights = [len(rows) / len(data) for rows in places]
    alignment = tuple(_mean_share(each, weights) for each in zip(*(part.alignment for part in parts), strict=True))
    if aligned:
        main = main.scaled([each.value for each in alignment], people)
    said = {each: _checked(parts, each, joined[each], people) for each in dict.fromkeys([name, *compared])}
    if isinstance(parts[0].tests[name], CounterfactualTest):
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
        others={each: joined[each] for each in compared},
        costs={each: sum((part.costs[each] for part in parts), Cost()) for each in compared},
        training=sum((part.training for part in parts), Cost()),
        failures=failures,
        checks={each: checks for each, (checks, _) in said.items() if checks},
        doubts=[doubt for _, doubts in said.values() for doubt in doubts],
    )


def _tell(progress: Progress, what: str, begin: float, share: float, done: int, total: int) -> None:
    progress(what, begin + share * done / total)


def _checked(
    parts: Sequence[_Part], name: str, measured: Measurement, people: Dataset
) -> tuple[dict[str, float], list[str]]:
    """Return what a test says about its fits, averaged over the parts, with its doubts, and about the model."""
    first = parts[0].tests[name]
    checks: dict[str, float] = {}
    doubts: list[str] = []
    if isinstance(first, CheckedTest):
        each = [part.tests[name] for part in parts]
        found = [one.checks() for one in each if isinstance(one, CheckedTest)]
        checks = {key: fmean(one[key] for one in found) for key in found[0]}
        doubts = first.doubts(checks) if checks else []
    if isinstance(first, JudgingTest):
        checks |= first.verdict(measured, people)
    return checks, doubts


def _counterfactuals(parts: Sequence[_Part], name: str, measured: Measurement) -> Tensor:
    """Return the rows x' of everyone (M, N, D), for the contrast that counts in `measured`."""
    worst = torch.where(measured.abstained.to(measured.worst.device), -1, measured.worst)
    out: Tensor | None = None
    for part in parts:
        test = part.tests[name]
        assert isinstance(test, CounterfactualTest)
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
