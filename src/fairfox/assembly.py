"""The result of an audit, assembled from what was measured: who is over delta, how surely, and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from fairfox.auxiliary.model import centre_and_spread
from fairfox.case import Case
from fairfox.certainty import Rule
from fairfox.comparison import Comparison
from fairfox.crossfit import Readings
from fairfox.doubts import find_doubts
from fairfox.fairtests.protocol import Measurement
from fairfox.findings import find, own_deltas
from fairfox.reliability import Reliability
from fairfox.result import AuditResult, Features, Finding
from fairfox.settings import settings_of
from fairfox.thresholds import default_delta
from fairfox.verdicts.model import ALLOWED


def assemble(
    case: Case,
    runs: Readings,
    *,
    before: Measurement,
    trust: Reliability,
    features: Features,
    skipped: Mapping[str, str],
) -> AuditResult:
    """Return what was found, and how it came about but for the time it took; `before` anybody was left out."""
    q, main, what = case.question, runs.main, case.question.about
    delta, rule = delta_of(case), _rule(case)
    limit = own_deltas(runs.people, delta, case.deltas)
    sure = rule.certainty(before, limit, case.predictions, runs.people.protected).without(main.abstained)
    mapped = counterfactual_rows(runs)
    trust = trust if main.counterfactuals is None else replace(trust, rows=mapped)
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
        features=features,
        delta=delta,
        deltas=case.deltas,
        test=q.main,
        meaning=_meaning(case),
        unit=f"{what.unit} ({case.unit})" if what.of_prediction else what.unit,
        warnings=tuple(_warnings(case, runs, trust)),
        weights=case.data.weights,
        checks=runs.checks.get(q.main.removesuffix("/a"), {}),
        comparison=Comparison.of(runs, skipped) if q.several else None,
        settings=settings_of(case),
        counterfactual_table=None if mapped is None else case.encoding.own_table(mapped),
        reliability=trust,
        p_values=sure.p_values,
        listed=sure.listed,
    )


def delta_of(case: Case) -> float:
    """Return the delta that was given, or the test's own: a share of the prediction's range where it is one of it."""
    what = case.question.about
    if case.question.delta is not None:
        return case.question.delta
    return default_delta(what.delta, case.predictions, unit=case.unit) if what.of_prediction else what.delta


def counterfactual_rows(runs: Readings) -> Tensor | None:
    """Return everyone in the other group (N, D): as the main test has them, else as the total reading does."""
    return runs.total.counterfactual if runs.main.counterfactual is None else runs.main.counterfactual


def reliability_of(case: Case, runs: Readings) -> Reliability:
    """Return how far scores can be trusted, but for the counterfactual rows."""
    main = runs.main
    return Reliability(
        refits=main.refits,
        delta=delta_of(case),
        silent=main.abstained,
        variable=main.variable,
        klass=main.klass,
        real=runs.people if case.known is None else case.known,
        share=case.question.abstain,
        seed=case.question.seed,
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


def _meaning(case: Case) -> str:
    """Return what the score says, and what stays as it is."""
    q = case.question
    if not q.legitimate_names:
        return q.about.meaning
    return (
        f"{q.about.meaning} Legitimate columns stay as they are, and with them what they explain of the others: "
        f"{', '.join(q.legitimate_names)}."
    )


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


def _about_output(predictions: Tensor, unit: str) -> list[str]:
    if unit != "value":
        return []
    return [
        f"The model's outputs, from {float(predictions.min()):.3g} to {float(predictions.max()):.3g}, are taken as "
        "values in their own units; if they are log-odds, say returns='logit' (--returns logit)."
    ]
