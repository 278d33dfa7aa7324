"""The effects of an audit by group, as fairlearn's MetricFrame."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairfox.errors import DataError, OptionError, did_you_mean
from fairfox.extras import require
from fairfox.result import AuditResult, Finding
from fairfox.weighted import mean, of_people

_CUT = 0.5  # the prediction from which on people are selected, where the audit has no decision threshold


def metric_frame(result: AuditResult, *, variable: str | None = None) -> Any:
    """Return a `fairlearn.metrics.MetricFrame` of the effects by group, weighted as the audit is.

    Its metrics are `people`, `mean_score`, `mean_effect` (signed; where the test has a sign), `mean_absolute_effect`
    (the same as a size), `share_flagged`, `share_confident` (where there are intervals) and `selection_rate` (where
    the model predicts probabilities: at the decision threshold of the audit, else 0.5). People about whom nothing can
    be said are left out.

    Args:
        result: the audit.
        variable: a protected variable, whose own effects are shown by its own groups; by default the worst case over
            all of them, by the groups of each: several are crossed, as fairlearn does with several sensitive features.
    """
    metrics = require("fairlearn.metrics", extra="fairlearn", why="to make a MetricFrame")
    pandas = require("pandas", why="to make a MetricFrame")
    seen = result if variable is None else _finding(result, variable)
    judged = ~seen.abstained.numpy(force=True)
    if not judged.any():
        raise DataError("Nobody could be judged, so that there is no effect of any group")
    findings = [seen] if isinstance(seen, Finding) else result.findings
    columns = {name: values[judged] for name, values in _columns(result, seen).items()}
    weights = of_people(result.weights, len(result))[judged]
    predictions = result.predictions.numpy(force=True)[judged]
    return metrics.MetricFrame(
        metrics={"people": metrics.count, **dict.fromkeys(columns, _weighted_mean)},
        y_true=predictions,  # an audit needs no labels, and none of these metrics does
        y_pred=predictions,
        sensitive_features=pandas.DataFrame({f.name: np.asarray(f.group, dtype=object)[judged] for f in findings}),
        sample_params={name: {"values": values, "weights": weights} for name, values in columns.items()},
    )


def _finding(result: AuditResult, variable: str) -> Finding:
    for finding in result.findings:
        if finding.name == variable:
            return finding
    near = did_you_mean(variable, list(result.variables))
    raise OptionError(f"There is no protected variable '{variable}' in this audit.{near}")


def _columns(result: AuditResult, seen: AuditResult | Finding) -> dict[str, np.ndarray]:
    """Return the values that are averaged, one per person (N,), by the name of their metric."""
    found = {
        "mean_score": seen.scores,
        "mean_effect": seen.signed,
        "mean_absolute_effect": None if seen.signed is None else seen.signed.abs(),
        "share_flagged": seen.flags,
        "share_confident": seen.confident_flags,
    }
    if result.effect_unit == "probability":
        cut = _CUT if result.decision_threshold is None else result.decision_threshold
        found["selection_rate"] = result.predictions >= cut
    return {name: values.numpy(force=True).astype(np.float64) for name, values in found.items() if values is not None}


def _weighted_mean(y_true: Any, y_pred: Any, *, values: Any, weights: Any) -> float:
    return mean(np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64))
