"""Chicago's Strategic Subject List: the police's score of who would be shot or shoot (Chicago Data Portal)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from fairfox.data.catalog import DataFile, encode_people, fetch_file, read_columns, with_column
from fairfox.errors import DataError, FileError

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

_log = logging.getLogger("fairfox")

SCORE, HIGH = "SSL SCORE", "SSL SCORE is high"
SEX, RACE = "SEX CODE CD", "RACE CODE CD"
RACES = ("BLK", "WHI")
AGE = "PREDICTOR RAT AGE AT LATEST ARREST"
PREDICTORS = (
    AGE,
    *(
        f"PREDICTOR RAT {what}"
        for what in (
            *("VICTIM SHOOTING INCIDENTS", "VICTIM BATTERY OR ASSAULT", "ARRESTS VIOLENT OFFENSES"),
            *("GANG AFFILIATION", "NARCOTIC ARRESTS", "TREND IN CRIMINAL ACTIVITY", "UUW ARRESTS"),
        )
    ),
)
# The portal writes the file anew for every download, and we have no copy of FlipTest's: no checksum can be given.
FILES = (
    DataFile(
        ("chicago-ssl-clean.csv", "Strategic_Subject_List_-_Historical.csv"),
        by_hand=(
            "get the CSV of 'Strategic Subject List - Historical' (dataset 4aki-r3np) from "
            "https://data.cityofchicago.org/d/4aki-r3np, or FlipTest's cleaned form of it from "
            "https://github.com/samuel-yeom/fliptest (load_chicago_ssl also takes its path)"
        ),
    ),
)
_COLUMNS = {
    SCORE: pa.float64(),
    **dict.fromkeys(PREDICTORS, pa.float64()),
    **dict.fromkeys((AGE, SEX, RACE), pa.string()),
}
_YOUNGEST = "less than 20"


def load_chicago_ssl(
    path: str | os.PathLike[str] | None = None,
    *,
    threshold: float | None = 345.0,
    protected: str | Sequence[str] = RACE,
) -> Dataset:
    """Return the Black and White people of the list, encoded: y is 1 for a high score, c is race (BLK 0, WHI 1).

    For: the paper's case of policing, and FlipTest's (Black et al. 2020). The eight predictors are the features; the
    list's score followed from them, without race.

    What is wrong with it: the label is the police's own score, not anything that happened to people. The predictors
    are contacts with the police and depend on where it looks; the city stopped using the list in 2019. Ages are bands
    of ten years. People who are neither Black nor White, or have a gap, are left out. The sex of some is X.

    Args:
        path: the CSV of the Chicago Data Portal (dataset 4aki-r3np) or FlipTest's chicago-ssl-clean.csv; by default
            it is looked for in FAIRFOX_DATA.
        threshold: the score from which y is 1; None: y is the score.
        protected: RACE, SEX, or a cut through one.
    """
    table = chicago_ssl_table(path)
    label = SCORE
    if threshold is not None:
        label = HIGH
        table = table.with_columns((nw.col(SCORE) >= threshold).alias(HIGH))
    return encode_people(table, protected=protected, label=label, columns=PREDICTORS)


def chicago_ssl_table(path: str | os.PathLike[str] | None = None) -> nw.DataFrame[Any]:
    """Return the Black and White people of the list as a table; an age band is its first year; see `load_chicago_ssl`.

    A band "20-30" is 20, and "less than 20" is 10, as FlipTest has it.
    """
    source = fetch_file(FILES[0]) if path is None else _given(path)
    read = read_columns(source, _COLUMNS)
    known = read.filter(pc.field(RACE).isin(RACES)).drop_null()
    _log.info("%d of %d people of the list are Black or White and without gaps", len(known), len(read))
    if len(known) == 0:
        raise DataError(f"'{source}' has nobody with the race {' or '.join(RACES)} and no gaps; give the file as it is")
    table = with_column(known, AGE, _first_years(known[AGE], source)).combine_chunks()
    return nw.from_native(table, eager_only=True)


def _given(path: str | os.PathLike[str]) -> Path:
    given = Path(path).expanduser()
    if not given.is_file():
        raise FileError(f"There is no file '{given}'; check the path, or {FILES[0].by_hand}")
    return given


def _first_years(bands: pa.ChunkedArray, source: Path) -> pa.ChunkedArray:
    """Return the first year of each age band."""
    texts = pc.if_else(pc.equal(bands, _YOUNGEST), "10-20", bands)
    try:
        return pc.utf8_slice_codeunits(texts, 0, 2).cast(pa.int64())
    except pa.ArrowInvalid as error:
        strange = next(band for band in bands.to_pylist() if band != _YOUNGEST and not band[:2].isdigit())
        raise DataError(
            f"'{source}' has the age '{strange}'; expected '{_YOUNGEST}' or a band such as '20-30'"
        ) from error
