"""An audit read back from its files: the judged people, and the options that two audits must have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.errors import DataError, FileError, OptionError
from fairfox.options import UNFITTED
from fairfox.report.files import check_format
from fairfox.statistics.intervals import errors_of_intervals
from fairfox.statistics.paired import Scores

_DAMAGES = (TypeError, ValueError, AttributeError, OverflowError, NotImplementedError)  # Arrow's are among them
_COLUMNS = ("row_id", "score", "lower", "upper", "flag")


@dataclass(frozen=True)
class StoredAudit:
    """The judged people of an audit, the options that two audits must have in common, and its summary."""

    name: str  # in words, for errors
    summary: dict[str, Any]  # the fields of its summary.json
    options: dict[str, Any]  # by what they are called
    ids: tuple[Any, ...] | None  # None where people have no names, but row numbers
    people: Scores

    def check_unweighted(self) -> None:
        """Refuse an audit whose people have weights: they are not in its files."""
        if self.summary.get("weighted"):
            raise OptionError(
                f"The people of {self.name} have weights, which audits do not write; give an audit without weights"
            )


def read_audit(folder: str | Path) -> StoredAudit:
    """Return an audit from the folder that `fairfox audit` wrote; one of another format is refused."""
    folder = Path(folder)
    summary, scores = folder / "summary.json", folder / "scores.parquet"
    for path in (summary, scores):
        if not path.is_file():
            raise FileError(
                f"There is no file '{path}'; give a folder that `fairfox audit` wrote, or the table of people as well "
                "to compare two models"
            )
    try:
        fields, table = json.loads(summary.read_text(encoding="utf-8")), pq.read_table(scores)
    except (ValueError, OSError, RecursionError) as error:  # Arrow's errors are one of the first two
        raise FileError(
            f"The audit in '{folder}' cannot be read ({_line(error)}); make it anew with `fairfox audit`"
        ) from error
    if isinstance(fields, dict):
        check_format(fields, f"'{summary}'")
    return stored_audit(f"'{folder}'", fields, table)


def stored_audit(name: str, fields: Any, table: pa.Table, *, named: bool | None = None) -> StoredAudit:
    """Return an audit from the fields of its summary.json and the table of its scores.

    `named` says whether its people have names where the fields do not.
    """
    try:
        options = _options_in(fields)
        columns = {column: table[column] for column in _COLUMNS}
        judged = columns["score"].is_valid().to_numpy()
        numbers = [np.asarray(columns[c].cast(pa.float64()).to_numpy(), dtype=np.float64) for c in _COLUMNS[1:]]
        people = _people_in(fields, *(column[judged] for column in numbers))
        rows = zip(columns["row_id"].to_pylist(), judged.tolist(), strict=True)
        ids = tuple(one for one, kept in rows if kept)
        _ = hash(ids)  # refuses lists and the like
        known = fields["settings"].get("id") is not None if named is None else named
    except (KeyError, *_DAMAGES) as error:
        wrong = (
            "does not hold {}, which audits write" if isinstance(error, KeyError) else "is not what audits write ({})"
        )
        raise FileError(
            f"{name[0].upper()}{name[1:]} {wrong.format(_line(error))}; make it anew with `fairfox audit`"
        ) from error
    if not len(people.scores):
        raise DataError(f"Nobody is judged in {name}, so that there is nothing to compare")
    return StoredAudit(name, fields, options, ids if known else None, people)


def _options_in(fields: Any) -> dict[str, Any]:
    """Return the options of an audit, each in words that fit after "The"."""
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
        "set of given columns": sorted(settings.get("given") or []) or None,
        "share of people to abstain from": (fields.get("reliability") or {}).get("abstain") or None,
        "setting hold_others": bool(settings.get("hold_others")),
        "setting intersections": bool(settings.get("intersections")),
        "reference group": references or None,
        "setting merge_rare": settings.get("merge_rare"),
        "set of settings of the test": settings.get("settings") or None,
        "audited class (positive)": settings.get("positive"),
        "audited output": settings.get("output"),
    }


def _people_in(fields: Any, score: np.ndarray, lower: np.ndarray, upper: np.ndarray, flags: np.ndarray) -> Scores:
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


def _line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split())
