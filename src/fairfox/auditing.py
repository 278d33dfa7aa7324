"""audit(model, table, ...): the whole flow, from a model and a table to an AuditResult."""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.model import centre_and_spread
from fairfox.case import Case, read_tables
from fairfox.certainty import Rule
from fairfox.certificates.way import certifier
from fairfox.certification import Certificates
from fairfox.certification import certify as certify_ways
from fairfox.comparison import Comparison, applicable, check_used
from fairfox.crossfit import TOTAL, Progress, Readings, cross_fit
from fairfox.data.contrasts import LOWER
from fairfox.data.dataset import Protected
from fairfox.data.hashes import rows_sha256, tensors_sha256
from fairfox.doubts import find_doubts
from fairfox.errors import OptionError
from fairfox.explain import effect_by_feature
from fairfox.extras import installed_versions
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import about
from fairfox.findings import find, own_deltas
from fairfox.flips import transparency
from fairfox.models.description import Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.sklearn_model import is_estimator
from fairfox.next_steps import next_steps as find_next_steps
from fairfox.question import Question
from fairfox.reliability import Reliability, leave_out
from fairfox.result import AuditResult, FeatureEffect, Features, Finding
from fairfox.steps import NextSteps
from fairfox.thresholds import default_delta
from fairfox.verdicts.model import ALLOWED
from fairfox.verdicts.nulls import Null, shuffled

_log = logging.getLogger("fairfox")
_PACKAGES = ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals")
_EXPLAINED = 100  # people whom a black box is asked about feature by feature, drawn at random
_WORST = 20  # and the people with the highest scores


def audit(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    label: str | None = None,
    test: str = "rank",
    options: Mapping[str, object] | None = None,
    delta: float | None = None,
    deltas: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    reference: object | None = None,
    intersections: bool = False,
    hold_others: bool = False,
    legitimate: str | Sequence[str] = (),
    reference_group: str | Sequence[str] | None = None,
    merge_rare: float | None = None,
    protected_from: object | None = None,
    on: str | None = None,
    weights: str | None = None,
    seed: int = 0,
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
    drop: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    id: str | None = None,
    positive: Any = None,
    output: Wanted = "probability",
    returns: Returns | None = None,
    kind: Kind | None = None,
    refits: int = 5,
    folds: int = 5,
    batch_size: int = 4096,
    certify: bool = False,
    abstain: float | None = None,
    fdr: float = 0.1,
    decision_threshold: float | None = None,
    null: int = 0,
    delta_from_null: bool = False,
    next_steps: bool | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Return, for every person in the table, whether the model treats them differently because of c.

    Args:
        model: a torch module, a scikit-learn estimator or Pipeline, or a function from a table to predictions.
        table: the people: a pandas, polars or pyarrow table, a 2-D array, or a path.
        protected: the protected column, a cut through one such as "age<25", or several: two groups, many classes
            or a number. They are no inputs of the model unless the model names them among its columns. Where a value
            is missing, the most probable one takes its place.
        label: the column of true outcomes, kept from the model.
        test: the fairness test, see `fairfox.FAIR_TESTS`; "all": rank, and every other one that applies beside it.
        options: settings of the test: {"epsilon": 0.5} for fta, {"graph": {"income": ["sex"]}} for counterfactual; of
            one of all tests: {"fliptest.steps": 5000}.
        delta: people with a score above it are flagged; by default the test's own.
        deltas: another delta for single groups: {"Female": 0.03, "race=Black": 0.02}. For people of several of them
            the strictest counts.
        limits: the largest share of people that may be flagged, in all ("") and in single groups: {"": 0.1,
            "race=Black": 0.05}; `AuditResult.over_limits` says which are exceeded.
        reference: rows to learn from. Without it the table is cross-fitted: nobody is scored by an
            auxiliary or map that has seen them. With it the table itself need not have the protected columns.
        intersections: also compare the crossings of the protected classes, such as "Female & Black".
        hold_others: compare with people who are alike in the other protected variables; without it each variable
            is looked at as if it were the only one.
        legitimate: columns that may rightly tell the groups apart, such as "hours-per-week": they stay as they are,
            and so does what they explain of the others, so that what remains is not explained by them.
        reference_group: compare every class with this one only ("White" or "race=White"); one per variable.
        merge_rare: put together classes with a smaller share of the people than this.
        protected_from: another table that has the protected columns, found by the column `on` of both.
        on: the column that names people in both tables; it is no input of the model.
        weights: the column that says how many people a row stands for.
        seed: same seed, same machine, same numbers.
        categorical: columns to read as categories whatever they look like.
        continuous: columns to read as numbers whatever they look like.
        drop: columns to leave out.
        columns: the columns the model takes, in its order; by default its own feature names, else all but the
            protected, label, id and dropped ones.
        id: the column that names people.
        positive: the audited class, where the model has several.
        output: audit the "probability" or the "logit".
        returns: what the model returns, "probability", "logit" or "value", where that is not clear.
        kind: what the model receives, "table", "matrix" or "encoded".
        refits: how many times auxiliaries and maps are fitted; their spread gives the intervals.
        folds: parts of the cross-fitting.
        batch_size: rows per block.
        certify: also prove how far the prediction changes at any point on everyone's way to the other group, for
            ReLU networks and tree ensembles; another model is refused.
        abstain: the share of people to leave out, those whom the re-fits disagree about most: 0.1 for a tenth. Who has
            no score anyway counts among them. With it (0: nobody is left out) doubt and distance from real people are
            written and reported, see `AuditResult.doubt` and `AuditResult.distance`.
        fdr: of the people listed as over delta, the share that may be there wrongly (`AuditResult.listed`).
        decision_threshold: the prediction from which on people get a yes: an effect then counts where it turns the
            decision, whatever its size, in place of delta.
        null: how often to do it all again with the protected values shuffled: what chance alone gives.
        delta_from_null: take as delta what 95 % of the people stay below when the values are shuffled.
        next_steps: also find out which feature to drop or to repair, for at most 100 000 predictions more; by default
            for torch networks and scikit-learn models, which are trained again for that.
        progress: called with what is being done and the fraction done.
    """
    started = perf_counter()
    say = progress or (lambda text, fraction: None)
    question = Question(
        protected=protected,
        label=label,
        test=test,
        options=options,
        delta=delta,
        deltas=deltas,
        limits=limits,
        intersections=intersections,
        hold_others=hold_others,
        legitimate=legitimate,
        reference_group=reference_group,
        merge_rare=merge_rare,
        on=on,
        weights=weights,
        seed=seed,
        categorical=categorical,
        continuous=continuous,
        drop=drop,
        columns=columns,
        id=id,
        positive=positive,
        output=output,
        returns=returns,
        kind=kind,
        refits=refits,
        folds=folds,
        batch_size=batch_size,
        certify=certify,
        abstain=abstain,
        fdr=fdr,
        decision_threshold=decision_threshold,
        null=null,
        delta_from_null=delta_from_null,
        next_steps=next_steps,
    )
    say("reading the table", 0.0)
    case = Case.of(model, question, read_tables(table, reference, protected_from, question))
    if certify:
        certifier(model, case.target)  # refuses what nothing can certify
    others, skipped = _others(case)
    runs = _readings(case, others, say)
    chance = _null(case, say)
    if delta_from_null and chance is not None and not isnan(chance.delta):  # somebody was judged
        case = replace(case, question=replace(question, delta=chance.delta, delta_from_null=False))
    trust = _reliability(case, runs)
    before = runs.main
    if abstain:
        runs = leave_out(runs, trust.left_out, test=question.main)
    say("explaining", 0.9)
    result = replace(_result(case, runs, before, trust, skipped), null=chance)
    wanted = case.target.differentiable or is_estimator(model) if next_steps is None else next_steps
    if wanted:  # other models may be dear to ask
        result = replace(result, steps=_steps(model, case, runs, result))
    if certify:
        result = replace(result, certificates=_certificates(model, case, runs, say))
    for text in result.warnings:
        _log.warning(text)
    say("done", 1.0)
    told = {"delta_from_null": True} if delta_from_null else {}
    return replace(result, settings={**result.settings, **told, "seconds": round(perf_counter() - started, 3)})


def _others(case: Case) -> tuple[list[str], dict[str, str]]:
    """Return the tests to run beside the main one, and why each of the rest is not."""
    q, data = case.question, case.data
    if not q.several:
        return [], {}
    others, skipped = applicable(
        data.protected,
        gradient=case.target.differentiable,
        labelled=data.y is not None,
        takes_c=bool(data.withheld.any()),
        graph="graph" in (q.options or {}),
        compared=bool(q.reference_group),
        held=q.hold_others,
        explained=bool(q.legitimate),
    )
    check_used(q.options_by_test, skipped)
    return others, skipped


def _readings(case: Case, others: Sequence[str], progress: Progress) -> Readings:
    q = case.question
    return cross_fit(
        case.target,
        case.data,
        case.known,
        case.predictions,
        q.main,
        others=others,
        options=q.options_by_test,
        hold_others=q.hold_others,
        legitimate=q.legitimate_names,
        refits=q.refits,
        folds=q.folds,
        seed=q.seed,
        batch_size=q.batch_size,
        progress=progress,
    )


def _null(case: Case, progress: Progress) -> Null | None:
    """Return what is found where the protected values are shuffled, as often as asked for; None where nobody asked."""
    q = case.question
    if not q.null:
        return None
    if bool(case.data.withheld.any()):
        raise OptionError(
            "Shuffled protected values say nothing about a model that takes the protected column itself; leave null "
            "(--null) out"
        )
    scores, shares = [], []
    for number in range(q.null):
        seed = q.seed + 1000 + number
        known = None if case.known is None else replace(case.known, c=shuffled(case.known.c, seed))
        other = replace(case, data=replace(case.data, c=shuffled(case.data.c, seed)), known=known)
        found = _readings(other, [], lambda text, done: progress(f"shuffled: {text}", 0.9))
        scores.append(torch.where(found.main.abstained, torch.nan, found.main.score))
        shares.append(torch.tensor([share.value for share in found.alignment], dtype=torch.float64))
    return Null(torch.stack(scores), torch.stack(shares))


def _steps(model: object, case: Case, runs: Readings, result: AuditResult) -> NextSteps | None:
    """Return what can be done about the effect of a map, as far as the model and the table tell; None without one."""
    effect, q = result.features.effect, case.question
    moved = runs.total if runs.main.counterfactuals is None else runs.main
    if effect is None or moved.counterfactual is None:
        return None
    return find_next_steps(
        case.target,
        case.data,
        moved.counterfactual,
        effect.total,
        abstained=moved.abstained,
        estimator=model if is_estimator(model) else None,
        label_values=case.encoding.label_values,
        seed=q.seed,
        batch_size=q.batch_size,
    )


def _reliability(case: Case, runs: Readings) -> Reliability:
    """Return how far scores can be trusted, but for the counterfactual rows."""
    main = runs.main
    return Reliability(
        refits=main.refits,
        delta=_delta(case),
        silent=main.abstained,
        variable=main.variable,
        klass=main.klass,
        real=runs.people if case.known is None else case.known,
        share=case.question.abstain,
        seed=case.question.seed,
    )


def _result(
    case: Case, runs: Readings, before: Measurement, trust: Reliability, skipped: Mapping[str, str]
) -> AuditResult:
    """Return what was found, and how it came about but for the time it took; `before` anybody was left out."""
    q, main, what = case.question, runs.main, case.question.about
    delta, rule = _delta(case), _rule(case)
    limit = own_deltas(runs.people, delta, case.deltas)
    sure = rule.certainty(before, limit, case.predictions, runs.people.protected).without(main.abstained)
    mapped = runs.total.counterfactual if main.counterfactual is None else main.counterfactual
    trust = trust if main.counterfactuals is None else replace(trust, rows=mapped)
    explained = _explain(case, runs)
    return AuditResult(
        scores=main.score,
        signed=main.signed,
        interval=sure.interval,
        flags=sure.flags,
        confident_flags=sure.confident_flags,
        abstained=main.abstained,
        reasons=main.reasons,
        predictions=case.predictions,
        worst=main.variable,
        findings=_findings(case, runs, before, limit, rule),
        counterfactual=mapped,
        ids=case.data.ids,
        features=Features(proxy=_strongest(runs.proxy), effect=explained, displacement=_displacement(runs, mapped)),
        delta=delta,
        deltas=case.deltas,
        test=q.main,
        meaning=_meaning(case),
        unit=f"{what.unit} ({case.unit})" if what.of_prediction else what.unit,
        warnings=tuple(_warnings(case, runs, trust)),
        weights=case.data.weights,
        checks=runs.checks.get(q.main.removesuffix("/a"), {}),
        comparison=Comparison.of(runs, skipped) if q.several else None,
        settings=_settings(case),
        counterfactual_table=None if mapped is None else case.encoding.own_table(mapped),
        reliability=trust,
        p_values=sure.p_values,
        listed=sure.listed,
    )


def _rule(case: Case) -> Rule:
    """Return what decides, beside delta, who is over it and whether they are too many."""
    q = case.question
    return Rule(
        decision_threshold=q.decision_threshold,
        fdr=q.fdr,
        allowed=case.limits.get("", ALLOWED),
        folds=None if case.known is not None else q.folds,
        seed=q.seed,
    )


def _certificates(model: object, case: Case, runs: Readings, progress: Progress) -> Certificates:
    """Return what is proved about everyone's way, held against delta: that of `rank` where the test moves nobody."""
    moves = runs.main.counterfactuals is not None
    delta = _delta(case) if moves else default_delta(about(TOTAL).delta, case.predictions, unit=case.unit)
    return certify_ways(
        model,
        case.target,
        runs,
        aligned=case.question.main.endswith("/a"),
        delta=delta,
        limits=own_deltas(runs.people, delta, case.deltas if moves else {}),
        progress=lambda done: progress("certifying", 0.95 + 0.05 * done),
    )


def _meaning(case: Case) -> str:
    """Return what the score says, and what stays as it is."""
    q = case.question
    if not q.legitimate_names:
        return q.about.meaning
    return (
        f"{q.about.meaning} Legitimate columns stay as they are, and with them what they explain of the others: "
        f"{', '.join(q.legitimate_names)}."
    )


def _delta(case: Case) -> float:
    """Return the delta that was given, or the test's own: a share of the prediction's range where it is one of it."""
    what = case.question.about
    if case.question.delta is not None:
        return case.question.delta
    return default_delta(what.delta, case.predictions, unit=case.unit) if what.of_prediction else what.delta


def _findings(
    case: Case, runs: Readings, before: Measurement, delta: float | Tensor, rule: Rule
) -> tuple[Finding, ...]:
    fitted_on = case.data if case.known is None else case.known
    return tuple(
        find(
            runs,
            v,
            predictions=case.predictions,
            delta=delta,
            spread=float(centre_and_spread(fitted_on.c[:, v], fitted_on.weights)[1]),
            merged=dict(source.merged),
            rule=rule,
            before=before,
        )
        for v, source in enumerate(case.encoding.sources)
    )


def _warnings(case: Case, runs: Readings, trust: Reliability) -> list[str]:
    q = case.question
    far = None if q.abstain is None else trust.distance  # it costs time
    found = find_doubts(case.target, case.data, case.known, case.predictions, runs, q.main, distance=far)
    guessed = q.returns is None and case.described is None
    return [*found, *(_about_output(case.predictions, case.unit) if guessed else [])]


def _settings(case: Case) -> dict[str, Any]:
    """Return how the result came about."""
    q, learnt = case.question, case.known
    return {
        "seed": q.seed,
        "test": q.main,
        "options": None if q.options is None else {name: str(value) for name, value in q.options.items()},
        "protected": [p.name for p in case.data.protected],
        "label": q.label,
        "reference": learnt is not None,
        "rows": len(case.data),
        "rows_sha256": rows_sha256(case.data),
        "predictions_sha256": tensors_sha256(case.predictions),
        "reference_rows": None if learnt is None else len(learnt),
        "columns": list(case.encoding.columns),
        **q.named,
        "intersections": q.intersections,
        "hold_others": q.hold_others,
        "legitimate": q.legitimate_names or None,
        "merge_rare": q.merge_rare,
        "weights": q.weights,
        "max_flagged": case.limits or None,
        "on": q.on,
        "matched_rows": case.matched,
        "refits": q.refits,
        "folds": None if learnt is not None else q.folds,
        "batch_size": q.batch_size,
        "output": q.output,
        "positive": None if q.positive is None else str(q.positive),
        "returns": q.returns,
        "kind": q.kind,
        "model": case.model,
        "model_kind": case.kind,
        "differentiable": case.target.differentiable,
        **({"certify": True} if q.certify else {}),
        "fdr": q.fdr,
        "decision_threshold": q.decision_threshold,
        "null": q.null or None,
        **({} if q.abstain is None else {"abstain": float(q.abstain)}),
        "versions": {"python": platform.python_version(), **installed_versions(*_PACKAGES)},
    }


def _explain(case: Case, runs: Readings) -> FeatureEffect | None:
    """Return contributions of features to the map's effect: of everyone, or of a sample for a black box."""
    q, target, data, main = case.question, case.target, case.data, runs.main
    own = main.counterfactuals is not None
    mapped = main.counterfactuals if own else runs.total.counterfactuals
    if mapped is None:
        return None
    drawn, asked = _sample(case, main)
    judged = ~(main if own else runs.total).abstained.cpu()
    rows = (asked & judged).nonzero()[:, 0]
    each = effect_by_feature(target, data.x[rows], mapped[:, rows], data.features, seed=q.seed, batch_size=q.batch_size)
    per_person = each.new_full((len(data), len(data.features)), torch.nan)
    if q.main.endswith("/a"):
        each = each * torch.tensor([share.value for share in runs.alignment]).to(each)[main.variable[rows], None]
    per_person[rows] = each * _directions(main if own else runs.total, data.protected)[rows, None].to(each)
    method = "integrated gradients" if target.differentiable else "sampled Shapley values"
    return FeatureEffect(tuple(f.name for f in data.features), per_person, method, drawn)


def _sample(case: Case, main: Measurement) -> tuple[Tensor, Tensor]:
    """Return who is drawn to speak for everyone (N,), and who is explained: they and the people with high scores.

    Everyone, where the model has gradients or the people are few.
    """
    count = len(case.data)
    everyone = torch.ones(count, dtype=torch.bool)
    if case.target.differentiable or count <= _EXPLAINED:
        return everyone, everyone
    order = torch.randperm(count, generator=torch.Generator().manual_seed(case.question.seed))
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[order[:_EXPLAINED]] = True
    asked = drawn.clone()
    asked[main.score.cpu().argsort(descending=True)[:_WORST]] = True
    return drawn, asked


def _displacement(runs: Readings, mapped: Tensor | None) -> dict[str, float]:
    """Return how far each feature of the first class's people moves on average when they are mapped, largest first.

    Of the first protected variable, where it is a class: who is judged, and mapped because of it.
    """
    people, measured = runs.people, runs.total if runs.main.counterfactuals is None else runs.main
    among = (people.c[:, 0].cpu() == 0) & ~measured.abstained.cpu() & (measured.variable.cpu() == 0)
    if mapped is None or people.protected[0].is_continuous or not bool(among.any()):
        return {}
    strength = transparency(people, mapped.to(people.x), among=among.to(people.x.device)).strength.tolist()
    named = zip([f.name for f in people.features], strength, strict=True)
    return dict(sorted(named, key=lambda pair: -pair[1]))


def _directions(measured: Measurement, protected: Sequence[Protected]) -> Tensor:
    """Return -1 for people whose number went down (N,), since signed values always point up, else +1."""
    down = [protected[c.variable].is_continuous and c.towards == LOWER for c in measured.contrasts]
    return torch.where(torch.tensor(down), -1.0, 1.0)[measured.worst.cpu()]


def _strongest(proxies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return how strongly each feature gives any of the protected variables away, largest first."""
    strongest = {name: max(proxy[name] for proxy in proxies) for name in proxies[0]}
    return dict(sorted(strongest.items(), key=lambda pair: -pair[1]))


def _about_output(predictions: Tensor, unit: str) -> list[str]:
    if unit != "value":
        return []
    return [
        f"The model's outputs, from {float(predictions.min()):.3g} to {float(predictions.max()):.3g}, are taken as "
        "values in their own units; if they are log-odds, say returns='logit' (--returns logit)."
    ]
