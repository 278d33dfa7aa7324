"""One flagged person: who they are, and what their row opens to, they and the same person in the other group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfox.report.contrasts import because
from fairfox.report.text import amount, cell, heading_unit, number
from fairfox.result import AuditResult, Finding

MOST_ROWS, MOST_LETTERS = 40, 80  # in a person's table, in a cell of it
SAME, OTHER, PARTLY, CHANGES = "the same", "another", "partly another", "changes"
FEW_VALUES, OFTEN = 20, 0.05  # of a column: as few values, or so many people at an end, that a direction tells a value
_SIDES = {-1: ", below every value in the table", 0: "", 1: ", above every value in the table"}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class FlaggedPerson:
    """One flagged person, as the report shows them; what has a sign points the way of the contrast that counts."""

    place: int  # in the table
    row_id: Any
    score: float
    signed: float | None
    lower: float | None
    upper: float | None
    direct: float | None
    confident: bool | None
    because: tuple[str, ...]  # the variables that flag them and towards what, the largest score first
    inferred: bool  # their own group, of a variable that flags them, is the most probable one
    features: tuple[tuple[str, float], ...]  # their own contributions, the largest first; empty where not explained
    row: tuple[Any, ...]  # their values in the columns of `raw_rows`; empty without it


@dataclass(frozen=True)
class Span:
    """What all audited people have in a column of numbers: its ends, and whether a direction would tell a value."""

    low: float
    high: float
    tells: bool

    @classmethod
    def of(cls, values: np.ndarray) -> Span | None:
        """Return the span of a column; None where it has no number."""
        known = values[np.isfinite(values)]
        if not len(known):
            return None
        different, counts = np.unique(known, return_counts=True)
        often = max(counts[0], counts[-1]) > OFTEN * len(known)
        return cls(float(different[0]), float(different[-1]), bool(len(different) < FEW_VALUES or often))

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Return -1 for values below all of the table, 1 for those above all, 0 for those among them."""
        slack = 1e-6 * (self.high - self.low)  # of rounding
        return (values > self.high + slack).astype(int) - (values < self.low - slack)


def names_variables(result: AuditResult) -> bool:
    """Return whether the table says because of what people are flagged: where there is a choice."""
    return result.tells_variables_apart and not result.two_groups


def told_variable(finding: Finding, towards: str | None, *, named: bool) -> str:
    """Return because of what a person is flagged; unless their row is `named`, nothing that tells their own group."""
    return because(finding, towards) if named or not _tells_own(finding, towards) else finding.name


def _tells_own(finding: Finding, towards: str | None) -> bool:
    """Return whether a contrast tells a person's own group: of two the other does, and "away from Black" does.

    Of a reference group only its own members are compared with others.
    """
    away = towards not in finding.levels or (finding.reference is not None and towards != finding.reference)
    return finding.kind != "continuous" and (len(finding.levels) == 2 or away)


def card(
    result: AuditResult, person: FlaggedPerson, own: Row, before: Row, after: Row, spans: Mapping[str, Span]
) -> dict[str, Any]:
    """Return what a row of the table opens to: a title, facts, the prediction on a line, features and notes.

    `own` has the values that may be shown; `before` and `after` only say what would change where it is empty. `spans`
    are of the table's columns of numbers.
    """
    where = _where(result, person, named=bool(own))
    now, then = float(result.predictions[person.place]), _change(result, person)
    facts = [{"label": "Prediction", "words": number(now), "key": "before"}]
    if then is not None:
        label = _capital(where) if _own_effect(result) else f"{_capital(where)}, in the total reading"
        words = f"{number(now + then)} ({amount(then, result.effect_unit, sign=True)})"
        facts.append({"label": label, "words": words, "key": "after"})
    ends = None if person.lower is None or person.upper is None else (person.lower, person.upper)
    if ends is not None:
        words = " to ".join(amount(end, result.unit, sign=True) for end in ends)
        facts.append({"label": f"Interval of the {'change' if _own_effect(result) else 'score'}", "words": words})
    facts += _more_facts(result, person)
    features = _features(result, person, own, before, after, spans, where)
    return {
        "title": f"Person {shown(person.row_id)}, and the same person {where}",
        "facts": facts,
        "range": _range(result, now, then, ends),
        "features": features,
        "notes": _card_notes(result, person, own, before, features),
    }


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _own_effect(result: AuditResult) -> bool:
    """Return whether the score is the change of the prediction itself, not times a share."""
    return result.is_effect and result.signed is not None and not result.test.endswith("/a")


def _where(result: AuditResult, person: FlaggedPerson, *, named: bool) -> str:
    """Return where the person would be; unless their row is `named`, without telling their own group."""
    finding = result.findings[int(result.worst[person.place])]
    towards = finding.towards[person.place]
    if finding.kind == "continuous" and towards not in (None, finding.name):
        return f"with {towards}"
    if towards in finding.levels and (named or not _tells_own(finding, towards)):
        return f"as {towards}"
    if len(finding.levels) != 2 or (towards is None and not result.two_groups):
        return "in another group"
    return "in the other group" if result.two_groups else f"in the other group of {finding.name}"


def _change(result: AuditResult, person: FlaggedPerson) -> float | None:
    """Return how much the prediction would change, of the test itself or else of the total reading."""
    if _own_effect(result):
        return person.signed
    finding = result.findings[int(result.worst[person.place])]
    total = float(finding.total[person.place])
    return None if finding.kind == "continuous" or not math.isfinite(total) else total


def _more_facts(result: AuditResult, person: FlaggedPerson) -> list[dict[str, str]]:
    facts = [{"label": "Direct reading", "words": amount(person.direct, result.effect_unit, sign=True)}]
    if names_variables(result):
        facts.append({"label": "Because of", "words": ", ".join(person.because)})
    if person.confident is not None:
        limit = "delta" if result.decision_threshold is None else "what turns the decision"
        surely = "the whole interval lies beyond" if person.confident else "the interval reaches below"
        facts.append({"label": "How sure", "words": f"{surely} {limit}"})
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
    result: AuditResult,
    person: FlaggedPerson,
    own: Row,
    before: Row,
    after: Row,
    spans: Mapping[str, Span],
    where: str,
) -> dict[str, Any] | None:
    """Return the person's features: what each adds to the change, and its value now and then, or which way it goes."""
    share, unit = dict(person.features), result.effect_unit
    adds = {name: cell(value, unit, sign=True) for name, value in share.items()}
    changes = {
        name: _moved(change(before.get(name), value, spans.get(name)), before.get(name), adds.get(name))
        for name, value in after.items()
        if name in before
    }
    names = [*share, *(name for name, how in changes.items() if how != SAME), *own, *changes]
    names = list(dict.fromkeys(names))[:MOST_ROWS]
    if not names:
        return None
    columns = [{"label": "Feature", "numeric": False, "after": False}]
    columns += [{"label": "Now", "numeric": False, "after": False}] if own else []
    columns += [{"label": _capital(where), "numeric": False, "after": True}] if changes else []
    columns += [{"label": f"Adds to the change{heading_unit(unit)}", "numeric": True, "after": False}] if share else []
    rows = []
    for name in names:
        how = changes.get(name)
        words = [name]
        words += [shown(own.get(name)) if name in own else "-"] if own else []
        words += [_then(how, own, before.get(name), after.get(name), spans.get(name))] if changes else []
        words += [adds.get(name, "-")] if share else []
        rows.append([how is not None and how != SAME, *words])
    return {"columns": columns, "rows": rows}


def change(before: Any, after: Any, span: Span | None = None) -> str:
    """Return how a value changes, without saying what it is; the `span` of its column says whether the way tells it.

    Example:
        >>> change(3, 3.2), change(3, 3.0000001), change("nurse", "smith"), change(0, 0.4, Span(0, 1, True))
        ('higher', 'the same', 'another', 'changes')
    """
    if not _is_number(before) or not _is_number(after):
        return SAME if before == after or (before is None and _missing(after)) else OTHER
    if math.isclose(before, after, rel_tol=1e-4, abs_tol=1e-9) or (math.isnan(before) and math.isnan(after)):
        return SAME
    told = span is not None and (span.tells or before in (span.low, span.high))
    if told or math.isnan(before) or math.isnan(after):
        return CHANGES
    return "higher" if after > before else "lower"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _moved(how: str, before: Any, adds: str | None) -> str:
    """Return how a value changes where the shares of a category move and the likeliest one stays: that adds, too."""
    return PARTLY if how == SAME and not _is_number(before) and (adds or "").strip("+-0.") else how


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _then(how: str | None, own: Row, before: Any, after: Any, span: Span | None) -> str:
    if how is None:
        return "-"
    if not own:
        return how
    if how in (SAME, PARTLY):
        return shown(before) if how == SAME else f"{shown(before)}, {PARTLY}"
    side = int(span.outside(np.array(after))) if span is not None and _is_number(after) else 0
    return f"{shown(_rounded(after))}{_SIDES[side]}"


def _rounded(value: Any) -> Any:
    """Return a number that was worked out with the digits it deserves."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return f"{value:.2f}" if abs(value) >= 1000 else f"{value:.4g}"


def _card_notes(
    result: AuditResult, person: FlaggedPerson, own: Row, before: Row, features: dict[str, Any] | None
) -> list[str]:
    notes, words = [], [str(word) for row in (features or {"rows": []})["rows"] for word in row[1:]]
    if result.features.effect is not None and not person.features:
        notes.append("What each feature adds was not worked out for this person.")
    if not own and before:
        notes.append("The values themselves are not on this page.")
    if any(word.endswith(PARTLY) for word in words):
        notes.append("Partly another: categories move as shares, and the likeliest one stays the same.")
    if any(word.endswith((_SIDES[-1], _SIDES[1])) for word in words):
        notes.append("Nobody in the table has such a value: take it for the way this goes, not for a person.")
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
