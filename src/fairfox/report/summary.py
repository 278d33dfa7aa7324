"""summary.json: an audit without its people, the worst case on top and then each protected variable.

Comparisons, drifts and the demo have a summary.json too; `kind` tells them apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from fairfox.certification import Certificates
from fairfox.comparison import Comparison
from fairfox.reliability import DISAGREE, FAR
from fairfox.report.verdict import verdict
from fairfox.result import SCHEMA_VERSION, AuditResult, FeatureEffect, Finding, Reading
from fairfox.verdicts.model import Verdict
from fairfox.verdicts.nulls import Null


def summary_json(result: AuditResult) -> str:
    """Return the audit as strict JSON; numbers that are not finite become null."""
    return strict_json(_fields(result))


def strict_json(fields: Mapping[str, Any]) -> str:
    """Return fields as strict JSON; numbers that are not finite become null.

    Example:
        >>> print(strict_json({"mean": float("nan")}))
        {
          "mean": null
        }
        <BLANKLINE>
    """
    return json.dumps(_plain(dict(fields)), indent=2, allow_nan=False) + "\n"


def _fields(result: AuditResult) -> dict[str, Any]:
    return {
        "kind": "audit",
        "schema_version": SCHEMA_VERSION,
        "test": result.test,
        "meaning": result.meaning,
        "unit": result.unit,
        "delta": result.delta,
        "deltas": result.deltas,
        "counts": {
            "people": len(result),
            "judged": result.judged,
            "flagged": int(result.flags.sum()),
            "confident": _count(result.confident_flags),
            "listed": _count(result.listed),
            "abstained": int(result.abstained.sum()),
            "inferred": int(result.inferred.sum()),
        },
        "weighted": result.weights is not None,
        "share_flagged": result.share_flagged,
        "share_confident": result.share_confident,
        "share_abstained": result.share_abstained,
        "abstained_by_reason": result.abstained_by_reason,
        "worst_case": result.worst_case,
        "verdict": _verdict(result.verdict),
        "variables": [_variable(result, finding) for finding in result.findings],
        "features": {
            "effect": None if result.features.effect is None else _effect(result, result.features.effect),
            "displacement": result.features.displacement,
        },
        "checks": result.checks,
        **({} if result.certificates is None else {"certificates": _certificates(result, result.certificates)}),
        **({} if result.abstain is None else {"reliability": _reliability(result)}),
        "comparison": None if result.comparison is None else _comparison(result.comparison),
        **({} if result.null is None else {"null": _null(result, result.null)}),
        "next_steps": None if result.steps is None else result.steps.as_dict(),
        "in_words": verdict(result),
        "warnings": result.warnings,
        "settings": result.settings,
    }


def _certificates(result: AuditResult, certificates: Certificates) -> dict[str, Any]:
    known = certificates.largest[certificates.certified]
    return {
        "reading": "total" if certificates.total else result.test,
        "delta": certificates.delta,
        "certified": len(known),
        "share_certified": result.share_certified,
        "within_delta": int(certificates.within.sum()),
        "worse_inside": int(certificates.worse_inside.sum()),
        "largest": float(known.max()) if len(known) else None,
        "uncertified_by_reason": result.uncertified_by_reason,
    }


def _reliability(result: AuditResult) -> dict[str, Any]:
    return {
        "abstain": result.abstain,
        "left_out": result.reasons.count(DISAGREE),
        "share_left_out": result.share_left_out,
        "median_distance": result.median_distance,
        "far": None if result.distance is None else int((result.distance > FAR).sum()),
    }


def _verdict(found: Verdict | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _null(result: AuditResult, null: Null) -> dict[str, Any]:
    return {
        "shuffles": len(null.scores),
        "mean_score": null.mean_score,
        "delta": null.delta,
        "alignment": {
            finding.name: {
                "share": finding.alignment_share,
                "by_chance": null.alignment[:, v].mean(),
                "p_value": null.p_alignment(v, finding.alignment_share),
            }
            for v, finding in enumerate(result.findings)
        },
    }


def _variable(result: AuditResult, finding: Finding) -> dict[str, Any]:
    inferred = int(finding.inferred.sum())
    return {
        "name": finding.name,
        "kind": finding.kind,
        "levels": finding.levels,
        "parts": finding.parts,
        "reference": finding.reference,
        "second": finding.second,
        "merged": finding.merged,
        "contrasts": finding.contrasts,
        "counts": {
            "known": len(finding.group) - inferred - finding.unknown,
            "inferred": inferred,
            "unknown": finding.unknown,
            "judged": finding.judged,
            "flagged": int(finding.flags.sum()),
            "confident": _count(finding.confident_flags),
        },
        "share_flagged": finding.share_flagged(result.weights),
        "share_confident": finding.share_confident(result.weights),
        "mean_score": finding.mean_score(result.weights),
        "verdict": _verdict(finding.verdict),
        "worst": finding.attained,
        "alignment_share": finding.alignment_share,
        "alignment_error": finding.alignment_error,
        "auxiliary": asdict(finding.quality),
        "readings": {name: _reading(reading) for name, reading in finding.readings(result.weights).items()},
        "features": {"proxy": finding.proxy},
        "groups": [asdict(group) for group in finding.groups],
        "flips": {
            name: {"negative": len(found.negative), "positive": len(found.positive), "share": found.share}
            for name, found in result.flips(finding).items()
        },
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    rows = comparison.agreement.tolist()
    return {
        "tests": {
            name: {
                "seconds": cost.seconds,
                "memory_bytes": cost.memory,
                "checks": comparison.checks.get(name, {}),
            }
            for name, cost in comparison.costs.items()
        },
        "auxiliary_seconds": comparison.training.seconds,
        "agreement": {
            name: dict(zip(comparison.tests, row, strict=True))
            for name, row in zip(comparison.tests, rows, strict=True)
        },
        "skipped": comparison.skipped,
    }


def _count(flags: Tensor | None) -> int | None:
    return None if flags is None else int(flags.sum())


def _reading(reading: Reading) -> dict[str, Any]:
    def means(part: Reading) -> dict[str, Any]:
        return {"mean_signed": part.mean_signed, "mean_absolute": part.mean_absolute}

    return {**means(reading), "groups": {name: means(part) for name, part in reading.groups.items()}}


def _effect(result: AuditResult, effect: FeatureEffect) -> dict[str, Any]:
    means = {"mean_absolute": effect.total, "standard_error": effect.error}
    return {"method": effect.method, "people": effect.people, **means, "mean_signed": result.effect_by_group}


def _plain(value: Any) -> Any:
    """Return the value as JSON's own types: numbers that are not finite become null, the unknown becomes text."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)
