"""Everything a page shows, as plain JSON: report.json, from which the page can be made again at any time."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fairfox.auxiliary.quality import quality_warnings
from fairfox.findings import AuditRecord, Finding
from fairfox.options import GROUPS, AuditOptions
from fairfox.report import sentences, text
from fairfox.report.figures import figures, groups_table, make_slider, rates_table, readings_table, why_no_slider
from fairfox.report.people import people_table
from fairfox.report.sentences import signed_word
from fairfox.report.text import FORMAT, Table, make_table
from fairfox.statistics.performance import METRICS
from fairfox.statistics.verdict import tipping_sentence

_HASHES = {  # in words
    "config_sha256": "options file (--config)",
    "model_sha256": "model file",
    "repair_sha256": "file of the repair",
    "table_sha256": "table file",
    "rows_sha256": "rows as they were encoded, and their protected values",
    "predictions_sha256": "predictions of the model for these rows",
}
_LIMITS = "Effects are estimates under the assumption above, for these people and this model only"
MOST_INTERSECTIONS = 20  # on the page; summary.json has all
_MANY_NOT_JUDGED = 0.1  # of all people
_GOOD, _WARN, _BAD = "good", "warn", "bad"  # how a check came out


def view(result: AuditRecord, rows: object = None, *, table: object = None) -> dict[str, Any]:
    """Return what the page shows: words, tables, aggregated numbers, and the people with the highest scores.

    Args:
        result: the audit.
        rows: the audited table; with it the values of flagged people are in the view, and without it nobody's are.
        table: the same table, only to say which features of people would be higher or lower.
    """
    slider, settings = make_slider(result), result.settings
    shown = {
        "kind": "audit",
        "format": FORMAT,
        "title": f"fairfox: {result.test} audit for {text.joined(result.variables, 'and')}",
        "question": f"Does the model treat people differently because of {text.joined(result.variables, 'or')}?",
        "about": {
            "people": text.people(result.tally.people),
            "test": result.test,
            "model": settings.get("model_source") or settings.get("model"),
            "audited_class": settings.get("audited_class"),
            "trusted": bool(settings.get("trusted")),
            "table": settings.get("table"),
            "version": (settings.get("versions") or {}).get("fairfox"),
        },
        "several": len(result.findings) > 1,
        "verdict": _verdict(result),
        "counts": _counts(result),
        "variables": [variable_view(result, finding) for finding in result.findings],
        "intersections": rates_table(sorted(result.intersections, key=lambda g: -g.people)[:MOST_INTERSECTIONS]),
        "charts": figures(result),
        "slider": slider,
        "no_slider": why_no_slider(result),
        "readings": sentences.reading_words(result),
        "people": people_table(result, slider, rows=rows, table=table),
        "checks": _checks(result),
        "own_checks": [text.ended(line) for line in sentences.check_lines(result)],
        "still": [line for line in sentences.map_lines(result) if "not move" in line],
        "comparison": _comparison(result),
        "sign_off": _sign_off(result),
        "alternatives": None if result.alternatives is None else alternatives_table(result.alternatives),
        "method": method(result),
    }
    plain: dict[str, Any] = text.plain(shown)
    return plain


def _verdict(result: AuditRecord) -> dict[str, Any]:
    """Return the first screen: the verdict, whom it concerns and which way, how sure it is, and what to beware of."""
    verdict = result.verdict
    word, _, why = sentences.headline(result).partition(": ")
    outcome = sentences.OUTCOMES[verdict.word] if verdict else "skipped"
    first = next((v for v, f in enumerate(result.findings) if f.verdict is verdict), 0)
    finding = result.findings[first]
    known = [g for g in finding.groups if g.mean_effect is not None and math.isfinite(g.mean_effect)]
    directions = [
        {"group": g.name, "effect": text.amount(g.mean_effect, result.unit, sign=True), "people": text.people(g.people)}
        for g in sentences.largest_groups(known)
    ]
    lines = sentences.direction_lines(result, finding)
    tips = [tipping_sentence(verdict)] if verdict is not None and verdict.tipping is not None else []
    return {
        "word": word,
        "why": why,
        "outcome": outcome,
        "chart": f"groups-{first}",
        "direction": lines[0].partition(": ")[0] if lines else "",
        "directions": directions,
        "sure": [line for line in sentences.certainty_lines(result) if line not in tips][:1],
        "tipping": tips,
        "warnings": list(result.warnings),
        "lines": [*sentences.extra_lines(result), *map(text.ended, sentences.next_lines(result))],
        "not_judged": [text.ended(line) for line in sentences.not_judged_lines(result)],
    }


def _counts(result: AuditRecord) -> list[dict[str, str]]:
    """Return how many people are significant, flagged and confident: the number, its share, what the word means."""
    means, of = sentences.meanings(result), result.judged
    return [
        {"label": word.capitalize(), "value": f"{count:,}", "share": text.percent(count / of), "note": means[word]}
        for word, count in (sentences.counts(result) if of else {}).items()
    ]


def variable_view(result: AuditRecord, finding: Finding) -> dict[str, Any]:
    """Return the tables and sentences of one protected variable."""
    rates = rates_table(finding.groups)
    column, labelled = result.settings.get("label"), rates is not None and len(rates["columns"]) > 4
    labels = f" True outcomes are in the column {column}." if labelled else ""
    return {
        "name": finding.name,
        "verdict": None if finding.verdict is None else finding.verdict.headline,
        "notes": [text.ended(f"{finding.name}: {note}") for note in sentences.variable_notes(result, finding)],
        "heading": "Ranges" if finding.kind == "continuous" else "Groups",
        "groups": groups_table(result, [finding]),
        "rates": rates,
        "rates_note": f"Context, not a second verdict. Selection rate: share of people with a prediction of at least "
        f"{text.number(result.cut)}. Impact ratio: selection rate over that of the group with the highest. In "
        f"brackets: 95 % intervals.{labels}",
        "readings": readings_table(result, finding),
        "matrix": contrast_matrix(result, finding),
        "flips": [text.ended(line) for line in sentences.flip_lines(result, finding)],
        "outcome": [
            text.ended(line)
            for line in (*sentences.held_equal_lines(result, finding), *sentences.gap_lines(result, finding))
        ],
    }


def _checks(result: AuditRecord) -> list[dict[str, str]]:
    """Return what was checked about the audit itself: how each check came out, and what was found."""
    out: list[dict[str, str]] = []

    def add(level: str, what: str, found: str) -> None:
        out.append({"level": level, "what": what, "found": text.ended(found)})

    share = result.share_abstained
    level = _GOOD if not share else _WARN if share <= _MANY_NOT_JUDGED else _BAD
    reasons = "; ".join(sentences.not_judged_lines(result))
    add(level, "People judged", f"{result.judged:,} of {text.people(result.tally.people)}{reasons and f'. {reasons}'}")
    verdict = result.verdict
    if verdict is not None and verdict.curve:
        tips = tipping_sentence(verdict) or "The verdict is cannot tell, so there is no tipping point"
        add(_GOOD if verdict.tipping is not None and verdict.tipping < 1 else _WARN, "Persistence", tips)
    for finding in result.findings:
        for line in sentences.common_cause_lines(finding):
            shift = finding.common_cause.shift if finding.common_cause is not None else None
            add(_WARN if finding.common_cause is None or (shift or 3.0) < 1 else _GOOD, "Common causes", line)
    for name, check in zip(sentences.map_check_names(result), result.map_checks, strict=True):
        gap = (
            f"accounts for {100 * check.accounted:z.0f} % of the gap between the groups. "
            if check.accounted is not None
            else ""
        )
        apart = 1.0 if check.accounted is None or result.settings.get("given") else check.accounted
        level = _BAD if not 0.3 <= apart <= 2.0 else _WARN if check.warnings else _GOOD
        pairs = f"{text.percent(check.unseen)} (by chance {text.percent(check.unseen_real)})"
        found = f"{text.capitalised(gap)}Outside the other group's range: {text.percent(check.outside)} of people. "
        add(level, f"Map, {name}", f"{found}With two categories that nobody has together: {pairs}")
    for finding in result.findings:
        level = _WARN if quality_warnings(finding.quality) else _GOOD
        add(level, f"Auxiliary model, {finding.name}", sentences.quality_line(finding.quality))
    return out


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
        "lines": [text.ended(line) for line in sentences.comparison_notes(result)],
    }


def _sign_off(result: AuditRecord) -> list[dict[str, Any]]:
    """Return the audit as it is printed and signed: what was asked, of whom, what was found, assumed and tried."""
    settings, findings, tried = result.settings, result.findings, result.alternatives
    about = f"Model {settings.get('model_source') or settings.get('model')}, {text.people(result.tally.people)}"
    about += f" of the table {settings['table']}" if settings.get("table") else ""
    about += f", predictions of the class {settings['audited_class']}" if settings.get("audited_class") else ""
    files = [name for name in _HASHES if "file" in _HASHES[name] and settings.get(name)]
    measured = [f"{METRICS[p.metric]} {p.value:.3f} ({p.lower:.3f} to {p.upper:.3f})" for p in result.performance]
    limit = f"At most {text.percent(result.limit)} of people may be affected"
    policy = [f"{limit}: {sentences.meanings(result)['flagged']}"]
    policy += [f"Valid reasons: {text.joined(settings['given'], 'and')}"] if settings.get("given") else []
    verdicts, groups, whole = [sentences.headline(result)], [], result.verdict
    for f in findings:
        if f.verdict is not None and f.verdict is not whole:
            verdicts.append(f"For {f.name}: {f.verdict.headline}")
        ratios = {g.level: g.impact_ratio for g in f.groups if g.impact_ratio is not None and g.impact_ratio >= 0}
        groups += sentences.direction_lines(result, f)
        if ratios:
            level = min(ratios, key=ratios.__getitem__)
            groups.append(f"Lowest impact ratio by {f.name}: {ratios[level]:.2f} ({level})")
    alternatives = ["None were added to this audit (fairfox alternatives, then --alternatives)"]
    if tried is not None:
        count, people = len(tried["tried"]) - 1, text.people(int(tried["people"]))
        how = "; their maps are fitted anew, so numbers may differ a little from this audit's" if count else ""
        alternatives = [f"{count or 'None'} measured on {people}{how}"]
        alternatives += [f"The best within a loss of {tried['max_loss']:g} is {tried['best']}"] if count else []
        alternatives += [f"Not run: {name} ({why})" for name, why in tried["not_run"].items()]
    parts: dict[str, list[str]] = {
        "Purpose": [settings.get("reason") or "Not stated (reason in the options file)"],
        "Owner": [settings.get("owner") or "Not stated (owner in the options file)"],
        "Policy": policy,
        "Model and data": [about, *measured, *(f"SHA-256 of the {_HASHES[name]}: {settings[name]}" for name in files)],
        "Verdict": verdicts,
        "Assumption and tipping point": [result.meaning, *sentences.certainty_lines(result)],
        "Groups": groups,
        "Proxies": [line for finding in findings for line in sentences.proxy_lines(finding)] or ["None"],
        "Alternatives tried": alternatives,
        "Limits": [*result.warnings, *sentences.not_judged_lines(result), *sentences.map_lines(result), _LIMITS],
    }
    return [{"label": label, "lines": [text.ended(line) for line in lines]} for label, lines in parts.items()]


def alternatives_table(found: Mapping[str, Any]) -> Table:
    """Return a row for each alternative that was tried; the best within the stated loss is marked."""
    unit = found["unit"]
    rows = [
        [
            each["name"],
            f"{each['value']:.3f} ({each['lower']:.3f} to {each['upper']:.3f})",
            text.cell(each["mean_effect"], unit),
            text.percent(each["share_over"]),
            "yes" if each["dominated"] else "no",
        ]
        for each in found["tried"]
    ]
    best = [[k, 2] for k, each in enumerate(found["tried"]) if each["name"] == found["best"]]
    metric = METRICS[found["tried"][0]["metric"]]
    numbers = [metric, f"Mean size of the effect{text.heading_unit(unit)}", "Over delta", "Dominated"]
    return make_table(["Alternative"], numbers, rows, marked=best)


def method(result: AuditRecord) -> dict[str, Any]:
    """Return settings, versions and hashes as tables, and how to do it again."""
    settings, versions = result.settings, result.settings.get("versions") or {}
    shown = {name: value for name, value in settings.items() if name not in {"versions", "command", *_HASHES}}
    hashes = {words: settings[name] for name, words in _HASHES.items() if settings.get(name)}

    def pairs(heading: str, each: Mapping[str, Any]) -> Table:
        rows = [[name, text.as_json(value)] for name, value in each.items() if value not in (None, (), [], {})]
        return make_table([heading, "Value"], [], rows)

    lines = [f"Test {result.test}: {result.meaning}", f"Unit: {text.unit_words(result.unit)}."]
    lines += ["A point is 0.01 of a probability."] if text.heading_unit(result.unit) else []
    lines += [] if result.weights is None else ["Shares and means are weighted; counts are not."]
    lines += [text.ended(sentences.alignment_line(finding)) for finding in result.findings]
    return {
        "lines": lines,
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
