"""AuditResult: what an audit found, as its user reads it; how findings are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fairfox.auxiliary.training import centre_and_spread
from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.files import write_text, written_whole
from fairfox.data.protected import NumberGroups
from fairfox.errors import DataError
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.readings import Readings
from fairfox.findings import RATES, UNKNOWN, AuditRecord, Finding, GapParts, Group, StreamedVariable
from fairfox.report.people import comparators, person_contributions, row_ids, rows_at
from fairfox.report.sentences import summary_lines, verdict_lines
from fairfox.report.text import amount, people, percent
from fairfox.statistics.groups import Certainty, Decisions, Rule, group_mean, people_weights
from fairfox.statistics.verdict import Counted, Point, Verdict, family_verdict

_MOST_GROUPS, _MOST_REASONS = 4, 3  # that are printed
FEWEST = 5  # people of an intersection that rates are given of


@dataclass(frozen=True, repr=False)
class Person:
    """One person of an audit. Numbers are None where the person was not judged or nothing is known."""

    id: Any
    group: str
    prediction: float
    effect: float | None
    lower: float | None  # interval of the effect
    upper: float | None
    flagged: bool
    confident: bool
    significant: bool
    towards: str | None  # the group they are compared with
    features: dict[str, float]  # what each adds to the effect, the largest first; empty where the test explains none
    counterfactual: dict[str, Any]  # their values as a member of that group; empty where the test has none
    comparators: dict[Any, float]  # the nearest real people of that group to these values: predictions by id
    abstained_because: str | None

    def __repr__(self) -> str:
        if self.abstained_because is not None:
            return f"Person {self.id} ({self.group}), not judged: {self.abstained_because}"
        marks = [name for name in ("flagged", "confident", "significant") if getattr(self, name)]
        compared = "" if self.towards is None else f" as {self.towards}"
        lines = [f"Person {self.id} ({self.group}): {', '.join(marks) or 'not flagged'}"]
        lines.append(f"  prediction {self.prediction:.4g}, effect{compared} {_signed(self.effect)}")
        if self.lower is not None:
            lines[-1] += f" (interval {_signed(self.lower)} to {_signed(self.upper)})"
        through = [f"{name} {_signed(value)}" for name, value in list(self.features.items())[:_MOST_REASONS]]
        lines += [f"  mostly through {', '.join(through)}"] if through else []
        alike = ", ".join(f"{id} (prediction {prediction:.4g})" for id, prediction in self.comparators.items())
        return "\n".join([*lines, *([f"  most alike there: {alike}"] if alike else [])])


class AuditResult:
    """What an audit found: the verdict, three tables, arrays with a value per person, and files.

    Tables are of the kind that was audited: pandas, polars or Arrow. Of a file or an array they are pandas where that
    is installed, and Arrow otherwise. Arrays are numpy, in the order of the table. People who could not be judged have
    NaN for a number and False for a mark.

    Args:
        record: all that was found, as the reports use it.
        table: the audited table; only its kind is kept.

    Example:
        >>> import fairfox, pyarrow as pa
        >>> people = pa.table({"sex": ["f", "m"] * 40, "income": [float(i + 30 * (i % 2)) for i in range(80)]})
        >>> result = fairfox.audit(lambda rows: rows["income"] / 200, people, protected="sex")
        >>> result.verdict.passed
        False
        >>> result.person(0).features
        {'income': 0.161}
    """

    def __init__(self, record: AuditRecord, table: object = None) -> None:
        self.record = record
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        self._kind: Any = frame.implementation if isinstance(frame, nw.DataFrame) else "pandas"

    def __len__(self) -> int:
        return len(self.record)

    def __repr__(self) -> str:
        record, tally = self.record, self.record.tally
        counts = {"judged": tally.judged, "flagged": tally.flagged, "significant": record.listed}
        numbers = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count is not None)
        verdict = f"Cannot tell. {self.verdict.reason}" if record.verdict is None else verdict_lines(record)[0]
        lines = [verdict, f"{people(tally.people)}: {numbers} (test {self.test}, delta {self.delta:g})"]
        for group in record.groups[:_MOST_GROUPS]:
            mean = amount(group.mean_effect, record.unit, sign=True)
            effect = "" if group.mean_effect is None else f"mean effect {mean}, "
            lines.append(f"  {group.name}: {people(group.people)}, {effect}{percent(group.share_flagged)} flagged")
        more = len(record.groups) - _MOST_GROUPS
        lines += [f"  and {more} more groups (result.groups)"] if more > 0 else []
        lines += [f"Warnings: {len(self.warnings)} (result.warnings)"] if self.warnings else []
        return "\n".join([*lines, 'More: result.people, result.features, result.to_html("report.html")'])

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model: `passed` (True, False; None: cannot tell), `reason`, and the numbers behind it."""
        if self.record.verdict is not None:
            return self.record.verdict
        why = f"The test {self.test} gives no intervals here; use the test rank, or at least 2 refits."
        return Verdict("cannot tell", why, self.record.limit, self.record.judged, 0, 0, 1.0, 1.0)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict for each protected variable, by its name; empty where the test gives no intervals."""
        return {each.name: each.verdict for each in self.record.findings if each.verdict is not None}

    @property
    def test(self) -> str:
        """The name of the fairness test."""
        return self.record.test

    @property
    def delta(self) -> float:
        """The smallest effect that counts."""
        return self.record.delta

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the result is used, a sentence each."""
        return self.record.warnings

    @property
    def settings(self) -> dict[str, Any]:
        """Every option, the seed, versions and hashes: what it takes to repeat the audit."""
        return self.record.settings

    @cached_property
    def people(self) -> Any:
        """A table with a row per person.

        `row_id` is the id, or the row number from 0. `effect` is the change of `prediction` as a member of the other
        `group`, `lower` to `upper` its interval, `score` what is compared with delta: |effect| for most tests.
        `flagged`: score > delta. `confident`: the whole interval is beyond delta. `significant`: on the false-discovery
        list; the verdict counts these. `reasons` are the features that add most to the effect. `abstained` people are
        not judged, for the reason in `abstained_because`. The Parquet file has more columns.
        """
        return self._table(self._people)

    @cached_property
    def groups(self) -> Any:
        """A table with a row per group: people, mean prediction, mean effect, shares of flagged people, and decisions.

        `impact_ratio` is the `selection_rate` over that of the variable's group with the highest.
        """
        groups = self.record.groups
        names = ("people", "mean_prediction", "mean_effect", "share_flagged", "share_confident", "inferred", *RATES)
        columns = {name: [getattr(group, name) for group in groups] for name in ("variable", "level", *names)}
        return self._table(pa.table({"group": [group.name for group in groups], **columns}))

    @cached_property
    def features(self) -> Any:
        """A table with a row per feature, the largest first.

        `mean_absolute` is the mean |contribution| to the effect, with its `standard_error`; `proxy` says how strongly
        the feature gives the protected variable away.
        """
        proxy, effect = self.record.features.proxy, self.record.features.effect
        means, errors = ({}, {}) if effect is None else (effect.total, effect.error)
        names = list(dict.fromkeys([*means, *proxy]))
        columns = {"mean_absolute": means, "standard_error": errors, "proxy": proxy}
        numbers = {key: pa.array([of.get(name) for name in names], pa.float64()) for key, of in columns.items()}
        return self._table(pa.table({"feature": pa.array(names, pa.string()), **numbers}))

    @property
    def counterfactual(self) -> Any:
        """A table of everyone's values as a member of the other group; None where the test has no such rows."""
        return self.record.counterfactual_table

    @property
    def predictions(self) -> np.ndarray:
        """Everyone's prediction (N,)."""
        return self.record.predictions.numpy(force=True)

    @property
    def effect(self) -> np.ndarray:
        """How the prediction would change as a member of the other group (N,)."""
        return self._numbers(self.record.effect)

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper end of everyone's effect (N, 2)."""
        return self._numbers(self.record.interval, 2)

    @property
    def flagged(self) -> np.ndarray:
        """Whose score is above delta (N,)."""
        return self._marks(self.record.flagged)

    @property
    def significant(self) -> np.ndarray:
        """Who is on the list of people over delta with the given false discovery rate (N,)."""
        return self._marks(self.record.significant)

    def person(self, id: object) -> Person:
        """Return what was found about one person: by the id column, or by row number from 0 without one."""
        rows = [n for n, own in enumerate(self._people["row_id"].to_pylist()) if own == id]
        if len(rows) != 1:
            who = f"{len(rows)} people have" if rows else "No person has"
            kind = "row number" if self.record.ids is None else "id"
            raise DataError(f"{who} the {kind} {id!r}; the column row_id of result.people has everyone's")
        row = self._people.slice(rows[0], 1).to_pylist()[0]
        table = self.record.counterfactual_table
        after = {} if table is None or row["abstained"] else rows_at(self.record, table, rows).to_pylist()[0]
        (alike,) = comparators(self.record, rows)
        ids = self._people["row_id"].take(pa.array(alike, pa.int64())).to_pylist()
        return Person(
            id=row["row_id"],
            towards=self.record.towards[rows[0]],
            features=dict(person_contributions(self.record, rows[0], ask=True)),
            counterfactual=after,
            comparators=dict(zip(ids, self.predictions[alike].tolist(), strict=True)),
            **{f.name: row[f.name] for f in fields(Person) if f.name in row},
        )

    @cached_property
    def charts(self) -> Any:
        """The charts of the report as Altair charts: `result.charts.scores`, `.groups`, `.features` and others."""
        from fairfox.report.charts import Charts

        return Charts(self.record)

    def summary(self) -> str:
        """Return the audit in a dozen lines of plain text, and some for each further protected variable."""
        return "\n".join(summary_lines(self.record))

    def to_html(self, path: str | Path | None = None, *, rows: object = None, alternatives: object = None) -> str:
        """Return the report, one HTML page that needs no other file, and write it to `path` when given.

        `rows` is the audited table (one row per person, in the same order): with it the page also shows the values of
        flagged people. `alternatives` is what `fairfox.alternatives` found: the page shows it above the sign-off.
        """
        from fairfox.report.files import read_alternatives
        from fairfox.report.html import render_report

        tried = None if alternatives is None else read_alternatives(alternatives, self.settings)
        return write_text(render_report(replace(self.record, alternatives=tried), rows=rows), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the audit without its people as strict JSON, and write it to `path` when given.

        Numbers that are not finite become null; `format` grows when a field changes its meaning.
        """
        from fairfox.report.files import summary_json

        return write_text(summary_json(self.record), path)

    def to_parquet(self, path: str | Path) -> None:
        """Write a row per person, with every column: those of each protected variable and contrast too.

        Numbers and marks of people who were not judged are null.
        """
        from fairfox.report.files import scores_table

        with written_whole(Path(path)) as temporary:
            pq.write_table(scores_table(self.record), temporary)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the counts, the groups."""
        from fairfox.report.html import result_card

        return result_card(self.record)

    @cached_property
    def _people(self) -> pa.Table:
        record, (lower, upper) = self.record, self.interval.T
        own = [[group_name(f.name, level) for level in f.group] for f in record.findings if not f.parts]
        columns = {
            "row_id": row_ids(record),
            "group": [", ".join(each) for each in zip(*own, strict=True)],
            "prediction": self.predictions,
            "effect": self.effect,
            "lower": lower,
            "upper": upper,
            "score": self._numbers(record.scores),
            "flagged": self.flagged,
            "confident": self._marks(record.confident),
            "significant": self.significant,
            "reasons": pa.array([self._reasons(n) for n in range(len(self))], pa.string()),
            "abstained": record.abstained.numpy(force=True),
            "abstained_because": pa.array(record.reasons, pa.string()),
        }
        numbers = ("effect", "lower", "upper", "score")
        return pa.table({n: pa.array(c, from_pandas=True) if n in numbers else c for n, c in columns.items()})

    def _reasons(self, position: int) -> str | None:
        """Return the features that add most to a person's effect; None where nothing is known."""
        largest = person_contributions(self.record, position)[:_MOST_REASONS]
        return ", ".join(f"{name} {amount(v, self.record.effect_unit, sign=True)}" for name, v in largest) or None

    def _numbers(self, values: Tensor | None, *more: int) -> np.ndarray:
        """Return numbers (N, ...), NaN where a person was not judged or there are none."""
        out = np.full((len(self), *more), np.nan) if values is None else values.numpy(force=True).astype(np.float64)
        out[self.record.abstained.numpy(force=True)] = np.nan
        return out

    def _marks(self, values: Tensor | None) -> np.ndarray:
        """Return marks (N,), False where a person was not judged or there are none."""
        judged = ~self.record.abstained.numpy(force=True)
        return np.zeros(len(self), dtype=bool) if values is None else values.numpy(force=True) & judged

    def _table(self, table: pa.Table) -> Any:
        """Return a table in the kind of the audited one."""
        return nw.from_arrow(table, backend=self._kind).to_native()


def _signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.3g}"


def finding_of(
    readings: Readings,
    variable: int,
    *,
    predictions: Tensor,
    delta: float | Tensor,
    fitted: Dataset,
    merged: Mapping[str, tuple[str, ...]],
    rule: Rule,
    before: Measurement | None = None,
    decisions: Decisions | None = None,
    streamed: StreamedVariable | None = None,
) -> Finding:
    """Return what was found for one protected variable.

    Args:
        readings: of everyone.
        variable: which protected variable.
        predictions: of everyone (N,).
        delta: above which people are flagged, one for all or one each (N,).
        fitted: the protected values that were learnt from.
        merged: rare classes that were merged, by the new name.
        rule: what else decides who is over delta, and whether they are too many.
        before: what was measured before anybody was left out; the list and the verdict are about all of them, since
            those who stay were chosen for how little their refits scatter.
        decisions: what predictions mean, for the rates of groups; None: nobody decides.
        streamed: all people of a stream in numbers, where the readings are of a sample.
    """
    data = readings.people
    p, own = data.protected[variable], data.c[:, variable]
    main = readings.main.of_variable(variable, data)
    whole = main if before is None else before.of_variable(variable, data)
    certainty = rule.certainty(whole, delta, predictions, data.protected)
    shown = certainty.without(main.abstained)
    spread = float(centre_and_spread(fitted.c[:, variable], fitted.weights)[1])
    words = contrast_words(main, p, spread)
    names, codes = _groups(p, own, fitted.c[:, variable])
    share = readings.alignment[variable]
    effects = contrast_effects(main, p, own)
    counted = {} if streamed is None else streamed.counted
    verdict = _verdict(readings, variable, whole, certainty, codes, names, predictions, delta, rule, counted)
    finding = Finding(
        name=p.name,
        kind=p.kind,
        levels=p.levels,
        contrasts=words,
        effects=effects,
        scores=main.score,
        effect=main.effect,
        interval=shown.interval,
        flagged=shown.flagged,
        confident=shown.confident,
        abstained=main.abstained,
        towards=_towards(main, p, own, words),
        group=tuple(UNKNOWN if code < 0 else names[code] for code in codes.tolist()),
        inferred=readings.inferred[:, variable],
        direct=None if readings.direct is None else _signed_or_nan(readings.direct.of_variable(variable, data)),
        total=_signed_or_nan(readings.total.of_variable(variable, data)),
        same_outcome=_same_outcome(readings, variable),
        alignment_share=share.value,
        alignment_error=share.error,
        proxy=readings.proxy[variable],
        quality=readings.quality[variable],
        groups=(),
        parts=p.parts,
        reference=None if p.reference is None else p.levels[p.reference],
        second=None if p.second is None else p.levels[p.second],
        merged=dict(merged),
        is_own=bool(main.contrasts),
        verdict=verdict,
    )
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    groups = _groups_of(finding, names, codes, predictions, weights, decisions)
    if streamed is None:
        return replace(finding, groups=groups)
    rates = [{name: getattr(group, name) for name in (*RATES, "intervals")} for group in groups]  # of the sample
    groups = tuple(replace(group, **own) for group, own in zip(streamed.groups, rates, strict=True))
    return replace(finding, streamed=streamed.tally, groups=groups)


def _groups_of(
    finding: Finding,
    names: Sequence[str],
    codes: Tensor,
    predictions: Tensor,
    weights: Tensor,
    decisions: Decisions | None,
) -> tuple[Group, ...]:
    """Return every group, with the rates of decisions where somebody decides."""
    members = [codes == code for code in range(len(names))]
    rates = [{}] * len(names) if decisions is None else decisions.rates(predictions, weights, members)
    each = zip(names, members, rates, strict=True)
    return tuple(_group(finding, *own, predictions, weights) for own in each)


def _same_outcome(readings: Readings, variable: int) -> Tensor | None:
    """Return the effect at the same outcome (N,), NaN where it is not known."""
    measured, of = readings.same_outcome, readings.same_outcome_of
    if measured is None or of is None:
        return None
    known = _signed_or_nan(measured.of_variable(variable, readings.people[of]))
    out = known.new_full((len(readings.people),), torch.nan)
    out[of] = known
    return out


def _verdict(
    readings: Readings,
    variable: int,
    whole: Measurement,
    certainty: Certainty,
    codes: Tensor,
    names: Sequence[str],
    predictions: Tensor,
    delta: float | Tensor,
    rule: Rule,
    counted: Mapping[str, Counted],
) -> Verdict | None:
    """Return the verdict on everyone, and on each group that has a limit of its own: all must pass."""
    p, weights = readings.people.protected[variable], readings.people.weights
    found = []
    for code, name in [(None, p.name), *((code, group_name(p.name, level)) for code, level in enumerate(names))]:
        if code is not None and name not in rule.limits:
            continue
        own = rule if code is None else replace(rule, allowed=rule.limits[name])
        among = None if code is None else codes == code
        curve = _curve(readings, variable, predictions, delta, own, among)
        group = "" if code is None else name
        everyone = counted.get(name)
        found.append(own.judge(whole, certainty, weights, p.name, curve, group=group, among=among, everyone=everyone))
    known = [verdict for verdict in found if verdict is not None]
    return family_verdict(known) if known else None


def _curve(
    readings: Readings, variable: int, predictions: Tensor, delta: float | Tensor, rule: Rule, among: Tensor | None
) -> list[Point]:
    """Return which shares of some people, or of those among them (N,) bool, are over delta, by falling persistence."""
    if readings.sample is None or not readings.curve:
        return []
    rows, out = readings.sample, []
    some, limit = readings.people[rows], delta[rows] if isinstance(delta, Tensor) else delta
    for at, measured in readings.curve.items():
        own = measured.of_variable(variable, some)
        sure = rule.certainty(own, limit, predictions[rows], some.protected)
        gone = own.abstained if among is None else own.abstained | ~among[rows]
        out.append(rule.point(at, sure, some.c[:, variable], gone, some.weights))
    return out


def gap_parts(readings: Readings, variable: int, words: Sequence[str], predictions: Tensor) -> tuple[GapParts, ...]:
    """Return the gap between every two groups that are compared, taken apart; none for a protected number."""
    data = readings.people
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    p, own = data.protected[variable], data.c[:, variable].cpu()
    if p.is_continuous:
        return ()
    main = readings.main.of_variable(variable, data)
    effects = contrast_effects(main, p, data.c[:, variable]).double().cpu()
    alone = torch.zeros_like(effects)
    if readings.swapped is not None:
        alone = contrast_effects(readings.swapped.of_variable(variable, data), p, data.c[:, variable]).double().cpu()
    here, out = predictions.double().cpu(), []
    for q, word in enumerate(words):
        other = (own == p.levels.index(word)) & ~here.isnan()
        for code, level in enumerate(p.levels):
            who = (own == code) & ~effects[:, q].isnan() & ~alone[:, q].isnan()
            if level == word or not bool(who.any()) or not bool(other.any()):
                continue
            now, there = (group_mean(here, weights, members) for members in (who, other))
            changed, swapped = (now + group_mean(part[:, q], weights, who) for part in (effects, alone))
            out.append(GapParts(level, word, there - now, swapped - now, swapped - changed, changed - there))
    return tuple(out)


def _group(
    finding: Finding, name: str, members: Tensor, rates: Mapping[str, Any], predictions: Tensor, weights: Tensor
) -> Group:
    """Return the people of one group together."""
    judged = members & ~finding.abstained.cpu()

    def mean(values: Tensor | None) -> float | None:
        return None if values is None else group_mean(values, weights, judged)

    towards = {word: mean(finding.effects[:, q]) for q, word in enumerate(finding.contrasts) if word != name}
    return Group(
        variable=finding.name,
        level=name,
        people=int(members.sum()),
        mean_prediction=group_mean(predictions, weights, members),
        mean_effect=mean(finding.effect),
        share_flagged=group_mean(finding.flagged, weights, judged),
        share_confident=mean(finding.confident),
        inferred=int((members & finding.inferred).sum()),
        towards={word: value for word, value in towards.items() if value is not None and not isnan(value)},
        **rates,
    )


def intersections_of(record: AuditRecord, decisions: Decisions) -> tuple[Group, ...]:
    """Return what decisions give the intersections of several protected variables; () where these were audited.

    Those of fewer than `FEWEST` people are left out: their rates would tell of single people.
    """
    classes = [finding for finding in record.findings if finding.kind != "continuous"]
    if len(classes) < 2 or any(finding.parts for finding in classes):
        return ()
    cells = list(zip(*(finding.group for finding in classes), strict=True))
    weights = torch.from_numpy(people_weights(record.weights, len(record)))
    kept = [cell for cell, people in sorted(Counter(cells).items()) if people >= FEWEST and UNKNOWN not in cell]
    members = [torch.tensor([own == cell for own in cells]) for cell in kept]
    whole = {name: getattr(record, name) for name in ("flagged", "confident", "abstained", "inferred")}
    crossed = replace(classes[0], name=" & ".join(f.name for f in classes), contrasts=(), effect=None, **whole)
    each = zip(map(" & ".join, kept), members, decisions.rates(record.predictions, weights, members), strict=True)
    return tuple(_group(crossed, *own, record.predictions, weights) for own in each)


def _groups(p: Protected, own: Tensor, fitted: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Return the names of the groups, and everyone's code among them (N,), -1 where it is unknown."""
    if p.is_continuous:
        groups = NumberGroups.of(fitted)
        return groups.names, groups.assign(own)
    return p.levels, torch.where(own.isnan(), -1.0, own).long().cpu()


def contrast_words(measured: Measurement, p: Protected, spread: float) -> tuple[str, ...]:
    """Return the contrasts of a variable in words: a class each, or up and down; () where a test has none."""
    if not measured.contrasts or measured.effect is None:
        return ()
    if p.kind == "binary":
        return p.levels

    def word(contrast: Contrast) -> str:
        if not p.is_continuous:
            assert contrast.towards is not None
            return p.levels[contrast.towards]
        if contrast.towards is None:
            return p.name
        return f"{p.name} {'+' if contrast.towards == HIGHER else '-'} {spread:.3g}"

    return tuple(word(contrast) for contrast in measured.contrasts)


def contrast_effects(measured: Measurement, p: Protected, own: Tensor) -> Tensor:
    """Return the value of every contrast of a variable (N, Q), NaN towards the own class."""
    values = measured.values
    if not measured.contrasts or measured.effect is None:
        return values[:, :0]
    if p.kind == "binary":  # one column, towards whichever is the other class
        return torch.where(torch.stack([own == 1, own == 0], dim=1).to(values.device), values, torch.nan)
    return values


def _towards(main: Measurement, p: Protected, own: Tensor, words: Sequence[str]) -> tuple[str | None, ...]:
    """Return the contrast that counts for each person, in words."""
    if not words:
        return (None,) * len(own)
    codes = (main.klass if p.kind == "binary" else main.worst).tolist()
    return tuple(
        None if gone else f"away from {words[k]}" if not p.is_continuous and code == k else words[k]
        for gone, k, code in zip(main.abstained.tolist(), codes, own.tolist(), strict=True)
    )


def _signed_or_nan(reading: Measurement) -> Tensor:
    """Return a reading's signed effects (N,), NaN where it abstained."""
    assert reading.effect is not None
    return torch.where(reading.abstained.to(reading.effect.device), torch.nan, reading.effect)
