"""An audit as it was written down, and `drift`: is the second of two worse than the first?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.errors import DataError, FileError, OptionError
from fairfox.result import AuditResult
from fairfox.verdicts.drifting import Drift, Scores, drift_of_others, drift_of_same
from fairfox.verdicts.estimates import errors_of_intervals

_COLUMNS = ("row_id", "score", "lower", "upper", "flag")
_MOST = 0.8  # of the people of the larger audit must be in both, for the two to be compared person by person
_SMALL = 0.1  # of delta: a rise of the mean score that does not count


@dataclass(frozen=True)
class Earlier:
    """The judged people of an audit, and its summary."""

    name: str  # in words, for errors
    fields: dict[str, Any]
    ids: tuple[Any, ...]
    people: Scores

    @property
    def variables(self) -> list[str]:
        """The protected variables."""
        return [one["name"] for one in self.fields["variables"]]


def read_earlier(source: AuditResult | str | Path) -> Earlier:
    """Return an audit from the folder that `fairfox audit` wrote, or from its result."""
    if isinstance(source, AuditResult):
        return _earlier("the result", json.loads(source.to_json()), source.scores_table())
    folder = Path(source)
    summary, scores = folder / "summary.json", folder / "scores.parquet"
    for path in (summary, scores):
        if not path.is_file():
            raise FileError(f"There is no file '{path}'; give a folder that `fairfox audit` wrote")
    try:
        fields, table = json.loads(summary.read_text(encoding="utf-8")), pq.read_table(scores)
    except (ValueError, OSError) as error:  # Arrow's errors are one of the two
        raise FileError(
            f"The audit in '{folder}' cannot be read ({error}); make it anew with `fairfox audit`"
        ) from error
    return _earlier(f"'{folder}'", fields, table)


def _earlier(name: str, fields: dict[str, Any], table: pa.Table) -> Earlier:
    try:
        settings, delta = fields["settings"], float(fields["delta"])
        refits, folds = int(settings["refits"]), settings["folds"]
        _ = [one["name"] for one in fields["variables"]], fields["test"], fields["unit"]
        columns = {column: table[column] for column in _COLUMNS}
    except (KeyError, TypeError) as error:
        raise FileError(
            f"{name[0].upper()}{name[1:]} does not hold {error}, which audits write; make it anew with `fairfox audit`"
        ) from error
    judged = columns["score"].is_valid().to_numpy()
    if not judged.any():
        raise DataError(f"Nobody is judged in {name}, so that there is nothing to go by")
    score, lower, upper, flags = (_numbers(columns[column])[judged] for column in _COLUMNS[1:])
    people = Scores(
        score, errors_of_intervals(lower, upper, refits), flags, delta, refits, None if folds is None else int(folds)
    )
    ids = tuple(one for one, kept in zip(columns["row_id"].to_pylist(), judged.tolist(), strict=True) if kept)
    return Earlier(name, fields, ids, people)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def drift(first: AuditResult | str | Path, second: AuditResult | str | Path, *, margin: float | None = None) -> Drift:
    """Return whether the second audit finds people treated more unequally than the first one did.

    Where most people are in both, by their ids, they are compared each with themselves; otherwise the audits are two
    samples of people.

    Args:
        first: the earlier audit: the folder that `fairfox audit` wrote, or the result of `fairfox.audit`.
        second: the later one, of the same test, protected variables, unit and delta.
        margin: a rise of the mean score that does not count; by default a tenth of delta.
    """
    one, two = read_earlier(first), read_earlier(second)
    _check_alike(one, two)
    allowed = _SMALL * one.people.delta if margin is None else margin
    if not 0 <= allowed < np.inf:
        raise OptionError(f"The margin is {margin}; expected a number of at least 0")
    places = _same_people(one.ids, two.ids)
    if places is None:
        return drift_of_others(one.people, two.people, margin=allowed)
    return drift_of_same(
        _chosen(one.people, places[0]), _chosen(two.people, places[1]), margin=allowed, same_maps=_same_maps(one, two)
    )


def _check_alike(one: Earlier, two: Earlier) -> None:
    """Refuse audits that asked different questions."""
    for what in ("test", "unit", "delta"):
        if one.fields[what] != two.fields[what]:
            raise OptionError(
                f"The {what} is {one.fields[what]} in {one.name} and {two.fields[what]} in {two.name}; compare audits "
                "of the same question"
            )
    cuts = [audit.fields["settings"].get("decision_threshold") for audit in (one, two)]
    if cuts[0] != cuts[1]:
        raise OptionError(
            f"The decision threshold is {cuts[0]} in {one.name} and {cuts[1]} in {two.name}; compare audits of the "
            "same question"
        )
    if one.variables != two.variables:
        raise OptionError(
            f"{', '.join(one.variables)} is protected in {one.name} and {', '.join(two.variables)} in {two.name}; "
            "compare audits of the same question"
        )
    for audit in (one, two):
        if audit.fields.get("weighted"):
            raise OptionError(
                f"The people of {audit.name} have weights, which audits do not write; compare audits without weights"
            )


def _same_maps(one: Earlier, two: Earlier) -> bool:
    told = ("seed", "refits", "folds", "rows", "reference_rows", "columns")
    return all(one.fields["settings"].get(name) == two.fields["settings"].get(name) for name in told)


def _same_people(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[list[int], list[int]] | None:
    """Return the places of the people who are in both; None where they are few, or where an id is not one person's."""
    place = {one: k for k, one in enumerate(second)}
    if len(place) < len(second) or len(set(first)) < len(first):
        return None
    shared = [(k, place[one]) for k, one in enumerate(first) if one in place]
    if len(shared) < _MOST * max(len(first), len(second)):
        return None
    return [k for k, _ in shared], [k for _, k in shared]


def _chosen(people: Scores, rows: list[int]) -> Scores:
    return Scores(
        people.scores[rows], people.errors[rows], people.flags[rows], people.delta, people.refits, people.folds
    )
