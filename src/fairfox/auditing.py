"""audit(model, table, ...): the whole flow, from a model and a table to an AuditResult."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from time import perf_counter
from typing import Any

from fairfox.assembly import assemble, counterfactual_rows, reliability_of
from fairfox.case import Case, read_tables
from fairfox.certificates.way import certifier
from fairfox.crossfit import Progress, Readings
from fairfox.explanation import displacement, effect_through_features, strongest_proxies
from fairfox.followups import find_certificates, find_steps
from fairfox.models.description import Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.sklearn_model import is_estimator
from fairfox.question import Question
from fairfox.reliability import leave_out
from fairfox.result import AuditResult, Features
from fairfox.runs import other_tests, run_shuffled, run_tests

_log = logging.getLogger("fairfox")


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
    contrasts: str = "largest",
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
        contrasts: of more than two classes everyone is compared with the "largest", and its members with the second
            largest; "all": with every other class, and the largest effect counts.
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
        contrasts=contrasts,
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
    others, skipped = other_tests(case)
    runs = run_tests(case, others, say)
    chance = run_shuffled(case, say)
    if delta_from_null and chance is not None and not isnan(chance.delta):  # somebody was judged
        case = replace(case, question=replace(question, delta=chance.delta, delta_from_null=False))
    trust = reliability_of(case, runs)
    before = runs.main
    if abstain:
        runs = leave_out(runs, trust.left_out, test=question.main)
    say("explaining", 0.9)
    features = _explain(case, runs)
    result = assemble(case, runs, before=before, trust=trust, features=features, skipped=skipped)
    result = replace(result, null=chance)
    wanted = case.target.differentiable or is_estimator(model) if next_steps is None else next_steps
    if wanted:  # other models may be dear to ask
        result = replace(result, steps=find_steps(model, case, runs, result))
    if certify:
        result = replace(result, certificates=find_certificates(model, case, runs, say))
    for text in result.warnings:
        _log.warning(text)
    say("done", 1.0)
    told = {"delta_from_null": True} if delta_from_null else {}
    return replace(result, settings={**result.settings, **told, "seconds": round(perf_counter() - started, 3)})


def _explain(case: Case, runs: Readings) -> Features:
    """Return what single features have to do with it."""
    return Features(
        proxy=strongest_proxies(runs.proxy),
        effect=effect_through_features(case, runs),
        displacement=displacement(runs, counterfactual_rows(runs)),
    )
