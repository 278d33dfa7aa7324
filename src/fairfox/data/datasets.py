"""Loaders of the public datasets: `load_*` returns encoded people, `*_table` the table in its own units.

`fairfox.data.catalog` lists them, with their files.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fairfox.data.catalog import DATASETS
from fairfox.data.dataset import Dataset
from fairfox.data.encoding import fit_encoding
from fairfox.data.files import fetch_file, find_file
from fairfox.data.table import Table
from fairfox.errors import ColumnError, DataError, FileError, OptionError, first_line

_log = logging.getLogger("fairfox")

ADULT_LABEL, ADULT_WEIGHT = "income-per-year", "fnlwgt"
CHICAGO_SCORE, CHICAGO_HIGH = "SSL SCORE", "SSL SCORE is high"
CHICAGO_SEX, CHICAGO_RACE = "SEX CODE CD", "RACE CODE CD"
CHICAGO_PREDICTORS = tuple(name for name in DATASETS["chicago"].columns if name.startswith("PREDICTOR"))
CHICAGO_AGE = CHICAGO_PREDICTORS[0]
COMPAS_LABEL = "two_year_recid"
GERMAN_LABEL, GERMAN_STATUS, GERMAN_SEX = "class", "personal_status", "sex"
LAW_OUTCOMES = ("first_pf", "ZFYA")
_BANK_ARCHIVE, _BANK_MEMBER = "bank-additional.zip", "bank-additional/bank-additional-full.csv"


# --- real tables ----------------------------------------------------------------------------------------------------


def load_adult(*, relationship: bool = True, complete: bool = True, protected: str | Sequence[str] = "sex") -> Dataset:
    """Return the people of Adult, encoded: y is 1 for an income above 50 000 dollars, c is sex (Female 0, Male 1).

    For: the most used table of fairness research, so that numbers can be compared; the paper's first real one.

    What is wrong with it: in 1994 three of four people, and nine of ten women, earned less than 50 000 dollars. The
    size of gaps depends on that threshold (Ding et al. 2021). Capital gains are capped at 99 999. `relationship` says
    husband or wife, and so reveals the sex of nearly every second person: a model may use it to hide sex, or to
    compensate. Values are not missing at random. Each row stands for `fnlwgt` people; this survey weight says nothing
    about the person, so it is not a feature. `education` and `education-num` are the same information; both stay, as
    elsewhere.

    Args:
        relationship: whether the column `relationship` stays among the features.
        complete: only the 45 222 people without missing values; otherwise all 48 842.
        protected: columns, or cuts through one: ("sex", "race"), "age<25".
    """
    drop = [ADULT_WEIGHT] if relationship else [ADULT_WEIGHT, "relationship"]
    return encode_people(adult_table(complete=complete), protected=protected, label=ADULT_LABEL, drop=drop)


def adult_table(*, complete: bool = True) -> Table:
    """Return Adult as a table in its own units, UCI's training rows before its test rows; see `load_adult`."""
    paths = [fetch_file(file) for file in DATASETS["adult"].files]
    parts = [
        read_columns(path, "adult", header=False, missing=("?", " ?"), skip=skip)
        for skip, path in enumerate(paths)  # the first line of the test rows is a comment
    ]
    table = pa.concat_tables(parts).combine_chunks()
    table = table.drop_null() if complete else table
    people: Table = nw.from_native(table, eager_only=True).with_columns(nw.selectors.string().str.strip_chars())
    return people.with_columns(nw.col(ADULT_LABEL).str.strip_chars("."))  # those of the test rows end in a full stop


def load_bank(*, duration: bool = True, complete: bool = False, protected: str | Sequence[str] = "age>=25") -> Dataset:
    """Return the bank's clients, encoded: y is 1 for a deposit, c is 1 for age 25 and above; age is no feature.

    For: the paper's table of age, with few people in one group and no proxy as sharp as Adult's.

    What is wrong with it: `duration` of the call is known only when the outcome is, so no model could use it in
    practice. The paper's models do, so it stays unless you drop it. The rates and indices (euribor3m and others) are
    those of the day, the same for everyone called then. `pdays` is 999 for never contacted before. Only 1 068 people,
    2.6 %, are under 25. The paper does not say on which side of the cut age 25 falls; here it is the older group.
    Others (AIF360) take 25 to 59 as one group, and drop people with an "unknown".

    Args:
        duration: whether the column `duration` stays among the features.
        complete: only the 30 488 people without "unknown"; otherwise it is a category like others, and all 41 188 stay.
        protected: columns, or cuts through one; a column read for it is no feature.
    """
    table = bank_table(complete=complete)
    return encode_people(table, protected=protected, label="y", drop=[] if duration else ["duration"])


def bank_table(*, complete: bool = False) -> Table:
    """Return the bank's clients as a table in its own units, in the order of their calls; see `load_bank`."""
    source: Path | IO[bytes] = fetch_file(DATASETS["bank"].files[0])
    if isinstance(source, Path) and source.suffix == ".zip":
        try:
            with ZipFile(source) as outer, ZipFile(io.BytesIO(outer.read(_BANK_ARCHIVE))) as inner:
                source = io.BytesIO(inner.read(_BANK_MEMBER))
        except (BadZipFile, KeyError, OSError) as error:
            raise FileError(
                f"'{source}' has no '{_BANK_MEMBER}' inside '{_BANK_ARCHIVE}' ({error}); "
                "give UCI's archive or the table itself"
            ) from error
    table: Table = nw.from_native(read_columns(source, "bank", delimiter=";"), eager_only=True)
    unknown = nw.selectors.string() == "unknown"
    return table.filter(~nw.any_horizontal(unknown, ignore_nulls=False)) if complete else table


def load_chicago_ssl(
    path: str | os.PathLike[str] | None = None,
    *,
    threshold: float | None = 345.0,
    protected: str | Sequence[str] = CHICAGO_RACE,
) -> Dataset:
    """Return the Black and White people of the list, encoded: y is 1 for a high score, c is race (BLK 0, WHI 1).

    For: the policing example of the paper and of FlipTest (Black et al. 2020). The eight predictors are the features;
    the list's score followed from them, without race.

    What is wrong with it: the label is the police's own score, not anything that happened to people. The predictors
    are contacts with the police and depend on where it looks; the city stopped using the list in 2019. Ages are bands
    of ten years. People who are neither Black nor White, or have a gap, are left out. The sex of some is X.

    Args:
        path: the CSV of the Chicago Data Portal (dataset 4aki-r3np) or FlipTest's chicago-ssl-clean.csv; by default
            it is looked for in FAIRFOX_DATA.
        threshold: the score from which y is 1; None: y is the score.
        protected: RACE, SEX, or a cut through one.
    """
    table, label = chicago_ssl_table(path), CHICAGO_SCORE
    if threshold is not None:
        table, label = table.with_columns((nw.col(CHICAGO_SCORE) >= threshold).alias(CHICAGO_HIGH)), CHICAGO_HIGH
    return encode_people(table, protected=protected, label=label, columns=CHICAGO_PREDICTORS)


def chicago_ssl_table(path: str | os.PathLike[str] | None = None) -> Table:
    """Return the Black and White people of the list as a table; an age band is its first year; see `load_chicago_ssl`.

    A band "20-30" is 20, and "less than 20" is 10, as FlipTest has it.
    """
    source = fetch_file(DATASETS["chicago"].files[0]) if path is None else Path(path).expanduser()
    if not source.is_file():
        raise FileError(f"There is no file '{source}'; check the path, or {DATASETS['chicago'].files[0].by_hand}")
    read = read_columns(source, "chicago")
    known = read.filter(pc.field(CHICAGO_RACE).isin(("BLK", "WHI"))).drop_null()
    _log.info("%d of %d people on the list are Black or White and have no missing values", len(known), len(read))
    if len(known) == 0:
        raise DataError(f"'{source}' has nobody of race BLK or WHI without missing values; give the original file")
    bands = ["10-20" if band == "less than 20" else band for band in known[CHICAGO_AGE].to_pylist()]
    strange = next((band for band in bands if not band[:2].isdigit()), None)
    if strange is not None:
        raise DataError(f"'{source}' has the age '{strange}'; expected 'less than 20' or a band such as '20-30'")
    years, place = pa.array([int(band[:2]) for band in bands]), known.column_names.index(CHICAGO_AGE)
    return nw.from_native(known.set_column(place, CHICAGO_AGE, years).combine_chunks(), eager_only=True)


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
    drop = ["age_cat", "decile_score", "score_text"]
    return encode_people(compas_table(filtered=filtered), protected=protected, label=COMPAS_LABEL, drop=drop)


def compas_table(*, filtered: bool = True) -> Table:
    """Return the defendants as a table in its own units, with COMPAS's scores; see `load_compas`."""
    table: Table = nw.from_native(read_columns(fetch_file(DATASETS["compas"].files[0]), "compas"), eager_only=True)
    if filtered:
        table = table.filter(
            nw.col("days_b_screening_arrest").is_between(-30, 30),
            nw.col("is_recid") != -1,
            nw.col("c_charge_degree") != "O",
            nw.col("score_text") != "N/A",
        )
    return table.drop("days_b_screening_arrest", "is_recid")


def load_german(*, protected: str | Sequence[str] = GERMAN_SEX) -> Dataset:
    """Return 1 000 applicants, encoded: y is 1 for a good credit (700), c is sex (female 310 as 0, male 690 as 1).

    For: a small table for trying things out; the credit table of most papers on fairness.

    What is wrong with it: sex is part of marital status. According to Groemping (2019) the code for "female, divorced,
    separated or married" also covers single men, so sex is not reliable. UCI describes several other codes wrongly;
    its words are used here. The data are from 1973 to 1975 and cover only people who got a credit, with far more bad
    credits than the bank had. `personal_status` reveals sex and is not a feature here; `german_table` has it.

    Args:
        protected: columns, or cuts through one: "age<=25", ("sex", "age<=25").
    """
    return encode_people(german_table(), protected=protected, label=GERMAN_LABEL, drop=[GERMAN_STATUS])


def german_table() -> Table:
    """Return the applicants as a table: amounts in marks, codes in words, `sex` as a column; see `load_german`."""
    path = fetch_file(DATASETS["german"].files[0])
    table, columns = read_columns(path, "german", header=False, delimiter=" "), {}
    for name in DATASETS["german"].columns:
        columns[name] = table[name]
        if words := DATASETS["german"].codes.get(name):
            codes = [str(code) for code in table[name].to_pylist()]
            strange = next((code for code in codes if code not in words), None)
            if strange is not None:
                raise DataError(f"'{path}' has the code '{strange}' for {name}; expected one of {', '.join(words)}")
            values = [words[code] for code in codes]
            if name == GERMAN_STATUS:
                columns[GERMAN_SEX] = [status.partition(",")[0] for status in values]
            columns[name] = values
    return nw.from_native(pa.table(columns), eager_only=True)


def load_law_school(*, label: str = "first_pf", protected: str | Sequence[str] = "race=White") -> Dataset:
    """Return 21 791 law students, encoded: y is 1 for the bar exam passed at once (19 360), c is 1 for White.

    For: counterfactual fairness (Kusner et al. 2017), with few columns and an accepted causal story.

    What is wrong with it: only students who were admitted, stayed and took the exam are in it, so results do not carry
    over to admission. Nine of ten pass. The words for sex are those of Kusner et al.'s code, not
    of a codebook. `sander_index` is LSAT / 80 + UGPA * 2 / 21 and adds nothing, so it is not a feature; nor is the
    other outcome. Six of the eight groups of race are under 5 %.

    Args:
        label: "first_pf", or "ZFYA", the standardised average of the first year, a number.
        protected: columns, or cuts through one: "race" for all eight groups, "sex", ("race=Black", "sex").
    """
    if label not in LAW_OUTCOMES:
        raise OptionError(f"The label is '{label}'; expected one of {', '.join(LAW_OUTCOMES)}")
    drop = ["sander_index", *(name for name in LAW_OUTCOMES if name != label)]
    return encode_people(law_school_table(), protected=protected, label=label, drop=drop)


def law_school_table() -> Table:
    """Return the law students as a table in its own units; see `load_law_school`."""
    path = fetch_file(DATASETS["law"].files[0])
    table: Table = nw.from_native(read_columns(path, "law"), eager_only=True)
    sexes = {1: "Female", 2: "Male"}  # as the code of Kusner et al. reads them
    strange = [code for code in table["sex"].unique().to_list() if code not in sexes]
    if strange:
        raise DataError(f"'{path}' has the sex {strange[0]}; expected 1 or 2: give the published file")
    return table.with_columns(nw.col("sex").replace_strict(sexes, return_dtype=nw.String))


# --- benchmarks: continuous columns in their own units, and a label -------------------------------------------------


def load_backache() -> Dataset:
    """Return 180 women of a study of backache in pregnancy, six columns; y is 1 for 25 of them.

    One column, `id`, only numbers the rows: PMLB lists it as continuous, and the paper counts it.
    """
    return _load_pmlb("backache")


def load_credit() -> Dataset:
    """Return 1000 applicants for credit in Germany, seven columns; y is 1 for good (700) and 0 for bad (300)."""
    return _load_pmlb("credit")


def load_australian() -> Dataset:
    """Return 690 applicants for credit cards in Australia, six nameless columns; y is 1 for 307 of them."""
    return _load_pmlb("australian")


def load_wdbc() -> Dataset:
    """Return 569 breast tumours (Wisconsin), 30 columns about their cells; y is 1 for malignant (212).

    Where the file is not on this machine, scikit-learn has the same table: there is nothing to download.
    """
    if find_file(DATASETS["wdbc"].files[0]):
        return _load_pmlb("wdbc")
    from sklearn.datasets import load_breast_cancer

    x, benign = load_breast_cancer(return_X_y=True)
    y = 1.0 - benign  # PMLB's label: malignant; and its digits
    return Dataset.from_arrays(np.round(x, 3), None, y, names=DATASETS["wdbc"].columns)


def load_magic() -> Dataset:
    """Return 19 020 showers seen by a gamma telescope (simulated), ten columns; y is 1 for a hadron (6688)."""
    return _load_pmlb("magic")


def _load_pmlb(name: str) -> Dataset:
    path, columns = fetch_file(DATASETS[name].files[0]), DATASETS[name].columns
    table: Table = nw.from_native(read_columns(path, name, also=("target",), delimiter="\t"), eager_only=True)
    numbers = table.to_numpy().astype(np.float64)
    return Dataset.from_arrays(numbers[:, :-1], None, numbers[:, -1], names=columns)


# --- reading and encoding ------------------------------------------------------------------------------------------


def read_columns(
    source: Path | IO[bytes],
    dataset: str,
    *,
    also: Sequence[str] = (),
    header: bool = True,
    skip: int = 0,
    delimiter: str = ",",
    missing: Sequence[str] = ("",),
) -> pa.Table:
    """Return the columns of a dataset in a delimited text, gzipped or not; of two with one name the first.

    A text without a header has exactly these columns, in this order.
    """
    name = source if isinstance(source, Path) else "the file"
    columns = [*DATASETS[dataset].columns, *also]
    try:
        return pyarrow.csv.read_csv(
            str(source) if isinstance(source, Path) else source,
            pyarrow.csv.ReadOptions(skip_rows=skip, column_names=None if header else columns),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(include_columns=columns, null_values=list(missing), strings_can_be_null=True),
        )
    except pa.ArrowKeyError as error:
        raise ColumnError(f"'{name}' is not the expected file: {error.args[0]}") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise FileError(f"'{name}' cannot be read and may be damaged: {first_line(error)}") from error


def encode_people(table: Table, *, protected: str | Sequence[str], label: str, **options: Any) -> Dataset:
    """Return the people of a table as tensors: numbers standardised, categories one-hot (see `fit_encoding`)."""
    groups = [protected] if isinstance(protected, str) else protected
    return fit_encoding(table, protected=groups, label=label, **options).encode(table)
