"""Readings: what the tests of an audit's folds measure about a model and everyone in the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.auxiliary.model import infer_groups
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_qualities, predicted_values
from fairfox.auxiliary.training import on_threads_by_size
from fairfox.choices.tests import DIRECT, SAMPLED, TOTAL
from fairfox.data.dataset import Dataset
from fairfox.errors import FairfoxError
from fairfox.fairtests import fitted
from fairfox.fairtests.effect import Effect, Share
from fairfox.fairtests.fitted import Fold, Progress, largest_first
from fairfox.fairtests.protocol import CounterfactualTest, JudgingTest, Measurement, join_measurements
from fairfox.maps.protocol import compared_pairs
from fairfox.models.protocol import Model

GRID = (0.99, 0.95, *(k / 10 for k in range(9, -1, -1)))  # of persistence, for the tipping point
_CURVE, _DRAWS_OF_CURVE = 500, 10  # people, and their draws at each persistence of the grid
_EXPLAINED, _EXPLAINED_BY_GRADIENTS = 400, 1_000  # people drawn at random to be explained
_FEW_ROWS = 8  # about, of each of them: means over people gain more from more people
_WORST = 20  # and the people with the highest scores
_DRAWN = 500  # people on whose drawn rows a shift by a common cause is tried
_ROOM = 50_000_000  # cells of everyone's counterfactual rows in all refits, above which those of the first are kept


@dataclass(frozen=True)
class Explained:
    """The people whose effects are explained: a random sample, and those with the highest scores."""

    parts: tuple[tuple[Tensor, Tensor], ...]  # their places (n,), and rows (R, n, D) that effects are averaged over
    drawn: Tensor  # (N,) bool: who represents everyone
    by_gradients: bool  # not where rows are drawn: between whole categories there is nothing to follow


class DrawnRows(NamedTuple):
    """Some people, with one row each drawn from their possible rows as members of another group."""

    people: Tensor  # (n,) their places
    rows: Tensor  # (n, D)


@dataclass(frozen=True)
class Readings:
    """What was measured, one entry per person in the order of the table."""

    main: Measurement  # the chosen test
    direct: Measurement | None  # the smallest edit that changes c, where it is asked for
    total: Measurement  # the same ranks in the other group, nothing given
    people: Dataset  # with the most probable group of those whose own is unknown
    inferred: Tensor  # (N, V) bool: where it is
    quality: tuple[AuxiliaryQuality, ...]  # one per protected variable, as what follows
    proxy: tuple[dict[str, float], ...]  # per feature, largest first
    alignment: tuple[Share, ...]
    same_outcome: Measurement | None = None  # the same ranks there among people with the same label, of some
    same_outcome_of: Tensor | None = None  # (n,) the places of these
    swapped: Measurement | None = None  # the protected column alone changed, beside a causal graph
    others: dict[str, Measurement] = field(default_factory=dict)  # tests to compare with, the chosen one first
    seconds: dict[str, float] = field(default_factory=dict)  # that each of them took to fit and to measure
    training_seconds: float = 0.0  # of the auxiliaries that all share
    failures: dict[str, str] = field(default_factory=dict)  # why one of them could not be run
    checks: dict[str, dict[str, float]] = field(default_factory=dict)  # what tests say about their fits and the model
    warnings: tuple[str, ...] = ()  # where their fits are poor
    curve: dict[float, Measurement] = field(default_factory=dict)  # of some people, where ranks persist in part
    sample: Tensor | None = None  # (n,) their places
    explained: Explained | None = None  # None where nobody is moved
    drawn: tuple[DrawnRows, ...] = ()  # for each protected variable, where ranks may persist in part
    still: tuple[str, ...] = ()  # features in which the groups do not differ beyond chance, so that they do not move

    @property
    def moved(self) -> Measurement:
        """The measurement whose counterfactual rows are shown: that of the test, or the total reading without one."""
        return self.total if self.main.counterfactuals is None else self.main


@on_threads_by_size
def measure_folds(
    folds: Sequence[Fold],
    target: Model,
    data: Dataset,
    predictions: Tensor,
    *,
    others: Sequence[str] = (),
    progress: Progress,
) -> Readings:
    """Return the readings of everyone in `data`, measured by the test of their fold.

    The main test, or the total reading where it has no map, comes with its counterfactual rows. One of the `others`
    that cannot be run is left out with its reason.
    """
    options = folds[0].test.options
    main = fitted.measured_name(options)
    people, inferred = _inferred(folds, data)
    labelled = data.y is not None and all(fitted.SAME_OUTCOME in fold.test.tests for fold in folds)
    wanted = replace(options, direct=fitted.is_direct_wanted(options, target))
    needed = fitted.readings_of(wanted, labelled=labelled, takes_protected=fitted.ALONE in folds[0].test.tests)
    found, seconds, failures = _measured(folds, target, people, predictions, needed, others, progress)
    why = failures.pop(fitted.SAME_OUTCOME, None)
    unknown = (
        [] if why is None else [f"The effect at the same outcome could not be estimated: {why.partition(';')[0]}."]
    )
    shares = fitted.alignment_of(folds, target, people)
    measured, total = found[main], found[TOTAL]
    progress("measuring: how well ranks carry over", 1.0)
    measured, curve, sample = _persisting(folds, main, measured, target, people, predictions, shares)
    if isinstance(folds[0].test.tests[main], CounterfactualTest):
        moved = measured = replace(measured, counterfactuals=_counterfactuals(folds, main, measured, people))
    else:
        moved = total = replace(total, counterfactuals=_counterfactuals(folds, TOTAL, total, people))
    explained = _explained(folds, main if moved is measured else TOTAL, target, people, moved, measured.score)
    drawn = [_one_draw_each(folds, main, measured, people, v) for v in range(len(people.protected) if curve else 0)]
    beside = [name for name in others if name != TOTAL or not options.given]  # there it is the total reading
    compared = [name for name in dict.fromkeys([main, *beside]) if name in found] if others else []
    checked = {name: _checks(folds, name, found[name], people) for name in dict.fromkeys([main, *compared])}
    return Readings(
        main=measured,
        direct=found.get(DIRECT),
        total=total,
        swapped=found.get(fitted.ALONE) if options.info.needs_graph else None,
        same_outcome=found.get(fitted.same_outcome_name(options)),
        same_outcome_of=_asked_about(fitted.same_outcome_name(options), len(people), options.seed),
        people=people,
        inferred=inferred,
        quality=_quality(folds, data),
        proxy=_mean_proxies(folds, data),
        alignment=shares,
        others={name.removesuffix(fitted.GIVEN): found[name] for name in compared},
        seconds={name.removesuffix(fitted.GIVEN): seconds[name] for name in compared},
        training_seconds=sum({id(fold.test.auxiliary): fold.test.training_seconds for fold in folds}.values()),
        failures=failures,
        checks={name.removesuffix(fitted.GIVEN): checks for name, (checks, _) in checked.items() if checks},
        warnings=(*(text for _, warnings in checked.values() for text in warnings), *unknown),
        still=_still(folds, main),
        curve=curve,
        sample=sample,
        explained=explained,
        drawn=tuple(drawn),
    )


def _explained(
    folds: Sequence[Fold], name: str, target: Model, people: Dataset, moved: Measurement, scores: Tensor
) -> Explained:
    """Return who is explained, and the rows they are moved to.

    A model with gradients is followed to the mean of the rows; others take rows with whole categories.
    """
    assert moved.counterfactuals is not None
    tests = [fold.test.tests[name] for fold in folds]
    by_gradients = target.differentiable and not any(isinstance(test, Effect) and test.several for test in tests)
    most = _EXPLAINED_BY_GRADIENTS if target.differentiable else _EXPLAINED
    drawn = _marked(people, _shuffled(folds, len(people))[:most])
    largest = _marked(people, scores.cpu().argsort(descending=True)[:_WORST])
    if by_gradients:
        places = (drawn | largest).nonzero()[:, 0]
        return Explained(((places, moved.counterfactuals[:, places].mean(0, keepdim=True)),), drawn, by_gradients)
    worst = torch.where(moved.abstained.to(moved.worst.device), -1, moved.worst)
    parts = []
    for chosen, few in ((largest, False), (drawn & ~largest, True)):
        for own, found in _rows_of_draws(folds, name, people, worst, chosen):
            rows = moved.counterfactuals[:, own] if found is None else found
            parts.append((own, rows[:: max(1, len(rows) // _FEW_ROWS)] if few else rows))
    return Explained(tuple(parts), drawn, by_gradients)


def _one_draw_each(
    folds: Sequence[Fold], name: str, measured: Measurement, people: Dataset, variable: int
) -> DrawnRows:
    """Return some of the people whom a protected variable concerns, each with one row as a member of another group."""
    own = measured.of_variable(variable, people)
    places = torch.tensor([q for q, contrast in enumerate(measured.contrasts) if contrast.variable == variable])
    judged = (~own.abstained.cpu()).nonzero()[:, 0]
    chosen = _marked(people, judged[_shuffled(folds, len(judged))[:_DRAWN]])
    found = list(_rows_of_draws(folds, name, people, places[own.worst.cpu()], chosen))
    who, rows = [who for who, _ in found], [rows[0] for _, rows in found if rows is not None]
    return DrawnRows(torch.cat(who), torch.cat(rows))


def _rows_of_draws(
    folds: Sequence[Fold], name: str, people: Dataset, worst: Tensor, chosen: Tensor
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield the chosen people (n,) of each fold, and the rows (R, n, D) their effects are averaged over; None where a
    test has no such rows."""
    for fold in folds:
        test, own = fold.test.tests[name], fold.rows[chosen[fold.rows]]
        yield own, test.rows_of_draws(people[own], worst[own]) if isinstance(test, Effect) else None


def _shuffled(folds: Sequence[Fold], count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(folds[0].test.options.seed))


def _marked(people: Dataset, places: Tensor) -> Tensor:
    """Return who (N,) bool is at some places."""
    return torch.zeros(len(people), dtype=torch.bool).index_fill_(0, places, True)


def _persisting(
    folds: Sequence[Fold],
    name: str,
    measured: Measurement,
    target: Model,
    people: Dataset,
    predictions: Tensor,
    shares: Sequence[Share],
) -> tuple[Measurement, dict[float, Measurement], Tensor]:
    """Return what was measured with what draws add, the same of some people at each persistence of the grid, and who
    they are (n,); times the alignment shares where the test is."""
    options = folds[0].test.options
    fold_of = torch.empty(len(people), dtype=torch.long)
    for k, fold in enumerate(folds):
        fold_of[fold.rows] = k

    def deviations(rows: Tensor, persistence: Sequence[float], draws: int) -> list[Tensor]:
        """Return what draws add for some of the people (n,) where ranks persist in part, for each correlation."""
        out: list[Tensor] = []
        for k, fold in enumerate(folds):
            places = (fold_of[rows] == k).nonzero()[:, 0]
            own = rows[places]
            asked = (people[own], measured.taken(own), predictions[own], persistence, draws)
            found = fold.test.deviations(name, target, *asked)
            out = out or [each.new_empty(len(each), len(rows), each.shape[2]) for each in found]
            for each, part in zip(out, found, strict=True):
                each[:, places.to(each.device)] = part
        return out

    sample = _shuffled(folds, len(people))[:_CURVE].sort().values
    each = deviations(sample, GRID, _DRAWS_OF_CURVE)
    drawn = deviations(torch.arange(len(people)), (options.persistence,), fitted.DRAWS)
    some = measured.taken(sample)
    curve = {at: replace(some, deviations=found) for at, found in zip(GRID, each, strict=bool(each))}
    out = replace(measured, deviations=drawn[0] if drawn else None)
    if options.info.aligned:
        factors = [share.value for share in shares]
        out = out.scaled(factors, people)
        curve = {at: part.scaled(factors, people[sample]) for at, part in curve.items()}
    return out, curve, sample


def _measured(
    folds: Sequence[Fold],
    target: Model,
    people: Dataset,
    predictions: Tensor,
    needed: Sequence[str],
    others: Sequence[str],
    progress: Progress,
) -> tuple[dict[str, Measurement], dict[str, float], dict[str, str]]:
    """Return what each test measures on everyone, the seconds it took, and why the others could not be run."""
    failures = {name: why for fold in folds for name, why in fold.test.failures.items()}
    out, seconds = {}, {}
    options = folds[0].test.options
    used = sum(seconds for fold in folds for seconds in fold.test.seconds.values())
    end = perf_counter() + max(60 * options.max_minutes - used, 0.0)  # for tests beside the chosen one
    unique = list(dict.fromkeys([*needed, *others]))
    for place, name in enumerate(unique):
        start, parts, asked = perf_counter(), [], _asked_about(name, len(people), options.seed)
        inside, where = torch.zeros(len(people), dtype=torch.bool), torch.empty(len(people), dtype=torch.long)
        inside[asked], where[asked] = True, torch.arange(len(asked))
        rows = [fold.rows[inside[fold.rows]] for fold in folds]
        try:
            for number, fold in enumerate(folds if name not in failures else ()):
                took = (perf_counter() - start) / max(number, 1)  # a fold
                if name not in needed and perf_counter() + took * (len(folds) - number) > end:
                    failures[name] = fitted.out_of_time(options)
                    break
                about = f", about {took * (len(folds) - number):.0f} s" if number and took > 1 else ""
                progress(f"measuring: {name}{about}", (place + number / len(folds)) / len(unique))
                own = rows[number]
                parts.append(fold.test.measure_one(name, target, people[own], predictions=predictions[own]))
        except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
            fitted.keep_failure(failures, name, error, needed=needed)
        if name not in failures:
            out[name] = join_measurements(parts, [where[own] for own in rows], len(asked))
            seconds[name] = perf_counter() - start + sum(fold.test.seconds.get(name, 0.0) for fold in folds)
    return out, seconds, failures


def _asked_about(name: str, people: int, seed: int) -> Tensor:
    """Return the places (n,) of the people that a test is run for: all; or some, for a reading beside it."""
    if name != fitted.SAME_OUTCOME or people <= SAMPLED:
        return torch.arange(people)
    return torch.randperm(people, generator=torch.Generator().manual_seed(seed))[:SAMPLED].sort().values


def _inferred(folds: Sequence[Fold], data: Dataset) -> tuple[Dataset, Tensor]:
    """Return everyone with a group, and whose (N, V) is inferred by the test of their fold."""
    c, inferred = data.c.clone(), torch.zeros(data.c.shape, dtype=torch.bool)
    for fold in folds:
        people, where = infer_groups(data[fold.rows], fold.test.auxiliary, fold.test.known)
        c[fold.rows], inferred[fold.rows] = people.c, where.cpu()
    return replace(data, c=c), inferred


def _counterfactuals(folds: Sequence[Fold], name: str, measured: Measurement, people: Dataset) -> Tensor:
    """Return the rows x' of everyone (M, N, D), for the contrast that counts in `measured`; M is 1 where they are many
    and no path is certified."""
    options = folds[0].test.options
    refits = None if options.certify or options.refits * people.x.numel() <= _ROOM else 1
    worst = torch.where(measured.abstained.to(measured.worst.device), -1, measured.worst)
    out: Tensor | None = None
    for fold in folds:
        test = fold.test.tests[name]
        assert isinstance(test, CounterfactualTest)
        rows = test.counterfactuals(people[fold.rows], worst[fold.rows], refits=refits)
        out = rows.new_empty(len(rows), len(worst), rows.shape[2]) if out is None else out
        out[:, fold.rows] = rows
    assert out is not None
    return out


def _still(folds: Sequence[Fold], name: str) -> tuple[str, ...]:
    """Return the features that a rank test keeps as they are in all folds and comparisons, for want of evidence."""
    each = []
    for fold in folds:
        test = fold.test.tests[name]
        for v, maps in enumerate(test.fitted if isinstance(test, Effect) else ()):
            if (plan := getattr(maps[0], "plan", None)) is not None:
                pairs = compared_pairs(fold.test.known.protected[v]) or [(0, 0)]  # along a number
                closed = torch.stack([plan.closed[pair] for pair in pairs]).all(0)  # (F,)
                each.append([f.name for f, never in zip(plan.explained, closed.tolist(), strict=True) if never])
    return tuple(name for name in (each[0] if each else ()) if all(name in names for names in each))


def _checks(
    folds: Sequence[Fold], name: str, measured: Measurement, people: Dataset
) -> tuple[dict[str, float], list[str]]:
    """Return what a test says about its fits, averaged over the folds, with its warnings, and about the model."""
    first = folds[0].test.tests[name]
    checks: dict[str, float] = {}
    warnings: list[str] = []
    if isinstance(first, Effect):
        found = [one.checks() for fold in folds if isinstance(one := fold.test.tests[name], Effect)]
        checks = {key: fmean(each[key] for each in found) for key in found[0]}
        warnings = first.warnings(checks) if checks else []
    if isinstance(first, JudgingTest):
        checks |= first.verdict(measured, people)
    return checks, warnings


def _quality(folds: Sequence[Fold], data: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well each protected variable is predicted for everyone by the auxiliary of their fold; on the rows
    that it was not trained on, where folds have the same one."""
    if fitted.shares_auxiliaries(folds):
        return folds[0].test.quality
    each = [predicted_values(fold.test.auxiliary, data.x[fold.rows], fold.test.known) for fold in folds]
    outputs = data.x.new_zeros(len(data), each[0].shape[1])
    for fold, own in zip(folds, each, strict=True):
        outputs[fold.rows] = own
    return measure_qualities(outputs, data)


def _mean_proxies(folds: Sequence[Fold], data: Dataset) -> tuple[dict[str, float], ...]:
    if len(folds) == 1:
        return folds[0].test.proxy
    shares = [len(fold.rows) / len(data) for fold in folds]
    names = [f.name for f in data.features]
    return tuple(
        largest_first({n: sum(s * f.test.proxy[v][n] for s, f in zip(shares, folds, strict=True)) for n in names})
        for v in range(len(data.protected))
    )
