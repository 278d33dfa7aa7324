"""Words and numbers as people read them: amounts in their unit, shares, lists, tables of ready words, strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

FORMAT = 2  # of summary.json and report.json: it grows when a field changes its meaning
Table = dict[str, Any]  # columns: [{label, numeric}], rows: [[word, ...]], marked: [[row, column], ...]


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
    digits = _trimmed(f"{points:+.1f}" if abs(points) >= 0.1 else f"{points:+.1g}", sign=sign)
    return f"{digits} {'point' if digits.lstrip('+-') == '1' else 'points'}"


def cell(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number for a column whose heading ends with `heading_unit`; a dash where there is none.

    Example:
        >>> cell(0.05, "probability"), cell(5975.2, "value"), cell(None, "value")
        ('5.0', '5,975', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    return f"{100 * value:{'+' if sign else ''}.1f}" if "probability" in unit else number(value, sign=sign)


def number(value: float | None, *, sign: bool = False) -> str:
    """Return a number with three digits, or without decimals from a thousand on."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return _trimmed(f"{value:+,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:+.3g}", sign=sign)


def _trimmed(digits: str, *, sign: bool) -> str:
    digits = digits.removesuffix(".0")
    bare = float(digits.replace(",", "")) == 0 or (digits[0] == "+" and not sign)
    return digits[1:] if bare else digits


def points_per_unit(unit: str) -> float:
    """Return the factor by which numbers of a unit are shown: probabilities are in points."""
    return 100.0 if "probability" in unit else 1.0


def unit_words(unit: str) -> str:
    """Return the unit as people read it: probabilities are in points."""
    return unit.replace("(probability)", "(points)")


def heading_unit(unit: str) -> str:
    """Return " (points)" where the cells of a column are in points."""
    return " (points)" if "probability" in unit else ""


def percent(share: float | None) -> str:
    """Return a share as a percentage with one digit."""
    return "unknown" if share is None or not math.isfinite(share) else f"{100 * share:z.1f} %"


def people(count: int) -> str:
    """Return "1 person" or "1,234 people"."""
    return "1 person" if count == 1 else f"{count:,} people"


def joined(words: Sequence[str], last: str) -> str:
    """Return words with commas between them, and `last` before the last of them.

    Example:
        >>> joined(["sex", "race", "age"], "or")
        'sex, race or age'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def ended(sentence: str) -> str:
    """Return a sentence with one full stop at its end."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def capitalised(words: str) -> str:
    """Return words with a capital first letter, all else as it is."""
    return words[:1].upper() + words[1:]


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


def as_json(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def make_table(
    words: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]], *, marked: Sequence[Sequence[int]] = ()
) -> Table:
    """Return a table of ready words, whose first columns are words and whose others are numbers.

    Example:
        >>> make_table(["Group"], ["People"], [["sex=Female", "19"]])["rows"]
        [['sex=Female', '19']]
    """
    columns = [{"label": label, "numeric": False} for label in words]
    columns += [{"label": label, "numeric": True} for label in numbers]
    return {"columns": columns, "rows": [list(row) for row in rows], "marked": [list(position) for position in marked]}


def strict_json(fields: Mapping[str, Any]) -> str:
    """Return fields as strict JSON; numbers that are not finite become null.

    Example:
        >>> print(strict_json({"mean": float("nan")}))
        {
          "mean": null
        }
        <BLANKLINE>
    """
    return json.dumps(plain(dict(fields)), indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return a value as JSON's own types: numbers that are not finite become null, unknown types become text."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)
