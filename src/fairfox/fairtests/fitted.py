"""FittedTest, the engine: what an audit learns from people, and how it measures a model.

An audit fits one per fold, or one on its reference; `fit` keeps one in a file; streams score batches with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary, infer_groups
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_qualities, predicted_values, proxy_strength
from fairfox.auxiliary.training import on_threads_by_size
from fairfox.choices.tests import DIRECT, FAIR_TESTS, TOTAL
from fairfox.data.dataset import Dataset, assign_folds, fitting_order, rows_sha256, with_stand_ins
from fairfox.data.encoding import Encoding
from fairfox.data.table import verb
from fairfox.errors import DataError, FairfoxError, OptionError, installed_versions
from fairfox.fairtests.effect import ROWS, Effect, Share, alignment_metric, model_alignment
from fairfox.fairtests.faux import GradientTest
from fairfox.fairtests.protocol import UNSEEN, CounterfactualTest, Measurement, MeasuringTest
from fairfox.fairtests.registry import make_test, settings_by_test
from fairfox.maps.check import Support
from fairfox.maps.conditional import tells_group
from fairfox.models.protocol import Model
from fairfox.options import AuditOptions

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
GIVEN = " given"  # after the name of the rank test, where the total reading has that name
ALONE = "unawareness"  # the test that changes the protected column alone
SAME_OUTCOME = "same outcome"  # rank, the label given
DRAWS = 20  # of everyone's counterfactual, in all refits together
_ALIGNED = 20_000  # of many people, whose gradients give the alignment share


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
        rows = plain.held_out
        assert rows is not None
        quality = measure_qualities(predicted_values(plain, rows.x, data), rows)
        return cls(plain, aligned_by, quality, proxy, alignment_metric(data, aligned_by), seconds)


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
        everyone: Dataset | None = None,
    ) -> FittedTest:
        """Return the test of these options fitted on all people of `data`, with `others` to compare it with.

        Auxiliaries are trained on the same people unless given. Folds are given everyone: which features may move is
        decided once for all of them. They need no record of what they learnt from.
        """
        _check_weights(data, options)
        seed = options.seed if seed is None else seed
        say = progress or (lambda text, fraction: None)
        say("training auxiliaries", 0.0)
        own = auxiliaries or Auxiliaries.of(data, options, seed, others)
        takes = bool(data.withheld.any())
        label = [f.name for f in data.covariates if f.name == options.label and has_labels(data)]
        comparable = not any(tells_group(data, name, v) for name in label for v in range(len(data.protected)))
        needed = readings_of(options, labelled=bool(label) and comparable, takes_protected=takes)
        names = list(dict.fromkeys([*needed, *others]))
        used = own.aligned_by if options.balance else own.plain
        settings, alone = settings_by_test(options), everyone is None
        if len(data) > _MANY and options.info.base != DIRECT:  # unless it was asked for
            settings.setdefault(DIRECT, {"steps": _STEPS})
        how: dict[str, Any] = {name: getattr(options, name) for name in ("hold_others", "refits", "batch_size")}
        how |= {"auxiliary": used, "seed": seed, "gate": everyone if options.gate and not alone else options.gate}
        end = perf_counter() + _FITTING * 60 * options.max_minutes / options.folds  # of this fold
        tests: dict[str, MeasuringTest] = {}
        seconds: dict[str, float] = {}
        failures: dict[str, str] = {}
        for place, name in enumerate(names):
            start = perf_counter()
            if start > end and name not in needed:
                failures[name] = out_of_time(options)
                continue
            try:
                base, given = _test_and_given(name, options)
                told = partial(_part_done, say, place, len(names), f"fitting: {name}")
                tests[name] = make_test(base, given=given, settings=settings.get(base), progress=told, **how).fit(data)
            except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
                keep_failure(failures, name, error, needed=needed)
            seconds[name] = perf_counter() - start
        return cls(
            options=options, encoding=encoding, known=_without_features(data), auxiliary=own.plain,
            fitted_on=rows_sha256(data) if alone else "", support=supports(data) if alone else (),
            version=installed_versions("fairfox")["fairfox"], quality=own.quality, proxy=own.proxy,
            aligned_by=own.aligned_by, metric=own.metric, tests=tests, seconds=seconds,
            training_seconds=own.seconds, failures=failures,
        )  # fmt: skip

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
        test, (asked, unseen) = self.tests[name], with_stand_ins(people)
        if isinstance(test, CounterfactualTest):
            found = test.measure(model, asked, predictions=predictions, rows=False)
        elif isinstance(test, GradientTest):
            found = test.measure(model, asked, step=step)
        else:
            found = test.measure(model, asked)
        return found.without(unseen, UNSEEN, people.x) if bool(unseen.any()) else found

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
        return test.deviations(model, with_stand_ins(people)[0], measured, predictions, asked, draws)

    def alignment(
        self, model: Model, people: Dataset, *, most: int | None = None, rows: int = ROWS
    ) -> tuple[Share, ...]:
        """Return the model's alignment share with each protected variable, from at most `most` people.

        A black box is called on about `rows` rows.
        """
        some = people if most is None or len(people) <= most else _drawn(people, most, self.options.seed)
        asked, unseen = with_stand_ins(some)
        some = some[~unseen] if 0 < int(unseen.sum()) < len(some) else asked
        how = {"seed": self.options.seed, "batch_size": self.options.batch_size, "rows": rows}
        return tuple(model_alignment(model, some, self.aligned_by, self.metric, **how))


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
    numbers = [v for v, p in enumerate(data.protected) if p.is_continuous]
    fold[order] = assign_folds(data.c[order], options.folds, seed=options.seed, numbers=numbers)
    out: list[Fold] = []
    failed: set[str] = set()
    for k in range(options.folds):
        left = [name for name in others if name not in failed]
        told = partial(_part_done, progress, k, options.folds)
        how: dict[str, Any] = {"seed": options.seed + k, "auxiliaries": alike, "everyone": data}
        test = FittedTest.fit(data[order[fold[order] != k]], encoding, options, others=left, progress=told, **how)
        failed |= set(test.failures)
        out.append(Fold((fold == k).nonzero()[:, 0], test))
    return out


def measured_name(options: AuditOptions) -> str:
    """Return the name under which the main test is fitted: /a is a factor applied afterwards."""
    name = options.info.base if options.info.aligned else options.main
    return f"{name}{GIVEN}" if name == TOTAL and options.given else name


def readings_of(options: AuditOptions, *, labelled: bool, takes_protected: bool) -> list[str]:
    """Return the names of what every audit measures: the test itself, and the readings beside it."""
    same = [same_outcome_name(options)] if labelled else []
    alone = [ALONE] if options.info.needs_graph and takes_protected else []
    direct = [DIRECT] if options.direct is not False else []
    return list(dict.fromkeys([measured_name(options), *direct, TOTAL, *same, *alone]))


def is_direct_wanted(options: AuditOptions, target: Model) -> bool:
    """Return whether the direct reading is measured: as asked for, else where the model has gradients."""
    return target.differentiable if options.direct is None else options.direct


def same_outcome_name(options: AuditOptions) -> str:
    """Return under which name the label is given to rank: that of the main test, where it is this and nothing else."""
    is_main = measured_name(options) == f"{TOTAL}{GIVEN}" and options.given == (options.label,)
    return f"{TOTAL}{GIVEN}" if is_main else SAME_OUTCOME


def _test_and_given(name: str, options: AuditOptions) -> tuple[str, tuple[str, ...]]:
    """Return which test stands behind a name, and what is given to it: nothing to the total and the direct reading."""
    if name == SAME_OUTCOME:
        assert options.label is not None
        return TOTAL, (options.label,)
    return name.removesuffix(GIVEN), () if name in (TOTAL, DIRECT) else options.given


def has_labels(data: Dataset) -> bool:
    """Return whether people have labels, of at least two values."""
    return data.y is not None and len(data.y[~data.y.isnan()].unique()) > 1


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
                    f"'{p.name}' is known for only {known} {verb(known, 'person', 'people')} to learn from; at least "
                    f"{2 * fewest} are needed: give more rows, or another reference table"
                )
            continue
        counts = [int((c == code).sum()) for code in range(len(p.levels))]
        smallest, level = min(zip(counts, p.levels, strict=True))
        if smallest < fewest:
            merge = "merge rare classes (merge_rare, --merge-rare), " if len(p.levels) > 2 else ""
            raise DataError(
                f"Group '{level}' of '{p.name}' has only {smallest} {verb(smallest, 'person', 'people')} to learn "
                f"from; at least {fewest} are needed: {merge}give more rows, or another reference table"
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


def out_of_time(options: AuditOptions) -> str:
    """Return why a test beside the chosen one is not run."""
    return f"it would take longer than {options.max_minutes:g} minutes in total (--max-minutes)"


def keep_failure(failures: dict[str, str], name: str, error: Exception, *, needed: Sequence[str]) -> None:
    """Note why a test could not be run; one that the audit needs raises."""
    if name != SAME_OUTCOME:  # which a warning of the audit is about
        if name in needed:
            raise error
        _log.warning("%s could not be run", name, exc_info=not isinstance(error, FairfoxError))
    failures[name] = str(error)


def _part_done(say: Progress, place: int, parts: int, what: str, done: float, total: int = 1) -> None:
    say(what, (place + done / total) / parts)


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
    kept = None if weights is None else weights[order]
    return Dataset(x=data.x[:, :0].clone(), c=c[order], protected=data.protected, features=(), weights=kept)


def _proxies(auxiliary: Auxiliary, data: Dataset, variable: int, batch_size: int) -> dict[str, float]:
    """Return how strongly each feature gives a protected variable away."""
    strengths = proxy_strength(auxiliary, data, variable=variable, batch_size=batch_size).double().tolist()
    return largest_first(dict(zip([f.name for f in data.features], strengths, strict=True)))


def largest_first(strengths: Mapping[str, float]) -> dict[str, float]:
    """Return strengths by feature, the largest first."""
    return dict(sorted(strengths.items(), key=lambda pair: -pair[1]))


def shares_auxiliaries(folds: Sequence[Fold]) -> bool:
    """Return whether folds have the same auxiliaries."""
    return all(fold.test.auxiliary is folds[0].test.auxiliary for fold in folds)


def alignment_of(folds: Sequence[Fold], target: Model, people: Dataset) -> tuple[Share, ...]:
    """Return the alignment shares of everyone; averaged over folds by their people where each has its auxiliaries."""
    most = _ALIGNED if len(people) > _MANY else None
    if shares_auxiliaries(folds):
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
