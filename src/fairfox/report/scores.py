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
        "score": _numbers(result.scores, away),
        "signed": _numbers(result.signed, away),
        "direct": _numbers(result.direct, away),
        "lower": _numbers(lower, away),
        "upper": _numbers(upper, away),
        "flag": _booleans(result.flags, away),
        "confident": _booleans(result.confident_flags, away),
        "p_value": _numbers(result.p_values, away),
        "listed": _booleans(result.listed, away),
        "variable": names.take(pa.array(result.worst.numpy(force=True), mask=nameless)),
        "towards": pa.array(result.towards, pa.string()),
        "group_inferred": pa.array(result.inferred.numpy(force=True)),
        "abstained": pa.array(away),
        "reason": pa.array(result.reasons, pa.string()),
    }
    if result.certificates is not None:
        columns["certificate"] = _numbers(result.certificates.largest, away)
        columns["certificate_reason"] = pa.array(result.certificates.reasons, pa.string(), mask=away)
    if result.abstain is not None:
        columns["doubt"] = _numbers(result.doubt, np.zeros_like(away))
        columns["distance"] = _numbers(result.distance, away)
    more = [] if result.two_groups else [pair for finding in result.findings for pair in _of_variable(finding)]
    if result.comparison is not None:
        each = zip(result.comparison.tests, result.comparison.scores.unbind(1), strict=True)
        more += [(f"test[{name}]", _numbers(scores, np.zeros_like(away))) for name, scores in each]
    for name, column in more:
        while name in columns:  # two variables and classes whose names together read the same
            name += "'"
        columns[name] = column
    return pa.table(columns)


def _of_variable(finding: Finding) -> list[tuple[str, pa.Array]]:
    """Return the columns of one protected variable, null for people about whom it says nothing."""
    away = finding.abstained.numpy(force=True)
    own = [
        (f"score[{finding.name}]", _numbers(finding.scores, away)),
        (f"signed[{finding.name}]", _numbers(finding.signed, away)),
        (f"flag[{finding.name}]", _booleans(finding.flags, away)),
        (f"towards[{finding.name}]", pa.array(finding.towards, pa.string(), mask=away)),
    ]
    each = [
        (f"effect[{contrast_name(finding, contrast)}]", _numbers(finding.effects[:, q], away))
        for q, contrast in enumerate(finding.contrasts)
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


def _numbers(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    if values is None:
        return pa.nulls(len(hidden), pa.float64())
    numbers = values.numpy(force=True).astype(np.float64)
    return pa.array(numbers, mask=hidden | ~np.isfinite(numbers))


def _booleans(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    return pa.nulls(len(hidden), pa.bool_()) if values is None else pa.array(values.numpy(force=True), mask=hidden)
