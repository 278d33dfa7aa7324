"""Everything a page shows, as plain JSON: report.json, from which the page can be made again at any time."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fairfox.findings import AuditRecord, Finding
from fairfox.options import GROUPS, AuditOptions
from fairfox.report import sentences, text
from fairfox.report.figures import figures, groups_table, make_slider, why_no_slider
from fairfox.report.people import people_table
from fairfox.report.sentences import signed_word
from fairfox.report.text import FORMAT, Table, make_table
from fairfox.statistics.diagnostics import DISAGREE
from fairfox.statistics.verdict import tipping_sentence

_HASHES = {  # in words
    "model_sha256": "model file",
    "table_sha256": "table file",
    "rows_sha256": "rows as they were encoded, and their protected values",
    "predictions_sha256": "predictions of the model for these rows",
}


def view(result: AuditRecord, rows: object = None, *, table: object = None) -> dict[str, Any]:
    """Return what the page shows: words, tables, aggregated numbers, and the people with the highest scores.

    Args:
        result: the audit.
        rows: the audited table; with it the values of flagged people are in the view, and without it nobody's are.
        table: the same table, only to say which features of people would be higher or lower.
    """
    slider, settings = make_slider(result), result.settings
    checks = [[sentences.CHECKS.get(name, name), text.number(value)] for name, value in result.checks.items()]
    not_judged = [[reason, f"{people:,}"] for reason, people in result.abstained_by_reason.items()]
    shown = {
        "kind": "audit",
        "format": FORMAT,
        "title": f"fairfox: {result.test} audit for {text.joined(result.variables, 'and')}",
        "question": f"Does the model treat people differently because of {text.joined(result.variables, 'or')}?",
        "about": {
            "people": text.people(result.tally.people),
            "test": result.test,
            "model": settings.get("model_source") or settings.get("model"),
            "trusted": bool(settings.get("trusted")),
            "table": settings.get("table"),
            "version": (settings.get("versions") or {}).get("fairfox"),
        },
        "several": len(result.findings) > 1,
        "verdict": _verdict(result),
        "facts": _facts(result),
        "variables": [variable_view(result, finding) for finding in result.findings],
        "charts": figures(result),
        "slider": slider,
        "no_slider": why_no_slider(result),
        "spread_word": "scores" if result.effect is None else f"{signed_word(result)}s",
        "readings": sentences.reading_words(result),
        "people": people_table(result, slider, rows=rows, table=table),
        "checks": make_table(["Number"], ["Value"], checks) if checks else None,
        "map_check": map_view(result),
        "comparison": _comparison(result),
        "not_judged": make_table(["Reason"], ["People"], not_judged) if not_judged else None,
        "warnings": list(result.warnings),
        "next": _next(result),
        "method": method(result),
    }
    plain: dict[str, Any] = text.plain(shown)
    return plain


def _verdict(result: AuditRecord) -> dict[str, Any]:
    """Return the verdict in a sentence, how far it can be trusted, and what it rests on."""
    lines, verdict = sentences.verdict_lines(result), result.verdict
    tipping = "" if verdict is None else tipping_sentence(verdict)
    return {
        "outcome": sentences.OUTCOMES[verdict.word] if verdict else "skipped" if result.tally.flagged else "passed",
        "headline": lines[0],
        "tipping": tipping,
        "lines": [line for line in lines[1:] if line != tipping],
        "abstained": [text.ended(line) for line in sentences.not_judged_lines(result)],
        "counts_left_out": verdict is not None and DISAGREE in result.reasons,
        "meaning": _meaning(result),
    }


def _meaning(result: AuditRecord) -> str:
    """Return what the score says, what a point is, and what is weighted."""
    words = sentences.score_line(result)
    words += " A point is 0.01 of a probability." if text.heading_unit(result.unit) else ""
    return words + ("" if result.weights is None else " Shares and means are weighted; counts are not.")


def _facts(result: AuditRecord) -> list[dict[str, Any]]:
    """Return the numbers that come first: how many, how much, how certainly, and who would gain."""
    if not result.judged:
        return []

    def fact(label: str, value: str, note: str, *, words: bool = False) -> dict[str, Any]:
        return {"label": label, "value": value, "note": note, "words": words}

    share = f"of {text.people(result.judged)}, {text.percent(result.share_flagged)}"
    facts = [fact("People flagged", f"{result.tally.flagged:,}", share)]
    mean = None if result.verdict is None else result.verdict.mean
    if mean is not None and result.is_effect:
        ends = f"95 % interval {text.amount(mean.lower, result.unit)} to {text.amount(mean.upper, result.unit)}"
        because = f" because of {result.verdict.variable}" if result.verdict and len(result.findings) > 1 else ""
        facts.append(fact(f"Average change{because}", text.amount(mean.value, result.unit), ends))
    if result.tally.confident is not None:
        note = f"their whole interval lies beyond {sentences.beyond(result)}"
        facts.append(fact("Confidently", f"{result.tally.confident:,}", note))
    groups = [g for f in result.findings if f.kind != "continuous" for g in f.groups if (g.mean_effect or 0) > 0]
    if groups and result.is_effect and result.tally.flagged:
        most = max(groups, key=lambda group: group.mean_effect or 0.0)
        gain = f"{text.amount(most.mean_effect, result.unit, sign=True)} on average in another group"
        facts.append(fact("Would gain most", most.name, gain, words=True))
    return facts


def variable_view(result: AuditRecord, finding: Finding) -> dict[str, Any]:
    """Return the tables and sentences of one protected variable."""
    flips, quality = sentences.flip_lines(result, finding), finding.quality
    loss = "squared error" if quality.metric == "r2" else "log-loss"
    loss += f" {text.number(quality.log_loss)} (chance {text.number(quality.chance_log_loss)})"
    return {
        "name": finding.name,
        "notes": [text.ended(line) for line in sentences.variable_lines(result, finding)],
        "heading": "Ranges" if finding.kind == "continuous" else "Groups",
        "groups": groups_table(result, [finding]),
        "matrix": contrast_matrix(result, finding),
        "flips": f"{flips[0]}." if flips else None,
        "quality": f"{sentences.quality_line(quality)}; {loss}.",
        "alignment": f"{sentences.alignment_line(finding)}.",
        "outcome": [text.ended(line) for line in _outcome(result, finding)],
    }


def _outcome(result: AuditRecord, finding: Finding) -> list[str]:
    """Return what the readings say beyond their chart: the same outcome by group, the gap, given columns."""
    same = [] if finding.same_outcome is None else [sentences.reading_line(result, finding, "same outcome")]
    return [*same, *sentences.gap_lines(result, finding), *sentences.held_equal_lines(result, finding)]


def contrast_matrix(result: AuditRecord, finding: Finding) -> dict[str, Any] | None:
    """Return the mean effect of every group in every other, or of ranges up and down; None where there is one only."""
    number = finding.kind == "continuous"
    if len(finding.contrasts) < 2 or finding.effect is None or not (number or len(finding.levels) > 2):
        return None
    rows, marked = [], []
    for k, group in enumerate(finding.groups):
        row = [group.name if number else group.level]
        for column, contrast in enumerate(finding.reached, start=1):
            mean = group.towards.get(contrast)
            own = not number and contrast == group.level
            row.append("·" if own else text.cell(mean, result.unit, sign=True))
            if result.decision_threshold is None and mean is not None and abs(mean) > result.delta_of(group.name):
                marked.append([k, column])
        rows.append(row)
    note = f"Mean {signed_word(result)}{text.heading_unit(result.unit)} of the people in a row "
    if number:
        note += f"one standard deviation up and down; above zero a higher {finding.name} goes with a higher prediction."
    else:
        note += "as members of the group in the column; above zero they would get a higher prediction there."
    note += "" if result.decision_threshold is not None else " Shaded: the mean is beyond delta."
    if finding.second is not None:
        note += f" Everybody is compared with {finding.reference}, the largest group, and it with {finding.second}."
    elif finding.reference is not None:
        note += f" Everybody is compared with {finding.reference} only, the reference group."
    return {
        "heading": "Up and down" if number else "From each group to each other",
        "table": make_table(["People with" if number else "People of"], finding.reached, rows, marked=marked),
        "note": note,
    }


def map_view(result: AuditRecord) -> dict[str, Any] | None:
    """Return for each group how much of its gap the map accounts for and how far it leaves the data; None without."""
    checks, unit = result.map_checks, result.effect_unit
    if not checks:
        return None
    numbers = [f"{label}{text.heading_unit(unit)}" for label in ("Gap to the other group", "Moved by the map")]
    numbers += ["Accounted for", "Outside the other group's range", "With an unseen pair of categories", "By chance"]
    rows = [
        [
            name,
            text.cell(check.gap, unit, sign=True),
            text.cell(check.effect, unit, sign=True),
            "-" if check.accounted is None else f"{100 * check.accounted:.0f} %",
            *(text.percent(share) for share in (check.outside, check.unseen, check.unseen_real)),
        ]
        for name, check in zip(sentences.map_check_names(result), checks, strict=True)
    ]
    warnings = [warning for check in checks for warning in check.warnings if warning not in result.warnings]
    given = bool(result.settings.get("given"))
    return {"table": make_table(["Group"], numbers, rows), "warnings": warnings, "given": given}


def _comparison(result: AuditRecord) -> dict[str, Any] | None:
    compared = result.comparison
    if compared is None:
        return None
    rows = [
        [name, f"{seconds:.1f}", *("-" if math.isnan(r) else f"{r:.2f}" for r in row)]
        for (name, seconds), row in zip(compared.seconds.items(), compared.agreement.tolist(), strict=True)
    ]
    return {
        "table": make_table(["Test"], ["Seconds", *compared.tests], rows),
        "lines": [text.ended(line) for line in (*sentences.check_lines(result), *sentences.comparison_notes(result))],
    }


def _next(result: AuditRecord) -> dict[str, Any]:
    """Return what to do next in sentences, and what each single step would do."""
    steps = result.steps
    if steps is None:
        return {"lines": ["This audit did not try what would lower the effect."], "table": None, "note": None}
    lines = [steps.sentence]
    if not bool(result.flagged.any()):
        lines.insert(0, "Nobody is flagged, so nothing needs to be done.")
    unit = result.effect_unit
    numbers = ["Effect goes down by", f"Effect after{text.heading_unit(unit)}"]
    labelled = any(step.auc_after is not None for step in steps.steps)
    rows = []
    for step in steps.steps:
        row = [step.feature, step.action, text.percent(step.share), text.cell(step.after, unit)]
        rows.append([*row, *(["-" if step.auc_after is None else f"{step.auc_after:.3f}"] if labelled else [])])
    note = f"Estimated on {text.people(steps.people)}, without training the model again."
    table = make_table(["Feature", "What is done"], [*numbers, *(["AUC"] if labelled else [])], rows)
    return {"lines": lines, "table": table if rows else None, "note": note}


def method(result: AuditRecord) -> dict[str, Any]:
    """Return settings, versions and hashes as tables, and how to do it again."""
    settings, versions = result.settings, result.settings.get("versions") or {}
    shown = {name: value for name, value in settings.items() if name not in {"versions", "command", *_HASHES}}
    hashes = {words: settings[name] for name, words in _HASHES.items() if settings.get(name)}

    def pairs(heading: str, each: Mapping[str, Any]) -> Table:
        rows = [[name, "-" if value is None else text.as_json(value)] for name, value in each.items()]
        return make_table([heading, "Value"], [], rows)

    return {
        "settings": pairs("Setting", shown),
        "versions": pairs("Package", versions),
        "hashes": pairs("SHA-256 of", hashes),
        "reproduce": reproduce(result),
    }


def reproduce(result: AuditRecord) -> dict[str, str] | None:
    """Return the command line or the Python call that does the audit again, and in a sentence what it leaves open.

    The call has every recorded option that differs from its default: everyday ones as arguments, others in `options`.
    None where the settings do not say what was audited.
    """
    settings = result.settings
    if "protected" not in settings:
        return None
    if settings.get("command"):
        return {"call": settings["command"], "note": "The command that wrote this page."}
    defaults = AuditOptions(protected=("-",)).recorded()
    words = {name: repr(settings[name]) for name, own in defaults.items() if settings.get(name) not in (None, own)}
    if result.comparison is not None:
        words["test"] = repr("all")
    if settings.get("settings"):
        words["settings"] = repr({name: _literal(value) for name, value in settings["settings"].items()})
    note = "All other options have their defaults."
    if settings.get("on"):
        words["protected_from"] = "protected_from"
        note += " Protected values came from another table: give it again."
    further = {f.name: words.pop(f.name) for group in GROUPS for f in fields(group) if f.name in words}
    if settings.get("reference"):
        words["reference"] = "reference"
        note += " The audit learnt from a reference table: give it again."
    if further:
        words["options"] = "{" + ", ".join(f"{name!r}: {value}" for name, value in further.items()) + "}"
    lines = "".join(f"    {name}={value},\n" for name, value in words.items())
    return {"call": f"fairfox.audit(\n    model,\n    table,\n{lines})", "note": note}


def _literal(written: str) -> Any:
    """Return a setting of a test from its words.

    Example:
        >>> _literal("0.5"), _literal("{'income': ['sex']}"), _literal("identity")
        (0.5, {'income': ['sex']}, 'identity')
    """
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):  # a word
        return written
