"""FittedTest, the engine: what an audit learns from people, and how it measures a model.

An audit fits one per fold, or one on its reference; `fit` keeps one in a file; streams score batches with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary, infer_groups
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality, proxy_strength
from fairfox.auxiliary.training import centre_and_spread, on_threads_by_size
from fairfox.data.dataset import Dataset, assign_folds, fitting_order, rows_sha256
from fairfox.data.encoding import Encoding
from fairfox.errors import DataError, FairfoxError, OptionError, installed_versions
from fairfox.fairtests.effect import ROWS, Effect, Share, alignment_metric, model_alignment
from fairfox.fairtests.faux import GradientTest
from fairfox.fairtests.protocol import (
    CounterfactualTest,
    JudgingTest,
    Measurement,
    MeasuringTest,
    join_measurements,
)
from fairfox.fairtests.registry import make_test, settings_by_test
from fairfox.maps.check import Support
from fairfox.maps.conditional import tells_group
from fairfox.maps.protocol import compared_pairs
from fairfox.models.protocol import Model
from fairfox.options import DIRECT, FAIR_TESTS, SAMPLED, TOTAL, AuditOptions

Progress = Callable[[str, float], None]  # what is being done, and the fraction of the whole
_log = logging.getLogger("fairfox")
_FITTING = 0.7  # of the time for tests beside the chosen one, at most
_FEWEST = 10  # people of a group to learn from
_COUNTING = 2  # people of equal weight whose mean would be as certain as that of all
_MANY = 50_000  # people: above it time is saved at some cost in the accuracy of single readings
_BATCH, _EPOCHS = 256, 15  # of auxiliaries of many people
_STEPS = 2  # of the direct reading of many people: they rank as with eight, single effects differ by a few per cent
_FEW, _MOST = 3, 12  # auxiliaries of proxies and of the alignment share
_WORK = 50_000  # people to learn from, in all of these together
_LEARNT = 100_000  # people that auxiliaries learn from: more cost time, and say the same to so small networks
_SOME = 5_000  # people from whom on these take large batches
_GIVEN = " given"  # after the name of the rank test, where the total reading has that name
_ALONE = "unawareness"  # the test that changes the protected column alone
SAME_OUTCOME = "same outcome"  # rank, the label given
GRID = (0.99, 0.95, *(k / 10 for k in range(9, -1, -1)))  # of persistence, for the tipping point
DRAWS = 20  # of everyone's counterfactual, in all refits together
_CURVE, _DRAWS_OF_CURVE = 500, 10  # people, and their draws at each persistence of the grid
_EXPLAINED, _EXPLAINED_BY_GRADIENTS = 400, 1_000  # people drawn at random to be explained
_FEW_ROWS = 8  # about, of each of them: means over people gain more from more people
_WORST = 20  # and the people with the highest scores
_DRAWN = 500  # people on whose drawn rows a shift by a common cause is tried
_ALIGNED = 20_000  # of many people, whose gradients give the alignment share
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


@dataclass(frozen=True)
class Auxiliaries:
    """Networks that predict protected variables, and their quality on the people they learnt from."""

    plain: FixedAuxiliary
    aligned_by: FixedAuxiliary  # those of the alignment share: balanced ones where there is a label
    quality: tuple[AuxiliaryQuality, ...]
    proxy: tuple[dict[str, float], ...]
    metric: Tensor
    seconds: float  # that training took

    @classmethod
    def of(cls, data: Dataset, options: AuditOptions, seed: int, others: Sequence[str] = ()) -> Auxiliaries:
        """Return networks trained on these people.

        There are as many as refits where a test uses them or groups are inferred; else as many as the alignment share
        needs, which varies more where people are few."""
        _check_weights(data, options)
        several = follows_auxiliary([options.main, *others]) or bool(data.c.isnan().any())
        data = data if len(data) <= _LEARNT else _drawn(data, _LEARNT, seed)
        needed = min(max(_WORK // len(data), _FEW), _MOST)
        start, many = perf_counter(), len(data) > _MANY
        balance = options.balance is not False and has_labels(data)
        count = options.refits if several else max(_FEW, min(needed, options.refits))
        plain = _trained(count, seed, data, many=many)
        if options.balance:
            aligned_by = _trained(options.refits, seed, data, many=many, balance=True)
        else:  # each few with held-out rows of their own, which decide when training stops; folds differ by themselves
            fits = [] if balance else [plain]
            places = range(len(fits), 1 if several else needed // _FEW)
            fits += [_trained(_FEW, seed + 1000 * s, data, many=many, balance=balance) for s in places]
            members = [member for fit in fits for member in fit.members]
            aligned_by = FixedAuxiliary(members, fits[0].held_out, balance)
        seconds = perf_counter() - start
        proxy = tuple(_proxies(plain, data, v, options.batch_size) for v in range(len(data.protected)))
        quality, metric = _held_out_quality(plain, data), alignment_metric(data, aligned_by)
        return cls(plain, aligned_by, quality, proxy, metric, seconds)


@dataclass(frozen=True, kw_only=True)
class FittedTest:
    """A fairness test fitted on a table of people, ready to measure any model on the same columns.

    It holds no row of that table, only the values of each column, which is all that ranks need. `transport` pairs
    people with each other and does hold their encoded rows.
    """

    options: AuditOptions
    encoding: Encoding  # without the table that it was fitted on
    known: Dataset  # the protected values and weights of the fitting rows, in order of the values, and no features
    fitted_on: str  # SHA-256 of the fitting rows as they were encoded
    version: str  # of fairfox
    auxiliary: FixedAuxiliary
    quality: tuple[AuxiliaryQuality, ...]  # on rows that the auxiliary was not trained on, one per protected variable
    proxy: tuple[dict[str, float], ...]
    aligned_by: FixedAuxiliary  # the auxiliaries of the alignment share: balanced ones where there is a label
    metric: Tensor  # (D, D) the covariance of the fitting rows in which it is measured
    support: tuple[Support, ...]  # what the fitting rows show, for each protected variable
    tests: dict[str, MeasuringTest]  # the chosen one, the direct and the total reading, and others to compare with
    seconds: dict[str, float] = field(default_factory=dict)  # that each took to fit
    training_seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)  # why one of the others could not be fitted

    @classmethod
    @on_threads_by_size
    def fit(
        cls,
        data: Dataset,
        encoding: Encoding,
        options: AuditOptions,
        *,
        seed: int | None = None,
        others: Sequence[str] = (),
        progress: Progress | None = None,
        auxiliaries: Auxiliaries | None = None,
        is_fold: bool = False,
    ) -> FittedTest:
        """Return the test of these options fitted on all people of `data`, with `others` to compare it with.

        Auxiliaries are trained on the same people unless given. A fold needs no record of what it learnt from.
        """
        _check_weights(data, options)
        seed = options.seed if seed is None else seed
        many = len(data) > _MANY
        say = progress or (lambda text, fraction: None)
        say("training auxiliaries", 0.0)
        own = auxiliaries or Auxiliaries.of(data, options, seed, others)
        takes = bool(data.withheld.any())
        label = [f.name for f in data.covariates if f.name == options.label and has_labels(data)]
        comparable = not any(tells_group(data, name, v) for name in label for v in range(len(data.protected)))
        needed = readings_of(options, labelled=bool(label) and comparable, takes_protected=takes)
        names = list(dict.fromkeys([*needed, *others]))
        used = own.aligned_by if options.balance else own.plain
        tests, seconds, failures = _fit_tests(data, options, names, used, needed, many=many, seed=seed, progress=say)
        return cls(
            options=options,
            encoding=encoding,
            known=_without_features(data),
            fitted_on="" if is_fold else rows_sha256(data),
            version=installed_versions("fairfox")["fairfox"],
            auxiliary=own.plain,
            quality=own.quality,
            proxy=own.proxy,
            aligned_by=own.aligned_by,
            metric=own.metric,
            support=() if is_fold else supports(data),
            tests=tests,
            seconds=seconds,
            training_seconds=own.seconds,
            failures=failures,
        )

    @property
    def test(self) -> MeasuringTest:
        """The fairness test itself."""
        return self.tests[measured_name(self.options)]

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        people, _ = infer_groups(data, self.auxiliary, self.known)
        return self.measure_one(measured_name(self.options), model, people).score

    def measure_one(
        self, name: str, model: Model, people: Dataset, *, predictions: Tensor | None = None, step: float | None = None
    ) -> Measurement:
        """Return what one of the tests measures on people whose groups are known or inferred.

        `predictions` are f(x) where already known; `step` is for finite differences, by default one that suits the
        first people.
        """
        test = self.tests[name]
        if isinstance(test, CounterfactualTest):
            return test.measure(model, people, predictions=predictions, rows=False)
        if isinstance(test, GradientTest):
            return test.measure(model, people, step=step)
        return test.measure(model, people)

    def deviations(
        self,
        name: str,
        model: Model,
        people: Dataset,
        measured: Measurement,
        predictions: Tensor,
        persistence: Sequence[float] | None = None,
        draws: int = DRAWS,
    ) -> list[Tensor]:
        """Return what draws add to the measurement (K, N, Q) where ranks persist in part; [] if they cannot.

        There is one for each correlation of `persistence`; None: that of the options.
        """
        test, asked = self.tests[name], (self.options.persistence,) if persistence is None else persistence
        if not isinstance(test, Effect) or not test.persists or asked == (1.0,) or len(test.fitted[0]) < 2:
            return []
        return test.deviations(model, people, measured, predictions, asked, draws)

    def alignment(
        self, model: Model, people: Dataset, *, most: int | None = None, rows: int = ROWS
    ) -> tuple[Share, ...]:
        """Return the model's alignment share with each protected variable, from at most `most` people.

        A black box is called on about `rows` rows.
        """
        some = people if most is None or len(people) <= most else _drawn(people, most, self.options.seed)
        found = model_alignment(
            model,
            some,
            self.aligned_by,
            self.metric,
            seed=self.options.seed,
            batch_size=self.options.batch_size,
            rows=rows,
        )
        return tuple(found)


def _fit_tests(
    data: Dataset,
    options: AuditOptions,
    names: Sequence[str],
    auxiliary: Auxiliary,
    needed: Sequence[str],
    *,
    many: bool,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, MeasuringTest], dict[str, float], dict[str, str]]:
    """Return the tests of these names fitted, the seconds each took, and why one that is not needed could not be."""
    settings = _settings(options, many=many)
    end = perf_counter() + _FITTING * 60 * options.max_minutes / options.folds  # of this fold
    tests: dict[str, MeasuringTest] = {}
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    for place, name in enumerate(names):
        start = perf_counter()
        if start > end and name not in needed:
            failures[name] = _out_of_time(options)
            continue
        try:
            own, given = _test_and_given(name, options)
            one = make_test(
                own,
                auxiliary=auxiliary,
                hold_others=options.hold_others,
                given=given,
                gate=options.gate,
                refits=options.refits,
                seed=seed,
                batch_size=options.batch_size,
                settings=settings.get(own),
                progress=partial(_part_done, progress, f"fitting: {name}", place, len(names)),
            )
            tests[name] = one.fit(data)
        except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
            _keep_failure(failures, name, error, needed=needed)
        seconds[name] = perf_counter() - start
    return tests, seconds, failures


@dataclass(frozen=True)
class Fold:
    """Some of the people, and the test fitted on the others that measures them."""

    rows: Tensor  # positions in the table
    test: FittedTest


@on_threads_by_size
def fit_folds(
    data: Dataset,
    reference: Dataset | None,
    encoding: Encoding,
    options: AuditOptions,
    *,
    others: Sequence[str] = (),
    progress: Progress,
) -> list[Fold]:
    """Return tests fitted on other people than they measure: one from a reference, or one per fold."""
    fitting = data if reference is None else reference
    check_group_sizes(fitting, 2 * options.folds if reference is None else _FEWEST)
    if reference is not None:
        test = FittedTest.fit(reference, encoding, options, others=others, progress=progress)
        return [Fold(torch.arange(len(data)), test)]
    # readings beside the test, told as means, do not need auxiliaries that have not seen the people; inferred groups do
    own = follows_auxiliary([options.main, *others]) or bool(data.c.isnan().any())
    order = fitting_order(data, seed=options.seed)
    alike = None if own else Auxiliaries.of(data[order], options, options.seed)
    fold = torch.empty_like(order)
    fold[order] = assign_folds(data.c[order], options.folds, seed=options.seed)
    out: list[Fold] = []
    failed: set[str] = set()
    for k in range(options.folds):
        test = FittedTest.fit(
            data[order[fold[order] != k]],
            encoding,
            options,
            seed=options.seed + k,
            others=[name for name in others if name not in failed],
            progress=partial(_fold_done, progress, k, options.folds),
            auxiliaries=alike,
            is_fold=True,
        )
        failed |= set(test.failures)
        out.append(Fold((fold == k).nonzero()[:, 0], test))
    return out


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
    main = measured_name(options)
    people, inferred = _inferred(folds, data)
    labelled = data.y is not None and all(SAME_OUTCOME in fold.test.tests for fold in folds)
    wanted = replace(options, direct=is_direct_wanted(options, target))
    needed = readings_of(wanted, labelled=labelled, takes_protected=_ALONE in folds[0].test.tests)
    found, seconds, failures = _measured(folds, target, people, predictions, needed, others, progress)
    why = failures.pop(SAME_OUTCOME, None)
    unknown = (
        [] if why is None else [f"The effect at the same outcome could not be estimated: {why.partition(';')[0]}."]
    )
    shares = _alignment(folds, target, people)
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
        swapped=found.get(_ALONE) if options.info.needs_graph else None,
        same_outcome=found.get(_same_outcome(options)),
        same_outcome_of=_asked_about(_same_outcome(options), len(people), options.seed),
        people=people,
        inferred=inferred,
        quality=_quality(folds, data),
        proxy=_mean_proxies(folds, data),
        alignment=shares,
        others={name.removesuffix(_GIVEN): found[name] for name in compared},
        seconds={name.removesuffix(_GIVEN): seconds[name] for name in compared},
        training_seconds=training_seconds(folds),
        failures=failures,
        checks={name.removesuffix(_GIVEN): checks for name, (checks, _) in checked.items() if checks},
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
    drawn = torch.zeros(len(people), dtype=torch.bool)
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(folds[0].test.options.seed))
    drawn[order[: _EXPLAINED_BY_GRADIENTS if target.differentiable else _EXPLAINED]] = True
    largest = torch.zeros_like(drawn)
    largest[scores.cpu().argsort(descending=True)[:_WORST]] = True
    if by_gradients:
        places = (drawn | largest).nonzero()[:, 0]
        return Explained(((places, moved.counterfactuals[:, places].mean(0, keepdim=True)),), drawn, by_gradients)
    worst = torch.where(moved.abstained.to(moved.worst.device), -1, moved.worst)
    parts = []
    for fold, test in zip(folds, tests, strict=True):
        for chosen, few in ((largest, False), (drawn & ~largest, True)):
            own = fold.rows[chosen[fold.rows]]
            rows = moved.counterfactuals[:, own]
            if isinstance(test, Effect):
                rows = test.rows_of_draws(people[own], worst[own])
            parts.append((own, rows[:: max(1, len(rows) // _FEW_ROWS)] if few else rows))
    return Explained(tuple(parts), drawn, by_gradients)


def _one_draw_each(
    folds: Sequence[Fold], name: str, measured: Measurement, people: Dataset, variable: int
) -> DrawnRows:
    """Return some of the people whom a protected variable concerns, each with one row as a member of another group."""
    own = measured.of_variable(variable, people)
    places = torch.tensor([q for q, contrast in enumerate(measured.contrasts) if contrast.variable == variable])
    judged = (~own.abstained.cpu()).nonzero()[:, 0]
    order = torch.randperm(len(judged), generator=torch.Generator().manual_seed(folds[0].test.options.seed))
    chosen = torch.zeros(len(people), dtype=torch.bool)
    chosen[judged[order[:_DRAWN]]] = True
    worst = places[own.worst.cpu()]
    who, rows = [], []
    for fold in folds:
        test, some = fold.test.tests[name], fold.rows[chosen[fold.rows]]
        assert isinstance(test, Effect)
        who.append(some)
        rows.append(test.rows_of_draws(people[some], worst[some])[0])
    return DrawnRows(torch.cat(who), torch.cat(rows))


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
    options, asked = folds[0].test.options, (folds, name, measured, target, people, predictions)
    sample = torch.randperm(len(people), generator=torch.Generator().manual_seed(options.seed))[:_CURVE].sort().values
    each = _deviations(*asked, sample, GRID, _DRAWS_OF_CURVE)
    drawn = _deviations(*asked, torch.arange(len(people)), (options.persistence,), DRAWS)
    some = measured.taken(sample)
    curve = {at: replace(some, deviations=found) for at, found in zip(GRID, each, strict=bool(each))}
    measured = replace(measured, deviations=drawn[0] if drawn else None)
    if options.info.aligned:
        factors = [share.value for share in shares]
        measured = measured.scaled(factors, people)
        curve = {at: part.scaled(factors, people[sample]) for at, part in curve.items()}
    return measured, curve, sample


def _deviations(
    folds: Sequence[Fold],
    name: str,
    measured: Measurement,
    target: Model,
    people: Dataset,
    predictions: Tensor,
    rows: Tensor,
    persistence: Sequence[float],
    draws: int,
) -> list[Tensor]:
    """Return what draws add for some of the people (n,) where ranks persist in part, for each correlation."""
    fold_of = torch.empty(len(people), dtype=torch.long)
    for k, fold in enumerate(folds):
        fold_of[fold.rows] = k
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
    unique, seed, end = list(dict.fromkeys([*needed, *others])), options.seed, perf_counter() + _left(folds)
    for place, name in enumerate(unique):
        start, parts, asked = perf_counter(), [], _asked_about(name, len(people), seed)
        inside, where = torch.zeros(len(people), dtype=torch.bool), torch.empty(len(people), dtype=torch.long)
        inside[asked], where[asked] = True, torch.arange(len(asked))
        rows = [fold.rows[inside[fold.rows]] for fold in folds]
        try:
            for number, fold in enumerate(folds if name not in failures else ()):
                took = (perf_counter() - start) / max(number, 1)  # a fold
                if name not in needed and perf_counter() + took * (len(folds) - number) > end:
                    failures[name] = _out_of_time(options)
                    break
                about = f", about {took * (len(folds) - number):.0f} s" if number and took > 1 else ""
                progress(f"measuring: {name}{about}", (place + number / len(folds)) / len(unique))
                own = rows[number]
                parts.append(fold.test.measure_one(name, target, people[own], predictions=predictions[own]))
        except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
            _keep_failure(failures, name, error, needed=needed)
        if name not in failures:
            out[name] = join_measurements(parts, [where[own] for own in rows], len(asked))
            seconds[name] = perf_counter() - start + sum(fold.test.seconds.get(name, 0.0) for fold in folds)
    return out, seconds, failures


def _out_of_time(options: AuditOptions) -> str:
    return f"it would take longer than {options.max_minutes:g} minutes in total (--max-minutes)"


def _left(folds: Sequence[Fold]) -> float:
    """Return the seconds that are left to measure tests beside the chosen one, after they were fitted."""
    used = sum(seconds for fold in folds for seconds in fold.test.seconds.values())
    return max(60 * folds[0].test.options.max_minutes - used, 0.0)


def _asked_about(name: str, people: int, seed: int) -> Tensor:
    """Return the places (n,) of the people that a test is run for: all; or some, for a reading beside it."""
    if name != SAME_OUTCOME or people <= SAMPLED:
        return torch.arange(people)
    return torch.randperm(people, generator=torch.Generator().manual_seed(seed))[:SAMPLED].sort().values


def measured_name(options: AuditOptions) -> str:
    """Return the name under which the main test is fitted: /a is a factor applied afterwards."""
    name = options.info.base if options.info.aligned else options.main
    return f"{name}{_GIVEN}" if name == TOTAL and options.given else name


def readings_of(options: AuditOptions, *, labelled: bool, takes_protected: bool) -> list[str]:
    """Return the names of what every audit measures: the test itself, and the readings beside it."""
    same = [_same_outcome(options)] if labelled else []
    alone = [_ALONE] if options.info.needs_graph and takes_protected else []
    direct = [DIRECT] if options.direct is not False else []
    return list(dict.fromkeys([measured_name(options), *direct, TOTAL, *same, *alone]))


def is_direct_wanted(options: AuditOptions, target: Model) -> bool:
    """Return whether the direct reading is measured: as asked for, else where the model has gradients."""
    return target.differentiable if options.direct is None else options.direct


def _same_outcome(options: AuditOptions) -> str:
    """Return under which name the label is given to rank: that of the main test, where it is this and nothing else."""
    is_main = measured_name(options) == f"{TOTAL}{_GIVEN}" and options.given == (options.label,)
    return f"{TOTAL}{_GIVEN}" if is_main else SAME_OUTCOME


def _test_and_given(name: str, options: AuditOptions) -> tuple[str, tuple[str, ...]]:
    """Return which test stands behind a name, and what is given to it: nothing to the total and the direct reading."""
    if name == SAME_OUTCOME:
        assert options.label is not None
        return TOTAL, (options.label,)
    return name.removesuffix(_GIVEN), () if name in (TOTAL, DIRECT) else options.given


def has_labels(data: Dataset) -> bool:
    """Return whether people have labels, of at least two values."""
    return data.y is not None and len(data.y[~data.y.isnan()].unique()) > 1


def training_seconds(folds: Sequence[Fold]) -> float:
    """Return how long auxiliaries were trained; folds may share theirs."""
    return sum({id(fold.test.auxiliary): fold.test.training_seconds for fold in folds}.values())


def follows_auxiliary(names: Sequence[str]) -> bool:
    """Return whether one of these tests uses auxiliaries."""
    return any(FAIR_TESTS[name].trained for name in names if name in FAIR_TESTS)


def check_group_sizes(fitting: Dataset, fewest: int = _FEWEST) -> None:
    """Raise where the fitting rows have too few people of a group, or with a known number."""
    for v, p in enumerate(fitting.protected):
        c = fitting.c[:, v]
        if p.is_continuous:
            known = int((~c.isnan()).sum())
            if known < 2 * fewest:
                raise DataError(
                    f"'{p.name}' is known for only {known} people to learn from; at least {2 * fewest} are needed: "
                    "give more rows, or another reference table"
                )
            continue
        counts = [int((c == code).sum()) for code in range(len(p.levels))]
        smallest, level = min(zip(counts, p.levels, strict=True))
        if smallest < fewest:
            merge = "merge rare classes (merge_rare, --merge-rare), " if len(p.levels) > 2 else ""
            raise DataError(
                f"Group '{level}' of '{p.name}' has only {smallest} people to learn from; at least {fewest} are "
                f"needed: {merge}give more rows, or another reference table"
            )


def _check_weights(fitting: Dataset, options: AuditOptions) -> None:
    """Raise where nearly all weight is that of one person, from whom alone nothing can be learnt."""
    if fitting.weights is None:
        return
    weights = fitting.weights.double() / fitting.weights.max().double().clamp(min=torch.finfo(torch.float64).tiny)
    counting = float(weights.sum() ** 2 / weights.square().sum()) if bool(weights.any()) else 0.0  # if all were equal
    if not counting >= _COUNTING:
        raise DataError(
            f"By the weights '{options.weights}', {len(fitting)} people to learn from count as {counting:.3g}; at "
            f"least {_COUNTING} are needed: give weights that are less uneven, or more rows"
        )


def check_storable(options: AuditOptions) -> None:
    """Raise where a test cannot be stored in a file, before any work is done."""
    if options.runs_all:
        raise OptionError("A file holds one fitted test; give its name instead of 'all', and fit others one by one")
    if options.info.base in ("fliptest", "counterfactual"):
        raise OptionError(f"{options.main} cannot be stored in a file; fit rank, move or faux, or use fairfox audit")


def supports(data: Dataset) -> tuple[Support, ...]:
    """Return the support of each protected variable's groups in the fitting rows."""
    return tuple(Support.of(data, v) for v in range(len(data.protected)))


def _trained(refits: int, seed: int, data: Dataset, *, many: bool, balance: bool = False) -> FixedAuxiliary:
    """Return the auxiliaries of an audit; many rows need neither small batches nor many epochs."""
    model = AuxiliaryModel(refits=refits, seed=seed, balance=balance)
    if many:
        model = replace(model, batch_size=_BATCH, max_epochs=_EPOCHS)
    elif balance and len(data) > _SOME:
        model = replace(model, batch_size=_BATCH)
    trained = model.fit(data)
    return FixedAuxiliary(trained.members, trained.held_out, balance)


def _settings(options: AuditOptions, *, many: bool) -> Mapping[str, Mapping[str, object]]:
    """Return the settings by test; for many people the direct reading takes fewer steps, unless it was asked for."""
    own = settings_by_test(options)
    if not many or options.info.base == DIRECT or DIRECT in own:
        return own
    return {**own, DIRECT: {"steps": _STEPS}}


def _keep_failure(failures: dict[str, str], name: str, error: Exception, *, needed: Sequence[str]) -> None:
    """Note why a test could not be run; one that the audit needs raises."""
    if name != SAME_OUTCOME:  # which a warning of the audit is about
        if name in needed:
            raise error
        _log.warning("%s could not be run", name, exc_info=not isinstance(error, FairfoxError))
    failures[name] = str(error)


def _part_done(say: Progress, what: str, place: int, parts: int, done: int, total: int) -> None:
    say(what, (place + done / total) / parts)


def _fold_done(progress: Progress, fold: int, folds: int, what: str, fraction: float) -> None:
    progress(what, (fold + fraction) / folds)


def _drawn(people: Dataset, count: int, seed: int) -> Dataset:
    """Return at most so many of the people, drawn at random."""
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))
    return people[order[:count].sort().values]


def _without_features(data: Dataset) -> Dataset:
    """Return the protected values and weights alone, sorted, so that they reveal nothing about single rows."""
    c, weights = data.c, data.weights
    order = torch.arange(len(c))
    for values in [*([] if weights is None else [weights]), *c.unbind(1)]:
        order = order[values[order].argsort(stable=True)]
    return Dataset(
        x=data.x[:, :0].clone(),
        c=c[order],
        protected=data.protected,
        features=(),
        weights=None if weights is None else weights[order],
    )


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


def _outputs(auxiliary: Auxiliary, x: Tensor, known: Dataset) -> Tensor:
    """Return the auxiliary's outputs (n, K), averaged over its members; numbers in their own units."""
    with torch.no_grad():
        out = torch.stack([member(x) for member in auxiliary.members]).mean(0)
    first = 0
    for v, p in enumerate(known.protected):
        if p.is_continuous:
            mean, spread = centre_and_spread(known.c[:, v], known.weights)
            out[:, first] = mean + spread * out[:, first]
        first += p.outputs
    return out


def _quality_of(outputs: Tensor, rows: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well outputs (n, K) predict each protected variable of these people."""
    out, first = [], 0
    for v, p in enumerate(rows.protected):
        out.append(measure_quality(outputs[:, first : first + p.outputs], rows.c[:, v], p, weights=rows.weights))
        first += p.outputs
    return tuple(out)


def _held_out_quality(auxiliary: Auxiliary, data: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well each protected variable is predicted on the rows that the auxiliary was not trained on."""
    rows = auxiliary.held_out
    assert rows is not None
    return _quality_of(_outputs(auxiliary, rows.x, data), rows)


def _is_shared(folds: Sequence[Fold]) -> bool:
    """Return whether folds have the same auxiliaries."""
    return all(fold.test.auxiliary is folds[0].test.auxiliary for fold in folds)


def _quality(folds: Sequence[Fold], data: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well each protected variable is predicted for everyone by the auxiliary of their fold; on the rows
    that it was not trained on, where folds have the same one."""
    if _is_shared(folds):
        return folds[0].test.quality
    each = [_outputs(fold.test.auxiliary, data.x[fold.rows], fold.test.known) for fold in folds]
    outputs = data.x.new_zeros(len(data), each[0].shape[1])
    for fold, own in zip(folds, each, strict=True):
        outputs[fold.rows] = own
    return _quality_of(outputs, data)


def _proxies(auxiliary: Auxiliary, data: Dataset, variable: int, batch_size: int) -> dict[str, float]:
    """Return how strongly each feature gives a protected variable away."""
    strengths = proxy_strength(auxiliary, data, variable=variable, batch_size=batch_size).double().tolist()
    return _largest_first(dict(zip([f.name for f in data.features], strengths, strict=True)))


def _mean_proxies(folds: Sequence[Fold], data: Dataset) -> tuple[dict[str, float], ...]:
    if len(folds) == 1:
        return folds[0].test.proxy
    shares = [len(fold.rows) / len(data) for fold in folds]
    names = [f.name for f in data.features]
    return tuple(
        _largest_first({n: sum(s * f.test.proxy[v][n] for s, f in zip(shares, folds, strict=True)) for n in names})
        for v in range(len(data.protected))
    )


def _largest_first(strengths: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(strengths.items(), key=lambda pair: -pair[1]))


def _alignment(folds: Sequence[Fold], target: Model, people: Dataset) -> tuple[Share, ...]:
    """Return the alignment shares of everyone; averaged over folds by their people where each has its auxiliaries."""
    most = _ALIGNED if len(people) > _MANY else None
    if _is_shared(folds):
        return folds[0].test.alignment(target, people, most=most, rows=ROWS * len(folds))
    most = None if most is None else most // len(folds)
    each = [fold.test.alignment(target, people[fold.rows], most=most) for fold in folds]
    weights = [len(fold.rows) / len(people) for fold in folds]
    out = []
    for shares in zip(*each, strict=True):
        value = sum(weight * share.value for weight, share in zip(weights, shares, strict=True))
        noise = sum((weight * share.error) ** 2 for weight, share in zip(weights, shares, strict=True))
        out.append(Share(value, noise**0.5))
    return tuple(out)
