"""What the page says of one protected variable: its groups, how each would fare in the others, its auxiliary."""

from __future__ import annotations

from typing import Any

from fairfox.report import lines, text
from fairfox.report.tables import Table, count, make_table
from fairfox.result import AuditResult, Finding


def variable_view(result: AuditResult, finding: Finding) -> dict[str, Any]:
    """Return the tables and sentences of one protected variable."""
    notes = "; ".join(lines.variable_notes(result, finding))
    flips = lines.flip_lines(result, finding)
    return {
        "name": finding.name,
        "notes": f"{notes[:1].upper()}{notes[1:]}." if notes else None,
        "heading": "Ranges" if finding.kind == "continuous" else "Groups",
        "groups": groups_table(result, finding),
        "matrix": matrix(result, finding),
        "flips": f"{flips[0]}." if flips else None,
        "quality": f"{lines.quality_line(finding.quality)}; {lines.loss_words(finding.quality)}.",
        "alignment": f"{lines.alignment_line(finding)}.",
    }


def groups_table(result: AuditResult, finding: Finding) -> Table:
    """Return a row per group: how many people, how they are predicted, how they would fare, how many are flagged."""
    unit = text.heading_unit(result.unit)
    inferred = any(group.inferred for group in finding.groups)
    own_deltas = any(group.name in result.deltas for group in finding.groups)
    signed = finding.signed is not None
    numbers = ["People", *(["Inferred"] if inferred else []), "Mean prediction"]
    numbers += [f"Mean {lines.signed_word(result)}{unit}"] if signed else []
    numbers += [f"Delta{unit}"] if own_deltas else []
    rows = []
    for group in finding.groups:
        row = [group.name, count(group.people), *([count(group.inferred)] if inferred else [])]
        row += [text.number(group.mean_prediction)]
        row += [text.cell(group.mean_signed, result.unit, sign=True)] if signed else []
        row += [text.cell(result.delta_of(group.name), result.unit)] if own_deltas else []
        row += [text.percent(group.share_flagged)]
        row += ["-" if group.share_confident is None else text.percent(group.share_confident)]
        rows.append(row)
    return make_table(["Group"], [*numbers, "Flagged", "Confidently"], rows)


def matrix(result: AuditResult, finding: Finding) -> dict[str, Any] | None:
    """Return the mean effect of every group in every other, or of ranges up and down; None where there is one only."""
    number = finding.kind == "continuous"
    if len(finding.contrasts) < 2 or finding.signed is None or not (number or len(finding.levels) > 2):
        return None
    rows, marked = [], []
    for place, group in enumerate(finding.groups):
        row = [group.name if number else group.level]
        for column, contrast in enumerate(finding.reached, start=1):
            mean = group.towards.get(contrast)
            own = not number and contrast == group.level
            row.append("·" if own else text.cell(mean, result.unit, sign=True))
            if result.decision_threshold is None and mean is not None and abs(mean) > result.delta_of(group.name):
                marked.append([place, column])
        rows.append(row)
    return {
        "heading": "Up and down" if number else "From each group to each other",
        "table": make_table(["People with" if number else "People of"], finding.reached, rows, marked=marked),
        "note": _matrix_note(result, finding),
    }


def _matrix_note(result: AuditResult, finding: Finding) -> str:
    note = f"Mean {lines.signed_word(result)}{text.heading_unit(result.unit)} of the people in a row "
    if finding.kind == "continuous":
        note += f"one standard deviation up and down; above zero a higher {finding.name} goes with a higher prediction."
    else:
        note += "as members of the group in the column; above zero they would get a higher prediction there."
    note += "" if result.decision_threshold is not None else " Shaded: the mean is beyond delta."
    if finding.second is not None:
        note += f" Everybody is compared with {finding.reference}, the largest group, and it with {finding.second}."
    elif finding.reference is not None:
        note += f" Everybody is compared with {finding.reference} only, the reference group."
    return note
