"""The table of flagged people on the page: those with the highest scores, each with what their row opens to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfox.data.columns import numbers
from fairfox.data.table import load_table
from fairfox.errors import ShapeError
from fairfox.report import text
from fairfox.report.person import FlaggedPerson, Row, Span, card, names_variables, shown, told_variable
from fairfox.report.slider import last_positions
from fairfox.report.text import cell, heading_unit
from fairfox.result import AuditResult, Finding

MOST_PEOPLE = 500
MOST_OF_PAGE = 1_000_000  # letters of all people's features together: the page stays small
_NO_ROOM = "The features of people with higher scores fill the page; these are in the tables that were audited."


def people_table(
    result: AuditResult, slider: dict[str, Any] | None, *, rows: object = None, table: object = None
) -> dict[str, Any]:
    """Return the flagged people with the highest scores, at most 500, and nobody else.

    Args:
        result: the audit.
        slider: from `make_slider`; larger deltas than the audit's flag fewer of them.
        rows: the audited table; with it the page shows the values of flagged people.
        table: the same, only to say which features would be higher or lower; no value is shown.
    """
    raw = None if rows is None else raw_rows(result, rows)
    known = rows if table is None else table
    people = flagged_people(result, top=MOST_PEOPLE, raw=raw)
    places = [person.place for person in people]
    spans = spans_of(result, known) if people else {}
    names = [] if raw is None else raw.column_names
    each: list[dict[str, Any]] = []
    letters = 0
    for person, last, sides in zip(people, _last(result, places, slider), _sides(result, places, known), strict=True):
        opened = card(result, person, dict(zip(names, person.row, strict=bool(names))), *sides, spans)
        letters += len(json.dumps(opened["features"]))
        if letters > MOST_OF_PAGE:
            opened |= {"features": None, "notes": [*opened["notes"], _NO_ROOM]}
        ordered = {"cells": _cells(result, person), "sort": _sort(result, person), "until": last}
        each.append({"id": shown(person.row_id), "score": person.score, **ordered, **opened})
    notes = [*_notes(result, people), *_nobody_like_that(result, spans)]
    return {"flagged": int(result.flags.sum()), "rows": each, "columns": _columns(result), "notes": notes}


def flagged_people(result: AuditResult, *, top: int, raw: pa.Table | None = None) -> list[FlaggedPerson]:
    """Return the flagged people with the highest scores, the highest first.

    `raw` are their rows, from `raw_rows`; without them nothing about a person tells their own group.
    """
    flagged = np.flatnonzero(result.flags.numpy(force=True))
    places = flagged[np.argsort(-result.scores.numpy(force=True)[flagged], kind="stable")[:top]]
    found = result.scores_table().take(pa.array(places)).to_pylist()
    rows = (
        [()] * len(places) if raw is None else [tuple(row.values()) for row in raw.take(pa.array(places)).to_pylist()]
    )
    return [
        _person(result, place, scores, row, named=raw is not None)
        for place, scores, row in zip(places.tolist(), found, rows, strict=True)
    ]


def _person(
    result: AuditResult, place: int, scores: Mapping[str, Any], row: tuple[Any, ...], *, named: bool
) -> FlaggedPerson:
    findings, turn = _flagging(result, place), _turn(result, place)
    signed, lower, upper, direct = (
        None if scores[key] is None else turn * scores[key] for key in ("signed", "lower", "upper", "direct")
    )
    return FlaggedPerson(
        place=place,
        row_id=scores["row_id"],
        score=scores["score"],
        signed=signed,
        lower=lower if turn > 0 else upper,
        upper=upper if turn > 0 else lower,
        direct=direct,
        confident=scores["confident"],
        because=tuple(told_variable(finding, finding.towards[place], named=named) for finding in findings),
        inferred=any(bool(finding.inferred[place]) for finding in findings),
        features=tuple((name, turn * value) for name, value in _own_features(result, place)),
        row=row,
    )


def _turn(result: AuditResult, person: int) -> float:
    """Return -1 where a person's number goes down: the signed values of a number point up, whichever way counts."""
    finding = result.findings[int(result.worst[person])]
    down = finding.kind == "continuous" and str(finding.towards[person]).startswith(f"{finding.name} - ")
    return -1.0 if down else 1.0


def _flagging(result: AuditResult, person: int) -> list[Finding]:
    """Return the variables that flag a person, the largest score first; that of the worst case where none says so."""
    flagging = [finding for finding in result.findings if finding.flags[person]]
    flagging = flagging or [result.findings[int(result.worst[person])]]
    return sorted(flagging, key=lambda finding: -float(finding.scores[person]))


def _own_features(result: AuditResult, person: int) -> tuple[tuple[str, float], ...]:
    """Return a person's contributions, the largest first, without those that are nothing."""
    if result.features.effect is None:
        return ()
    values = result.features.effect.per_person[person].numpy(force=True).astype(np.float64)
    if np.isnan(values).any():
        return ()
    largest = np.argsort(-np.abs(values), kind="stable")
    return tuple((result.features.effect.names[k], float(values[k])) for k in largest if values[k])


def _last(result: AuditResult, places: Sequence[int], slider: dict[str, Any] | None) -> list[int]:
    """Return at how many of the slider's positions each person is flagged."""
    if slider is None or not places:
        return [0] * len(places)
    return last_positions(result.scores[places], result.abstained[places], slider["deltas"])


def _sides(result: AuditResult, places: Sequence[int], table: object) -> list[tuple[Row, Row]]:
    """Return people's rows as they are and as they would be, empty where one of them is not known."""
    if table is None or result.counterfactual_table is None:
        return [({}, {})] * len(places)
    sides = (rows_at(result, each, places).to_pylist() for each in (table, result.counterfactual_table))
    return list(zip(*sides, strict=True))


def spans_of(result: AuditResult, table: object) -> dict[str, Span]:
    """Return what everybody has in the columns of numbers that a counterfactual person has, too."""
    if table is None or result.counterfactual_table is None:
        return {}
    frame, mapped = load_table(table), load_table(result.counterfactual_table)
    numbers = {name: _numbers(frame[name]) for name in frame.columns if name in mapped.columns}
    spans = {name: Span.of(values) for name, values in numbers.items() if values is not None}
    return {name: span for name, span in spans.items() if span is not None}


def _numbers(column: nw.Series[Any]) -> np.ndarray | None:
    return numbers(column) if column.dtype.is_numeric() else None


def _nobody_like_that(result: AuditResult, spans: Mapping[str, Span]) -> list[str]:
    """Return how many flagged people a map gives a number that nobody in the table has, in a sentence where it does."""
    if not spans:
        return []
    mapped, flags = load_table(result.counterfactual_table), result.flags.numpy(force=True)
    moved = {name: _numbers(mapped[name]) for name in spans}
    beyond = [spans[name].outside(values[flags]) != 0 for name, values in moved.items() if values is not None]
    count, flagged = int(np.any(beyond, axis=0).sum()), int(flags.sum())
    if not count:
        return []
    return [
        f"For {count:,} of {text.people(flagged)} flagged ({text.percent(count / flagged)}) the person they are "
        "compared with has a number below or above every value in the table: the map goes on beyond what it has seen, "
        "so take such a number for the way it goes."
    ]


def raw_rows(result: AuditResult, table: object) -> pa.Table:
    """Return the table in its own units, one row per person, with null in the rows of people not flagged."""
    flags = result.flags.numpy(force=True)
    flagged = rows_at(result, table, np.flatnonzero(flags))
    place = pa.array(np.cumsum(flags) - 1, mask=~flags)  # taking a null gives a null
    return flagged.take(place)


def rows_at(result: AuditResult, table: object, places: Sequence[int] | np.ndarray) -> pa.Table:
    """Return some rows of the audited table as Arrow, in its own units."""
    frame = load_table(table)
    if len(frame) != len(result):
        raise ShapeError(f"{len(frame)} rows for {len(result)} audited people; give the audited table, in its order")
    some = frame[[int(place) for place in places]]
    return pa.table({name: _arrow(some[name]) for name in some.columns})


def _arrow(column: nw.Series[Any]) -> pa.Array:
    try:
        return column.to_arrow()
    except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
        return pa.array([None if value is None else str(value) for value in column.to_list()], pa.string())


def _columns(result: AuditResult) -> list[dict[str, Any]]:
    unit, effect_unit = heading_unit(result.unit), heading_unit(result.effect_unit)
    columns: list[tuple[str, str, bool]] = [("person", "Person", False), ("score", f"Score{unit}", True)]
    columns += [] if result.signed is None else [("signed", f"Signed{unit}", True)]
    sure = [("interval", "Interval", True), ("confident", "Confident", False)]
    columns += [] if result.interval is None else sure
    columns += [("direct", f"Direct{effect_unit}", True)]
    columns += [("because", "Because of", False)] if names_variables(result) else []
    columns += [] if result.features.effect is None else [("through", f"Mostly through{effect_unit}", False)]
    return [{"key": key, "label": label, "numeric": numeric} for key, label, numeric in columns]


def _cells(result: AuditResult, person: FlaggedPerson) -> list[str]:
    unit, effect_unit = result.unit, result.effect_unit
    cells = [f"{shown(person.row_id)}{' †' if person.inferred else ''}", cell(person.score, unit)]
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


def _sort(result: AuditResult, person: FlaggedPerson) -> list[Any]:
    """Return what the table is sorted by, in the order of its columns; None comes last."""
    keys: list[Any] = [person.row_id if isinstance(person.row_id, int | float) else shown(person.row_id), person.score]
    keys += [] if result.signed is None else [person.signed]
    keys += (
        [] if result.interval is None else [person.lower, None if person.confident is None else str(person.confident)]
    )
    keys += [person.direct]
    keys += [", ".join(person.because)] if names_variables(result) else []
    keys += [] if result.features.effect is None else [person.features[0][0] if person.features else None]
    return keys


def _notes(result: AuditResult, people: Sequence[FlaggedPerson]) -> list[str]:
    notes = []
    if result.ids is None or (result.settings.get("sample") and not result.settings.get("id")):
        notes.append("Row numbers count from 0, the first row below the header.")
    if any(person.inferred for person in people):
        notes.append("A dagger (†) marks people whose own group nobody knows: the most probable one was taken.")
    return notes
