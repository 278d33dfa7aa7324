"""AuditResult: what an audit found, with the methods that show it and write it down; how findings are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fairfox.auxiliary.training import centre_and_spread
from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.files import write_text, written_whole
from fairfox.data.protected import NumberGroups
from fairfox.errors import require
from fairfox.fairtests.fitted import Readings
from fairfox.fairtests.protocol import Measurement
from fairfox.findings import UNKNOWN, AuditRecord, Finding, GapParts, Group, StreamedVariable
from fairfox.statistics.groups import Certainty, Rule, group_mean
from fairfox.statistics.verdict import Counted, Point, Verdict, family_verdict


@dataclass(frozen=True, repr=False)
class AuditResult(AuditRecord):
    """Everything an audit found, and how it is shown and written down."""

    def __repr__(self) -> str:
        return f"<AuditResult: {self.test} on {len(self)} people, protected: {', '.join(self.variables)}>"

    def summary(self) -> str:
        """Return the audit in a dozen lines of plain text, and some for each further protected variable."""
        from fairfox.report.sentences import summary_lines

        return "\n".join(summary_lines(self))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the audit without its people as strict JSON, and write it to `path` when given.

        Numbers that are not finite become null; `format` grows when a field changes its meaning.
        """
        from fairfox.report.files import summary_json

        return write_text(summary_json(self), path)

    def scores_table(self) -> pa.Table:
        """Return one row per person: id or row number (from 0), score, readings, interval, flags, reason.

        With several protected variables or more than two classes there are columns for each of them. Abstained
        people have null in every number and flag, but for the doubt, which is written where abstaining was asked for.
        """
        from fairfox.report.files import scores_table

        return scores_table(self)

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

        return write_text(render_report(self, rows=rows), path)

    def to_pandas(self) -> Any:
        """Return `scores_table` as a pandas frame; flags are nullable booleans, so that `frame[frame.flag]` works."""
        pandas = require("pandas", why="to give a result as a frame")
        return self.scores_table().to_pandas(types_mapper={pa.bool_(): pandas.BooleanDtype()}.get)

    def to_polars(self) -> Any:
        """Return `scores_table` as a polars frame."""
        return require("polars", why="to give a result as a frame").from_arrow(self.scores_table())

    @cached_property
    def charts(self) -> Any:
        """The charts of the report as Altair charts: `result.charts.scores`, `.groups`, `.features` and others."""
        from fairfox.report.charts import Charts

        return Charts(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the counts, the groups."""
        from fairfox.report.html import result_card

        return result_card(self)


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
    if streamed is not None:
        return replace(finding, streamed=streamed.tally, groups=streamed.groups)
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    groups = [_group(finding, name, codes == code, predictions, weights) for code, name in enumerate(names)]
    return replace(finding, groups=tuple(groups))


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
        found.append(own.judge(whole, certainty, weights, name, curve, among, counted.get(name)))
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


def _group(finding: Finding, name: str, members: Tensor, predictions: Tensor, weights: Tensor) -> Group:
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
    )


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
