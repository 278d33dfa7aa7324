"""The settings of an audit: all that it takes to do it again, and to tell whether it was done on the same rows."""

from __future__ import annotations

import platform
from typing import Any

from fairfox.case import Case
from fairfox.data.hashes import rows_sha256, tensors_sha256
from fairfox.extras import installed_versions

_PACKAGES = ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals")


def settings_of(case: Case) -> dict[str, Any]:
    """Return how the result of a case came about, but for the time it took."""
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
        "contrasts": q.contrasts,
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
