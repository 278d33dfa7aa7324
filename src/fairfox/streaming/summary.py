"""Totals of all people of a stream, and the verdict, list and groups that follow from them.

`totals_of` groups the scores of a batch and sums them; `add_totals` adds such tables. Counts and sums are exact. The
list of significant people comes from a histogram of p-values whose buckets grow by `GROWTH`: it is never longer than
the exact one, and `Threshold` says how much shorter it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfox.data.dataset import group_name
from fairfox.errors import OptionError
from fairfox.fairtests.fitted import FittedTest
from fairfox.findings import AuditRecord, Group, Streamed, StreamedVariable, Tally
from fairfox.models.loading import load_model
from fairfox.options import AuditOptions
from fairfox.pipeline import run_score
from fairfox.result import AuditResult
from fairfox.statistics.multiplicity import Threshold, counted_threshold
from fairfox.statistics.verdict import Counted
from fairfox.streaming.batches import PILOT, group_names, model_options, open_test, some_people
from fairfox.streaming.sources import decoded

GROWTH = 1.005
_SMALLEST = 1e-9  # p-values up to it are in the first bucket

# One row of totals: some people ("of" says by what they are grouped), how many they are, and their sums.
#   everyone           by the variable that attained the score, and by the reason for no score
#   variable           by protected variable, own group and the contrast that attained the score
#   effect             by protected variable, own group and contrast, where there are several
#   p_value            by bucket of p-values; p_of_variable by protected variable and own group as well
_KEYS = ("of", "variable", "group", "towards", "reason", "bucket")
_COUNTS = ("people", "inferred", "judged", "flagged", "confident", "possible", "certain")  # certain: with an interval
_WEIGHTS = ("judged_weight", "flagged_weight", "confident_weight", "possible_weight", "effect_weight")
_SUMS = ("weight", *_WEIGHTS, "judged_squared", "score", "effect", "prediction")
TOTALS = pa.schema(
    [(name, pa.int64() if name == "bucket" else pa.string()) for name in _KEYS]
    + [(name, pa.int64()) for name in _COUNTS]
    + [(name, pa.float64()) for name in _SUMS]
)
_NONE_IS_0 = pc.ScalarAggregateOptions(min_count=0)


# --- sums ----------------------------------------------------------------------------------------------------------


def totals_of(scores: pa.RecordBatch) -> pa.Table:
    """Return the totals of people whose scores `BatchScorer.score` returned."""
    names = scores.schema.names
    weight = _floats(scores["weight"]) if "weight" in names else np.ones(len(scores))
    people = pa.table({"variable": scores["variable"], "reason": scores["reason"], **_sums(scores, "", weight)})
    p_values, tables = _p_values(scores["p_value"], weight), []
    for variable in (name[len("group[") : -1] for name in names if name.startswith("group[")):
        group = scores[f"group[{variable}]"]
        if (
            f"score[{variable}]" not in names
        ):  # the only one: its columns are everyone's, who are added up once, by all keys
            people = _grouped(people.append_column("group", group).append_column("towards", scores["towards"]))
            p_values = _grouped(p_values.append_column("group", group))
            own, own_p = people, p_values
        else:
            mark = f"[{variable}]"
            own = pa.table({"group": group, "towards": scores[f"towards{mark}"], **_sums(scores, mark, weight)})
            own_p = _p_values(scores[f"p_value{mark}"], weight).append_column("group", group)
            known = scores[f"score{mark}"].is_valid().to_numpy(zero_copy_only=False)
            rest = names[names.index(f"towards{mark}") + 1 :]
            for column in takewhile(lambda name: name.startswith("effect["), rest):
                values, word = _floats(scores[column]), column[len("effect[") : -1].removeprefix(f"{variable}=")
                there = known & ~np.isnan(values)
                sums = {"effect": np.where(there, values * weight, 0.0), "effect_weight": weight * there}
                effect = pa.table({"group": group, **sums})
                tables.append(_grouped(effect, ["group"], of="effect", variable=variable, towards=word))
        tables.append(_grouped(own, ["group", "towards"], of="variable", variable=variable))
        tables.append(_grouped(own_p, ["group", "bucket"], of="p_of_variable", variable=variable).drop_null())
    tables.append(_grouped(people, ["variable", "reason"], of="everyone"))
    tables.append(_grouped(p_values, ["bucket"], of="p_value").drop_null())
    return pa.concat_tables([TOTALS.empty_table(), *tables], promote_options="default")


def add_totals(totals: Iterable[pa.Table]) -> pa.Table:
    """Return the totals of everyone, from those of disjoint people, added in order."""
    table = pa.concat_tables([TOTALS.empty_table(), *totals])
    sums = [name for name in TOTALS.names if name not in _KEYS]
    summed = table.group_by(list(_KEYS), use_threads=False).aggregate([(name, "sum", _NONE_IS_0) for name in sums])
    return pa.table([summed[f"{name}_sum" if name in sums else name] for name in TOTALS.names], schema=TOTALS)


def _sums(scores: pa.RecordBatch, own: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is added up of everyone: counts, and weighted counts and numbers."""
    score, effect = _floats(scores[f"score{own}"]), _floats(scores[f"effect{own}"])
    columns = {name: scores[f"{name}{own}"] for name in ("flagged", "confident", "possible")}
    marks = {name: each.fill_null(False).to_numpy(zero_copy_only=False) for name, each in columns.items()}
    judged = ~np.isnan(score)
    marks = {"judged": judged, **{name: judged & mark for name, mark in marks.items()}}
    return {
        "people": np.ones(len(scores)),
        "inferred": scores[f"inferred{own}" if own else "group_inferred"].to_numpy(zero_copy_only=False),
        **marks,
        "certain": columns["confident"].is_valid().to_numpy(zero_copy_only=False),
        "weight": weight,
        **{f"{name}_weight": weight * mark for name, mark in marks.items()},
        "effect_weight": weight * ~np.isnan(effect),
        "judged_squared": weight**2 * judged,
        "score": np.where(judged, score * weight, 0.0),
        "effect": np.where(np.isnan(effect), 0.0, effect * weight),
        "prediction": _floats(scores["prediction"]) * weight,
    }


def _floats(column: pa.Array) -> np.ndarray:
    """Return a column's numbers, NaN where it has none."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _p_values(p: pa.Array, weight: np.ndarray) -> pa.Table:
    """Return everyone's bucket of p-values; bucket k ends at `_SMALLEST * GROWTH**k`."""
    level = np.ceil(np.log(np.maximum(_floats(p), _SMALLEST) / _SMALLEST) / math.log(GROWTH))
    bucket = pa.array(level, pa.int64(), mask=np.isnan(level))
    return pa.table({"bucket": bucket, "people": np.ones(len(weight)), "weight": weight})


def _grouped(people: pa.Table, keys: Sequence[str] = _KEYS, **same: str) -> pa.Table:
    """Return sums by those of the keys that the table has, with keys that are the same for all of them."""
    by = [name for name in keys if name in people.column_names]
    sums = [name for name in people.column_names if name not in _KEYS]
    summed = people.group_by(by, use_threads=False).aggregate([(name, "sum") for name in sums])
    columns = {name: pa.repeat(text, len(summed)) for name, text in same.items()}
    columns |= {name: summed[name] for name in by} | {name: summed[f"{name}_sum"] for name in sums}
    return pa.table(columns).cast(pa.schema([TOTALS.field(name) for name in columns]))


# --- numbers -------------------------------------------------------------------------------------------------------

Rows = list[dict[str, Any]]  # of totals


def streamed_of(totals: pa.Table, groups: Mapping[str, Sequence[str]], fdr: float) -> Streamed:
    """Return the summary of everyone; `groups` are the names of all groups by variable, in order.

    `fdr` is the false discovery rate of the significant people.
    """
    rows: Rows = totals.to_pylist()
    everyone = _where(rows, of="everyone")
    whole, judged = _total(everyone, "weight"), _total(everyone, "judged_weight")
    reasons = {why: _total(_where(everyone, reason=why), "people") for why in _values(everyone, "reason")}
    attained = _values(everyone, "variable")  # of nothing by tests that tell no protected variables apart
    return Streamed(
        tally=_tally(everyone),
        variables={name: _variable(name, names, _where(rows, variable=name), fdr) for name, names in groups.items()},
        share_abstained=_over(whole - judged, whole) or 0.0,
        abstained_by_reason=dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
        worst_case={
            name: _over(_total(_where(everyone, variable=name), "judged_weight"), judged) or 0.0
            for name in groups
            if attained
        },
        threshold=_threshold(_where(rows, of="p_value"), fdr),
    )


def result_of(
    totals: pa.Table,
    fitted: FittedTest,
    model: object,
    sample: pa.Table,
    options: AuditOptions,
    settings: Mapping[str, Any] | None = None,
) -> AuditRecord:
    """Return the audit of everyone in the totals: verdict, counts and groups from the totals, the rest from the sample.

    `settings` are recorded beside those of the sample's audit.
    """
    everyone = streamed_of(totals, group_names(fitted), options.fdr)
    result = run_score(fitted, model, sample, options, streamed=everyone)
    more: dict[str, Any] = {"rows": everyone.tally.people, "sampled_rows": len(sample), **(settings or {})}
    seconds = round(result.settings["seconds"] + more.get("seconds_of_scoring", 0.0), 3)
    hashes = {"rows_sha256": None, "predictions_sha256": None}  # of a sample they would say nothing
    return replace(result, settings={**result.settings, **hashes, **more, "seconds": seconds})


def summarise(
    totals: pa.Table,
    test: str | Path | FittedTest,
    model: object,
    read_sample: Callable[[tuple[str, ...], float], pa.Table],
    *,
    delta: float | None = None,
    max_flagged: float | Mapping[str, float] | None = None,
    trust: bool = False,
    **options: Any,
) -> AuditResult:
    """Return the audit of people whom an engine has scored, with a sample that it draws: these columns, this share."""
    fitted = open_test(test)[0]
    people = _total(_where(totals.to_pylist(), of="everyone"), "people")
    share = min(1.0, 1.2 * PILOT / max(people, 1))  # a few too many, so that there are enough
    sample = decoded(some_people(read_sample(fitted.encoding.needed, share)))
    loaded = load_model(str(model), trust=trust) if isinstance(model, str | Path) else model
    chosen = fitted.options.scoring(model_options(fitted, options), delta=delta, max_flagged=max_flagged)
    found = result_of(totals, fitted, loaded, sample, chosen)
    if chosen.delta_for_all is None and fitted.options.info.of_prediction and not found.unit.endswith("(probability)"):
        raise OptionError(
            "The default delta of values is a share of their range, which a sample has another of; score "
            "and sum up with the same delta="
        )
    return AuditResult(found)


def _tally(rows: Rows, **more: Any) -> Tally:
    judged, certain = _total(rows, "judged_weight"), _total(rows, "certain")
    flagged, confident = (_over(_total(rows, f"{name}_weight"), judged) or 0.0 for name in ("flagged", "confident"))
    mean = _mean(rows, "score", "judged_weight")
    return Tally(
        **{name: _total(rows, name) for name in ("people", "judged", "flagged", "inferred")},
        confident=_total(rows, "confident") if certain else None,
        share_flagged=flagged,
        share_confident=confident if certain else None,
        mean_score=math.nan if mean is None else mean,
        **more,
    )


def _threshold(rows: Rows, fdr: float) -> Threshold | None:
    """Return the end of the list, from histograms of p-values; None where there are none."""
    counts = np.bincount([row["bucket"] for row in rows], [row["people"] for row in rows]).astype(np.int64)
    edges = _SMALLEST * np.power(GROWTH, np.arange(len(counts), dtype=np.float64))
    return counted_threshold(edges, counts, fdr) if rows else None


def _variable(name: str, groups: Sequence[str], rows: Rows, fdr: float) -> StreamedVariable:
    own, p_values = _where(rows, of="variable"), _where(rows, of="p_of_variable")
    effects = _where(rows, of="effect") or own  # of two groups: the only contrast is that of the score
    worst = {word: _total(_where(own, towards=word), "judged") for word in sorted(_values(own, "towards"))}
    tally = _tally(
        own,
        unknown=_total(_where(own, group=None), "people"),
        attained={word: count for word, count in worst.items() if count},
    )
    end = _threshold(p_values, fdr)
    last = -1 if end is None or not end.listed else round(math.log(end.p / _SMALLEST) / math.log(GROWTH))
    on_list = [row for row in p_values if row["bucket"] <= last]
    each = {group_name(name, level): (_where(own, group=level), _where(on_list, group=level)) for level in groups}
    return StreamedVariable(
        tally,
        tuple(_group(name, level, _where(own, group=level), _where(effects, group=level)) for level in groups),
        {who: _counted(*of) for who, of in {name: (own, on_list), **each}.items() if end is not None},
    )


def _counted(rows: Rows, listed: Rows) -> Counted:
    judged = _total(rows, "judged_weight")
    return Counted(
        judged=_total(rows, "judged"),
        significant=_total(listed, "people"),
        possible=_total(rows, "possible"),
        share_significant=_over(_total(listed, "weight"), judged) or 0.0,
        share_possible=_over(_total(rows, "possible_weight"), judged) or 0.0,
        equal=_over(judged**2, _total(rows, "judged_squared")) or 0.0,
        mean=_mean(rows, "score", "judged_weight"),
        share=_mean(rows, "flagged_weight", "judged_weight"),
    )


def _group(variable: str, level: str, own: Rows, effects: Rows) -> Group:
    judged, mean = _total(own, "judged_weight"), _mean(own, "prediction", "weight")
    words = sorted(word for word in _values(effects, "towards") if word != level)
    means = {word: _mean(_where(effects, towards=word), "effect", "effect_weight") for word in words}
    flagged = _over(_total(own, "flagged_weight"), judged)
    return Group(
        variable=variable,
        level=level,
        people=_total(own, "people"),
        mean_prediction=math.nan if mean is None else mean,
        mean_effect=_mean(own, "effect", "effect_weight"),
        share_flagged=math.nan if flagged is None else flagged,
        share_confident=_over(_total(own, "confident_weight"), judged) if _total(own, "certain") else None,
        inferred=_total(own, "inferred"),
        towards={word: mean for word, mean in means.items() if mean is not None},
    )


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
