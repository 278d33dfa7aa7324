"""COMPAS: defendants in Broward County, Florida, their scores, and who was arrested again (ProPublica 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from fairfox.data.cache import Remote
from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

LABEL = "two_year_recid"
# The copy in a data home may lack names and case numbers, so the sum of ProPublica's file cannot be computed from it:
# it is the one that many public projects check at this commit.
FILES = (
    DataFile(
        ("compas-scores-two-years.csv", "compas-scores-two-years.csv.gz", "compas-two-years-deidentified.csv.gz"),
        Remote(
            "compas-scores-two-years.csv",
            "https://raw.githubusercontent.com/propublica/compas-analysis/"
            "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
            "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
        ),
    ),
)
_SCORES = ("decile_score", "score_text")  # what COMPAS itself predicted
_READ = {
    "sex": pa.string(),
    "age": pa.int64(),
    "age_cat": pa.string(),
    "race": pa.string(),
    "juv_fel_count": pa.int64(),
    "juv_misd_count": pa.int64(),
    "juv_other_count": pa.int64(),
    "priors_count": pa.int64(),
    "c_charge_degree": pa.string(),
    "decile_score": pa.int64(),
    "score_text": pa.string(),
    LABEL: pa.int64(),
}
_FILTER = {"days_b_screening_arrest": pa.float64(), "is_recid": pa.int64()}


def load_compas(*, filtered: bool = True, protected: str | Sequence[str] = "race=African-American") -> Dataset:
    """Return the defendants, encoded: y is 1 for an arrest within two years, c is 1 for African-American.

    For: the debate about scores in court; a table in which the label itself is in doubt.

    What is wrong with it: the label is an arrest, not a crime, and arrests depend on where the police look. ProPublica
    applied the two years to people arrested again and not to the others, so that their share is too high (Barenstein
    2019). One county, 2013 and 2014; 31 people are Asian and 11 Native American, too few to judge. `age_cat` repeats
    `age`, and COMPAS's own scores are predictions: none of these is a feature here, all are in `compas_table`.

    Args:
        filtered: only the 6 172 people ProPublica kept (screened within 30 days of the arrest, no ordinary traffic
            offence, a known outcome); otherwise all 7 214.
        protected: columns, or cuts through one: "race" for all six groups, ("race", "sex").
    """
    return encode_people(compas_table(filtered=filtered), protected=protected, label=LABEL, drop=["age_cat", *_SCORES])


def compas_table(*, filtered: bool = True) -> nw.DataFrame[Any]:
    """Return the defendants as a table in its own units, with COMPAS's scores; see `load_compas`."""
    read = read_columns(fetch_file(FILES[0]), _READ | _FILTER)
    table: nw.DataFrame[Any] = nw.from_native(read, eager_only=True)
    if filtered:
        table = table.filter(
            nw.col("days_b_screening_arrest").is_between(-30, 30),
            nw.col("is_recid") != -1,
            nw.col("c_charge_degree") != "O",
            nw.col("score_text") != "N/A",
        )
    return table.select(*_READ)
