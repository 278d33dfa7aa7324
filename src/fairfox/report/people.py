"""The flagged people of a report, each beside the same person in the other group; values only where rows are given."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from torch import Tensor

from fairfox.data.table import floats, load_table
from fairfox.errors import ShapeError
from fairfox.findings import AuditRecord, Finding
from fairfox.report import text
from fairfox.report.figures import positions_flagged
from fairfox.report.sentences import because, beyond, certificate_unit
from fairfox.report.text import amount, capitalised, cell, heading_unit, number

MOST_PEOPLE = 500
MOST_ROWS, MOST_LETTERS = 40, 80  # in a person's table, in a cell of it
MOST_OF_PAGE = 1_000_000  # letters of all people's features together: the page stays small
SAME, OTHER, PARTLY, CHANGES = "the same", "another", "partly another", "changes"
FEW_VALUES, OFTEN = 20, 0.05  # of a column: so few values, or so many people at an end, that "higher" gives one away
_NO_ROOM = "The features of people with higher scores fill the page; these are in the tables that were audited."
_SIDES = {-1: ", below every value in the table", 0: "", 1: ", above every value in the table"}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class FlaggedPerson:
    """One flagged person, as the report shows them; what has a sign has that of the contrast that counts."""

    position: int  # in the table
    row_id: Any
    score: float
    signed: float | None
    lower: float | None
    upper: float | None
    direct: float | None
    confident: bool | None
    because: tuple[str, ...]  # the variables that flag them and towards what, the largest score first
    inferred: bool  # their own group, of a variable that flags them, is the most probable one
    features: tuple[tuple[str, float], ...]  # their own contributions, the largest first; empty where not explained
    row: tuple[Any, ...]  # their values in the columns of `raw_rows`; empty without it


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

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Return -1 for values below all of the table, 1 for those above all, 0 for those among them."""
        slack = 1e-6 * (self.high - self.low)  # of rounding
        return (values > self.high + slack).astype(int) - (values < self.low - slack)


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
    raw = None if rows is None else raw_rows(result, rows)
    compared = rows if table is None else table
    people = flagged_people(result, top=MOST_PEOPLE, raw=raw)
    positions = [person.position for person in people]
    spans = column_spans(result, compared) if people else {}
    names = [] if raw is None else raw.column_names
    until = [0] * len(people)  # at how many positions of the slider each is flagged
    if slider is not None and people:
        until = positions_flagged(result.scores[positions], result.abstained[positions], slider["deltas"])
    sides = _before_and_after(result, positions, compared)
    shown: list[dict[str, Any]] = []
    letters = 0
    for person, last, (before, after) in zip(people, until, sides, strict=True):
        details = person_details(result, person, dict(zip(names, person.row, strict=bool(names))), before, after, spans)
        letters += len(json.dumps(details["features"]))
        if letters > MOST_OF_PAGE:
            details |= {"features": None, "notes": [*details["notes"], _NO_ROOM]}
        columns = {"cells": _cells(result, person), "sort": _sort_keys(result, person), "until": last}
        shown.append({"id": shown_value(person.row_id), "score": person.score, **columns, **details})
    notes = [*_table_notes(result, people), *_outside_notes(result, spans)]
    return {"flagged": int(result.flags.sum()), "rows": shown, "columns": _columns(result), "notes": notes}


def flagged_people(result: AuditRecord, *, top: int, raw: pa.Table | None = None) -> list[FlaggedPerson]:
    """Return the flagged people with the highest scores, the highest first.

    `raw` are their rows, from `raw_rows`; without them nothing about a person gives their own group away.
    """
    flagged = np.flatnonzero(result.flags.numpy(force=True))
    positions = flagged[np.argsort(-result.scores.numpy(force=True)[flagged], kind="stable")[:top]]
    ids = row_ids(result).take(pa.array(positions)).to_pylist()
    rows: list[tuple[Any, ...]] = [()] * len(positions)
    if raw is not None:
        rows = [tuple(row.values()) for row in raw.take(pa.array(positions)).to_pylist()]
    each = zip(positions.tolist(), ids, rows, strict=True)
    return [_person(result, position, row_id, row, named=raw is not None) for position, row_id, row in each]


def _person(result: AuditRecord, position: int, row_id: object, row: tuple[Any, ...], *, named: bool) -> FlaggedPerson:
    worst = result.findings[int(result.worst[position])]
    # The signed values of a number are those of going up, whichever direction counts.
    down = worst.kind == "continuous" and str(worst.towards[position]).startswith(f"{worst.name} - ")
    sign = -1.0 if down else 1.0
    flagging = [finding for finding in result.findings if finding.flags[position]] or [worst]
    flagging.sort(key=lambda finding: -float(finding.scores[position]))
    lower, upper = (None, None) if result.interval is None else result.interval.unbind(1)

    def signed(values: Tensor | None) -> float | None:
        value = math.nan if values is None else sign * float(values[position])
        return value if math.isfinite(value) else None

    return FlaggedPerson(
        position=position,
        row_id=row_id,
        score=float(result.scores[position]),
        signed=signed(result.signed),
        lower=signed(upper if down else lower),
        upper=signed(lower if down else upper),
        direct=signed(result.direct),
        confident=None if result.confident_flags is None else bool(result.confident_flags[position]),
        because=tuple(flagged_because(finding, finding.towards[position], named=named) for finding in flagging),
        inferred=any(bool(finding.inferred[position]) for finding in flagging),
        features=tuple((name, sign * value) for name, value in _contributions(result, position)),
        row=row,
    )


def _contributions(result: AuditRecord, position: int) -> tuple[tuple[str, float], ...]:
    """Return a person's contributions, the largest first, without those that are zero."""
    if result.features.effect is None:
        return ()
    values = result.features.effect.per_person[position].numpy(force=True).astype(np.float64)
    if np.isnan(values).any():
        return ()
    largest = np.argsort(-np.abs(values), kind="stable")
    return tuple((result.features.effect.names[k], float(values[k])) for k in largest if values[k])


def names_variables(result: AuditRecord) -> bool:
    """Return whether the table says because of what people are flagged: where there is a choice."""
    return result.tells_variables_apart and not result.two_groups


def flagged_because(finding: Finding, towards: str | None, *, named: bool) -> str:
    """Return because of what a person is flagged; unless `named`, nothing that gives their own group away."""
    return because(finding, towards) if named or not _gives_group_away(finding, towards) else finding.name


def _gives_group_away(finding: Finding, towards: str | None) -> bool:
    """Return whether a contrast gives a person's own group away: of two the other does, and "away from Black" does.

    Of a reference group only its own members are compared with others.
    """
    away = towards not in finding.levels or (finding.reference is not None and towards != finding.reference)
    return finding.kind != "continuous" and (len(finding.levels) == 2 or away)


def _before_and_after(result: AuditRecord, positions: Sequence[int], table: object) -> list[tuple[Row, Row]]:
    """Return people's rows as they are and as they would be, empty where one of them is not there."""
    if table is None or result.counterfactual_table is None:
        return [({}, {})] * len(positions)
    sides = (rows_at(result, each, positions).to_pylist() for each in (table, result.counterfactual_table))
    return list(zip(*sides, strict=True))


def column_spans(result: AuditRecord, table: object) -> dict[str, Span]:
    """Return the spans of the columns of numbers that a counterfactual row has too."""
    if table is None or result.counterfactual_table is None:
        return {}
    frame, mapped = load_table(table), load_table(result.counterfactual_table)
    columns = {name: _column_numbers(frame[name]) for name in frame.columns if name in mapped.columns}
    spans = {name: Span.of(values) for name, values in columns.items() if values is not None}
    return {name: span for name, span in spans.items() if span is not None}


def _column_numbers(column: nw.Series[Any]) -> np.ndarray | None:
    return floats(column) if column.dtype.is_numeric() else None


def _outside_notes(result: AuditRecord, spans: Mapping[str, Span]) -> list[str]:
    """Return how many flagged people a map gives a number that nobody in the table has, in a sentence where it does."""
    if not spans:
        return []
    mapped, flags = load_table(result.counterfactual_table), result.flags.numpy(force=True)
    moved = {name: _column_numbers(mapped[name]) for name in spans}
    outside = [spans[name].outside(values[flags]) != 0 for name, values in moved.items() if values is not None]
    count, flagged = int(np.any(outside, axis=0).sum()), int(flags.sum())
    if not count:
        return []
    return [
        f"For {count:,} of {text.people(flagged)} flagged ({text.percent(count / flagged)}) the person they are "
        "compared with has a number below or above every value in the table: the map extrapolates, so read such a "
        "number as a direction, not as a value."
    ]


def raw_rows(result: AuditRecord, table: object) -> pa.Table:
    """Return the table in its own units, one row per person, with null in the rows of people not flagged."""
    flags = result.flags.numpy(force=True)
    flagged = rows_at(result, table, np.flatnonzero(flags))
    return flagged.take(pa.array(np.cumsum(flags) - 1, mask=~flags))  # taking a null gives a null


def rows_at(result: AuditRecord, table: object, positions: Sequence[int] | np.ndarray) -> pa.Table:
    """Return some rows of the audited table as Arrow, in its own units."""
    frame = load_table(table)
    if len(frame) != len(result):
        raise ShapeError(f"{len(frame)} rows for {len(result)} audited people; give the audited table, in its order")
    some = frame[[int(position) for position in positions]]
    return pa.table({name: _arrow(some[name]) for name in some.columns})


def _arrow(column: nw.Series[Any]) -> pa.Array:
    try:
        return column.to_arrow()
    except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
        return pa.array([None if value is None else str(value) for value in column.to_list()], pa.string())


def row_ids(result: AuditRecord) -> pa.Array:
    """Return everyone's id, or row number from 0 where there is no id column; a missing id is null."""
    if result.ids is None:
        return pa.array(np.arange(len(result)))
    try:
        return pa.array(result.ids, from_pandas=True)
    except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
        return pa.array([None if value is None else str(value) for value in result.ids.tolist()], pa.string())


def _columns(result: AuditRecord) -> list[dict[str, Any]]:
    unit, effect_unit = heading_unit(result.unit), heading_unit(result.effect_unit)
    columns: list[tuple[str, str, bool]] = [("person", "Person", False), ("score", f"Score{unit}", True)]
    columns += [] if result.signed is None else [("signed", f"Signed{unit}", True)]
    columns += [] if result.interval is None else [("interval", "Interval", True), ("confident", "Confident", False)]
    columns += [("direct", f"Direct{effect_unit}", True)]
    columns += [("because", "Because of", False)] if names_variables(result) else []
    columns += [] if result.features.effect is None else [("through", f"Mostly through{effect_unit}", False)]
    return [{"key": key, "label": label, "numeric": numeric} for key, label, numeric in columns]


def _cells(result: AuditRecord, person: FlaggedPerson) -> list[str]:
    unit, effect_unit = result.unit, result.effect_unit
    cells = [f"{shown_value(person.row_id)}{' †' if person.inferred else ''}", cell(person.score, unit)]
    cells += [] if result.signed is None else [cell(person.signed, unit, sign=True)]
    if result.interval is not None:
        between = f"{cell(person.lower, unit, sign=True)} to {cell(person.upper, unit, sign=True)}"
        cells += [between, "-" if person.confident is None else "yes" if person.confident else "no"]
    cells += [cell(person.direct, effect_unit, sign=True)]
    cells += [", ".join(person.because)] if names_variables(result) else []
    if result.features.effect is not None:
        through = [f"{name} {cell(value, effect_unit, sign=True)}" for name, value in person.features[:3]]
        cells.append(", ".join(through) or "-")
    return cells


def _sort_keys(result: AuditRecord, person: FlaggedPerson) -> list[Any]:
    """Return what the table is sorted by, in the order of its columns; None comes last."""
    own = person.row_id if isinstance(person.row_id, int | float) else shown_value(person.row_id)
    keys: list[Any] = [own, person.score]
    keys += [] if result.signed is None else [person.signed]
    if result.interval is not None:
        keys += [person.lower, None if person.confident is None else str(person.confident)]
    keys += [person.direct]
    keys += [", ".join(person.because)] if names_variables(result) else []
    keys += [] if result.features.effect is None else [person.features[0][0] if person.features else None]
    return keys


def _table_notes(result: AuditRecord, people: Sequence[FlaggedPerson]) -> list[str]:
    notes = []
    if result.ids is None or (result.settings.get("sample") and not result.settings.get("id")):
        notes.append("Row numbers count from 0, the first row below the header.")
    if any(person.inferred for person in people):
        notes.append("A dagger (†) marks people whose own group is not in the table: the most probable one was taken.")
    return notes


def person_details(
    result: AuditRecord, person: FlaggedPerson, own: Row, before: Row, after: Row, spans: Mapping[str, Span]
) -> dict[str, Any]:
    """Return what a row of the table opens to: a title, facts, the prediction on a line, features and notes.

    `own` has the values that may be shown; `before` and `after` only say what would change where it is empty. `spans`
    are those of the table's columns of numbers.
    """
    where = _other_self(result, person, named=bool(own))
    now, change_of_prediction = float(result.predictions[person.position]), _change_of_prediction(result, person)
    facts = [{"label": "Prediction", "words": number(now), "key": "before"}]
    if change_of_prediction is not None:
        label = capitalised(where) if _is_own_effect(result) else f"{capitalised(where)}, in the total reading"
        words = f"{number(now + change_of_prediction)} ({amount(change_of_prediction, result.effect_unit, sign=True)})"
        facts.append({"label": label, "words": words, "key": "after"})
    ends = None if person.lower is None or person.upper is None else (person.lower, person.upper)
    if ends is not None:
        words = " to ".join(amount(end, result.unit, sign=True) for end in ends)
        facts.append({"label": f"Interval of the {'change' if _is_own_effect(result) else 'score'}", "words": words})
    features = _features(result, person, own, before, after, spans, where)
    return {
        "title": f"Person {shown_value(person.row_id)}, and the same person {where}",
        "facts": [*facts, *_more_facts(result, person)],
        "range": _prediction_range(result, now, change_of_prediction, ends),
        "features": features,
        "notes": _person_notes(result, person, own, before, features),
    }


def _is_own_effect(result: AuditRecord) -> bool:
    """Return whether the score is the change of the prediction itself, not times a share."""
    return result.is_effect and result.signed is not None and not result.test.endswith("/a")


def _other_self(result: AuditRecord, person: FlaggedPerson, *, named: bool) -> str:
    """Return what the person is compared with; unless `named`, without giving their own group away."""
    finding = result.findings[int(result.worst[person.position])]
    towards = finding.towards[person.position]
    if finding.kind == "continuous" and towards not in (None, finding.name):
        return f"with {towards}"
    if towards in finding.levels and (named or not _gives_group_away(finding, towards)):
        return f"as {towards}"
    if len(finding.levels) != 2 or (towards is None and not result.two_groups):
        return "in another group"
    return "in the other group" if result.two_groups else f"in the other group of {finding.name}"


def _change_of_prediction(result: AuditRecord, person: FlaggedPerson) -> float | None:
    """Return how much the prediction would change, by the test itself or else by the total reading."""
    if _is_own_effect(result):
        return person.signed
    finding = result.findings[int(result.worst[person.position])]
    total = float(finding.total[person.position])
    return None if finding.kind == "continuous" or not math.isfinite(total) else total


def _more_facts(result: AuditRecord, person: FlaggedPerson) -> list[dict[str, str]]:
    facts = [{"label": "Direct reading", "words": amount(person.direct, result.effect_unit, sign=True)}]
    if names_variables(result):
        facts.append({"label": "Because of", "words": ", ".join(person.because)})
    if person.confident is not None:
        certainty = "the whole interval lies beyond" if person.confident else "the interval reaches below"
        facts.append({"label": "Certainty", "words": f"{certainty} {beyond(result)}"})
    if result.certificates is not None and math.isfinite(most := float(result.certificates.largest[person.position])):
        facts.append(
            {"label": "At most, anywhere on the path", "words": f"{amount(most, certificate_unit(result))}: proved"}
        )
    return facts


def _prediction_range(
    result: AuditRecord, now: float, change: float | None, ends: tuple[float, float] | None
) -> dict[str, float | None] | None:
    """Return the two predictions and the interval, where they lie between 0 and 1."""
    if change is None or result.effect_unit != "probability":
        return None
    between = ends if ends is not None and _is_own_effect(result) else None
    low, high = (None, None) if between is None else (now + between[0], now + between[1])
    return {"before": now, "after": now + change, "lower": low, "upper": high}


def _features(
    result: AuditRecord,
    person: FlaggedPerson,
    own: Row,
    before: Row,
    after: Row,
    spans: Mapping[str, Span],
    where: str,
) -> dict[str, Any] | None:
    """Return the person's features: what each adds to the change, and its values, or in which direction it changes."""
    unit = result.effect_unit
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
    columns = [{"label": "Feature", "numeric": False, "after": False}]
    columns += [{"label": "Now", "numeric": False, "after": False}] if own else []
    columns += [{"label": capitalised(where), "numeric": False, "after": True}] if changes else []
    columns += [{"label": f"Adds to the change{heading_unit(unit)}", "numeric": True, "after": False}] if adds else []
    rows = []
    for name in names:
        how = changes.get(name)
        words = [name]
        words += [shown_value(own.get(name)) if name in own else "-"] if own else []
        words += [_value_after(how, own, before.get(name), after.get(name), spans.get(name))] if changes else []
        words += [adds.get(name, "-")] if adds else []
        rows.append([how is not None and how != SAME, *words])
    return {"columns": columns, "rows": rows}


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


def _value_after(how: str | None, own: Row, before: Any, after: Any, span: Span | None) -> str:
    if how is None:
        return "-"
    if not own:
        return how
    if how in (SAME, PARTLY):
        return shown_value(before) if how == SAME else f"{shown_value(before)}, {PARTLY}"
    side = int(span.outside(np.array(after))) if span is not None and _is_number(after) else 0
    if isinstance(after, float) and math.isfinite(after):  # it was estimated: with the digits it deserves
        after = f"{after:.2f}" if abs(after) >= 1000 else f"{after:.4g}"
    return f"{shown_value(after)}{_SIDES[side]}"


def _person_notes(
    result: AuditRecord, person: FlaggedPerson, own: Row, before: Row, features: dict[str, Any] | None
) -> list[str]:
    notes, words = [], [str(word) for row in (features or {"rows": []})["rows"] for word in row[1:]]
    if result.features.effect is not None and not person.features:
        notes.append("What each feature adds was not worked out for this person.")
    if not own and before:
        notes.append("The values themselves are not on this page.")
    if any(word.endswith(PARTLY) for word in words):
        notes.append("Partly another: categories move as shares, and the likeliest one stays the same.")
    if any(word.endswith((_SIDES[-1], _SIDES[1])) for word in words):
        notes.append("Nobody in the table has such a value: read it as a direction, not as a person's value.")
    if len(own) > MOST_ROWS:
        notes.append(f"The {MOST_ROWS} features that matter most are shown.")
    return notes


def shown_value(value: Any) -> str:
    """Return a value of the table as the page shows it: cut where it is long, a dash where there is none."""
    words = "-" if _is_missing(value) else str(value)
    if isinstance(value, float) and not value.is_integer() and 1e-4 <= abs(value) < 1e7:
        words = f"{value:.8g}"  # without the digits that only its binary form has
    return words if len(words) <= MOST_LETTERS else f"{words[: MOST_LETTERS - 1]}…"
