"""How a result came about: settings, versions, hashes, and the call that gives it again."""

from __future__ import annotations

import ast
import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fairfox.comparison import ALL
from fairfox.report.tables import Table, make_table
from fairfox.result import AuditResult

HASHES = {  # in words
    "model_sha256": "model file",
    "table_sha256": "table file",
    "rows_sha256": "rows as they were encoded, and their protected values",
    "predictions_sha256": "predictions of the model for these rows",
}
_SAME = (  # options and settings of one name
    *("label", "weights", "id", "merge_rare", "on", "positive", "returns", "kind"),
    *("decision_threshold", "abstain", "null"),
)
_LISTS = ("columns", "legitimate", "reference_group", "categorical", "continuous", "drop")
_REPEATED = ("reference_group", "categorical", "continuous", "drop")  # by the command, a name each time
_DEFAULTS: dict[str, Any] = {"contrasts": "largest", "refits": 5, "fdr": 0.1, "output": "probability"}
_IN_PYTHON: dict[str, Any] = {"folds": 5, "batch_size": 4096}  # the command has them as they are by themselves
_FLAGS = ("intersections", "hold_others", "certify")


def method(result: AuditResult) -> dict[str, Any]:
    """Return settings, versions and hashes as tables, and how to do it again."""
    settings = result.settings
    found = {words: settings[name] for name, words in HASHES.items() if settings.get(name)}
    apart = {"versions", "command", *HASHES}
    return {
        "settings": _pairs("Setting", {name: value for name, value in settings.items() if name not in apart}),
        "versions": _pairs("Package", settings.get("versions") or {}),
        "hashes": _pairs("SHA-256 of", found),
        "reproduce": reproduce(result),
    }


def _pairs(heading: str, each: Mapping[str, Any]) -> Table:
    return make_table([heading, "Value"], [], [[str(name), _words(value)] for name, value in each.items()])


def _words(value: Any) -> str:
    return (
        "-"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, default=str, ensure_ascii=False)
    )


def reproduce(result: AuditResult) -> dict[str, str] | None:
    """Return the command line or the Python call that does the audit again, and in a sentence what it leaves open.

    None where the settings do not say what was audited.
    """
    settings = result.settings
    if "protected" not in settings:
        return None
    if settings.get("command"):
        return {"call": settings["command"], "note": "The command that wrote this page."}
    given = {"protected": _protected(result), **_options(result)}
    left = "Whatever is not among the settings is as it is by itself."
    if settings.get("reference"):
        left += " The audit learnt from a reference table, which is to be given again."
    if settings.get("on"):
        left += " Protected values came from another table, which is to be given again."
    if settings.get("model_source") and settings.get("table"):
        return {"call": _command(settings, given, result.deltas), "note": left}
    return {"call": _call(settings, given, result.deltas), "note": left}


def _protected(result: AuditResult) -> list[str]:
    """Return the variables as they were named: crossings come from them."""
    crossings = {finding.name for finding in result.findings if finding.parts}
    return [name for name in result.settings["protected"] if name not in crossings]


def _options(result: AuditResult) -> dict[str, Any]:
    """Return the options that are not as they are by themselves, by the names that the call has for them."""
    settings = result.settings
    options = {"test": settings.get("test", result.test) if result.comparison is None else ALL}
    options |= {name: settings[name] for name in _SAME if settings.get(name) is not None}
    options |= _unusual(settings, _DEFAULTS)
    options |= {name: True for name in _FLAGS if settings.get(name)}
    options |= {name: list(settings[name]) for name in _LISTS if settings.get(name)}
    by_delta = {} if result.decision_threshold is not None else {"delta": result.delta}  # one of the two
    return {**options, "seed": settings.get("seed", 0), **by_delta}


def _unusual(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in usual if settings.get(name) not in (None, usual[name])}


def _call(settings: Mapping[str, Any], given: Mapping[str, Any], deltas: Mapping[str, float]) -> str:
    more = {**given, **_unusual(settings, _IN_PYTHON), **({"deltas": dict(deltas)} if deltas else {})}
    more |= {"limits": settings["max_flagged"]} if settings.get("max_flagged") else {}
    options = {name: _value(value) for name, value in (settings.get("options") or {}).items()}
    more |= {"options": options} if options else {}
    words = "".join(f"    {name}={value!r},\n" for name, value in more.items())
    words += "    reference=reference,\n" if settings.get("reference") else ""
    words += "    protected_from=protected_from,\n" if settings.get("on") else ""
    return f"fairfox.audit(\n    model,\n    table,\n{words})"


def _value(written: str) -> Any:
    """Return a setting of a test from its words.

    Example:
        >>> _value("0.5"), _value("{'income': ['sex']}"), _value("identity")
        (0.5, {'income': ['sex']}, 'identity')
    """
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):  # a word
        return written


def _command(settings: Mapping[str, Any], options: Mapping[str, Any], deltas: Mapping[str, float]) -> str:
    words = ["fairfox", "audit", settings["model_source"], settings["table"]]
    for name, value in options.items():
        words += _flag(name, value)
    for group, delta in deltas.items():
        words += ["--delta", f"{group}={delta}"]
    for group, limit in (settings.get("max_flagged") or {}).items():
        words += ["--max-flagged", f"{group}={limit}" if group else str(limit)]
    for name, value in (settings.get("options") or {}).items():
        words += ["--set", f"{name}={value}"]
    words += ["--sample", str(settings["sample"])] if settings.get("sample") else []
    words += ["--reference", "REFERENCE_TABLE"] if settings.get("reference") else []
    words += ["--protected-from", "PROTECTED_TABLE"] if settings.get("on") else []
    words += ["--trust-model"] if settings.get("trusted") else []
    return shlex.join(words)


def _flag(name: str, value: Any) -> list[str]:
    """Return an option as the command takes it."""
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    if name in ("protected", *_REPEATED):
        return [word for each in value for word in (flag, each)]
    return [flag, _one_line(value) if isinstance(value, list) else str(value)]


def _one_line(names: Sequence[str]) -> str:
    """Return names between commas, as the command reads them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()
