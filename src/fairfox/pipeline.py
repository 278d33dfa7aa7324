"""audit(), fit() and score(): options and tables become folds, fitted tests, measurements, statistics and a result."""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from fairfox.assessment import (
    Limits,
    audited_class,
    decisions_of,
    findings_of,
    intersections_of,
    label_warnings,
    map_checks,
    performance_of,
)
from fairfox.auxiliary.training import on_threads_by_size
from fairfox.certificates.path import Certificates
from fairfox.choices.tests import TOTAL, lookup_test
from fairfox.data.table import load_table
from fairfox.errors import OptionError, installed_versions
from fairfox.explain import explain
from fairfox.fairtests.fitted import (
    FittedTest,
    Fold,
    Progress,
    check_group_sizes,
    check_storable,
    fit_folds,
    supports,
)
from fairfox.fairtests.inputs import Inputs, in_order, read_encoding
from fairfox.fairtests.readings import Readings, measure_folds
from fairfox.fairtests.registry import applicable, settings_by_test
from fairfox.findings import AuditRecord, Streamed, TestComparison
from fairfox.maps.check import MapCheck, Support
from fairfox.maps.conditional import check_given_columns
from fairfox.models.adapters import describe
from fairfox.options import NOT_OF_FIT, AuditOptions, defaults_sha256, refuse_outside
from fairfox.result import AuditResult
from fairfox.statistics.diagnostics import Null, find_warnings, shuffled
from fairfox.statistics.groups import (
    agreement,
    default_delta,
    score_unit,
)

_log = logging.getLogger("fairfox")
_SAME_PEOPLE = (
    "The test was fitted on these people, so it seems more certain than it is; fit it on others, or audit without a "
    "reference."
)
_HELD = " Given columns stay as they are, and with them what they explain of the others: {}."
_PACKAGES = ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals")  # whose versions are recorded


def audit(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    label: str | None = None,
    test: str = "rank",
    settings: Mapping[str, object] | None = None,
    delta: float | Mapping[str, float] | None = None,
    max_flagged: float | Mapping[str, float] | None = None,
    given: str | Sequence[str] = (),
    reference: object | None = None,
    columns: Sequence[str] | None = None,
    weights: str | None = None,
    decision_threshold: float | None = None,
    seed: int = 0,
    options: object = None,
    progress: Progress | None = None,
    **unknown: object,
) -> AuditResult:
    """Return, for every person in the table, whether the model treats them differently because of c.

    Args:
        model: a torch module, a scikit-learn estimator or Pipeline, a booster, or a function from a table to
            predictions.
        table: the people: a pandas, polars or pyarrow table, a 2-D array, or a path.
        protected: the protected column, a cut through one such as "age<25", or several.
        label: the column of true outcomes, kept from the model.
        test: the fairness test, see `fairfox.FAIR_TESTS`; "all": rank, and every other test that applies.
        settings: of the test: {"epsilon": 0.5} for fta, {"graph": {"income": ["sex"]}} for counterfactual.
        delta: people with a score above it are flagged; also by group: {"sex=Female": 0.03}.
        max_flagged: the largest share of people that may be over delta; also by group.
        given: columns that are held equal, and with them what they explain of the others.
        reference: rows to learn from. Without it the table is cross-fitted: nobody is scored by an auxiliary or map
            that has seen them. With it the table itself need not have the protected columns.
        columns: the columns the model takes, in its order.
        weights: the column that says how many people a row stands for.
        decision_threshold: flag people whose decision would change: yes from this prediction on.
        seed: same seed, same machine, same numbers.
        options: all other options by name, {"refits": 10, "drop": ["zip"]}, or in groups: `fairfox.TableOptions`,
            `ModelOptions`, `EstimationOptions` and `ReportOptions`, which say what each means.
        progress: called with what is being done and the fraction done.
        unknown: refused, with what to write instead.
    """
    refuse_outside(unknown)
    chosen = AuditOptions.of(
        options, protected=protected, label=label, test=test, settings=settings, delta=delta, max_flagged=max_flagged,
        given=given, columns=columns, weights=weights, decision_threshold=decision_threshold, seed=seed,
    )  # fmt: skip
    return AuditResult(run_audit(model, table, chosen, reference=reference, progress=progress), table)


def run_audit(
    model: object,
    table: object,
    options: AuditOptions,
    *,
    reference: object | None = None,
    progress: Progress | None = None,
) -> AuditRecord:
    """Return the audit of a model with options that are made already."""
    started = perf_counter()
    settings_by_test(options)  # refuses settings that a test does not have, before any work is done
    say = progress or (lambda text, fraction: None)
    say("reading the table", 0.0)
    inputs = Inputs.read(model, table, reference, options)
    options = inputs.options
    if options.null and bool(inputs.data.withheld.any()):
        raise OptionError("null (--null) says nothing about a model that takes the protected column; leave it out")
    if options.certify:
        from fairfox.certificates.certify import certifier  # only where it is asked for

        certifier(model, inputs.target)  # refuses what nothing can certify
    others, skipped = (
        applicable(options, inputs.data, gradient=inputs.target.differentiable) if options.runs_all else ([], {})
    )

    def fitting(text: str, done: float) -> None:
        say(text, 0.05 + 0.5 * done)

    folds = fit_folds(inputs.data, inputs.fitting, inputs.encoding, options, others=others, progress=fitting)
    readings = _measured(inputs, folds, others, say)
    result = _result(
        model,
        inputs,
        readings,
        support=folds[0].test.support if reference is not None else supports(inputs.data),
        started=started,
        progress=say,
        null=_null(inputs, say),
        skipped=skipped,
    )
    for text in result.warnings:
        _log.warning(text)
    say("done", 1.0)
    return result


def fit(
    table: object,
    *,
    protected: str | Sequence[str],
    label: str | None = None,
    test: str = "rank",
    settings: Mapping[str, object] | None = None,
    given: str | Sequence[str] = (),
    columns: Sequence[str] | None = None,
    weights: str | None = None,
    seed: int = 0,
    options: object = None,
    **unknown: object,
) -> FittedTest:
    """Return a fairness test fitted on all people of a table; what the arguments mean is in `fairfox.audit`.

    There is no model here, so `columns` says what models take, in their order: by default all columns but the
    protected ones, the label, the id, the weights and dropped ones.

    Example:
        >>> import pyarrow as pa
        >>> people = pa.table({"sex": ["f", "m"] * 20, "income": [float(i) for i in range(40)]})
        >>> test = fit(people, protected="sex", options={"refits": 2})
        >>> len(score(test, lambda table: table["income"] / 40, people))
        40
    """
    refuse_outside(unknown)
    chosen = AuditOptions.of(
        options, protected=protected, label=label, test=test, settings=settings, given=given, columns=columns,
        weights=weights, seed=seed,
    )  # fmt: skip
    return fit_with(table, chosen.without(NOT_OF_FIT, "a fit"))


def fit_with(table: object, options: AuditOptions, model: object = None) -> FittedTest:
    """Return a fitted test, with options that are made already; columns and categories are the model's, if given."""
    check_storable(options)
    settings_by_test(options)
    people = load_table(table)
    encoding = read_encoding(people, None, None if model is None else describe(model, wanted=options.output), options)
    data = in_order(encoding.encode(people), options)
    check_given_columns(data, options.given)  # refuses what cannot be
    check_group_sizes(data)
    return FittedTest.fit(data, encoding, options)


def score(
    test: FittedTest,
    model: object,
    table: object,
    *,
    delta: float | Mapping[str, float] | None = None,
    max_flagged: float | Mapping[str, float] | None = None,
    decision_threshold: float | None = None,
    options: object = None,
    progress: Progress | None = None,
    **unknown: object,
) -> AuditResult:
    """Return what an audit with the fitting table as reference finds.

    Args:
        test: what `fairfox.fit` returned, or `fairfox.load_test` read from a file.
        model: as for `fairfox.audit`; it takes the columns that the test was fitted on.
        table: the people. Where it lacks the protected columns, the most probable values take their place.
        delta: as for `fairfox.audit`.
        max_flagged: as for `fairfox.audit`.
        decision_threshold: as for `fairfox.audit`.
        options: how the model is called and what is reported: `fairfox.ModelOptions` and `fairfox.ReportOptions`, or
            a dict of such options.
        progress: called with what is being done and the fraction done.
        unknown: refused, with what to write instead.
    """
    refuse_outside(unknown)
    chosen = test.options.scoring(options, delta=delta, max_flagged=max_flagged, decision_threshold=decision_threshold)
    return AuditResult(run_score(test, model, table, chosen, progress=progress), table)


def run_score(
    test: FittedTest,
    model: object,
    table: object,
    options: AuditOptions,
    *,
    streamed: Streamed | None = None,
    progress: Progress | None = None,
) -> AuditRecord:
    """Return what a fitted test finds, with options that are made already.

    `streamed` has all people of a stream in numbers, where the table is a sample of them.
    """
    started, say = perf_counter(), progress or (lambda text, fraction: None)
    inputs = Inputs.read(model, table, None, options, test=test)
    readings = _measured(inputs, [Fold(torch.arange(len(inputs.data)), replace(test, options=options))], (), say)
    return _result(model, inputs, readings, support=test.support, started=started, progress=say, streamed=streamed)


def _measured(inputs: Inputs, folds: Sequence[Fold], others: Sequence[str], progress: Progress) -> Readings:
    def say(text: str, done: float) -> None:
        progress(text, 0.55 + 0.35 * done)

    return measure_folds(folds, inputs.target, inputs.data, inputs.predictions, others=others, progress=say)


def _null(inputs: Inputs, progress: Progress) -> Null | None:
    """Return what is found where the protected values are shuffled, as often as asked for."""
    options = inputs.options
    if not options.null:
        return None
    scores, shares = [], []

    def say(text: str, done: float) -> None:
        progress(f"shuffled: {text}", 0.9)

    for seed in range(options.seed + 1000, options.seed + 1000 + options.null):
        data, fitting = replace(inputs.data, c=shuffled(inputs.data.c, seed)), inputs.fitting
        fitting = None if fitting is None else replace(fitting, c=shuffled(fitting.c, seed))
        folds = fit_folds(data, fitting, inputs.encoding, options, progress=say)
        found = measure_folds(folds, inputs.target, data, inputs.predictions, progress=say)
        scores.append(torch.where(found.main.abstained, torch.nan, found.main.score))
        shares.append(torch.tensor([share.value for share in found.alignment], dtype=torch.float64))
    return Null(torch.stack(scores), torch.stack(shares))


@on_threads_by_size
def _result(
    model: object,
    inputs: Inputs,
    readings: Readings,
    *,
    support: Sequence[Support],
    started: float,
    progress: Progress,
    null: Null | None = None,
    skipped: Mapping[str, str] | None = None,
    streamed: Streamed | None = None,
) -> AuditRecord:
    """Return what was found, with all that statistics say about it."""
    options, limits = inputs.options, Limits.of(inputs, readings.people, null)
    checks = map_checks(inputs, readings, support, limits)  # of everyone, as gaps are
    main = readings.main
    certainty = limits.rule.certainty(main, limits.everyones, inputs.predictions).without(main.abstained)
    if streamed is not None and streamed.threshold is not None and certainty.p_values is not None:
        certainty = replace(certainty, significant=certainty.p_values <= streamed.threshold.p)
    mapped, decisions, predicts = readings.moved.counterfactual, decisions_of(inputs), performance_of(inputs)
    certificates = _certificates(model, inputs, readings, limits, progress) if options.certify else None
    progress("explaining", 0.92)
    found = AuditRecord(
        scores=main.score, effect=main.effect, abstained=main.abstained, reasons=main.reasons, worst=main.variable,
        interval=certainty.interval, sampling=certainty.sampling, flagged=certainty.flagged,
        confident=certainty.confident, p_values=certainty.p_values, significant=certainty.significant,
        predictions=inputs.predictions, encoded=readings.people.x, ids=inputs.data.ids,
        findings=findings_of(inputs, readings, limits, null, streamed, decisions),
        counterfactual=mapped, features=explain(
            inputs.target, readings, seed=options.seed, batch_size=options.batch_size, aligned=options.info.aligned),
        counterfactual_table=None if mapped is None else inputs.encoding.own_table(mapped),
        delta=limits.delta, deltas=limits.by_group, test=options.main, unit=score_unit(options, inputs.target.unit),
        meaning=options.info.meaning + (_HELD.format(", ".join(options.given)) if options.given else ""),
        warnings=(*_warnings(inputs, readings, streamed, checks), *label_warnings(inputs, predicts)),
        weights=inputs.data.weights, performance=predicts,
        checks=readings.checks.get(options.info.base if options.info.aligned else options.main, {}),
        comparison=_comparison(readings, skipped or {}) if options.runs_all else None,
        settings=_settings(type(model).__name__, inputs, limits.shares, seconds=perf_counter() - started),
        certificates=certificates, refits=main.refits, null=null, map_checks=checks, still=readings.still,
        streamed=streamed,
    )  # fmt: skip
    return found if decisions is None else replace(found, intersections=intersections_of(found, decisions))


def _comparison(readings: Readings, skipped: Mapping[str, str]) -> TestComparison:
    """Return what several tests measured on the same people, side by side."""
    each = [torch.where(m.abstained, torch.nan, m.score.cpu().double()) for m in readings.others.values()]
    scores = torch.stack(each, dim=1)
    return TestComparison(
        tests=tuple(readings.others),
        scores=scores,
        agreement=agreement(scores),
        seconds=readings.seconds,
        training_seconds=readings.training_seconds,
        checks=readings.checks,
        skipped={**skipped, **readings.failures},
    )


def _certificates(
    model: object, inputs: Inputs, readings: Readings, limits: Limits, progress: Progress
) -> Certificates:
    """Return what is proved about everyone's path to their counterfactual row, compared with delta."""
    from fairfox.certificates.certify import certify

    moves, delta, everyones = readings.main.counterfactuals is not None, limits.delta, limits.everyones
    if not moves:  # the total reading has its own delta
        delta = everyones = default_delta(lookup_test(TOTAL), inputs.predictions, unit=inputs.target.unit)
    main, moved = readings.main, readings.moved
    assert moved.counterfactuals is not None  # one of the two readings always has rows
    aligned = inputs.options.info.aligned
    shares = torch.tensor([share.value if aligned else 1.0 for share in readings.alignment], dtype=torch.float64)
    return certify(
        model, inputs.target, readings.people.x, moved.counterfactuals, scores=moved.score,
        factor=shares[main.variable.cpu()], judged=~main.abstained & ~moved.abstained,
        reasons=[own or other for own, other in zip(main.reasons, moved.reasons, strict=True)], delta=delta,
        limits=everyones, total=not moves, progress=lambda done: progress("certifying", 0.95 + 0.05 * done),
    )  # fmt: skip


def _warnings(
    inputs: Inputs, readings: Readings, streamed: Streamed | None, checks: Sequence[MapCheck]
) -> tuple[str, ...]:
    inferred, people = readings.inferred.sum(0).tolist(), len(inputs.data)
    if streamed is not None:
        inferred, people = [each.tally.inferred for each in streamed.variables.values()], streamed.tally.people
    found = find_warnings(inputs, readings, inferred=inferred, people=people)
    same = inputs.hashes["rows_sha256"] == inputs.hashes["reference_sha256"]
    return (*found, *[_SAME_PEOPLE] * same, *(text for check in checks for text in check.warnings))


def _settings(model: str, inputs: Inputs, limits: Mapping[str, float], *, seconds: float) -> dict[str, Any]:
    """Return all that it takes to repeat an audit, and to tell whether it was done on the same rows."""
    options, learnt = inputs.options, inputs.protected_values
    return {
        **options.recorded(),
        **inputs.hashes,
        "test": options.main,
        "columns": list(inputs.encoding.columns),
        "max_flagged": dict(limits) or None,
        "reference": learnt is not None,
        "reference_rows": None if learnt is None else len(learnt),
        "folds": None if learnt is not None else options.folds,
        "rows": len(inputs.data),
        "matched_rows": inputs.matched,
        "model": model,
        "model_kind": inputs.target.kind,
        "differentiable": inputs.target.differentiable,
        "cut": inputs.cut,
        "audited_class": audited_class(inputs),
        "repaired": inputs.described is not None and inputs.described.repaired_with is not None,
        "defaults_sha256": defaults_sha256(),
        "versions": {"python": platform.python_version(), **installed_versions(*_PACKAGES)},
        "seconds": round(seconds, 3),
    }
