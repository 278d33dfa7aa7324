"""What may be asked once an audit is done: what to do about the effect, and what of it can be proved."""

from __future__ import annotations

from fairfox.assembly import delta_of
from fairfox.case import Case
from fairfox.certification import Certificates
from fairfox.certification import certify as certify_ways
from fairfox.crossfit import TOTAL, Progress, Readings
from fairfox.fairtests.registry import about
from fairfox.findings import own_deltas
from fairfox.models.sklearn_model import is_estimator
from fairfox.next_steps import next_steps
from fairfox.result import AuditResult
from fairfox.steps import NextSteps
from fairfox.thresholds import default_delta


def find_steps(model: object, case: Case, runs: Readings, result: AuditResult) -> NextSteps | None:
    """Return what can be done about the effect of a map, as far as the model and the table tell; None without one."""
    effect, q = result.features.effect, case.question
    moved = runs.total if runs.main.counterfactuals is None else runs.main
    if effect is None or moved.counterfactual is None:
        return None
    return next_steps(
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


def find_certificates(model: object, case: Case, runs: Readings, progress: Progress) -> Certificates:
    """Return what is proved about everyone's way, held against delta: that of `rank` where the test moves nobody."""
    moves = runs.main.counterfactuals is not None
    delta = delta_of(case) if moves else default_delta(about(TOTAL).delta, case.predictions, unit=case.unit)
    return certify_ways(
        model,
        case.target,
        runs,
        aligned=case.question.main.endswith("/a"),
        delta=delta,
        limits=own_deltas(runs.people, delta, case.deltas if moves else {}),
        progress=lambda done: progress("certifying", 0.95 + 0.05 * done),
    )
