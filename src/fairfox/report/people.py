"""The flagged people of a report, each beside the same person in the other group; values only where rows are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from fairfox.data.table import floats, load_table
from fairfox.errors import ShapeError
from fairfox.findings import AuditRecord, Finding
from fairfox.report.figures import positions_flagged
from fairfox.report.sentences import because, carried_words, certificate_unit, signed_word
from fairfox.report.text import Table, amount, capitalised, cell, heading_unit, number

MOST_PEOPLE = 500
MOST_ROWS, MOST_LETTERS = 25, 80  # in a person's table, in a cell of it
SAME, OTHER, PARTLY, CHANGES = "the same", "another", "partly another", "changes"
MOST_COMPARATORS, CELLS = 3, 10_000_000  # real people beside a person; distances at once
FEW_VALUES, OFTEN = 20, 0.05  # of a column: so few values, or so many people at an end, that "higher" gives one away
Row = Mapping[str, Any]


@dataclass(frozen=True)
class FlaggedPerson:
    """One flagged person, as the report shows them; what has a sign has that of the contrast that counts."""

    position: int  # in the table
    row_id: Any
    score: float
    effect: float | None
    lower: float | None
    upper: float | None
    direct: float | None
    significant: bool | None
    confident: bool | None
    because: tuple[str, ...]  # the variables that flag them and towards what, the largest score first
    inferred: bool  # their own group, of a variable that flags them, is the most probable one
    features: tuple[tuple[str, float], ...]  # their own contributions, the largest first; empty where not explained
    comparators: str  # the real people of the other group who are most like their counterfactual row
    own: Row = field(default_factory=dict)  # their values, where they may be shown
    before: Row = field(default_factory=dict)  # the same, only to say what would change
    after: Row = field(default_factory=dict)  # the counterfactual row


@dataclass(frozen=True)
class Span:
    """The range of a column of numbers over all audited people, and whether a direction would give a value away."""

    low: float
    high: float
    tells: bool

    @classmethod
    def of(cls, values: np.ndarray) -> Span | None:
        """Return the span of a column; None where it has no number."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return None
        different, counts = np.unique(finite, return_counts=True)
        often = max(counts[0], counts[-1]) > OFTEN * len(finite)
        return cls(float(different[0]), float(different[-1]), bool(len(different) < FEW_VALUES or often))


def people_table(
    result: AuditRecord, slider: dict[str, Any] | None, *, rows: object = None, table: object = None
) -> dict[str, Any]:
    """Return the flagged people with the highest scores, at most 500, and nobody else.

    Args:
        result: the audit.
        slider: from `make_slider`; larger deltas than the audit's flag fewer of them.
        rows: the audited table; with it the page shows the values of flagged people.
        table: the same, only to say which features would be higher or lower; no value is shown.
    """
    table = rows if table is None else table
    people = flagged_people(result, top=MOST_PEOPLE, rows=rows, table=table)
    spans, columns = column_spans(result, table) if people else {}, _columns(result)
    cells = [_cells(result, person) for person in people]
    until = [0] * len(people)  # at how many positions of the slider each is flagged
    if slider is not None:
        until = positions_flagged(result.scores[[p.position for p in people]], slider["deltas"]).tolist()
    shown = [
        {
            "id": shown_value(person.row_id),
            "score": person.score,
            "cells": [own[key][0] for key in columns],
            "sort": [own[key][1] for key in columns],
            "until": last,
            **person_details(result, person, spans),
        }
        for person, own, last in zip(people, cells, until, strict=True)
    ]
    notes = []
    if result.ids is None or (result.settings.get("sample") and not result.settings.get("id")):
        notes.append("Row numbers count from 0, the first row below the header.")
    if any(person.inferred for person in people):
        notes.append("A dagger (†) marks people whose own group is not in the table: the most probable one was taken.")
    headings = [{"key": key, "label": label, "numeric": numeric} for key, (label, numeric) in columns.items()]
    return {"flagged": int(result.flagged.sum()), "rows": shown, "columns": headings, "notes": notes}


def flagged_people(result: AuditRecord, *, top: int, rows: object = None, table: object = None) -> list[FlaggedPerson]:
    """Return the flagged people with the highest scores, the highest first.

    Without `rows`, the audited table, nothing about a person gives their own group away; `table` only says what would
    change.
    """
    flagged = np.flatnonzero(result.flagged.numpy(force=True))
    positions = flagged[np.argsort(-result.scores.numpy(force=True)[flagged], kind="stable")[:top]]
    ids = row_ids(result).take(pa.array(positions)).to_pylist()
    mapped = result.counterfactual_table

    def rows_of(each: object) -> list[Row]:
        return [{}] * len(ids) if each is None else rows_at(result, each, positions).to_pylist()

    nearest = [_comparator_words(result, own) for own in comparators(result, positions.tolist())]
    sides = (rows_of(rows), rows_of(None if mapped is None else table), rows_of(None if table is None else mapped))
    return [
        _person(result, position, row_id, words, named=rows is not None, own=own, before=before, after=after)
        for position, row_id, words, own, before, after in zip(positions.tolist(), ids, nearest, *sides, strict=True)
    ]


def _comparator_words(result: AuditRecord, positions: Sequence[int]) -> str:
    if not positions:
        return ""
    ids = [shown_value(own) for own in row_ids(result).take(pa.array(positions)).to_pylist()]
    return f"{', '.join(ids)} (mean prediction {number(float(result.predictions[positions].mean()))})"


def _person(
    result: AuditRecord, position: int, row_id: object, comparators: str, *, named: bool, **rows: Row
) -> FlaggedPerson:
    worst, sign = result.findings[int(result.worst[position])], own_sign(result, position)
    flagging = [finding for finding in result.findings if finding.flagged[position]] or [worst]
    flagging.sort(key=lambda finding: -float(finding.scores[position]))
    lower, upper = (None, None) if result.interval is None else result.interval.unbind(1)

    def signed(values: Tensor | None) -> float | None:
        value = math.nan if values is None else sign * float(values[position])
        return value if math.isfinite(value) else None

    return FlaggedPerson(
        position=position,
        row_id=row_id,
        score=float(result.scores[position]),
        effect=signed(result.effect),
        lower=signed(upper if sign < 0 else lower),
        upper=signed(lower if sign < 0 else upper),
        direct=signed(result.direct),
        significant=None if result.significant is None else bool(result.significant[position]),
        confident=None if result.confident is None else bool(result.confident[position]),
        because=tuple(flagged_because(finding, finding.towards[position], named=named) for finding in flagging),
        inferred=any(bool(finding.inferred[position]) for finding in flagging),
        features=tuple((name, sign * value) for name, value in person_contributions(result, position)),
        comparators=comparators,
        **rows,
    )


def own_sign(result: AuditRecord, position: int) -> float:
    """Return -1 where a person's number goes down, since signed values are those of going up, else 1."""
    worst = result.findings[int(result.worst[position])]
    down = worst.kind == "continuous" and str(worst.towards[position]).startswith(f"{worst.name} - ")
    return -1.0 if down else 1.0


def person_contributions(result: AuditRecord, position: int, *, ask: bool = False) -> tuple[tuple[str, float], ...]:
    """Return a person's contributions, the largest first, without those that are zero.

    Where they were not worked out yet, `ask` predicts for it; else there are none.
    """
    effect = result.features.effect
    if effect is None:
        return ()
    values = effect.per_person[position]
    if ask and effect.explain and result.counterfactual is not None and not result.abstained[position]:
        values = effect.explain(position, result.counterfactual[position]) if values.isnan().any() else values
    if values.isnan().any():
        return ()
    largest = values.abs().argsort(descending=True, stable=True).tolist()
    return tuple((effect.names[k], float(values[k])) for k in largest if values[k])


def comparators(result: AuditRecord, positions: Sequence[int]) -> list[list[int]]:
    """Return for some people the positions of the real people of the other group who are most like their
    counterfactual row, the nearest first; [] where there is no such row or group."""
    out: dict[int, list[int]] = {}
    if result.counterfactual is None:
        return [[] for _ in positions]
    for v, finding in enumerate(result.findings):
        own, known = np.asarray(finding.group, dtype=str), ~finding.inferred.numpy(force=True)
        for level in finding.levels:
            among = np.flatnonzero((own == level) & known)
            mine = [n for n in positions if int(result.worst[n]) == v and finding.towards[n] == level]
            step = max(1, CELLS // max(1, len(among)))
            for start in range(0, len(mine) if len(among) else 0, step):
                some = mine[start : start + step]
                gaps = torch.cdist(result.counterfactual[some].to(result.encoded), result.encoded[among])
                nearest = gaps.topk(min(MOST_COMPARATORS, len(among)), largest=False).indices.numpy(force=True)
                out |= zip(some, among[nearest].tolist(), strict=True)
    return [out.get(n, []) for n in positions]


def flagged_because(finding: Finding, towards: str | None, *, named: bool) -> str:
    """Return because of what a person is flagged; unless `named`, nothing that gives their own group away."""
    return because(finding, towards) if named or not _gives_group_away(finding, towards) else finding.name


def _gives_group_away(finding: Finding, towards: str | None) -> bool:
    """Return whether a contrast gives a person's own group away: of two the other does, and "away from Black" does.

    Of a reference group only its own members are compared with others.
    """
    away = towards not in finding.levels or (finding.reference is not None and towards != finding.reference)
    return finding.kind != "continuous" and (len(finding.levels) == 2 or away)


def column_spans(result: AuditRecord, table: object) -> dict[str, Span]:
    """Return the spans of the columns of numbers that a counterfactual row has too."""
    if table is None or result.counterfactual_table is None:
        return {}
    frame, mapped = load_table(table), load_table(result.counterfactual_table)
    names = [name for name in frame.columns if name in mapped.columns and frame[name].dtype.is_numeric()]
    spans = {name: Span.of(floats(frame[name])) for name in names}
    return {name: span for name, span in spans.items() if span is not None}


def raw_rows(result: AuditRecord, table: object) -> pa.Table:
    """Return the table in its own units, one row per person, with null in the rows of people not flagged."""
    flags = result.flagged.numpy(force=True)
    flagged = rows_at(result, table, np.flatnonzero(flags))
    return flagged.take(pa.array(np.cumsum(flags) - 1, mask=~flags))  # taking a null gives a null


def rows_at(result: AuditRecord, table: object, positions: Sequence[int] | np.ndarray) -> pa.Table:
    """Return some rows of the audited table as Arrow, in its own units."""
    frame = load_table(table)
    if len(frame) != len(result):
        raise ShapeError(f"{len(frame)} rows for {len(result)} audited people; give the audited table, in its order")
    some = frame[[int(position) for position in positions]]
    return pa.table({name: _arrow_array(some[name].to_arrow, some[name].to_list) for name in some.columns})


def row_ids(result: AuditRecord) -> pa.Array:
    """Return everyone's id, or row number from 0 where there is no id column; a missing id is null."""
    ids = np.arange(len(result)) if result.ids is None else result.ids
    return _arrow_array(lambda: pa.array(ids, from_pandas=True), ids.tolist)


def _arrow_array(column: Callable[[], Any], values: Callable[[], list[Any]]) -> pa.Array:
    """Return a column; values of several types have no Arrow type, and become text."""
    try:
        return column()
    except (pa.ArrowException, TypeError):
        return pa.array([None if value is None else str(value) for value in values()], pa.string())


def _columns(result: AuditRecord) -> dict[str, tuple[str, bool]]:
    """Return the columns of the table by key: a heading, and whether it holds numbers."""
    points, effect_points = heading_unit(result.unit), heading_unit(result.effect_unit)
    has_interval = result.interval is not None
    columns = {
        "person": ("Person", False, True),
        "score": (f"{'Score' if result.effect is None else capitalised(signed_word(result))}{points}", True, True),
        "interval": (f"Interval{carried_words(result)}", True, has_interval),
        "significant": ("Significant", False, result.significant is not None),
        "confident": ("Confident", False, has_interval),
        "direct": (f"Direct{effect_points}", True, result.direct is not None),
        "because": ("Because of", False, result.tells_variables_apart and not result.two_groups),
        "through": (f"Mostly through{effect_points}", False, result.features.effect is not None),
    }
    return {key: (label, numeric) for key, (label, numeric, shown) in columns.items() if shown}


def _cells(result: AuditRecord, person: FlaggedPerson) -> dict[str, tuple[str, Any]]:
    """Return what each column shows of a person, and what it is sorted by; None comes last."""
    unit, effect_unit, own = result.unit, result.effect_unit, shown_value(person.row_id)
    between = f"{cell(person.lower, unit, sign=True)} to {cell(person.upper, unit, sign=True)}"
    reasons, words = ", ".join(person.because), {None: "-", True: "yes", False: "no"}
    significant, confident = words[person.significant], words[person.confident]
    through = ", ".join(f"{name} {cell(value, effect_unit, sign=True)}" for name, value in person.features[:3])
    score = cell(person.score, unit) if person.effect is None else cell(person.effect, unit, sign=True)
    return {
        "person": (f"{own}{' †' if person.inferred else ''}", person.row_id if _is_number(person.row_id) else own),
        "score": (score, person.score),
        "interval": (between, person.lower),
        "significant": (significant, significant),
        "confident": (confident, confident),
        "direct": (cell(person.direct, effect_unit, sign=True), person.direct),
        "because": (reasons, reasons),
        "through": (through or "-", person.features[0][0] if person.features else None),
    }


def person_details(result: AuditRecord, person: FlaggedPerson, spans: Mapping[str, Span]) -> dict[str, Any]:
    """Return what a row of the table opens to: a title, facts, the prediction on a line, features and notes.

    `spans` are those of the table's columns of numbers.
    """
    where, itself = _other_self(result, person), _is_own_effect(result)
    now, change = float(result.predictions[person.position]), _change_of_prediction(result, person)
    facts = [{"label": "Prediction", "words": number(now), "key": "before"}]
    if change is not None:
        label = capitalised(where) if itself else f"{capitalised(where)}, in the total reading"
        words = f"{number(now + change)} ({amount(change, result.effect_unit, sign=True)})"
        facts.append({"label": label, "words": words, "key": "after"})
    ends = () if person.lower is None or person.upper is None else (person.lower, person.upper)
    if ends:
        words = " to ".join(amount(end, result.unit, sign=True) for end in ends)
        facts.append({"label": f"Interval of the {'change' if itself else 'score'}", "words": words})
    drawn = None
    if change is not None and result.effect_unit == "probability":  # it lies between 0 and 1
        low, high = [now + end for end in ends] if ends and itself else (None, None)
        drawn = {"before": now, "after": now + change, "lower": low, "upper": high}
    features = _features(result, person, spans, where)
    return {
        "title": f"Person {shown_value(person.row_id)}, and the same person {where}",
        "facts": [*facts, *_more_facts(result, person)],
        "range": drawn,
        "features": features,
        "notes": _person_notes(result, person, features),
    }


def _is_own_effect(result: AuditRecord) -> bool:
    """Return whether the score is the change of the prediction itself, not times a share."""
    return result.is_effect and result.effect is not None and not result.test.endswith("/a")


def _other_self(result: AuditRecord, person: FlaggedPerson) -> str:
    """Return what the person is compared with; unless their values are shown, without giving their own group away."""
    finding = result.findings[int(result.worst[person.position])]
    towards = finding.towards[person.position]
    if finding.kind == "continuous" and towards not in (None, finding.name):
        return f"with {towards}"
    if towards in finding.levels and (person.own or not _gives_group_away(finding, towards)):
        return f"as {towards}"
    if len(finding.levels) != 2 or (towards is None and not result.two_groups):
        return "in another group"
    return "in the other group" if result.two_groups else f"in the other group of {finding.name}"


def _change_of_prediction(result: AuditRecord, person: FlaggedPerson) -> float | None:
    """Return how much the prediction would change, by the test itself or else by the total reading."""
    if _is_own_effect(result):
        return person.effect
    finding = result.findings[int(result.worst[person.position])]
    total = float(finding.total[person.position])
    return None if finding.kind == "continuous" or not math.isfinite(total) else total


def _more_facts(result: AuditRecord, person: FlaggedPerson) -> list[dict[str, str]]:
    """Return what no column of the table shows."""
    facts = []
    if person.comparators:
        facts.append({"label": "Most alike there, real people", "words": person.comparators})
    if result.certificates is not None and math.isfinite(most := float(result.certificates.largest[person.position])):
        words = f"{amount(most, certificate_unit(result))}: proved"
        facts.append({"label": "At most, anywhere on the path", "words": words})
    return facts


def _features(
    result: AuditRecord, person: FlaggedPerson, spans: Mapping[str, Span], where: str
) -> dict[str, Any] | None:
    """Return the person's features: what each adds to the change, and its values, or in which direction it changes."""
    unit, own, before, after = result.effect_unit, person.own, person.before, person.after
    adds = {name: cell(value, unit, sign=True) for name, value in person.features}
    changes = {}
    for name in (name for name in after if name in before):
        changes[name] = value_change(before[name], after[name], spans.get(name))
        if changes[name] == SAME and not _is_number(before[name]) and adds.get(name, "").strip("+-0."):
            changes[name] = PARTLY  # the shares of categories move, and the likeliest one stays
    names = [*adds, *(name for name, how in changes.items() if how != SAME), *own, *changes]
    names = list(dict.fromkeys(names))[:MOST_ROWS]
    if not names:
        return None
    parts: list[tuple[str, bool, bool, Callable[[str], str]]] = [("Feature", False, False, str)]
    if own:
        parts.append(("Now", False, False, lambda name: shown_value(own.get(name))))
    if changes:
        parts.append((capitalised(where), False, True, lambda name: _value_after(changes.get(name), person, name)))
    if adds:
        parts.append((f"Adds to the change{heading_unit(unit)}", True, False, lambda name: adds.get(name, "-")))
    return {
        "columns": [{"label": label, "numeric": numeric, "after": later} for label, numeric, later, _ in parts],
        "rows": [[changes.get(name, SAME) != SAME, *(words(name) for *_, words in parts)] for name in names],
    }


def value_change(before: Any, after: Any, span: Span | None = None) -> str:
    """Return how a value changes, without saying what it is; with a `span` that a direction would give away, not how.

    Example:
        >>> value_change(3, 3.2), value_change("nurse", "smith"), value_change(0, 0.4, Span(0, 1, True))
        ('higher', 'another', 'changes')
    """
    if not _is_number(before) or not _is_number(after):
        return SAME if before == after or (before is None and _is_missing(after)) else OTHER
    if math.isclose(before, after, rel_tol=1e-4, abs_tol=1e-9) or (math.isnan(before) and math.isnan(after)):
        return SAME
    gives_away = span is not None and (span.tells or before in (span.low, span.high))
    if gives_away or math.isnan(before) or math.isnan(after):
        return CHANGES
    return "higher" if after > before else "lower"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _value_after(how: str | None, person: FlaggedPerson, name: str) -> str:
    if how is None:
        return "-"
    if not person.own:
        return how
    if how in (SAME, PARTLY):
        words = shown_value(person.before[name])
        return words if how == SAME else f"{words}, {PARTLY}"
    after = person.after[name]
    if isinstance(after, float) and math.isfinite(after):  # it was estimated: with the digits it deserves
        after = f"{after:.2f}" if abs(after) >= 1000 else f"{after:.4g}"
    return shown_value(after)


def _person_notes(result: AuditRecord, person: FlaggedPerson, features: Table | None) -> list[str]:
    words = [str(word) for row in (features or {"rows": []})["rows"] for word in row[1:]]
    notes = []
    if result.features.effect is not None and not person.features:
        notes.append("What each feature adds was not worked out for this person; result.person does so in Python.")
    if person.before and not person.own:
        notes.append("The values themselves are not on this page.")
    if any(word.endswith(PARTLY) for word in words):
        notes.append("Partly another: categories move as shares, and the likeliest one stays the same.")
    if len(person.own) > MOST_ROWS:
        notes.append(f"The {MOST_ROWS} features that matter most are shown.")
    return notes


def shown_value(value: Any) -> str:
    """Return a value of the table as the page shows it: cut where it is long, a dash where there is none."""
    words = "-" if _is_missing(value) else str(value)
    if isinstance(value, float) and not value.is_integer() and 1e-4 <= abs(value) < 1e7:
        words = f"{value:.8g}"  # without the digits that only its binary form has
    return words if len(words) <= MOST_LETTERS else f"{words[: MOST_LETTERS - 1]}…"
