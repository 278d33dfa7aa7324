"""The summary of people who were scored in parts: the fields of an audit's, as far as sums and sketches tell them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fairfox.fairtests.registry import about
from fairfox.fitted import FittedTest
from fairfox.report.text import amount, people, percent
from fairfox.scale.settled import Settled
from fairfox.scale.sketches import ACCURACY, Sketch, quantile

SCHEMA_VERSION = 1
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of people, whose quantiles are told


def numbers_of(sketch: Sketch) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of everyone and of each protected variable's groups.

    Shares and means are weighted where people have weights, counts never; of nobody a mean is None.
    """
    gone = sketch["abstained"]
    return {
        "counts": {
            "people": sketch["people"],
            **_counts(sketch),
            "abstained": gone["people"],
            "inferred": sketch["inferred"],
        },
        **_shares(sketch),
        "share_abstained": _over(gone["weight"], sketch["weight"]) or 0.0,
        "abstained_by_reason": dict(sorted(sketch["reasons"].items(), key=lambda pair: -pair[1])),
        "worst_case": {
            name: _over(weight, sketch["judged"]["weight"]) or 0.0 for name, weight in sketch["worst"].items()
        },
        "mean_score": _mean(sketch["score"]),
        "mean_signed": _mean(sketch["signed"]),
        "mean_prediction": _mean(sketch["prediction"]),
        "quantiles": {
            "relative_error": ACCURACY,
            "score": _quantiles(sketch["scores"]),
            "prediction": _quantiles(sketch["predictions"]),
        },
        "variables": [_variable(name, own, sketch["people"]) for name, own in sketch["variables"].items()],
    }


def summary_of(sketch: Sketch, fitted: FittedTest, settled: Settled, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields of summary.json: what was asked, what was found, in numbers and in words."""
    found = numbers_of(sketch)
    of_name = {p.name: p for p in fitted.known.protected}
    for one in found["variables"]:
        p = of_name[one["name"]]
        one.update({"kind": p.kind, "levels": list(p.levels)})
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "score",
        "test": fitted.name,
        "meaning": about(fitted.name, fitted.options).meaning,
        "unit": settled.unit,
        "delta": settled.delta,
        "weighted": fitted.encoding.weights is not None,
        **found,
        "in_words": in_words(found, settled),
        "warnings": warnings_of(found),
        "settings": dict(settings),
    }


def in_words(found: Mapping[str, Any], settled: Settled) -> list[str]:
    """Return what was found, a sentence each."""
    counts = found["counts"]
    if not counts["judged"]:
        return ["Nobody could be judged."]
    limit, share = amount(settled.delta, settled.unit), percent(found["share_flagged"])
    verb = "is" if counts["flagged"] == 1 else "are"
    told = [
        f"{counts['flagged']:,} of {people(counts['judged'])} ({share}) {verb} flagged: the score "
        f"({settled.unit.partition(' (')[0]}) is above {limit}."
    ]
    if counts["confident"] is not None:
        told.append(f"{counts['confident']:,} of them confidently: the whole interval lies beyond {limit}.")
    half, most = (amount(found["quantiles"]["score"][key], settled.unit) for key in ("0.5", "0.95"))
    told.append(f"Half of the scores are up to {half}, 95 % up to {most}.")
    return [*told, *(f"{people(n)} not judged: {why}." for why, n in found["abstained_by_reason"].items())]


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """Return what readers must know: of how many people a protected variable is not known, as a column that is
    lacking, or misspelt, makes it."""
    return [
        f"'{one['name']}' is unknown for {one['counts']['inferred']:,} of {people(found['counts']['people'])}: the "
        "most probable value, as the other columns tell it, takes its place."
        for one in found["variables"]
        if one["counts"]["inferred"]
    ]


def as_json(fields: Mapping[str, Any]) -> str:
    """Return fields as strict JSON; numbers that are not finite become null."""
    return json.dumps(_strict(fields), indent=2, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _variable(name: str, own: Sketch, everyone: int) -> dict[str, Any]:
    known = {"inferred": own["inferred"], "unknown": own["unknown"]}
    return {
        "name": name,
        "counts": {"known": everyone - sum(known.values()), **known, **_counts(own)},
        **_shares(own),
        "mean_score": _mean(own["score"]),
        "worst": dict(own["worst"]),
        "groups": [
            _group(name, level, own["groups"][level], sure="confident" in own) for level in sorted(own["groups"])
        ],
    }


def _group(variable: str, level: str, own: Sketch, *, sure: bool) -> dict[str, Any]:
    return {
        "variable": variable,
        "level": level,
        "people": own["people"],
        "mean_prediction": _mean(own["prediction"]),
        "mean_signed": _mean(own["signed"]),
        "share_flagged": _over(own["flagged"], own["judged"]),
        "share_confident": _over(own["confident"], own["judged"]) if sure else None,
        "inferred": own["inferred"],
        "towards": {word: mean for word, part in sorted(own["towards"].items()) if (mean := _mean(part)) is not None},
    }


def _counts(sketch: Sketch) -> dict[str, int | None]:
    sure = sketch.get("confident")
    return {
        "judged": sketch["judged"]["people"],
        "flagged": sketch["flagged"]["people"],
        "confident": None if sure is None else sure["people"],
    }


def _shares(sketch: Sketch) -> dict[str, float | None]:
    whole, sure = sketch["judged"]["weight"], sketch.get("confident")
    return {
        "share_flagged": _over(sketch["flagged"]["weight"], whole) or 0.0,
        "share_confident": None if sure is None else _over(sure["weight"], whole) or 0.0,
    }


def _mean(part: Sketch) -> float | None:
    return _over(part["sum"], part["weight"])


def _over(amount: float, whole: float) -> float | None:
    return amount / whole if whole > 0 else None


def _quantiles(buckets: dict[str, float]) -> dict[str, float]:
    return {f"{share:g}": quantile(buckets, share) for share in SHARES}
