"""The table of people on the page: those with the highest scores, each with what their row opens to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairfox.report.people import FlaggedPerson, highest, people_at, raw_rows, rows_at
from fairfox.report.person import Row, card, names_variables, shown
from fairfox.report.slider import last_positions
from fairfox.report.text import cell, heading_unit
from fairfox.result import AuditResult

MOST_PEOPLE = 500
MOST_LETTERS = 1_000_000  # of all people's features together: the page stays small
_NO_ROOM = "The features of people with higher scores fill the page; these are in the tables that were audited."


def people_table(
    result: AuditResult, slider: dict[str, Any] | None, *, rows: object = None, table: object = None
) -> dict[str, Any]:
    """Return the people with the highest scores, at most 500: the flagged, and with a slider those it may flag too.

    Args:
        result: the audit.
        slider: from `make_slider`.
        rows: the audited table; with it the page shows the values of flagged people.
        table: the same, only to say which features would be higher or lower; no value is shown.
    """
    raw = None if rows is None else raw_rows(result, rows)
    among = result.flags if slider is None else ~result.abstained
    places = highest(result, np.flatnonzero(among.numpy(force=True)), MOST_PEOPLE)
    people = people_at(result, places, raw=raw)
    before, after = _sides(result, places, rows if table is None else table)
    names = [] if raw is None else raw.column_names
    each: list[dict[str, Any]] = []
    letters = 0
    for person, last, here, there in zip(people, _last(result, places, slider), before, after, strict=True):
        flagged = bool(result.flags[person.place])
        values = dict(zip(names, person.row, strict=bool(names))) if flagged else {}  # of others nothing is shown
        opened = card(result, person, values, here, there)
        letters += len(json.dumps(opened["features"]))
        if letters > MOST_LETTERS:
            opened |= {"features": None, "notes": [*opened["notes"], _NO_ROOM]}
        ordered = {"cells": _cells(result, person), "sort": _sort(result, person), "until": last}
        each.append({"id": shown(person.row_id), "score": person.score, "flagged": flagged, **ordered, **opened})
    told = {"columns": _columns(result), "notes": _notes(result, people)}
    return {"flagged": int(result.flags.sum()), "rows": each, **told}


def _last(result: AuditResult, places: np.ndarray, slider: dict[str, Any] | None) -> list[int]:
    """Return at how many of the slider's positions each person is flagged."""
    if slider is None or not len(places):
        return [0] * len(places)
    chosen = places.tolist()
    return last_positions(result.scores[chosen], result.abstained[chosen], slider["deltas"])


def _sides(result: AuditResult, places: np.ndarray, table: object) -> tuple[list[Row], list[Row]]:
    """Return people's rows as they are and as they would be, empty where one of them is not known."""
    nothing: list[Row] = [{}] * len(places)
    if table is None or result.counterfactual_table is None:
        return nothing, nothing
    return rows_at(result, table, places).to_pylist(), rows_at(result, result.counterfactual_table, places).to_pylist()


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
