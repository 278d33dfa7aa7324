"""An audit as it was written down, and `drift`: is the second of two worse than the first?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.errors import DataError, FileError, OptionError
from fairfox.fairtests.registry import UNFITTED
from fairfox.result import AuditResult
from fairfox.verdicts.drifting import Drift, Scores, drift_of_itself, drift_of_others, drift_of_same
from fairfox.verdicts.estimates import Values, errors_of_intervals

_DAMAGES = (TypeError, ValueError, AttributeError, OverflowError, NotImplementedError)  # Arrow's are among them
_COLUMNS = ("row_id", "score", "lower", "upper", "flag")
_MOST = 0.8  # of the people of the larger audit must be in both, for the two to be compared person by person
_HASHES = ("rows_sha256", "predictions_sha256")  # settings that say whether people and predictions are the same
_SMALL = 0.1  # of delta: a rise of the mean score that does not count


@dataclass(frozen=True)
class Earlier:
    """The judged people of an audit, what it asked, and its summary."""

    name: str  # in words, for errors
    summary: dict[str, Any]  # the fields of its summary.json
    question: dict[str, Any]  # what two audits must have in common, by what it is called
    weighted: bool
    ids: tuple[Any, ...] | None  # None where people have no names, but row numbers
    people: Scores


@dataclass(frozen=True)
class Side:
    """One of two audits: what it is of, the fields of its summary.json, and the scores of its judged people."""

    name: str
    summary: Mapping[str, Any]
    scores: Values  # (N,)
    weights: Values | None = None  # (N,)


def read_earlier(source: AuditResult | str | Path) -> Earlier:
    """Return an audit from the folder that `fairfox audit` wrote, or from its result."""
    if isinstance(source, AuditResult):
        fields, table = json.loads(source.to_json()), source.scores_table()
        return _earlier("the result", fields, table, named=source.ids is not None)
    folder = Path(source)
    summary, scores = folder / "summary.json", folder / "scores.parquet"
    for path in (summary, scores):
        if not path.is_file():
            raise FileError(f"There is no file '{path}'; give a folder that `fairfox audit` wrote")
    try:
        fields, table = json.loads(summary.read_text(encoding="utf-8")), pq.read_table(scores)
    except (ValueError, OSError, RecursionError) as error:  # Arrow's errors are one of the first two
        raise FileError(
            f"The audit in '{folder}' cannot be read ({_line(error)}); make it anew with `fairfox audit`"
        ) from error
    return _earlier(f"'{folder}'", fields, table)


def _earlier(name: str, fields: Any, table: pa.Table, *, named: bool | None = None) -> Earlier:
    """Return an audit from its files; `named` says whether its people have names where the files do not."""
    try:
        question, settings = _question(fields), fields["settings"]
        columns = {column: table[column] for column in _COLUMNS}
        judged = columns["score"].is_valid().to_numpy()
        score, lower, upper, flags = (_numbers(columns[column])[judged] for column in _COLUMNS[1:])
        people = _people(fields, score, lower, upper, flags)
        rows = zip(columns["row_id"].to_pylist(), judged.tolist(), strict=True)
        ids = tuple(one for one, kept in rows if kept)
        _ = hash(ids)  # refuses lists and the like
        known = settings.get("id") is not None if named is None else named
    except KeyError as error:
        raise FileError(
            f"{name[0].upper()}{name[1:]} does not hold {_line(error)}, which audits write; make it anew with "
            "`fairfox audit`"
        ) from error
    except _DAMAGES as error:
        raise FileError(
            f"{name[0].upper()}{name[1:]} is not what audits write ({_line(error)}); make it anew with `fairfox audit`"
        ) from error
    if not len(people.scores):
        raise DataError(f"Nobody is judged in {name}, so that there is nothing to go by")
    return Earlier(name, fields, question, bool(fields.get("weighted")), ids if known else None, people)


def _question(fields: Any) -> dict[str, Any]:
    """Return what an audit asked, each in words that fit after "The"."""
    settings, variables = fields["settings"], fields["variables"]
    references = {
        one["name"]: one["reference"] + (f" (with {one['second']})" if one.get("second") is not None else "")
        for one in variables
        if one.get("reference") is not None
    }
    return {
        "test": fields["test"],
        "unit": fields["unit"],
        "delta": fields["delta"],
        "decision threshold": settings.get("decision_threshold"),
        "set of protected variables": [one["name"] for one in variables],
        "set of deltas of single groups": fields.get("deltas") or None,
        "set of legitimate columns": sorted(settings.get("legitimate") or []) or None,
        "share of people to abstain from": (fields.get("reliability") or {}).get("abstain") or None,
        "setting hold_others": bool(settings.get("hold_others")),
        "setting intersections": bool(settings.get("intersections")),
        "reference group": references or None,
        "setting merge_rare": settings.get("merge_rare"),
        "set of options of the test": settings.get("options") or None,
        "audited class (positive)": settings.get("positive"),
        "audited output": settings.get("output"),
    }


def _people(fields: Any, score: np.ndarray, lower: np.ndarray, upper: np.ndarray, flags: np.ndarray) -> Scores:
    """Return the judged people; ValueError where a number is none that audits write."""
    settings, delta = fields["settings"], float(fields["delta"])
    refits, folds = settings["refits"], settings["folds"]
    if not 0 <= delta < np.inf:
        raise ValueError(f"delta is {delta}")
    for what, value, least in (("refits", refits, 1), ("folds", 2 if folds is None else folds, 2)):
        if type(value) is not int or value < least:
            raise ValueError(f"{what} is {value!r}")
    if not (np.isfinite(score).all() and np.isfinite(flags).all()):
        raise ValueError("the score or flag of somebody who was judged is no number")
    return Scores(
        score,
        errors_of_intervals(lower, upper, refits),
        flags,
        delta,
        refits,
        folds,
        by_delta=settings.get("decision_threshold") is None and not fields.get("deltas"),
        maps_known=fields["test"] in UNFITTED or bool(refits > 1 and np.isfinite(upper - lower).all()),
    )


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split())


def drift(
    first: AuditResult | str | Path,
    second: AuditResult | str | Path,
    *,
    margin: float | None = None,
    out: str | Path | None = None,
) -> Drift:
    """Return whether the second audit finds people treated more unequally than the first one did.

    Where both audits had an id column and most people are in both, these are compared each with themselves; otherwise
    the audits are two samples of people.

    Args:
        first: the earlier audit: the folder that `fairfox audit` wrote, or the result of `fairfox.audit`.
        second: the later one, of the same question: test, protected variables, unit, delta and so on.
        margin: a rise of the mean score that does not count; by default a tenth of delta.
        out: a folder for report.html, report.json, summary.json, summary.md and junit.xml; by default nothing is
            written.
    """
    one, two = read_earlier(first), read_earlier(second)
    found = _drift(one, two, margin)
    if out is not None:
        from fairfox.report.outputs import write_files
        from fairfox.report.pair_files import drift_files  # charts and pages take a while to import

        write_files(Path(out), drift_files(found, _sides(one, two)))
    return found


def drift_page(first: str | Path, second: str | Path) -> str:
    """Return the page that shows two audits side by side, from their folders."""
    from fairfox.report.pair_files import drift_view, render_pair

    one, two = read_earlier(first), read_earlier(second)
    return render_pair(drift_view(_drift(one, two, None), _sides(one, two)))


def _drift(one: Earlier, two: Earlier, margin: float | None) -> Drift:
    _check_alike(one, two)
    allowed = _SMALL * one.people.delta if margin is None else margin
    if not 0 <= allowed < np.inf:
        raise OptionError(f"The margin is {margin}; expected a number of at least 0")
    unit = one.question["unit"]
    if _is_the_same(one, two):
        return drift_of_itself(one.people, margin=allowed, unit=unit)
    places = _same_people(one.ids, two.ids)
    if places is None:
        return drift_of_others(one.people, two.people, margin=allowed, unit=unit)
    return drift_of_same(_chosen(one.people, places[0]), _chosen(two.people, places[1]), margin=allowed, unit=unit)


def _is_the_same(one: Earlier, two: Earlier) -> bool:
    """Return whether two audits are one: of the same rows, with the same predictions and the same scores and flags."""
    hashes = [[audit.summary["settings"].get(name) for name in _HASHES] for audit in (one, two)]
    first, second = (np.stack([audit.people.scores, audit.people.flags]) for audit in (one, two))
    return None not in hashes[0] and hashes[0] == hashes[1] and np.array_equal(first, second)


def _sides(one: Earlier, two: Earlier) -> tuple[Side, Side]:
    first, second = (Side(each.name.strip("'"), each.summary, each.people.scores) for each in (one, two))
    return first, second


def check_unweighted(audit: Earlier) -> None:
    """Refuse an audit whose people have weights: they are not in its files."""
    if audit.weighted:
        raise OptionError(
            f"The people of {audit.name} have weights, which audits do not write; give an audit without weights"
        )


def _check_alike(one: Earlier, two: Earlier) -> None:
    """Refuse audits that asked different questions."""
    for what, first in one.question.items():
        second = two.question[what]
        if first != second:
            raise OptionError(
                f"The {what} is {_said(first)} in {one.name} and {_said(second)} in {two.name}; compare audits of the "
                "same question"
            )
    check_unweighted(one)
    check_unweighted(two)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {own}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value}"


def _same_people(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> tuple[list[int], list[int]] | None:
    """Return the places of the people who are in both; None where they are few, or where an id is not one person's."""
    if first is None or second is None or None in first or None in second:
        return None
    place = {one: k for k, one in enumerate(second)}
    if len(place) < len(second) or len(set(first)) < len(first):
        return None
    shared = [(k, place[one]) for k, one in enumerate(first) if one in place]
    if len(shared) < _MOST * max(len(first), len(second)):
        return None
    return [k for k, _ in shared], [k for _, k in shared]


def _chosen(people: Scores, rows: list[int]) -> Scores:
    return replace(people, scores=people.scores[rows], errors=people.errors[rows], flags=people.flags[rows])
