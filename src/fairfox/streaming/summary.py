"""The summary of people who were scored in batches: sums that can be added up, and the numbers and words they give.

`totals_of` groups the scores of a batch and sums them; `add_totals` adds such tables. Counts and sums are exact.
Quantiles come from a histogram whose buckets grow by a constant factor, so that a quantile is off by no more than
`ACCURACY` of its own size, however people are put into batches; sizes below `SMALLEST` count as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfox.auxiliary.quality import quality_warnings
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.fitted import FittedTest
from fairfox.report.text import FORMAT, amount, people, percent
from fairfox.statistics.diagnostics import group_warnings
from fairfox.streaming.batches import PopulationConstants, group_names, open_test

ACCURACY = 0.005  # of a quantile, relative to its size
SMALLEST = 1e-9
_LARGEST = 1e298  # all that is larger is in one bucket
_GROWTH = (1 + ACCURACY) / (1 - ACCURACY)
_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of people: the quantiles in a summary

# One row of totals: some people ("of" says by what they are grouped), how many they are, and their sums.
#   everyone           by the variable that attained the score, and by the reason for no score
#   variable           by protected variable, own group and the contrast that attained the score
#   effect             by protected variable, own group and contrast, where there are several
#   score, prediction  by bucket of the histogram
_KEYS = ("of", "variable", "group", "towards", "reason", "bucket")
_COUNTS = ("people", "inferred", "judged", "flagged", "confident", "certain")  # certain: with an interval
_SUMS = ("weight", "judged_weight", "flagged_weight", "confident_weight", "signed_weight", "score", "signed")
TOTALS = pa.schema(
    [(name, pa.int64() if name == "bucket" else pa.string()) for name in _KEYS]
    + [(name, pa.int64()) for name in _COUNTS]
    + [(name, pa.float64()) for name in (*_SUMS, "prediction")]
)
_NONE_IS_0 = pc.ScalarAggregateOptions(min_count=0)


# --- sums ----------------------------------------------------------------------------------------------------------


def totals_of(scores: pa.RecordBatch) -> pa.Table:
    """Return the totals of people whose scores `BatchScorer.score` returned."""
    names = scores.schema.names
    weight = _floats(scores["weight"]) if "weight" in names else np.ones(len(scores))
    sums = _sums(scores, "", weight)
    keys = {"variable": scores["variable"], "reason": scores["reason"]}
    tables = [
        _grouped(keys, sums, of="everyone"),
        *(_histogram(scores, name, weight) for name in ("score", "prediction")),
    ]
    for name in names:
        if name.startswith("group["):
            tables += _totals_of_variable(scores, name[len("group[") : -1], weight, sums)
    return pa.concat_tables([TOTALS.empty_table(), *tables], promote_options="default")


def add_totals(totals: Iterable[pa.Table]) -> pa.Table:
    """Return the totals of everyone, from those of disjoint people, added in order."""
    table = pa.concat_tables([TOTALS.empty_table(), *totals])
    sums = [name for name in TOTALS.names if name not in _KEYS]
    summed = table.group_by(list(_KEYS), use_threads=False).aggregate([(name, "sum", _NONE_IS_0) for name in sums])
    return pa.table([summed[f"{name}_sum" if name in sums else name] for name in TOTALS.names], schema=TOTALS)


def _totals_of_variable(
    scores: pa.RecordBatch, variable: str, weight: np.ndarray, sums: Mapping[str, np.ndarray]
) -> Iterator[pa.Table]:
    """Yield the totals of one protected variable, from its own columns, or from the only ones there are."""
    names = scores.schema.names
    own = f"[{variable}]" if f"score[{variable}]" in names else ""
    group, towards = scores[f"group[{variable}]"], scores[f"towards{own}"]
    keys = {"group": group, "towards": towards}
    yield _grouped(keys, _sums(scores, own, weight) if own else sums, of="variable", variable=variable)
    for column in takewhile(lambda name: name.startswith("effect["), names[names.index(f"towards{own}") + 1 :]):
        word = column[len("effect[") : -1].removeprefix(f"{variable}=")
        values = _floats(scores[column])
        known = ~np.isnan(values) & scores[f"score{own}"].is_valid().to_numpy(zero_copy_only=False)
        effect = {"signed": np.where(known, values * weight, 0.0), "signed_weight": weight * known}
        yield _grouped({"group": group}, effect, of="effect", variable=variable, towards=word)


def _sums(scores: pa.RecordBatch, own: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is added up of everyone: counts, and weighted counts and numbers."""
    score, signed = _floats(scores[f"score{own}"]), _floats(scores[f"signed{own}"])
    flagged, confident = (scores[f"{name}{own}"] for name in ("flag", "confident"))
    judged = ~np.isnan(score)
    marks = {
        "judged": judged,
        "flagged": judged & flagged.fill_null(False).to_numpy(zero_copy_only=False),
        "confident": judged & confident.fill_null(False).to_numpy(zero_copy_only=False),
    }
    return {
        "people": np.ones(len(scores)),
        "inferred": scores[f"inferred{own}" if own else "group_inferred"].to_numpy(zero_copy_only=False),
        **marks,
        "certain": confident.is_valid().to_numpy(zero_copy_only=False),
        "weight": weight,
        **{f"{name}_weight": weight * mark for name, mark in marks.items()},
        "signed_weight": weight * ~np.isnan(signed),
        "score": np.where(judged, score * weight, 0.0),
        "signed": np.where(np.isnan(signed), 0.0, signed * weight),
        "prediction": _floats(scores["prediction"]) * weight,
    }


def _floats(column: pa.Array) -> np.ndarray:
    """Return a column's numbers, NaN where it has none."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _histogram(scores: pa.RecordBatch, column: str, weight: np.ndarray) -> pa.Table:
    """Return the weight in each bucket of a column's values; those of zero are in bucket 0."""
    values = _floats(scores[column])
    known = ~np.isnan(values)
    size = np.minimum(np.abs(values), _LARGEST)
    far = size > SMALLEST  # not where there is no value
    level = np.ceil(np.log(np.where(far, size, 1.0) / SMALLEST) / math.log(_GROWTH))
    buckets = np.where(far, np.sign(values) * np.maximum(level, 1), 0).astype(np.int64)[known]
    first = buckets.min(initial=0)
    weights, there = (np.bincount(buckets - first, weights=each) for each in (weight[known], None))
    rows = there.nonzero()[0]
    return pa.table({"of": [column] * len(rows), "bucket": rows + first, "weight": weights[rows].astype(np.float64)})


def _grouped(keys: Mapping[str, pa.Array], sums: Mapping[str, np.ndarray], **same: str) -> pa.Table:
    """Return sums by key, with keys that are the same for all of them."""
    codes, names = np.zeros(1, dtype=np.int64), []
    for column in keys.values():
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        words = [*coded.dictionary.to_pylist(), None]
        codes = codes * len(words) + coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
        names.append(words)
    groups = list(product(*names))
    there = np.bincount(codes, minlength=len(groups)).nonzero()[0]
    columns: dict[str, Any] = {name: [text] * len(there) for name, text in same.items()}
    columns |= {name: [groups[n][k] for n in there] for k, name in enumerate(keys)}
    columns |= {name: np.bincount(codes, values, len(groups))[there] for name, values in sums.items()}
    return pa.table({name: pa.array(values).cast(TOTALS.field(name).type) for name, values in columns.items()})


# --- numbers -------------------------------------------------------------------------------------------------------

Rows = list[dict[str, Any]]  # of totals


def summary_numbers(totals: pa.Table, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the counts, shares, means and quantiles of everyone and of each protected variable's groups.

    Shares and means are weighted where people have weights, counts never; of nobody a mean is None. `groups` are the
    names of all groups by variable, in order.
    """
    rows: Rows = totals.to_pylist()
    everyone = _where(rows, of="everyone")
    counted, judged = _total(everyone, "people"), _total(everyone, "judged_weight")
    reasons = {why: _total(_where(everyone, reason=why), "people") for why in _values(everyone, "reason")}
    attained = _values(everyone, "variable")  # of nothing by tests that tell no protected variables apart
    return {
        "counts": {
            "people": counted,
            **_counts(everyone),
            "abstained": counted - _total(everyone, "judged"),
            "inferred": _total(everyone, "inferred"),
        },
        **_shares(everyone),
        "share_abstained": _over(_total(everyone, "weight") - judged, _total(everyone, "weight")) or 0.0,
        "abstained_by_reason": dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
        "worst_case": {
            name: _over(_total(_where(everyone, variable=name), "judged_weight"), judged) or 0.0
            for name in groups
            if attained
        },
        "mean_score": _mean(everyone, "score", "judged_weight"),
        "mean_signed": _mean(everyone, "signed", "signed_weight"),
        "mean_prediction": _mean(everyone, "prediction", "weight"),
        "quantiles": {
            "relative_error": ACCURACY,
            **{of: _quantiles(_where(rows, of=of)) for of in ("score", "prediction")},
        },
        "variables": [_variable(name, names, _where(rows, variable=name)) for name, names in groups.items()],
    }


def summarise(totals: Iterable[pa.Table], test: str | Path | FittedTest) -> dict[str, Any]:
    """Return the numbers of everyone, with the groups of the test that scored them."""
    return summary_numbers(add_totals(totals), group_names(open_test(test)[0]))


def _variable(name: str, groups: Sequence[str], rows: Rows) -> dict[str, Any]:
    own = _where(rows, of="variable")
    effects = _where(rows, of="effect") or own  # of two groups: the only contrast is that of the score
    inferred, unknown = _total(own, "inferred"), _total(_where(own, group=None), "people")
    worst = {word: _total(_where(own, towards=word), "judged") for word in sorted(_values(own, "towards"))}
    return {
        "name": name,
        "counts": {
            "known": _total(own, "people") - inferred - unknown,
            "inferred": inferred,
            "unknown": unknown,
            **_counts(own),
        },
        **_shares(own),
        "mean_score": _mean(own, "score", "judged_weight"),
        "worst": {word: count for word, count in worst.items() if count},
        "groups": [_group(name, level, _where(own, group=level), _where(effects, group=level)) for level in groups],
    }


def _group(variable: str, level: str, own: Rows, effects: Rows) -> dict[str, Any]:
    judged = _total(own, "judged_weight")
    words = sorted(word for word in _values(effects, "towards") if word != level)
    means = {word: _mean(_where(effects, towards=word), "signed", "signed_weight") for word in words}
    return {
        "variable": variable,
        "level": level,
        "people": _total(own, "people"),
        "mean_prediction": _mean(own, "prediction", "weight"),
        "mean_signed": _mean(own, "signed", "signed_weight"),
        "share_flagged": _over(_total(own, "flagged_weight"), judged),
        "share_confident": _over(_total(own, "confident_weight"), judged) if _total(own, "certain") else None,
        "inferred": _total(own, "inferred"),
        "towards": {word: mean for word, mean in means.items() if mean is not None},
    }


def _counts(rows: Rows) -> dict[str, int | None]:
    confident = _total(rows, "confident") if _total(rows, "certain") else None
    return {"judged": _total(rows, "judged"), "flagged": _total(rows, "flagged"), "confident": confident}


def _shares(rows: Rows) -> dict[str, float | None]:
    judged = _total(rows, "judged_weight")
    flagged, confident = (_over(_total(rows, f"{name}_weight"), judged) or 0.0 for name in ("flagged", "confident"))
    return {"share_flagged": flagged, "share_confident": confident if _total(rows, "certain") else None}


def _where(rows: Rows, **keys: str | None) -> Rows:
    return [row for row in rows if all(row[key] == value for key, value in keys.items())]


def _values(rows: Rows, key: str) -> list[str]:
    """Return the values of a key, in the order they come in."""
    return list(dict.fromkeys(row[key] for row in rows if row[key] is not None))


def _total(rows: Rows, name: str) -> Any:
    return sum(row[name] for row in rows)


def _mean(rows: Rows, name: str, weight: str) -> float | None:
    return _over(_total(rows, name), _total(rows, weight))


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _quantiles(rows: Rows) -> dict[str, float]:
    weights = {row["bucket"]: row["weight"] for row in rows}
    return {f"{share:g}": quantile(weights, share) for share in _SHARES}


def quantile(weights: Mapping[int, float], share: float) -> float:
    """Return the value that this share of people is at or below, from the weight in each bucket; NaN of nobody."""
    order = sorted(weights.items())
    total = math.fsum(weights.values())
    if total <= 0:
        return math.nan
    reached = accumulate(weight for _, weight in order)
    enough = (bucket for (bucket, weight), upto in zip(order, reached, strict=True) if upto >= share * total and weight)
    bucket = next(enough, order[-1][0])  # rounding may leave the last one short of everyone
    if bucket == 0:
        return 0.0
    upper = SMALLEST * _GROWTH ** abs(bucket)
    return math.copysign(2 * upper / (1 + _GROWTH), bucket)  # as far from both ends, relatively


# --- words ---------------------------------------------------------------------------------------------------------


def summary_of(
    totals: pa.Table, fitted: FittedTest, constants: PopulationConstants, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all fields of summary.json: settings and results, in numbers and in words."""
    numbers, known = summary_numbers(totals, group_names(fitted)), fitted.known
    for variable, p in zip(numbers["variables"], known.protected, strict=True):
        variable.update({"kind": p.kind, "levels": list(p.levels)})
    return {
        "format": FORMAT,
        "kind": "score",
        "test": fitted.options.main,
        "meaning": fitted.options.info.meaning,
        "unit": constants.unit,
        "delta": constants.delta,
        "weighted": fitted.encoding.weights is not None,
        **numbers,
        "in_words": in_words(numbers, constants.delta, constants.unit),
        "warnings": warnings_of(numbers, fitted),
        "settings": {
            **settings,
            "protected": [p.name for p in known.protected],
            "columns": list(fitted.encoding.columns),
            "reference_rows": len(known),
        },
    }


def in_words(numbers: Mapping[str, Any], delta: float, unit: str) -> list[str]:
    """Return the results, a sentence each."""
    counts = numbers["counts"]
    if not counts["judged"]:
        return ["Nobody could be judged."]
    limit, share = amount(delta, unit), percent(numbers["share_flagged"])
    verb = "is" if counts["flagged"] == 1 else "are"
    sentences = [
        f"{counts['flagged']:,} of {people(counts['judged'])} ({share}) {verb} flagged: the score "
        f"({unit.partition(' (')[0]}) is above {limit}."
    ]
    if counts["confident"] is not None:
        sentences.append(f"{counts['confident']:,} of them confidently: the whole interval lies beyond {limit}.")
    half, most = (amount(numbers["quantiles"]["score"][share], unit) for share in ("0.5", "0.95"))
    sentences.append(f"Half of the scores are up to {half}, 95 % up to {most}.")
    return [*sentences, *(f"{people(n)} not judged: {why}." for why, n in numbers["abstained_by_reason"].items())]


def warnings_of(numbers: Mapping[str, Any], fitted: FittedTest) -> list[str]:
    """Return those warnings of an audit that need no one's row: about groups, the auxiliary model, and the fits."""
    everyone = numbers["counts"]["people"]
    inferred = [variable["counts"]["inferred"] for variable in numbers["variables"]]
    out = [
        text
        for v, quality in enumerate(fitted.quality)
        for text in group_warnings(fitted.known, v, quality, inferred[v], everyone)
    ]
    out += [text for quality in fitted.quality for text in quality_warnings(quality)]
    test = fitted.test
    if isinstance(test, Effect) and (checks := test.checks()):
        out += test.warnings(checks)
    return out
