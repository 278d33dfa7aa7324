"""What a row of the table of people opens to: this person, and the same person in the other group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairfox.report.people import FlaggedPerson
from fairfox.report.text import amount, cell, heading_unit, number
from fairfox.result import AuditResult

MOST_ROWS, MOST_LETTERS = 40, 80  # in a person's table, in a cell of it
SAME, OTHER = "the same", "another"
Row = Mapping[str, Any]


def names_variables(result: AuditResult) -> bool:
    """Return whether the table says because of what people are flagged: where there is a choice."""
    return result.tells_variables_apart and not result.two_groups


def card(result: AuditResult, person: FlaggedPerson, own: Row, before: Row, after: Row) -> dict[str, Any]:
    """Return what a row of the table opens to: a title, facts, the prediction on a line, features and notes.

    `own` has the values that may be shown; `before` and `after` only say what would change where it is empty.
    """
    finding = result.findings[int(result.worst[person.place])]
    towards = finding.towards[person.place]
    down = finding.kind == "continuous" and str(towards).startswith(f"{finding.name} - ")
    turn = -1.0 if down else 1.0  # signed values of a number always point up
    where = _where(result, towards, named=bool(own))
    now, then = float(result.predictions[person.place]), _change(result, person, turn)
    facts = [{"label": "Prediction", "words": number(now), "key": "before"}]
    if then is not None:
        label = where[0].upper() + where[1:] if _own_effect(result) else f"{where.capitalize()}, in the total reading"
        words = f"{number(now + then)} ({amount(then, result.effect_unit, sign=True)})"
        facts.append({"label": label, "words": words, "key": "after"})
    ends = _interval(person, turn)
    if ends is not None:
        words = " to ".join(amount(end, result.unit, sign=True) for end in ends)
        facts.append({"label": f"Interval of the {'change' if _own_effect(result) else 'score'}", "words": words})
    facts += _more_facts(result, person)
    return {
        "title": f"Person {shown(person.row_id)}, and the same person {where}",
        "facts": facts,
        "range": _range(result, now, then, ends),
        "features": _features(result, person, turn, own, before, after, where),
        "notes": _card_notes(result, person, own, before),
    }


def _own_effect(result: AuditResult) -> bool:
    """Return whether the score is the change of the prediction itself, not times a share."""
    return result.is_effect and result.signed is not None and not result.test.endswith("/a")


def _where(result: AuditResult, towards: str | None, *, named: bool) -> str:
    """Return where the person would be; with two groups it would tell their own, which only shown rows may."""
    finding = result.findings[0]
    if result.two_groups and not named:
        return "in the other group"
    if towards is None or towards == finding.name:
        return "in another group"
    return f"as {towards}" if any(towards in each.levels for each in result.findings) else f"with {towards}"


def _change(result: AuditResult, person: FlaggedPerson, turn: float) -> float | None:
    """Return how much the prediction would change, of the test itself or else of the total reading."""
    if _own_effect(result):
        return None if person.signed is None else turn * person.signed
    finding = result.findings[int(result.worst[person.place])]
    total = float(finding.total[person.place])
    return None if finding.kind == "continuous" or not math.isfinite(total) else total


def _interval(person: FlaggedPerson, turn: float) -> tuple[float, float] | None:
    if person.lower is None or person.upper is None:
        return None
    return (person.lower, person.upper) if turn > 0 else (-person.upper, -person.lower)


def _more_facts(result: AuditResult, person: FlaggedPerson) -> list[dict[str, str]]:
    facts = [{"label": "Direct reading", "words": amount(person.direct, result.effect_unit, sign=True)}]
    if names_variables(result):
        facts.append({"label": "Because of", "words": ", ".join(person.because)})
    if person.confident is not None:
        surely = "the whole interval lies beyond delta" if person.confident else "the interval reaches below delta"
        facts.append({"label": "How sure", "words": surely})
    if result.certificates is not None and math.isfinite(most := float(result.certificates.largest[person.place])):
        unit = result.effect_unit if result.certificates.total else result.unit
        facts.append({"label": "At most, anywhere on the way", "words": f"{amount(most, unit)}: proved"})
    return facts


def _range(
    result: AuditResult, now: float, then: float | None, ends: tuple[float, float] | None
) -> dict[str, float | None] | None:
    """Return the two predictions and the interval, where they lie between 0 and 1."""
    if then is None or result.effect_unit != "probability":
        return None
    between = ends if ends is not None and _own_effect(result) else None
    low, high = (None, None) if between is None else (now + between[0], now + between[1])
    return {"before": now, "after": now + then, "lower": low, "upper": high}


def _features(
    result: AuditResult, person: FlaggedPerson, turn: float, own: Row, before: Row, after: Row, where: str
) -> dict[str, Any] | None:
    """Return the person's features: what each adds to the change, and its value now and then, or which way it goes."""
    share = {name: turn * value for name, value in person.features}
    changes = {name: change(before.get(name), value) for name, value in after.items() if name in before}
    names = [*share, *(name for name, how in changes.items() if how != SAME and name not in share)]
    names += [name for name in (*own, *changes) if name not in names]
    names = list(dict.fromkeys(names))[:MOST_ROWS]
    if not names:
        return None
    columns = [{"label": "Feature", "numeric": False, "after": False}]
    columns += [{"label": "Now", "numeric": False, "after": False}] if own else []
    columns += [{"label": where[0].upper() + where[1:], "numeric": False, "after": True}] if changes else []
    unit = heading_unit(result.effect_unit)
    columns += [{"label": f"Adds to the change{unit}", "numeric": True, "after": False}] if share else []
    rows = []
    for name in names:
        how = changes.get(name)
        words = [name]
        words += [shown(own.get(name)) if name in own else "-"] if own else []
        words += [_then(how, own, before.get(name), after.get(name))] if changes else []
        words += [cell(share.get(name), result.effect_unit, sign=True)] if share else []
        rows.append([how is not None and how != SAME, *words])
    return {"columns": columns, "rows": rows}


def change(before: Any, after: Any) -> str:
    """Return how a value changes, without saying what it is.

    Example:
        >>> change(3, 3.2), change(3, 3.0000001), change("nurse", "smith")
        ('higher', 'the same', 'another')
    """
    numbers = isinstance(before, int | float) and isinstance(after, int | float)
    if not numbers or isinstance(before, bool):
        return SAME if before == after or (before is None and _missing(after)) else OTHER
    if math.isclose(before, after, rel_tol=1e-4, abs_tol=1e-9) or (math.isnan(before) and math.isnan(after)):
        return SAME
    return "higher" if after > before else "lower"


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _then(how: str | None, own: Row, before: Any, after: Any) -> str:
    if how is None:
        return "-"
    if not own:
        return how
    return shown(before) if how == SAME else shown(_rounded(after))


def _rounded(value: Any) -> Any:
    """Return a number that was worked out with the digits it deserves."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return f"{value:.2f}" if abs(value) >= 1000 else f"{value:.4g}"


def _card_notes(result: AuditResult, person: FlaggedPerson, own: Row, before: Row) -> list[str]:
    notes = []
    if result.features.effect is not None and not person.features:
        notes.append("What each feature adds was not worked out for this person.")
    if not own and before:
        notes.append("The values themselves are not on this page.")
    if len(own) > MOST_ROWS:
        notes.append(f"The {MOST_ROWS} features that matter most are shown.")
    return notes


def shown(value: Any) -> str:
    """Return a value of the table as the page shows it: cut where it is long, a dash where there is none."""
    words = "-" if _missing(value) else _decimals(value) if isinstance(value, float) else str(value)
    return words if len(words) <= MOST_LETTERS else f"{words[: MOST_LETTERS - 1]}…"


def _decimals(value: float) -> str:
    """Return a number of the table without the digits that only its binary form has."""
    return str(value) if value.is_integer() or not 1e-4 <= abs(value) < 1e7 else f"{value:.8g}"
