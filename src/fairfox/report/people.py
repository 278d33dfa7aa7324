"""The flagged people of an audit: who they are, and, where asked for, their raw rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfox.data.table import load_table
from fairfox.errors import ShapeError
from fairfox.report.text import because
from fairfox.result import AuditResult, Finding


@dataclass(frozen=True)
class FlaggedPerson:
    """One flagged person, as the report shows them."""

    place: int  # in the table
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


def flagged_people(result: AuditResult, *, top: int, raw: pa.Table | None = None) -> list[FlaggedPerson]:
    """Return the flagged people with the highest scores, the highest first."""
    return people_at(result, highest(result, np.flatnonzero(result.flags.numpy(force=True)), top), raw=raw)


def highest(result: AuditResult, places: np.ndarray, top: int) -> np.ndarray:
    """Return which of the people at these places have the highest scores, the highest first."""
    order = np.argsort(-result.scores.numpy(force=True)[places], kind="stable")
    return places[order[:top]]


def people_at(result: AuditResult, places: np.ndarray, *, raw: pa.Table | None = None) -> list[FlaggedPerson]:
    """Return the people at these places of the table."""
    shown = result.scores_table().take(pa.array(places)).to_pylist()
    rows = (
        [()] * len(places) if raw is None else [tuple(row.values()) for row in raw.take(pa.array(places)).to_pylist()]
    )
    wanted = ("row_id", "score", "signed", "lower", "upper", "direct", "confident")
    people = []
    for place, person, row in zip(places.tolist(), shown, rows, strict=True):
        findings = _flagging(result, place)
        people.append(
            FlaggedPerson(
                place=place,
                **{key: person[key] for key in wanted},
                because=tuple(because(finding, finding.towards[place]) for finding in findings),
                inferred=any(bool(finding.inferred[place]) for finding in findings),
                features=_own_features(result, place),
                row=row,
            )
        )
    return people


def _flagging(result: AuditResult, person: int) -> list[Finding]:
    """Return the variables that flag a person, the largest score first; that of the worst case where none says so."""
    flagging = [finding for finding in result.findings if finding.flags[person]]
    flagging = flagging or [result.findings[int(result.worst[person])]]
    return sorted(flagging, key=lambda finding: -float(finding.scores[person]))


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


def _own_features(result: AuditResult, person: int) -> tuple[tuple[str, float], ...]:
    """Return a person's contributions, the largest first, without those that are nothing."""
    if result.features.effect is None:
        return ()
    values = result.features.effect.per_person[person].numpy(force=True).astype(np.float64)
    if np.isnan(values).any():
        return ()
    largest = np.argsort(-np.abs(values), kind="stable")
    return tuple((result.features.effect.names[k], float(values[k])) for k in largest if values[k])


def _arrow(column: nw.Series[Any]) -> pa.Array:
    try:
        return column.to_arrow()
    except (pa.ArrowException, TypeError):  # values of several types have no Arrow type: as text
        return pa.array([None if value is None else str(value) for value in column.to_list()], pa.string())
