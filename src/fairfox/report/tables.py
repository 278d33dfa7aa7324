"""Tables as pages show them: headings and ready words, nothing left to work out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Table = dict[str, Any]  # columns: [{label, numeric}], rows: [[word, ...]], marked: [[row, column], ...]


def make_table(
    words: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]], *, marked: Sequence[Sequence[int]] = ()
) -> Table:
    """Return a table whose first columns are words and whose others are numbers.

    Example:
        >>> make_table(["Group"], ["People"], [["sex=Female", "19"]])["rows"]
        [['sex=Female', '19']]
    """
    columns = [{"label": label, "numeric": False} for label in words]
    columns += [{"label": label, "numeric": True} for label in numbers]
    return {"columns": columns, "rows": [list(row) for row in rows], "marked": [list(place) for place in marked]}


def count(number: int) -> str:
    """Return a number of people as it stands in a table.

    Example:
        >>> count(12345)
        '12,345'
    """
    return f"{number:,}"
