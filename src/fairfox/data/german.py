"""German credit: applicants for credit at a bank in southern Germany, and whether the credit went well (UCI)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from fairfox.data.cache import Remote
from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns, with_column
from fairfox.errors import DataError

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

LABEL, STATUS, SEX = "class", "personal_status", "sex"
# The checksum is that of a gzipped copy's content, which has UCI's bytes: others publish the same sum.
FILES = (
    DataFile(
        ("german.data", "german.data.gz"),
        Remote(
            "german.data",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/german/german.data",
            "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
        ),
    ),
)
# Columns in the file's order; numbers are numbers, codes are followed by what UCI's description says they mean.
_COLUMNS: dict[str, dict[str, str] | None] = {
    "checking_status": {"A11": "<0", "A12": "0 to 200", "A13": ">=200", "A14": "no account"},
    "duration": None,
    "credit_history": {
        "A30": "none taken or all paid",
        "A31": "all paid at this bank",
        "A32": "paid till now",
        "A33": "delays in the past",
        "A34": "critical or others elsewhere",
    },
    "purpose": {
        **{"A40": "new car", "A41": "used car", "A42": "furniture", "A43": "radio or television"},
        **{"A44": "appliances", "A45": "repairs", "A46": "education", "A47": "vacation", "A48": "retraining"},
        **{"A49": "business", "A410": "others"},
    },
    "credit_amount": None,
    "savings_status": {"A61": "<100", "A62": "100 to 500", "A63": "500 to 1000", "A64": ">=1000", "A65": "unknown"},
    "employment": {"A71": "unemployed", "A72": "<1 year", "A73": "1 to 4", "A74": "4 to 7", "A75": ">=7 years"},
    "installment_rate": None,
    STATUS: {
        "A91": "male, divorced or separated",
        "A92": "female, divorced, separated or married",
        "A93": "male, single",
        "A94": "male, married or widowed",
        "A95": "female, single",
    },
    "other_debtors": {"A101": "nobody", "A102": "co-applicant", "A103": "guarantor"},
    "residence_since": None,
    "property": {"A121": "real estate", "A122": "life insurance", "A123": "car or other", "A124": "unknown"},
    "age": None,
    "other_plans": {"A141": "bank", "A142": "stores", "A143": "no others"},
    "housing": {"A151": "rent", "A152": "own", "A153": "for free"},
    "existing_credits": None,
    "job": {
        "A171": "unskilled, not resident",
        "A172": "unskilled, resident",
        "A173": "skilled",
        "A174": "management or self-employed",
    },
    "dependents": None,
    "telephone": {"A191": "no", "A192": "yes"},
    "foreign_worker": {"A201": "yes", "A202": "no"},
    LABEL: {"1": "good", "2": "bad"},
}


def load_german(*, protected: str | Sequence[str] = SEX) -> Dataset:
    """Return 1 000 applicants, encoded: y is 1 for a good credit (700), c is sex (female 310 as 0, male 690 as 1).

    For: a small table for trying things out; the credit table of most papers on fairness.

    What is wrong with it: sex is folded into marital status, and according to Groemping (2019) the code read as
    "female, divorced, separated or married" also holds single men, so that sex is not really known; several other
    codes have wrong words in UCI's description, which are the words here. The data are from 1973 to 1975, of people
    who got a credit, and bad credits are far more than the bank had. `personal_status` would tell sex and is no
    feature here; `german_table` has it.

    Args:
        protected: columns, or cuts through one: "age<=25", ("sex", "age<=25").
    """
    return encode_people(german_table(), protected=protected, label=LABEL, drop=[STATUS])


def german_table() -> nw.DataFrame[Any]:
    """Return the applicants as a table: amounts in marks, codes in words, `sex` as a column; see `load_german`."""
    path = fetch_file(FILES[0])
    kinds = {name: pa.int64() if words is None else pa.string() for name, words in _COLUMNS.items()}
    table = read_columns(path, kinds, header=False, delimiter=" ")
    for name, words in _COLUMNS.items():
        if words is not None:
            table = with_column(table, name, _in_words(table[name].to_pylist(), words, name, path))
    sexes = [status.partition(",")[0] for status in table[STATUS].to_pylist()]
    place = table.column_names.index(STATUS)
    return nw.from_native(table.add_column(place, SEX, pa.array(sexes)), eager_only=True)


def _in_words(codes: list[str], words: dict[str, str], name: str, path: Path) -> list[str]:
    strange = next((code for code in codes if code not in words), None)
    if strange is not None:
        raise DataError(f"'{path}' has the code '{strange}' for {name}; expected one of {', '.join(words)}")
    return [words[code] for code in codes]
