"""Law school: students in the US who took the bar exam, who began in 1991 (LSAC, as in Kusner et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns, with_column
from fairfox.errors import DataError, OptionError

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

# Copies of the file differ in how numbers are written, so no public one has a checksum we could give.
FILES = (
    DataFile(
        ("law_data.csv", "law_data.csv.gz"),
        by_hand="get it from https://github.com/mkusner/counterfactual-fairness or out of the package ethik (0.0.2)",
    ),
)
OUTCOMES = ("first_pf", "ZFYA")
_SEX = {1: "Female", 2: "Male"}  # as the code of Kusner et al. reads it
_COLUMNS = {
    "race": pa.string(),
    "sex": pa.int64(),
    "LSAT": pa.float64(),
    "UGPA": pa.float64(),
    "region_first": pa.string(),
    "ZFYA": pa.float64(),
    "sander_index": pa.float64(),
    "first_pf": pa.float64(),
}


def load_law_school(*, label: str = "first_pf", protected: str | Sequence[str] = "race=White") -> Dataset:
    """Return 21 791 law students, encoded: y is 1 for the bar exam passed at once (19 360), c is 1 for White.

    For: counterfactual fairness (Kusner et al. 2017), few columns and a known story of what causes what.

    What is wrong with it: only students who were admitted, stayed and took the exam are in it, so what is seen among
    them is not what admission would find. Nine of ten pass. The words for sex are those of Kusner et al.'s code, not
    of a codebook. `sander_index` is LSAT / 80 + UGPA * 2 / 21 and says nothing new, so it is no feature; nor is the
    other outcome. Six of the eight groups of race are under 5 %.

    Args:
        label: "first_pf", or "ZFYA", the standardised average of the first year, a number.
        protected: columns, or cuts through one: "race" for all eight groups, "sex", ("race=Black", "sex").
    """
    if label not in OUTCOMES:
        raise OptionError(f"The label '{label}' is none of {', '.join(OUTCOMES)}; give one of them")
    drop = ["sander_index", *(name for name in OUTCOMES if name != label)]
    return encode_people(law_school_table(), protected=protected, label=label, drop=drop)


def law_school_table() -> nw.DataFrame[Any]:
    """Return the law students as a table in its own units; see `load_law_school`."""
    path = fetch_file(FILES[0])
    table = read_columns(path, _COLUMNS)
    codes = table["sex"].to_pylist()
    strange = next((code for code in codes if code not in _SEX), None)
    if strange is not None or None in codes:
        raise DataError(f"'{path}' has the sex {strange}; expected 1 or 2: give the file as it was published")
    return nw.from_native(with_column(table, "sex", [_SEX[code] for code in codes]), eager_only=True)
