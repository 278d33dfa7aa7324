"""Bank Marketing: which clients of a Portuguese bank subscribe a deposit after a call (UCI, Moro et al. 2014)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import narwhals as nw
import pyarrow as pa

from fairfox.data.cache import Remote
from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns
from fairfox.errors import FileError

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

LABEL = "y"
UNKNOWN = "unknown"
# UCI has the table in an archive within an archive. The sum of the outer one cannot be computed from the table: it is
# the one that many public projects check. The table in it has the sum 74adfc578bf7... as the copies of it have.
FILES = (
    DataFile(
        ("bank-additional-full.csv", "bank-additional-full.csv.gz"),
        Remote(
            "bank+marketing.zip",
            "https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
            "e0bf5f5de5b846e2f18e9d90606637267d46dfa260e0f17bb12e605db5efbeb4",
        ),
    ),
)
_INNER, _MEMBER = "bank-additional.zip", "bank-additional/bank-additional-full.csv"
_COLUMNS = {
    "age": pa.int64(),
    **dict.fromkeys(("job", "marital", "education", "default", "housing", "loan"), pa.string()),
    **dict.fromkeys(("contact", "month", "day_of_week"), pa.string()),
    **dict.fromkeys(("duration", "campaign", "pdays", "previous"), pa.int64()),
    "poutcome": pa.string(),
    **dict.fromkeys(("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"), pa.float64()),
    LABEL: pa.string(),
}


def load_bank(*, duration: bool = True, complete: bool = False, protected: str | Sequence[str] = "age>=25") -> Dataset:
    """Return the bank's clients, encoded: y is 1 for a deposit, c is 1 for age 25 and above; age is no feature.

    For: the paper's table of age, with few people in one group and no proxy as sharp as Adult's.

    What is wrong with it: `duration` of the call is known only when the outcome is, so no model could use it in
    practice; the paper's models do, and so it stays unless you drop it. The rates and indices (euribor3m and others)
    are those of the day, the same for everyone called then. `pdays` is 999 for never contacted before. Only 1 068
    people, 2.6 %, are under 25. Which side of the cut 25 falls on the paper does not say; here the older. Others
    (AIF360) take 25 to 59 as one group, and drop people with an "unknown".

    Args:
        duration: whether the column `duration` stays among the features.
        complete: only the 30 488 people without "unknown"; otherwise it is a category like others, and all 41 188 stay.
        protected: columns, or cuts through one; a column read for it is no feature.
    """
    table = bank_table(complete=complete)
    return encode_people(table, protected=protected, label=LABEL, drop=[] if duration else ["duration"])


def bank_table(*, complete: bool = False) -> nw.DataFrame[Any]:
    """Return the bank's clients as a table in its own units, in the order of their calls; see `load_bank`."""
    path = fetch_file(FILES[0])
    source: Path | IO[bytes] = _unpacked(path) if path.suffix == ".zip" else path
    table: nw.DataFrame[Any] = nw.from_native(read_columns(source, _COLUMNS, delimiter=";"), eager_only=True)
    if complete:
        texts = [name for name, kind in _COLUMNS.items() if kind == pa.string()]
        table = table.filter(~nw.any_horizontal(*(nw.col(name) == UNKNOWN for name in texts), ignore_nulls=False))
    return table


def _unpacked(archive: Path) -> IO[bytes]:
    """Return the table within UCI's archive."""
    try:
        with ZipFile(archive) as outer, ZipFile(io.BytesIO(outer.read(_INNER))) as inner:
            return io.BytesIO(inner.read(_MEMBER))
    except (BadZipFile, KeyError, OSError) as error:
        raise FileError(
            f"'{archive}' has no '{_MEMBER}' in a '{_INNER}' ({error}); give UCI's archive, or the table itself"
        ) from error
