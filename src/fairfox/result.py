"""What an audit found, and how it is written down: text, JSON, Parquet."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.data.files import written_whole

SCHEMA_VERSION = 1
EFFECT = "change of the prediction"  # the unit of effects, before the prediction's own in brackets


@dataclass(frozen=True)
class FeatureEffect:
    """Through which original features the effect goes: contributions that sum to f(x') - f(x)."""

    names: tuple[str, ...]
    per_person: Tensor  # (N, F), signed; NaN rows were not explained (black boxes are explained on a sample)
    method: str  # "integrated gradients" or "sampled Shapley values"
    drawn: Tensor | None = None  # (N,) bool: a random sample the totals are taken over; None: everyone explained

    @property
    def total(self) -> dict[str, float]:
        """Mean |contribution| per feature over the explained people, largest first."""
        known = self._counted
        means = known.abs().mean(0).tolist() if len(known) else [math.nan] * len(self.names)
        return dict(sorted(zip(self.names, means, strict=True), key=lambda pair: -pair[1]))

    @property
    def error(self) -> dict[str, float]:
        """Standard error of `total` over the people it was averaged over: what a sample leaves open."""
        known = self._counted.abs()
        spread = known.std(0) / len(known) ** 0.5 if len(known) > 1 else known.new_full((len(self.names),), math.nan)
        errors = dict(zip(self.names, spread.tolist(), strict=True))
        return {name: errors[name] for name in self.total}

    @property
    def people(self) -> int:
        """How many people the totals are averaged over."""
        return len(self._counted)

    @property
    def _counted(self) -> Tensor:
        explained = ~self.per_person.isnan().any(1)
        return self.per_person[explained if self.drawn is None else explained & self.drawn]


@dataclass(frozen=True)
class Features:
    """Which features give the protected variable away, and which carry the effect."""

    proxy: dict[str, float]  # the paper's transparency report: |mean gradient of the auxiliary|, largest first
    effect: FeatureEffect | None


@dataclass(frozen=True)
class Group:
    """The people of one protected class, together."""

    variable: str
    level: str
    people: int
    mean_prediction: float
    mean_signed: float | None
    share_flagged: float
    share_confident: float | None

    @property
    def name(self) -> str:
        """The group in words: "sex=Female"; a cut speaks for itself: "age<25", "not age<25"."""
        is_cut = self.level in (self.variable, f"not {self.variable}")
        return self.level if is_cut else f"{self.variable}={self.level}"


@dataclass(frozen=True)
class Reading:
    """One reading of the effect, averaged over the judged people."""

    mean_signed: float
    mean_absolute: float
    groups: dict[str, Reading] = field(default_factory=dict)  # by own protected class


@dataclass(frozen=True)
class AuditResult:
    """Everything an audit found, one entry per person in the order of the table.

    Abstained people have score 0.0 here and null in the files, and are left out of `share_flagged`.
    """

    scores: Tensor  # (N,), higher is less fair
    signed: Tensor | None  # (N,); > 0: a higher prediction as a member of the other group
    interval: Tensor | None  # (N, 2), around the signed value (the score where a test has no sign)
    flags: Tensor  # (N,) bool: score above delta
    confident_flags: Tensor | None  # (N,) bool: the whole interval is beyond delta
    abstained: Tensor  # (N,) bool
    reasons: tuple[str | None, ...]  # why abstained
    predictions: Tensor  # (N,)
    direct: Tensor  # (N,) effect of the smallest edit that changes c
    total: Tensor  # (N,) effect of becoming a typical member of the other group with the same ranks
    counterfactual: Tensor | None  # (N, D) encoded rows x' of the map
    ids: np.ndarray | None  # (N,) the id column, else None
    group: tuple[str, ...]  # (N,) own protected class
    alignment_share: dict[str, float]
    features: Features
    auxiliary: tuple[AuxiliaryQuality, ...]
    groups: tuple[Group, ...]
    delta: float
    test: str
    meaning: str  # one sentence: what the score says
    unit: str  # "change of the prediction (probability)", "cosine"
    warnings: tuple[str, ...]
    settings: dict[str, Any]  # seed, versions, options, durations
    alignment_error: dict[str, float] = field(default_factory=dict)  # standard error of each alignment share
    counterfactual_table: Any = None  # x' in the table's own kind and units, categories the most probable

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def judged(self) -> int:
        """How many people were not abstained."""
        return int((~self.abstained).sum())

    @property
    def share_flagged(self) -> float:
        """Share of flagged people among those not abstained."""
        return float(self.flags.sum()) / self.judged if self.judged else 0.0

    @property
    def share_confident(self) -> float | None:
        """Share of confidently flagged people among those not abstained; None without an interval."""
        return None if self.confident_flags is None else float(self.confident_flags.sum()) / max(self.judged, 1)

    @property
    def share_abstained(self) -> float:
        """Share of abstained people among all."""
        return float(self.abstained.sum()) / max(len(self), 1)

    @property
    def abstained_by_reason(self) -> dict[str, int]:
        """How many people were abstained for each reason, the most frequent first."""
        away = self.abstained.numpy(force=True)
        counted = Counter(reason or "no reason given" for reason, out in zip(self.reasons, away, strict=True) if out)
        return dict(counted.most_common())

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the protected variables."""
        return tuple(dict.fromkeys([q.variable for q in self.auxiliary] + [g.variable for g in self.groups]))

    @property
    def is_effect(self) -> bool:
        """Whether the score is a change of the prediction, in the prediction's own unit."""
        return self.unit.partition(" (")[0] == EFFECT

    @property
    def effect_unit(self) -> str:
        """The unit of the readings and of the feature contributions: that of the prediction, "" where not known."""
        return self.unit.partition(" (")[2].removesuffix(")")

    @property
    def effect_by_group(self) -> dict[str, dict[str, float]]:
        """Mean signed contribution of each feature in each group; over everyone the signs would cancel."""
        effect = self.features.effect
        if effect is None:
            return {}
        own = np.asarray(self.group, dtype=str)
        explained = ~effect.per_person.isnan().any(1).numpy(force=True)
        values = effect.per_person.numpy(force=True)
        return {
            str(level): dict(zip(effect.names, values[explained & (own == level)].mean(0).tolist(), strict=True))
            for level in np.unique(own[explained])
        }

    @property
    def readings(self) -> dict[str, Reading]:
        """The direct and the total reading of the effect, over all judged people and per group."""
        return {"direct": self._reading(self.direct), "total": self._reading(self.total)}

    def _reading(self, effect: Tensor) -> Reading:
        values = effect.numpy(force=True).astype(np.float64)
        known = ~self.abstained.numpy(force=True) & np.isfinite(values)
        levels, level = np.unique(np.asarray(self.group, dtype=str)[known], return_inverse=True)
        values = values[known]
        groups = {str(name): _mean_reading(values[level == k]) for k, name in enumerate(levels)}
        whole = _mean_reading(values)
        return Reading(whole.mean_signed, whole.mean_absolute, groups)

    def summary(self) -> str:
        """Return the audit in a dozen lines of plain text."""
        from fairfox.report.text import summary_lines

        return "\n".join(summary_lines(self))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the audit without its people as strict JSON, and write it to `path` when given.

        Numbers that are not finite become null; `schema_version` grows when a field changes its meaning.
        """
        text = json.dumps(_plain(_summary_fields(self)), indent=2, allow_nan=False) + "\n"
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return text

    def scores_table(self) -> pa.Table:
        """Return one row per person: id or row number (from 0), score, readings, interval, flags, reason.

        Abstained people have null in every number and flag.
        """
        away = self.abstained.numpy(force=True)
        lower, upper = (None, None) if self.interval is None else self.interval.unbind(1)
        columns = {
            "row_id": self._row_ids(),
            "score": _numbers(self.scores, away),
            "signed": _numbers(self.signed, away),
            "direct": _numbers(self.direct, away),
            "lower": _numbers(lower, away),
            "upper": _numbers(upper, away),
            "flag": _booleans(self.flags, away),
            "confident": _booleans(self.confident_flags, away),
            "abstained": pa.array(away),
            "reason": pa.array(self.reasons, pa.string()),
        }
        return pa.table(columns)

    def _row_ids(self) -> pa.Array:
        if self.ids is None:
            return pa.array(np.arange(len(self)))
        try:
            return pa.array(self.ids, from_pandas=True)  # a missing id is null
        except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
            return pa.array([None if value is None else str(value) for value in self.ids.tolist()], pa.string())

    def to_parquet(self, path: str | Path) -> None:
        """Write `scores_table` to a Parquet file."""
        table = self.scores_table()
        with written_whole(Path(path)) as temporary:
            pq.write_table(table, temporary)

    def to_html(self, path: str | Path | None = None, *, rows: object = None) -> str:
        """Return the report, one HTML page that needs nothing beside it, and write it to `path` when given.

        `rows` is the audited table (pandas, polars or Arrow, one row per person in the same order): with it the
        page also shows the raw rows of flagged people.
        """
        from fairfox.report.html import render_report

        page = render_report(self, rows=rows)
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(page, encoding="utf-8")
        return page


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


def _mean_reading(values: np.ndarray) -> Reading:
    if not len(values):
        return Reading(math.nan, math.nan)
    return Reading(float(values.mean()), float(np.abs(values).mean()))


def _summary_fields(result: AuditResult) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "test": result.test,
        "meaning": result.meaning,
        "unit": result.unit,
        "delta": result.delta,
        "counts": {
            "people": len(result),
            "judged": result.judged,
            "flagged": int(result.flags.sum()),
            "confident": None if result.confident_flags is None else int(result.confident_flags.sum()),
            "abstained": int(result.abstained.sum()),
        },
        "share_flagged": result.share_flagged,
        "share_confident": result.share_confident,
        "share_abstained": result.share_abstained,
        "abstained_by_reason": result.abstained_by_reason,
        "alignment_share": result.alignment_share,
        "alignment_error": result.alignment_error,
        "readings": {name: _reading_fields(reading) for name, reading in result.readings.items()},
        "features": {
            "proxy": result.features.proxy,
            "effect": None if result.features.effect is None else _effect_fields(result, result.features.effect),
        },
        "groups": [asdict(group) for group in result.groups],
        "auxiliary": [asdict(quality) for quality in result.auxiliary],
        "warnings": result.warnings,
        "settings": result.settings,
    }


def _reading_fields(reading: Reading) -> dict[str, Any]:
    def means(part: Reading) -> dict[str, Any]:
        return {"mean_signed": part.mean_signed, "mean_absolute": part.mean_absolute}

    return {**means(reading), "groups": {name: means(part) for name, part in reading.groups.items()}}


def _effect_fields(result: AuditResult, effect: FeatureEffect) -> dict[str, Any]:
    means = {"mean_absolute": effect.total, "standard_error": effect.error}
    return {"method": effect.method, "people": effect.people, **means, "mean_signed": result.effect_by_group}


def _numbers(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    if values is None:
        return pa.nulls(len(hidden), pa.float64())
    numbers = values.numpy(force=True).astype(np.float64)
    return pa.array(numbers, mask=hidden | ~np.isfinite(numbers))


def _booleans(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    return pa.nulls(len(hidden), pa.bool_()) if values is None else pa.array(values.numpy(force=True), mask=hidden)
