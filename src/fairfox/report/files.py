"""The files of an audit (summary.json, scores.parquet, report.json, the page, junit.xml, summary.md): written, read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import TemplateError
from torch import Tensor

from fairfox.choices.tests import UNFITTED
from fairfox.data.dataset import group_name
from fairfox.data.files import read_text, undisturbed, written_whole
from fairfox.errors import DataError, FileError, OptionError
from fairfox.findings import AuditRecord, Finding
from fairfox.report.ci import junit_xml, summary_markdown
from fairfox.report.html import render
from fairfox.report.pair import render_pair
from fairfox.report.people import raw_rows, row_ids
from fairfox.report.sentences import verdict_lines
from fairfox.report.text import FORMAT, one_line, strict_json
from fairfox.report.view import alternatives_table, view
from fairfox.statistics.intervals import errors_of_intervals
from fairfox.statistics.paired import Scores

OUTPUTS = ("summary.json", "scores.parquet", "report.html", "report.json", "junit.xml", "summary.md")  # of an audit
_AGAIN = "run the command again that wrote it"
_PAGES = {"audit": render, "compare": render_pair}  # by kind
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError, TemplateError)
_WRONG = (TypeError, ValueError, AttributeError, OverflowError, NotImplementedError)  # Arrow's are among them
_COLUMNS = ("row_id", "score", "effect", "sampling_lower", "sampling_upper", "flagged")  # that comparisons read


def write_outputs(
    result: AuditRecord, folder: str | Path, *, table: object = None, include_rows: bool = False
) -> tuple[Path, ...]:
    """Write the six files and return their paths: all of them, or none where one cannot be made.

    `table` and `include_rows` are those of `pages_of`; with `include_rows` the Parquet file has columns `row.<name>`.
    """
    pages = pages_of(result, table=table, include_rows=include_rows)
    scores, buffer = scores_table(result), BytesIO()
    if include_rows:
        raw = raw_rows(result, table)
        for name in raw.column_names:
            scores = scores.append_column(f"row.{name}", raw[name])
    pq.write_table(scores, buffer)
    return write_files(Path(folder), {**pages, "scores.parquet": buffer.getvalue()})


def pages_of(result: AuditRecord, *, table: object = None, include_rows: bool = False) -> dict[str, str | bytes]:
    """Return the files without everyone's scores, by their names.

    `table` is the audited table, one row per person in the same order: with it the page also says which features of
    people would be higher or lower. With `include_rows` the page, and report.json, from which it can be made again,
    also hold the raw rows of flagged people.
    """
    if include_rows and table is None:
        raise OptionError("include_rows needs the audited table; pass it as table=")
    shown = view(result, table if include_rows else None, table=table)
    return {
        "summary.json": summary_json(result),
        "report.html": render(shown),
        "report.json": json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":")),
        "junit.xml": junit_xml(result),
        "summary.md": summary_markdown(result),
    }


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    """Write files of these names into a folder, all or none, and return their paths."""
    paths = tuple(folder / name for name in contents)
    taken = next((path for path in paths if path.is_dir()), None)
    if taken is not None:  # found out before the first rename, so that no run leaves a mixed folder
        raise FileError(f"'{taken}' is a folder, not a file; move it away or choose another folder")
    existed = folder.exists()
    try:
        # every file is complete under its temporary name before the first is renamed
        with undisturbed(), ExitStack() as stack:
            temporaries = [stack.enter_context(written_whole(path)) for path in paths]
            for temporary, content in zip(temporaries, contents.values(), strict=True):
                # names of files may hold what is no text
                temporary.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
    except OSError as error:
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        reason = error.strerror or str(error)
        raise FileError(f"The results cannot be written to '{folder}' ({reason}); choose another folder") from error
    return paths


def stored_page(folder: str | Path) -> str:
    """Return the page of a stored audit or comparison, from the report.json in its folder."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise FileError(
            f"There is no file '{path}'; give a folder that `fairfox audit` or `compare` wrote, or that of a "
            "model of the demo"
        )
    try:
        shown = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"'{path}' cannot be read ({type(error).__name__}: {one_line(error)}); {_AGAIN}") from error
    kind = shown.get("kind") if isinstance(shown, dict) else None
    if not isinstance(kind, str) or kind not in _PAGES:
        raise FileError(f"'{path}' is not a report of fairfox: expected one of the kinds {', '.join(_PAGES)}; {_AGAIN}")
    check_format(shown, f"'{path}'")
    try:
        return _PAGES[kind](shown)
    except _DAMAGES as error:
        raise FileError(
            f"'{path}' is damaged ({type(error).__name__}: {one_line(error)}); run `fairfox {kind}` again"
        ) from error


def read_alternatives(found: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the alternatives that were tried: what `fairfox.alternatives` returned, or the path of the
    alternatives.json that `fairfox alternatives` wrote. Refuses those of another model, label or protected column than
    the settings of an audit say."""
    name = f"'{found}'" if isinstance(found, str | Path) else "What was given as alternatives"
    content = read_text(Path(found)) if isinstance(found, str | Path) else None
    try:
        fields = json.loads(found.to_json() if content is None else content)  # type: ignore[attr-defined]
        if fields["kind"] != "alternatives":
            raise ValueError(f"kind is {fields['kind']!r}")
        tried = [
            {"name": str(each["name"]), "dominated": bool(each["dominated"]), "metric": str(own["metric"])}
            | {key: float(each[key]) for key in ("mean_effect", "share_over", "loss")}
            | {key: float(own[key]) for key in ("value", "lower", "upper")}
            for each in fields["tried"]
            for own in each["performance"][:1]
        ]
        more = fields["probability_of_improvement"]
        out = {
            "tried": tried,
            **{key: str(fields[key]) for key in ("best", "unit")},
            **{key: float(fields[key]) for key in ("people", "delta", "max_loss")},
            "probability_of_improvement": None if more is None else float(more),
            "not_run": {str(each): str(why) for each, why in fields["not_run"].items()},
        }
        asked = {key: fields["settings"].get(key) for key in ("protected", "label", "model_sha256")}
        alternatives_table(out)
    except (*_DAMAGES, RecursionError) as error:
        raise FileError(
            f"{name} is not what `fairfox alternatives` writes ({type(error).__name__}: {one_line(error)[:80]}); "
            "give its alternatives.json"
        ) from error
    for key, value in asked.items():
        if value != settings.get(key) and None not in (value, settings.get(key)):
            what = {"protected": "other protected columns", "label": "another label"}.get(key, "another model")
            raise OptionError(f"{name} is about {what} than this audit; run `fairfox alternatives` for what you audit")
    return out


def check_format(fields: Mapping[str, Any], name: str) -> None:
    """Refuse a summary.json or report.json that another version of fairfox wrote in another format."""
    written = fields.get("format")
    if type(written) is int and written > FORMAT:
        raise FileError(f"{name} has format {written} and this fairfox reads format {FORMAT}; update fairfox")
    if type(written) is not int or written != FORMAT:
        other = "no format" if "format" not in fields else f"format {written!r}"
        again = f"run `fairfox {fields.get('kind', 'audit')}` again"
        raise FileError(f"{name} has {other} and this fairfox reads format {FORMAT}; {again}")


def summary_json(result: AuditRecord) -> str:
    """Return summary.json: the audit without its people, the worst case on top and then each protected variable."""
    effect = result.features.effect
    fields: dict[str, Any] = {
        "kind": "audit",
        "format": FORMAT,
        **_picked(result, "test", "meaning", "unit", "delta", "deltas"),
        "counts": {
            **_picked(result.tally, "people", "judged", "flagged", "confident"),
            "significant": result.listed,
            "abstained": result.tally.people - result.judged,
            "inferred": result.tally.inferred,
        },
        "weighted": result.weights is not None,
        **_picked(result, "share_flagged", "share_confident", "share_abstained", "abstained_by_reason", "worst_case"),
        "verdict": None if result.verdict is None else asdict(result.verdict),
        "variables": [_variable(result, finding) for finding in result.findings],
        "intersections": [asdict(group) for group in result.intersections],
        "features": {"effect": None},
        "performance": [each.as_dict() for each in result.performance],
        "checks": result.checks,
        "still": list(result.still),
        "map_check": [{**asdict(each), "variable": result.variables[each.variable]} for each in result.map_checks],
        **_asked_for(result),
        "comparison": _comparison(result),
        "alternatives": result.alternatives,
        "in_words": verdict_lines(result),
        **_picked(result, "warnings", "settings"),
    }
    if effect is not None:
        means = {"mean_absolute": effect.total, "standard_error": effect.error, "mean_effect": result.effect_by_group}
        fields["features"]["effect"] = {"method": effect.method, "people": effect.people, **means}
    return strict_json(fields)


def _picked(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _asked_for(result: AuditRecord) -> dict[str, Any]:
    """Return the parts that only some audits have: certificates, the null."""
    parts: dict[str, Any] = {}
    if (proved := result.certificates) is not None:
        largest = proved.largest[proved.certified]
        parts["certificates"] = {
            "reading": "total" if proved.total else result.test,
            "delta": proved.delta,
            "certified": len(largest),
            "share_certified": result.share_certified,
            "within_delta": int(proved.within.sum()),
            "worse_inside": int(proved.worse_inside.sum()),
            "largest": float(largest.max()) if len(largest) else None,
            "uncertified_by_reason": result.uncertified_by_reason,
        }
    if (streamed := result.streamed) is not None:
        threshold = streamed.threshold
        parts["stream"] = {"sample": len(result), "list": None if threshold is None else threshold._asdict()}
    if (null := result.null) is not None:
        parts["null"] = {
            "shuffles": len(null.scores),
            "mean_score": null.mean_score,
            "delta": null.delta,
            "alignment": {
                finding.name: {
                    "share": finding.alignment_share,
                    "by_chance": null.alignment[:, v].mean(),
                    "p_value": null.p_alignment(v, finding.alignment_share),
                }
                for v, finding in enumerate(result.findings)
            },
        }
    return parts


def _variable(result: AuditRecord, finding: Finding) -> dict[str, Any]:
    tally = finding.tally(result.weights)
    return {
        **_picked(finding, "name", "kind", "levels", "parts", "reference", "second", "merged", "contrasts"),
        "counts": {
            "known": tally.people - tally.inferred - tally.unknown,
            **_picked(tally, "inferred", "unknown", "judged", "flagged", "confident"),
        },
        **_picked(tally, "share_flagged", "share_confident", "mean_score"),
        "verdict": None if finding.verdict is None else asdict(finding.verdict),
        "worst": tally.attained,
        **_picked(finding, "alignment_share", "alignment_error"),
        "auxiliary": asdict(finding.quality),
        "readings": {
            name: {
                **_picked(reading, "mean_effect", "mean_absolute"),
                "groups": {g: _picked(part, "mean_effect", "mean_absolute") for g, part in reading.groups.items()},
            }
            for name, reading in finding.readings(result.weights).items()
        },
        "gap_parts": [asdict(part) for part in finding.gap_parts],
        "common_cause": None if finding.common_cause is None else asdict(finding.common_cause),
        "features": {"proxy": finding.proxy},
        "groups": [asdict(group) for group in finding.groups],
        "flips": {
            name: {"negative": len(flips.negative), "positive": len(flips.positive), "share": flips.share}
            for name, flips in result.flips(finding).items()
        },
    }


def _comparison(result: AuditRecord) -> dict[str, Any] | None:
    compared = result.comparison
    if compared is None:
        return None
    costs = {
        name: {"seconds": seconds, "checks": compared.checks.get(name, {})}
        for name, seconds in compared.seconds.items()
    }
    agreement = zip(compared.tests, compared.agreement.tolist(), strict=True)
    return {
        "tests": costs,
        "auxiliary_seconds": compared.training_seconds,
        "agreement": {name: dict(zip(compared.tests, row, strict=True)) for name, row in agreement},
        "skipped": compared.skipped,
    }


def scores_table(result: AuditRecord) -> pa.Table:
    """Return scores.parquet: one row per person, the worst case first and then, where there is a choice, contrasts.

    Abstained people have null in every number and flag.
    """
    away = result.abstained.numpy(force=True)
    names = pa.array(result.variables, pa.string())
    nameless = away if result.tells_variables_apart else np.ones_like(away)
    columns = {
        "row_id": row_ids(result),
        "score": numbers_column(result.scores, away),
        "effect": numbers_column(result.effect, away),
        "direct": numbers_column(result.direct, away),
        **end_columns({"": result.interval, "sampling_": result.sampling}, away),
        "flagged": booleans_column(result.flagged, away),
        "confident": booleans_column(result.confident, away),
        "p_value": numbers_column(result.p_values, away),
        "significant": booleans_column(result.significant, away),
        "variable": names.take(pa.array(result.worst.numpy(force=True), mask=nameless)),
        "towards": pa.array(result.towards, pa.string()),
        "group_inferred": pa.array(result.inferred.numpy(force=True)),
        "abstained": pa.array(away),
        "reason": pa.array(result.reasons, pa.string()),
    }
    if result.certificates is not None:
        columns["certificate"] = numbers_column(result.certificates.largest, away)
        columns["certificate_reason"] = pa.array(result.certificates.reasons, pa.string(), mask=away)
    more = [] if result.two_groups else [pair for finding in result.findings for pair in _variable_columns(finding)]
    if result.comparison is not None:
        each = zip(result.comparison.tests, result.comparison.scores.unbind(1), strict=True)
        more += [(f"test[{name}]", numbers_column(scores, np.zeros_like(away))) for name, scores in each]
    add_columns(columns, more)
    digest = result.settings.get("config_sha256")
    return pa.table(columns, metadata=None if digest is None else {"config_sha256": digest})


def _variable_columns(finding: Finding) -> list[tuple[str, pa.Array]]:
    """Return the columns of one protected variable, null for people without a score for it."""
    away = finding.abstained.numpy(force=True)
    columns = [
        (f"score[{finding.name}]", numbers_column(finding.scores, away)),
        (f"effect[{finding.name}]", numbers_column(finding.effect, away)),
        (f"flagged[{finding.name}]", booleans_column(finding.flagged, away)),
        (f"towards[{finding.name}]", pa.array(finding.towards, pa.string(), mask=away)),
    ]
    for q, contrast in enumerate(finding.contrasts):  # "race=Black", "age + 13.6"
        if contrast in finding.reached:
            name = group_name(finding.name, contrast) if contrast in finding.levels else contrast
            columns.append((f"effect[{name}]", numbers_column(finding.effects[:, q], away)))
    return columns


def add_columns(columns: dict[str, pa.Array], more: Iterable[tuple[str, pa.Array]]) -> None:
    """Add columns; of two with the same name the second has an apostrophe behind it."""
    for name, column in more:
        while name in columns:  # two variables and classes whose names together read the same
            name += "'"
        columns[name] = column


def end_columns(intervals: Mapping[str, Tensor | None], hidden: np.ndarray) -> dict[str, pa.Array]:
    """Return the ends of intervals (N, 2) as columns, by what their names begin with."""
    sides = [
        (f"{name}{side}", each, k) for name, each in intervals.items() for k, side in enumerate(("lower", "upper"))
    ]
    return {name: numbers_column(None if each is None else each[:, k], hidden) for name, each, k in sides}


def numbers_column(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    """Return numbers (N,), null where hidden or not finite; all null where there are none."""
    if values is None:
        return pa.nulls(len(hidden), pa.float64())
    numbers = values.numpy(force=True).astype(np.float64)
    return pa.array(numbers, mask=hidden | ~np.isfinite(numbers))


def booleans_column(values: Tensor | None, hidden: np.ndarray) -> pa.Array:
    """Return yes or no (N,), null where hidden; all null where there are none."""
    return pa.nulls(len(hidden), pa.bool_()) if values is None else pa.array(values.numpy(force=True), mask=hidden)


@dataclass(frozen=True)
class StoredAudit:
    """The judged people of an audit, the options that two audits must have in common, and its summary."""

    name: str  # in words, for errors
    summary: dict[str, Any]  # the fields of its summary.json
    options: dict[str, Any]  # by what they are called
    ids: tuple[Any, ...] | None  # None where people have no names, but row numbers
    people: Scores


def read_audit(folder: str | Path) -> StoredAudit:
    """Return an audit from the folder that `fairfox audit` wrote; one of another format is refused."""
    folder = Path(folder)
    summary, scores = folder / "summary.json", folder / "scores.parquet"
    if scores.is_dir():
        raise FileError(f"'{scores}' holds the parts of a stream, which are not compared; audit a sample (--sample)")
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
            f"The audit in '{folder}' cannot be read ({one_line(error)}); make it anew with `fairfox audit`"
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
        ids = tuple(row_id for row_id, kept in rows if kept)
        _ = hash(ids)  # refuses lists and the like
        known = fields["settings"].get("id") is not None if named is None else named
    except (KeyError, *_WRONG) as error:
        wrong = (
            "does not hold {}, which audits write" if isinstance(error, KeyError) else "is not what audits write ({})"
        )
        raise FileError(
            f"{name[0].upper()}{name[1:]} {wrong.format(one_line(error))}; make it anew with `fairfox audit`"
        ) from error
    if fields.get("weighted"):  # no file of an audit has them
        raise OptionError(
            f"The people of {name} have weights, which audits do not write; give an audit without weights"
        )
    if not len(people.scores):
        raise DataError(f"Nobody is judged in {name}, so that there is nothing to compare")
    return StoredAudit(name, fields, options, ids if known else None, people)


def _options_in(fields: Any) -> dict[str, Any]:
    """Return the options of an audit, each in words that fit after "The"."""
    settings, variables = fields["settings"], fields["variables"]
    references = {
        each["name"]: each["reference"] + (f" (with {each['second']})" if each.get("second") is not None else "")
        for each in variables
        if each.get("reference") is not None
    }
    return {
        "test": fields["test"],
        "unit": fields["unit"],
        "delta": fields["delta"],
        "decision threshold": settings.get("decision_threshold"),
        "label": settings.get("label"),
        "set of protected variables": [each["name"] for each in variables],
        "set of deltas of single groups": fields.get("deltas") or None,
        "set of given columns": sorted(settings.get("given") or []) or None,
        "setting hold_others": bool(settings.get("hold_others")),
        "setting intersections": bool(settings.get("intersections")),
        "reference group": references or None,
        "setting merge_rare": settings.get("merge_rare"),
        "set of settings of the test": settings.get("settings") or None,
        "audited class (positive)": settings.get("positive"),
        "audited output": settings.get("output"),
    }


def _people_in(
    fields: Any, score: np.ndarray, signed: np.ndarray, lower: np.ndarray, upper: np.ndarray, flags: np.ndarray
) -> Scores:
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
    errors = errors_of_intervals(np.where(np.isnan(signed), score, signed), lower, upper, refits)
    by_delta = settings.get("decision_threshold") is None and not fields.get("deltas")
    known = fields["test"] in UNFITTED or bool(refits > 1 and np.isfinite(upper - lower).all())
    return Scores(score, errors, flags, delta, refits, folds, by_delta=by_delta, maps_known=known)
