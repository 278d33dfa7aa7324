"""scores.parquet: one row per person, the worst case first and then, where there is a choice, every contrast."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from torch import Tensor

from fairfox.data.dataset import group_name
from fairfox.result import AuditResult, Finding


def scores_table(result: AuditResult) -> pa.Table:
    """Return one row per person; abstained people have null in every number and flag but the doubt."""
    away = result.abstained.numpy(force=True)
    lower, upper = (None, None) if result.interval is None else result.interval.unbind(1)
    names = pa.array(result.variables, pa.string())
    nameless = away if result.tells_variables_apart else np.ones_like(away)
    columns = {
        "row_id": _row_ids(result),
        "score": numbers_column(result.scores, away),
        "signed": numbers_column(result.signed, away),
        "direct": numbers_column(result.direct, away),
        "lower": numbers_column(lower, away),
        "upper": numbers_column(upper, away),
        "flag": booleans_column(result.flags, away),
        "confident": booleans_column(result.confident_flags, away),
        "p_value": numbers_column(result.p_values, away),
        "listed": booleans_column(result.listed, away),
        "variable": names.take(pa.array(result.worst.numpy(force=True), mask=nameless)),
        "towards": pa.array(result.towards, pa.string()),
        "group_inferred": pa.array(result.inferred.numpy(force=True)),
        "abstained": pa.array(away),
        "reason": pa.array(result.reasons, pa.string()),
    }
    if result.certificates is not None:
        columns["certificate"] = numbers_column(result.certificates.largest, away)
        columns["certificate_reason"] = pa.array(result.certificates.reasons, pa.string(), mask=away)
    if result.abstain is not None:
        columns["doubt"] = numbers_column(result.doubt, np.zeros_like(away))
        columns["distance"] = numbers_column(result.distance, away)
    more = [] if result.two_groups else [pair for finding in result.findings for pair in _of_variable(finding)]
    if result.comparison is not None:
        each = zip(result.comparison.tests, result.comparison.scores.unbind(1), strict=True)
        more += [(f"test[{name}]", numbers_column(scores, np.zeros_like(away))) for name, scores in each]
    for name, column in more:
        while name in columns:  # two variables and classes whose names together read the same
            name += "'"
        columns[name] = column
    return pa.table(columns)


def _of_variable(finding: Finding) -> list[tuple[str, pa.Array]]:
    """Return the columns of one protected variable, null for people about whom it says nothing."""
    away = finding.abstained.numpy(force=True)
    own = [
        (f"score[{finding.name}]", numbers_column(finding.scores, away)),
        (f"signed[{finding.name}]", numbers_column(finding.signed, away)),
        (f"flag[{finding.name}]", booleans_column(finding.flags, away)),
        (f"towards[{finding.name}]", pa.array(finding.towards, pa.string(), mask=away)),
    ]
    each = [
        (f"effect[{contrast_name(finding, contrast)}]", numbers_column(finding.effects[:, q], away))
        for q, contrast in enumerate(finding.contrasts)
        if contrast in finding.reached
    ]
    return own + each


def contrast_name(finding: Finding, contrast: str) -> str:
    """Return a contrast in words that need no variable beside them: "race=Black", "age + 13.6"."""
    return group_name(finding.name, contrast) if contrast in finding.levels else contrast


def _row_ids(result: AuditResult) -> pa.Array:
    if result.ids is None:
        return pa.array(np.arange(len(result)))
    try:
        return pa.array(result.ids, from_pandas=True)  # a missing id is null
    except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
        return pa.array([None if value is None else str(value) for value in result.ids.tolist()], pa.string())


def numbers_column(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    """Return numbers (N,), null where hidden or not finite; all null where there are none."""
    if values is None:
        return pa.nulls(len(hidden), pa.float64())
    numbers = values.numpy(force=True).astype(np.float64)
    return pa.array(numbers, mask=hidden | ~np.isfinite(numbers))


def booleans_column(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    """Return yes or no (N,), null where hidden; all null where there are none."""
    return pa.nulls(len(hidden), pa.bool_()) if values is None else pa.array(values.numpy(force=True), mask=hidden)
