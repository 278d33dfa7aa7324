"""How a result came about: settings, versions, hashes, and the call that gives it again."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fairfox.report.tables import Table, make_table
from fairfox.result import AuditResult

HASHES = {  # in words
    "model_sha256": "model file",
    "table_sha256": "table file",
    "rows_sha256": "rows as they were encoded, and their protected values",
    "predictions_sha256": "predictions of the model for these rows",
}
_SAME = ("test", "label", "weights", "id", "merge_rare", "on", "positive", "decision_threshold", "abstain", "null")
_DEFAULTS: dict[str, Any] = {"refits": 5, "fdr": 0.1, "output": "probability"}
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
    named = {**_options(settings), "delta": result.delta}
    left = "What is not among the settings, such as the roles of columns, is as it was given then."
    if settings.get("reference"):
        left += " The audit learnt from a reference table, which is to be given again."
    if settings.get("model_source") and settings.get("table"):
        return {"call": _command(settings, named, result.deltas), "note": left}
    given = {"protected": settings["protected"], **named, **({"deltas": result.deltas} if result.deltas else {})}
    given |= {"limits": settings["max_flagged"]} if settings.get("max_flagged") else {}
    words = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    reference = "    reference=reference,\n" if settings.get("reference") else ""
    return {"call": f"fairfox.audit(\n    model,\n    table,\n{words}{reference})", "note": left}


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not as they are by themselves, by the names that the call has for them."""
    options = {name: settings[name] for name in _SAME if settings.get(name) is not None}
    options |= {name: settings[name] for name, usual in _DEFAULTS.items() if settings.get(name, usual) != usual}
    options |= {name: True for name in _FLAGS if settings.get(name)}
    options |= {name: settings[name] for name in ("columns", "legitimate") if settings.get(name)}
    return {**options, "seed": settings.get("seed", 0)}


def _command(settings: Mapping[str, Any], options: Mapping[str, Any], deltas: Mapping[str, float]) -> str:
    words = ["fairfox", "audit", settings["model_source"], settings["table"]]
    for name in settings["protected"]:
        words += ["--protected", name]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        words += (
            [flag] if value is True else [flag, _one_line(value) if isinstance(value, list | tuple) else str(value)]
        )
    for group, delta in deltas.items():
        words += ["--delta", f"{group}={delta}"]
    for group, limit in (settings.get("max_flagged") or {}).items():
        words += ["--max-flagged", f"{group}={limit}" if group else str(limit)]
    for name, value in (settings.get("options") or {}).items():
        words += ["--set", f"{name}={value}"]
    words += ["--sample", str(settings["sample"])] if settings.get("sample") else []
    words += ["--reference", "REFERENCE_TABLE"] if settings.get("reference") else []
    words += ["--trust-model"] if settings.get("trusted") else []
    return shlex.join(words)


def _one_line(names: Sequence[str]) -> str:
    """Return names between commas, as the command reads them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()
