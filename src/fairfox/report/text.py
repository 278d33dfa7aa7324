"""Words and numbers as people read them: amounts in their unit, shares, counts, lists."""

from __future__ import annotations

import math
from collections.abc import Sequence


def amount(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number as people read it: probabilities in points, anything else with three digits.

    Example:
        >>> amount(0.05, "probability"), amount(0.12345, "logit", sign=True)
        ('5 points', '+0.123')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if "probability" not in unit:
        return number(value, sign=sign)
    points = 100 * value
    digits = f"{points:+.1f}" if abs(points) >= 0.1 else f"{points:+.1g}"
    shown = _trimmed(digits, sign=sign)
    return f"{shown} {'point' if shown.lstrip('+-') == '1' else 'points'}"


def cell(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number for a column whose heading ends with `heading_unit`; a dash where there is none.

    Example:
        >>> cell(0.05, "probability"), cell(5975.2, "value"), cell(None, "value")
        ('5.0', '5,975', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    plus = "+" if sign else ""
    return f"{100 * value:{plus}.1f}" if "probability" in unit else number(value, sign=sign)


def unit_words(unit: str) -> str:
    """Return the unit as people read it: probabilities are in points."""
    return unit.replace("(probability)", "(points)")


def heading_unit(unit: str) -> str:
    """Return " (points)" where the cells of a column are in points."""
    return " (points)" if "probability" in unit else ""


def number(value: float | None, *, sign: bool = False) -> str:
    """Return a number with three digits, or without decimals from a thousand on."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return _trimmed(f"{value:+,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:+.3g}", sign=sign)


def percent(share: float | None) -> str:
    """Return a share as a percentage with one digit."""
    return "unknown" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def people(count: int) -> str:
    """Return "1 person" or "1,234 people"."""
    return "1 person" if count == 1 else f"{count:,} people"


def megabytes(size: int) -> str:
    """Return a size in words."""
    return f"{size / 2**20:,.0f} MB"


def listed(words: Sequence[str], last: str) -> str:
    """Return words as a list is spoken.

    Example:
        >>> listed(["sex", "race", "age"], "or")
        'sex, race or age'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def ended(sentence: str) -> str:
    """Return a sentence that ends once."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _trimmed(digits: str, *, sign: bool) -> str:
    digits = digits.removesuffix(".0")
    bare = float(digits.replace(",", "")) == 0 or (digits[0] == "+" and not sign)
    return digits[1:] if bare else digits
