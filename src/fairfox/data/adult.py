"""Adult: who earns more than 50 000 dollars a year, from a US census survey of 1994 (UCI)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from fairfox.data.cache import Remote
from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns, with_column

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

LABEL = "income-per-year"
WEIGHT = "fnlwgt"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
# The checksums are those of the gzipped copies' content, which has UCI's bytes: others publish the same two sums.
FILES = (
    DataFile(
        ("adult.data", "adult.data.gz"),
        Remote("adult.data", f"{_UCI}adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ),
    DataFile(
        ("adult.test", "adult.test.gz"),
        Remote("adult.test", f"{_UCI}adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ),
)
_COLUMNS = {
    "age": pa.int64(),
    "workclass": pa.string(),
    WEIGHT: pa.int64(),
    "education": pa.string(),
    "education-num": pa.int64(),
    "marital-status": pa.string(),
    "occupation": pa.string(),
    "relationship": pa.string(),
    "race": pa.string(),
    "sex": pa.string(),
    "capital-gain": pa.int64(),
    "capital-loss": pa.int64(),
    "hours-per-week": pa.int64(),
    "native-country": pa.string(),
    LABEL: pa.string(),
}


def load_adult(*, relationship: bool = True, complete: bool = True, protected: str | Sequence[str] = "sex") -> Dataset:
    """Return the people of Adult, encoded: y is 1 for an income above 50 000 dollars, c is sex (Female 0, Male 1).

    For: the most used table of fairness research, so that numbers can be compared; the paper's first real one.

    What is wrong with it: in 1994 three of four people, and nine of ten women, earned less than the threshold of 50 000
    dollars, and how large gaps are depends on where it stands (Ding et al. 2021). Capital gains are cut at 99 999.
    `relationship` says husband or wife, and thereby the sex of nearly every second person: a model may use it to hide
    sex, or to make up for it. Values are not missing at random. Each row stands for `fnlwgt` people, a weight of the
    survey and nothing about the person, so it is no feature. `education` and `education-num` say the same twice; both
    stay, as elsewhere.

    Args:
        relationship: whether the column `relationship` stays among the features.
        complete: only the 45 222 people without missing values; otherwise all 48 842.
        protected: columns, or cuts through one: ("sex", "race"), "age<25".
    """
    drop = [WEIGHT] if relationship else [WEIGHT, "relationship"]
    return encode_people(adult_table(complete=complete), protected=protected, label=LABEL, drop=drop)


def adult_table(*, complete: bool = True) -> nw.DataFrame[Any]:
    """Return Adult as a table in its own units, UCI's training rows before its test rows; see `load_adult`."""
    train, test = (fetch_file(file) for file in FILES)
    missing = ("?", " ?")
    parts = [
        read_columns(train, _COLUMNS, header=False, missing=missing),
        read_columns(test, _COLUMNS, header=False, missing=missing, skip=1),  # the first line is a comment
    ]
    table = pa.concat_tables(parts).combine_chunks()
    for name, kind in _COLUMNS.items():
        if kind == pa.string():
            table = with_column(table, name, pc.utf8_trim_whitespace(table[name]))
    table = with_column(table, LABEL, pc.utf8_rtrim(table[LABEL], "."))  # labels of the test rows end in a full stop
    return nw.from_native(table.drop_null() if complete else table, eager_only=True)
