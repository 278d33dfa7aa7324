"""The direct beside the total reading: where all that differs between groups makes up for the direct effect."""

from __future__ import annotations

from fairfox.report.tables import Table, make_table
from fairfox.report.text import amount, cell
from fairfox.result import AuditResult, Finding, Reading

FLAT, SAME = 0.1, 0.2  # how small a reading is beside the other, how alike two are, as shares of the larger


def readings_table(both: dict[str, Reading], unit: str, headings: list[str]) -> Table:
    """Return both readings of all judged people and of each group, and what the other differences do to the direct."""
    rows = [["all judged", *_reading(both["direct"], unit), *_reading(both["total"], unit), "-"]]
    for name, total in both["total"].groups.items():
        direct = both["direct"].groups.get(name)
        rest = "-" if direct is None else OTHER_DIFFERENCES[compensation(direct.mean_signed, total.mean_signed)]
        rows.append([name, *_reading(direct, unit), *_reading(total, unit), rest])
    table = make_table(["People"], headings, rows)
    table["columns"].append({"label": "Other differences", "numeric": False})
    return table


OTHER_DIFFERENCES = {
    "reverse": "turn it around",
    "less": "make up for part of it",
    "more": "add to it",
    "same": "hardly matter",
}


def compensation(direct: float, total: float) -> str:
    """Return what all that differs between groups does to a direct effect: "reverse", "less", "more" or "same".

    Example:
        >>> compensation(0.08, -0.02), compensation(0.08, 0.02), compensation(0.02, 0.08)
        ('reverse', 'less', 'more')
    """
    larger = max(abs(direct), abs(total))
    if direct * total < 0 and min(abs(direct), abs(total)) > FLAT * larger:
        return "reverse"
    if abs(abs(direct) - abs(total)) <= SAME * larger:
        return "same"
    return "less" if abs(total) < abs(direct) else "more"


def _reading(part: Reading | None, unit: str) -> list[str]:
    if part is None:
        return ["-", "-"]
    return [cell(part.mean_signed, unit, sign=True), cell(part.mean_absolute, unit)]


def compensation_lines(result: AuditResult, finding: Finding) -> list[str]:
    """Return a sentence for each group in which other differences make up for a direct effect that counts."""
    both, unit = finding.readings(result.weights), result.effect_unit
    told = {
        "reverse": "the two readings point in opposite directions: other differences between the groups more than make "
        "up for the direct effect.",
        "less": "other differences between the groups make up for part of the direct effect.",
    }
    lines, least = [], result.delta if result.is_effect else 0.0
    for name, total in both["total"].groups.items():
        direct = both["direct"].groups.get(name)
        if direct is None or max(abs(direct.mean_signed), abs(total.mean_signed)) <= least:
            continue
        if (how := compensation(direct.mean_signed, total.mean_signed)) in told:
            sizes = " and ".join(amount(part.mean_signed, unit, sign=True) for part in (direct, total))
            lines.append(f"{finding.name}, {name} ({sizes}): {told[how]}")
    return lines
