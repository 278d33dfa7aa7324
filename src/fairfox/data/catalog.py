"""The public datasets fairfox knows: what each is for and what is wrong with it; how their files are found and read.

Loaders import from here, and are imported by name, so that the list alone needs neither them nor torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import narwhals as nw
import pyarrow as pa
import pyarrow.csv

from fairfox.data.cache import Remote, fetch, find
from fairfox.errors import ColumnError, FileError, OptionError, did_you_mean

if TYPE_CHECKING:
    from fairfox.data.dataset import Dataset

Standing = Literal["in FAIRFOX_DATA", "in the cache", "with scikit-learn", "can be downloaded", "to be got by hand"]


@dataclass(frozen=True)
class DataFile:
    """A file that a dataset is read from: its names in FAIRFOX_DATA, and where it comes from."""

    names: tuple[str, ...]  # the first that is there is taken, as it is
    remote: Remote | None = None  # None: no public file whose checksum is known
    by_hand: str = ""  # where to get it then


@dataclass(frozen=True)
class Known:
    """A public dataset: its loader, what it is for and what is wrong with it."""

    name: str
    module: str
    loader: str
    source: str  # what the module calls its files
    people: str
    purpose: str
    trouble: str
    bundled: bool = False  # scikit-learn has it too

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files it is read from."""
        found = getattr(import_module(self.module), self.source)
        remote: Remote | None = getattr(found, "remote", None)
        return tuple(found) if remote is None else (DataFile((remote.name,), remote),)

    @property
    def standing(self) -> Standing:
        """Where it is, or how to get it."""
        places = [find_file(file) for file in self.files]
        if all(places):
            home = data_home()
            at_home = home is not None and all(place and place.parent == home for place in places)
            return "in FAIRFOX_DATA" if at_home else "in the cache"
        if self.bundled:
            return "with scikit-learn"
        return "can be downloaded" if all(file.remote for file in self.files) else "to be got by hand"


def find_known(name: str) -> Known:
    """Return the dataset of this name, or raise an OptionError that suggests the closest one."""
    if name not in CATALOG:
        raise OptionError(f"There is no dataset '{name}'.{did_you_mean(name, list(CATALOG))}")
    return CATALOG[name]


# --- files ---------------------------------------------------------------------------------------------------------


def data_home() -> Path | None:
    """Return the folder FAIRFOX_DATA names, None without it; files there are taken as they are."""
    folder = os.environ.get("FAIRFOX_DATA")
    return Path(folder).expanduser() if folder else None


def find_file(file: DataFile) -> Path | None:
    """Return where the file is on this machine, or None."""
    home = data_home()
    at_home = [] if home is None else [home / name for name in file.names if (home / name).is_file()]
    if at_home:
        return at_home[0]
    return None if file.remote is None else find(file.remote)


def fetch_file(file: DataFile) -> Path:
    """Return where the file is, after downloading it to the cache where it is nowhere; else say how to get it."""
    if found := find_file(file):
        return found
    if file.remote is not None:
        return fetch(file.remote)
    raise FileError(
        f"'{file.names[0]}' is not on this machine and cannot be downloaded and checked; {file.by_hand}, and put it as "
        f"{' or '.join(repr(name) for name in file.names)} into the folder that FAIRFOX_DATA names{_now()}"
    )


def _now() -> str:
    home = data_home()
    return " (it is not set)" if home is None else f" ('{home}')"


# --- tables --------------------------------------------------------------------------------------------------------


def read_columns(
    source: Path | IO[bytes],
    columns: Mapping[str, pa.DataType],
    *,
    header: bool = True,
    skip: int = 0,
    delimiter: str = ",",
    missing: Sequence[str] = ("",),
) -> pa.Table:
    """Return these columns of a delimited text, gzipped or not; of two with one name the first.

    A text without a header has exactly these columns, in this order.
    """
    name = source if isinstance(source, Path) else getattr(source, "name", "the file")
    try:
        return pyarrow.csv.read_csv(
            str(source) if isinstance(source, Path) else source,
            pyarrow.csv.ReadOptions(skip_rows=skip, column_names=None if header else list(columns)),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict(columns),
                null_values=list(missing),
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowKeyError as error:
        raise ColumnError(f"'{name}' is not the file it should be: {error.args[0]}") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise FileError(f"'{name}' cannot be read and may be damaged: {reason}") from error


def with_column(table: pa.Table, name: str, values: Iterable[Any]) -> pa.Table:
    """Return the table with this column replaced, or added at the end."""
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(list(values))
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)


def encode_people(table: nw.DataFrame[Any], *, protected: str | Sequence[str], label: str, **options: Any) -> Dataset:
    """Return the people of a table as tensors: numbers standardised, categories one-hot (see `fit_encoding`)."""
    from fairfox.data.encode import fit_encoding

    groups = [protected] if isinstance(protected, str) else protected
    return fit_encoding(table, protected=groups, label=label, **options).encode(table)


# --- the list ------------------------------------------------------------------------------------------------------

_BENCHMARK = "columns and label for generated biased data"

CATALOG: dict[str, Known] = {
    known.name: known
    for known in (
        Known(
            *("adult", "fairfox.data.adult", "load_adult", "FILES"),
            "48,842 people of a US census survey (45,222 without gaps)",
            "income above 50,000 dollars, protected sex; the paper's first real table",
            "the threshold is that of 1994 and lies high, most of all for women; husband and wife name the sex",
        ),
        Known(
            *("bank", "fairfox.data.bank", "load_bank", "FILES"),
            "41,188 clients of a Portuguese bank, 1,068 of them under 25",
            "who subscribes a deposit, protected age >= 25; the paper's third real table",
            "the duration of the call is known only after the outcome; the young are 2.6 %",
        ),
        Known(
            *("chicago", "fairfox.data.chicago", "load_chicago_ssl", "FILES"),
            "about 398,000 people arrested in Chicago, with the police's score",
            "the Strategic Subject List, protected race; the paper's second real table",
            "the label is the police's own score, the predictors are contacts with the police",
        ),
        Known(
            *("compas", "fairfox.data.compas", "load_compas", "FILES"),
            "7,214 defendants in Broward County (6,172 as ProPublica filters them)",
            "arrested again within two years, protected race",
            "an arrest is not a crime; the two years were applied to those arrested again only",
        ),
        Known(
            *("german", "fairfox.data.german", "load_german", "FILES"),
            "1,000 applicants for credit in Germany, 1973 to 1975",
            "good or bad credit, protected sex or age",
            "sex is folded into marital status, and UCI's words for the codes are partly wrong",
        ),
        Known(
            *("law", "fairfox.data.law", "load_law_school", "FILES"),
            "21,791 law students in the US, who began in 1991",
            "bar exam passed at the first attempt, or first-year grades; protected race or sex",
            "only students who took the exam; the admission that came before is a selection",
        ),
        Known(
            *("backache", "fairfox.data.pmlb", "load_backache", "BACKACHE"),
            *("180 women in pregnancy", _BENCHMARK, "no protected variable; one column only numbers the rows"),
        ),
        Known(
            *("credit", "fairfox.data.pmlb", "load_credit", "CREDIT"),
            *("the 1,000 applicants of german, seven numbers", _BENCHMARK, "no protected variable is kept"),
        ),
        Known(
            *("australian", "fairfox.data.pmlb", "load_australian", "AUSTRALIAN"),
            *("690 applicants for credit cards", _BENCHMARK, "no protected variable; the columns have no names"),
        ),
        Known(
            *("wdbc", "fairfox.data.pmlb", "load_wdbc", "WDBC"),
            *("569 breast tumours", _BENCHMARK, "no people and no protected variable"),
            bundled=True,
        ),
        Known(
            *("magic", "fairfox.data.pmlb", "load_magic", "MAGIC"),
            *("19,020 showers seen by a telescope", _BENCHMARK, "simulated; no people and no protected variable"),
        ),
    )
}
