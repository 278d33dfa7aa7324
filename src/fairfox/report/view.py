"""Everything a report shows, as plain JSON: report.json, from which the page can be made again at any time."""

from __future__ import annotations

import json
import math
from typing import Any

from fairfox.reliability import DISAGREE
from fairfox.report import contrasts, text
from fairfox.report.figures import figures, signed_by_group
from fairfox.report.lines import CHECKS, check_lines, signed_word
from fairfox.report.method import method
from fairfox.report.people import people_table
from fairfox.report.readings import compensation_lines
from fairfox.report.slider import make_slider, why_no_slider
from fairfox.report.summary import strict_json
from fairfox.report.tables import Table, count, make_table
from fairfox.report.variables import variable_view
from fairfox.report.verdict import verdict
from fairfox.result import AuditResult

VIEW_VERSION = 1
_TONES = {"fails": "fails", "passes": "passes", "cannot tell": "open"}
_MOST_SIGNED = 6  # features whose signed contributions are told by group


def view(result: AuditResult, rows: object = None, *, table: object = None) -> dict[str, Any]:
    """Return what the page shows: words, tables, aggregated numbers, and the people with the highest scores.

    Args:
        result: the audit.
        rows: the audited table; with it the values of flagged people are in the view, and without it nobody's are.
        table: the same table, only to say which features of people would be higher or lower.
    """
    slider = make_slider(result)
    shown = {
        "kind": "audit",
        "view_version": VIEW_VERSION,
        "title": f"fairfox: {result.test} audit for {text.listed(result.variables, 'and')}",
        "question": f"Does the model treat people differently because of {text.listed(result.variables, 'or')}?",
        "about": _about(result),
        "several": len(result.findings) > 1,
        "verdict": _verdict(result),
        "facts": _facts(result),
        "by_variable": _by_variable(result) if len(result.findings) > 1 else None,
        "variables": [variable_view(result, finding) for finding in result.findings],
        "charts": figures(result),
        "slider": slider,
        "no_slider": why_no_slider(result),
        "spread_word": "scores" if result.signed is None else f"{signed_word(result)}s",
        "readings": contrasts.reading_words(result),
        "compensation": [line for finding in result.findings for line in compensation_lines(result, finding)],
        "features": _features(result),
        "people": people_table(result, slider, rows=rows, table=table),
        "checks": _checks(result),
        "comparison": _comparison(result),
        "not_judged": _not_judged(result),
        "warnings": list(result.warnings),
        "next": _next(result),
        "method": method(result),
    }
    plain: dict[str, Any] = json.loads(strict_json(shown))
    return plain


def _about(result: AuditResult) -> dict[str, Any]:
    settings = result.settings
    model = settings.get("model_source") or settings.get("model")
    return {
        "people": text.people(len(result)),
        "test": result.test,
        "model": model,
        "trusted": bool(settings.get("trusted")),
        "table": settings.get("table"),
        "version": (settings.get("versions") or {}).get("fairfox"),
    }


def _verdict(result: AuditResult) -> dict[str, Any]:
    """Return the verdict in a sentence, what it rests on, and how it stands to the limits that were set."""
    lines = verdict(result)
    found, flagged = result.verdict, bool(result.flags.any())
    return {
        "tone": _TONES[found.word] if found is not None else "open" if flagged else "passes",
        "headline": lines[0],
        "lines": lines[1:],
        "limits": _limits(result),
        "abstained": _abstained(result),
        "counts_left_out": found is not None and DISAGREE in result.reasons,
        "meaning": _meaning(result),
    }


def _abstained(result: AuditResult) -> str | None:
    """Return how many people no number of flagged people counts, in a sentence, and whether the verdict counts them."""
    away, left = int(result.abstained.sum()), result.reasons.count(DISAGREE)
    if not away:
        return None
    verb = "is" if away == 1 else "are"
    if not left:
        return f"{text.people(away)} could not be judged and {verb} not counted above."
    told = f"{text.people(away)} {verb} not among those judged: the re-fits disagree about {left:,} of them"
    if result.verdict is None:
        return f"{told}."
    return f"{told}, whom only the verdict on the model counts."


def _limits(result: AuditResult) -> list[dict[str, str]]:
    """Return each limit on the share of flagged people in a sentence, in three parts: the middle one is what counts."""
    limits: dict[str, float] = result.settings.get("max_flagged") or {}
    told = []
    for name, limit in limits.items():
        start = f"The limit{f' for {name}' if name else ''} is {text.percent(limit)} flagged:"
        if not result.can_check(name):
            told.append({"start": f"{start} nobody could be judged, so it", "word": "cannot be checked", "end": "."})
        else:
            word = "over" if result.over_limits({name: limit}) else "within"
            told.append({"start": f"{start} the model is", "word": word, "end": " it."})
    return told


def _meaning(result: AuditResult) -> str:
    unit = result.unit
    told = f"What the score says: {result.meaning} Unit: {text.unit_words(unit)}"
    told += "; a point is 0.01 of a probability. " if text.heading_unit(unit) else ". "
    if result.decision_threshold is None:
        told += f"A person is flagged above delta = {text.amount(result.delta, unit)}"
    else:
        told += "A person is flagged where the decision, yes from "
        told += f"{text.number(result.decision_threshold)} on, would be another"
    told += "".join(f"; {name}: {text.amount(own, unit)}" for name, own in result.deltas.items())
    return told + ("." if result.weights is None else ". Shares and means are weighted; counts are not.")


def _facts(result: AuditResult) -> list[dict[str, Any]]:
    """Return the numbers that come first: how many, how much, how surely, and who would gain."""
    if not result.judged:
        return []
    share = f"of {text.people(result.judged)}, {text.percent(result.share_flagged)}"
    facts = [_fact("People flagged", count(int(result.flags.sum())), share)]
    mean = None if result.verdict is None else result.verdict.mean
    if mean is not None and result.is_effect:
        ends = f"95 % interval {text.amount(mean.lower, result.unit)} to {text.amount(mean.upper, result.unit)}"
        because = f" because of {result.verdict.variable}" if result.verdict and len(result.findings) > 1 else ""
        facts.append(_fact(f"Average change{because}", text.amount(mean.value, result.unit), ends))
    if result.confident_flags is not None:
        sure = count(int(result.confident_flags.sum()))
        limit = "delta" if result.decision_threshold is None else "what turns the decision"
        facts.append(_fact("Confidently", sure, f"their whole interval lies beyond {limit}"))
    groups = [g for f in result.findings if f.kind != "continuous" for g in f.groups if (g.mean_signed or 0) > 0]
    if groups and result.is_effect and bool(result.flags.any()):
        most = max(groups, key=lambda group: group.mean_signed or 0.0)
        gain = f"{text.amount(most.mean_signed, result.unit, sign=True)} on average in another group"
        facts.append(_fact("Would gain most", most.name, gain, words=True))
    return facts


def _fact(label: str, value: str, note: str, *, words: bool = False) -> dict[str, Any]:
    return {"label": label, "value": value, "note": note, "words": words}


def _by_variable(result: AuditResult) -> dict[str, Any]:
    numbers = ["Judged", "Flagged", "Confidently", f"Mean size{text.heading_unit(result.unit)}"]
    numbers += ["Worst case for"] if result.tells_variables_apart else []
    rows = []
    for finding in result.findings:
        sure = finding.share_confident(result.weights)
        row = [finding.name, contrasts.compared(finding), count(finding.judged)]
        row += [text.percent(finding.share_flagged(result.weights)), "-" if sure is None else text.percent(sure)]
        row += [text.cell(finding.mean_score(result.weights), result.unit)]
        row += [text.percent(result.worst_case[finding.name])] if result.tells_variables_apart else []
        rows.append(row)
    if result.tells_variables_apart:
        note = (
            "A person is judged by the largest of all comparisons; the last column says for which share of the judged "
            "people each variable gave it."
        )
    else:
        note = "This test knows no protected variable: everybody has one score, and the groups differ in it."
    return {"table": make_table(["Variable", "Compared"], numbers, rows), "note": note}


def _features(result: AuditResult) -> dict[str, Any]:
    """Return the signed contributions by group where several variables share the effect."""
    effect, signed = result.features.effect, signed_by_group(result)
    if effect is None or len(result.findings) == 1 or not signed:
        return {"explained": effect is not None, "signed": None, "note": None}
    names = list(effect.total)[:_MOST_SIGNED]
    unit = result.effect_unit
    rows = [[group, *(text.cell(means[name], unit, sign=True) for name in names)] for group, means in signed.items()]
    note = f"The same with its sign{text.heading_unit(unit)}, in each group of the people for whom that variable is "
    return {"explained": True, "signed": make_table(["Group"], names, rows), "note": f"{note}the worst case:"}


def _checks(result: AuditResult) -> Table | None:
    rows = [[CHECKS.get(name, name), text.number(value)] for name, value in result.checks.items()]
    return make_table(["Number"], ["Value"], rows) if rows else None


def _comparison(result: AuditResult) -> dict[str, Any] | None:
    compared = result.comparison
    if compared is None:
        return None
    rows = [
        [name, f"{cost.seconds:.1f}", text.megabytes(cost.memory), *("-" if math.isnan(r) else f"{r:.2f}" for r in row)]
        for (name, cost), row in zip(compared.costs.items(), compared.agreement.tolist(), strict=True)
    ]
    return {
        "table": make_table(["Test"], ["Seconds", "Memory", *compared.tests], rows),
        "training": f"{compared.training.seconds:.1f}",
        "lines": [text.ended(line) for line in check_lines(result)],
        "skipped": [text.ended(f"{name} was not run: {why}") for name, why in compared.skipped.items()],
    }


def _not_judged(result: AuditResult) -> Table | None:
    rows = [[reason, count(people)] for reason, people in result.abstained_by_reason.items()]
    return make_table(["Reason"], ["People"], rows) if rows else None


def _next(result: AuditResult) -> dict[str, Any]:
    """Return what to do next in sentences, and what each single step would do."""
    steps = result.steps
    if steps is None:
        return {"lines": ["This audit did not try what would lower the effect."], "table": None, "note": None}
    lines = [steps.sentence, *([] if steps.train_fair is None else [steps.train_fair])]
    if not bool(result.flags.any()):
        lines.insert(0, "Nobody is flagged, so that nothing needs to be done.")
    unit = result.effect_unit
    measured = steps.measure is not None
    numbers = ["Effect goes down by", f"Effect after{text.heading_unit(unit)}", *([steps.measure] if measured else [])]
    rows = [
        [
            step.feature,
            step.way,
            step.method,
            text.percent(step.share),
            text.cell(step.after, unit),
            *(["-" if step.accuracy_after is None else f"{step.accuracy_after:.3f}"] if measured else []),
        ]
        for step in steps.steps
    ]
    note = f"Tried on {text.people(steps.people)}; the mean effect on them is {text.amount(steps.effect, unit)}."
    table = make_table(["Feature", "What is done", "Found out"], [each for each in numbers if each], rows)
    return {"lines": lines, "table": table if rows else None, "note": note}
