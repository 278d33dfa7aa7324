"""The public datasets fairfox knows: their files and columns, and what each is for.

`fairfox.data.datasets` has their loaders, which say what is wrong with each. The list alone needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairfox.data.files import DataFile, data_home, find_file
from fairfox.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class PublicDataset:
    """A public dataset: its loader, which says what is wrong with it, its files, and what it is for."""

    loader: str
    files: tuple[DataFile, ...]
    columns: tuple[str, ...]  # that are read, in the order of the files
    purpose: str

    @property
    def availability(self) -> str:
        """Where it is, or how to get it."""
        places = [find_file(file) for file in self.files]
        if all(places):
            home = data_home()
            return "in FAIRFOX_DATA" if all(place and place.parent == home for place in places) else "in the cache"
        return "can be downloaded" if all(file.address for file in self.files) else "must be downloaded by hand"


def find_dataset(name: str) -> PublicDataset:
    """Return the dataset of this name, or raise an OptionError that suggests the closest one."""
    if name not in DATASETS:
        raise OptionError(f"There is no dataset '{name}'.{did_you_mean(name, list(DATASETS))}")
    return DATASETS[name]


# --- the files, and the columns that are read of them --------------------------------------------------------------


def _uci(path: str, sha256: str) -> DataFile:
    name = path.rpartition("/")[2]
    return DataFile((name, f"{name}.gz"), f"https://archive.ics.uci.edu/ml/machine-learning-databases/{path}", sha256)


# The checksums are those of the gzipped copies' content, which has UCI's bytes: others publish the same two sums.
ADULT = (
    _uci("adult/adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    _uci("adult/adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
_ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income-per-year"),
)

# UCI has the table in an archive within an archive. The sum of the outer one cannot be computed from the table: it is
# the one that many public projects check. The table in it has the sum 74adfc578bf7... as the copies of it have.
BANK = (
    DataFile(
        ("bank+marketing.zip", "bank-additional-full.csv", "bank-additional-full.csv.gz"),
        "https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
        "e0bf5f5de5b846e2f18e9d90606637267d46dfa260e0f17bb12e605db5efbeb4",
    ),
)
_BANK_COLUMNS = (
    *("age", "job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week"),
    *("duration", "campaign", "pdays", "previous", "poutcome", "emp.var.rate", "cons.price.idx", "cons.conf.idx"),
    *("euribor3m", "nr.employed", "y"),
)

# The portal writes the file anew for every download, and we have no copy of FlipTest's: no checksum can be given.
CHICAGO = (
    DataFile(
        ("chicago-ssl-clean.csv", "Strategic_Subject_List_-_Historical.csv"),
        by_hand=(
            "get the CSV of 'Strategic Subject List - Historical' (dataset 4aki-r3np) from "
            "https://data.cityofchicago.org/d/4aki-r3np, or FlipTest's cleaned form of it from "
            "https://github.com/samuel-yeom/fliptest (load_chicago_ssl also takes its path)"
        ),
    ),
)
_CHICAGO_PREDICTORS = (
    *("AGE AT LATEST ARREST", "VICTIM SHOOTING INCIDENTS", "VICTIM BATTERY OR ASSAULT", "ARRESTS VIOLENT OFFENSES"),
    *("GANG AFFILIATION", "NARCOTIC ARRESTS", "TREND IN CRIMINAL ACTIVITY", "UUW ARRESTS"),
)
_CHICAGO_COLUMNS = (
    *("SSL SCORE", *(f"PREDICTOR RAT {name}" for name in _CHICAGO_PREDICTORS), "SEX CODE CD", "RACE CODE CD"),
)

# The copy in a data home may lack names and case numbers, so the sum of ProPublica's file cannot be computed from it:
# it is the one that many public projects check at this commit.
COMPAS = (
    DataFile(
        ("compas-scores-two-years.csv", "compas-scores-two-years.csv.gz", "compas-two-years-deidentified.csv.gz"),
        "https://raw.githubusercontent.com/propublica/compas-analysis/"
        "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
        "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    ),
)
_COMPAS_COLUMNS = (
    *("sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
    *("c_charge_degree", "decile_score", "score_text", "two_year_recid"),
    *("days_b_screening_arrest", "is_recid"),  # only to choose people by
)

# The checksum is that of a gzipped copy's content, which has UCI's bytes: others publish the same sum.
GERMAN = (_uci("statlog/german/german.data", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"),)


def _codes(stem: str, *words: str, start: int = 1) -> dict[str, str]:
    return {f"{stem}{number}": word for number, word in enumerate(words, start)}


# Columns in the file's order; numbers are numbers, codes are followed by what UCI's description says they mean.
GERMAN_CODES: dict[str, dict[str, str] | None] = {
    "checking_status": _codes("A1", "<0", "0 to 200", ">=200", "no account"),
    "duration": None,
    "credit_history": _codes(
        *("A3", "none taken or all paid", "all paid at this bank", "paid till now", "delays in the past"),
        "critical or others elsewhere",
        start=0,
    ),
    "purpose": _codes(
        *("A4", "new car", "used car", "furniture", "radio or television", "appliances", "repairs", "education"),
        *("vacation", "retraining", "business", "others"),
        start=0,
    ),
    "credit_amount": None,
    "savings_status": _codes("A6", "<100", "100 to 500", "500 to 1000", ">=1000", "unknown"),
    "employment": _codes("A7", "unemployed", "<1 year", "1 to 4", "4 to 7", ">=7 years"),
    "installment_rate": None,
    "personal_status": _codes(
        *("A9", "male, divorced or separated", "female, divorced, separated or married", "male, single"),
        *("male, married or widowed", "female, single"),
    ),
    "other_debtors": _codes("A10", "nobody", "co-applicant", "guarantor"),
    "residence_since": None,
    "property": _codes("A12", "real estate", "life insurance", "car or other", "unknown"),
    "age": None,
    "other_plans": _codes("A14", "bank", "stores", "no others"),
    "housing": _codes("A15", "rent", "own", "for free"),
    "existing_credits": None,
    "job": _codes("A17", "unskilled, not resident", "unskilled, resident", "skilled", "management or self-employed"),
    "dependents": None,
    "telephone": _codes("A19", "no", "yes"),
    "foreign_worker": _codes("A20", "yes", "no"),
    "class": _codes("", "good", "bad"),
}

# Copies of the file differ in how numbers are written, so no public one has a checksum we could give.
LAW = (
    DataFile(
        ("law_data.csv", "law_data.csv.gz"),
        by_hand="get it from https://github.com/mkusner/counterfactual-fairness or from the package ethik (0.0.2)",
    ),
)
_LAW_COLUMNS = ("race", "sex", "LSAT", "UGPA", "region_first", "ZFYA", "sander_index", "first_pf")


def _pmlb(name: str, sha256: str, folder: str = "") -> DataFile:
    folder = folder or name
    address = f"https://github.com/EpistasisLab/pmlb/raw/master/datasets/{folder}/{folder}.tsv.gz"
    return DataFile((f"pmlb_{name}.tsv.gz",), address, sha256)


# Tables of the Penn Machine Learning Benchmarks, with the columns that PMLB listed as continuous in September 2020,
# when the fAux paper used them; it has retyped some since. None has a protected variable: to make biased data, one
# table gives what depends on the label, another what depends on the protected variable.
BACKACHE = _pmlb("backache", "21d506c397dfeb3edbbbc253b923f59be6edb516689677ebef535296c6c62242")
CREDIT = _pmlb("credit_g", "039c48aaf10d8ca444c2799123ff37f99c5a98402884e2df66d92cdaac09f53b", "_deprecated_credit_g")
AUSTRALIAN = _pmlb(
    "australian", "7f3e5e96b80f5217830cdd198d33b4262cbded4f7cc22981daaa5d61fdcb8329", "_deprecated_australian"
)
WDBC = _pmlb("wdbc", "a39fc5f054db506e83a4a4ec47eba1f7f9bf9bfdc983174e699312f32f42f1f5", "_deprecated_wdbc")
MAGIC = _pmlb("magic", "c823ea26d676538f9194d41f290798ff2f3fe59255c340418fd9439d8fc9c07f")
_MEASURED = (  # each as mean, standard error and worst
    *("Radius", "Texture", "Perimeter", "Area", "Smoothness"),
    *("Compactness", "Concavity", "Concave_points", "Symmetry", "Fractal_dimension"),
)
# --- the list -------------------------------------------------------------------------------------------------------

_BENCHMARK = "columns and label for generated biased data"

DATASETS: dict[str, PublicDataset] = {
    "adult": PublicDataset(
        "load_adult", ADULT, _ADULT_COLUMNS, "income above 50,000 dollars, protected sex; the paper's first real table"
    ),
    "bank": PublicDataset(
        "load_bank", BANK, _BANK_COLUMNS, "who opens a deposit, protected age >= 25; the paper's third real table"
    ),
    "chicago": PublicDataset(
        "load_chicago_ssl",
        CHICAGO,
        _CHICAGO_COLUMNS,
        "the Strategic Subject List, protected race; the paper's second real table",
    ),
    "compas": PublicDataset("load_compas", COMPAS, _COMPAS_COLUMNS, "arrested again within two years, protected race"),
    "german": PublicDataset("load_german", GERMAN, tuple(GERMAN_CODES), "good or bad credit, protected sex or age"),
    "law": PublicDataset(
        "load_law_school",
        LAW,
        _LAW_COLUMNS,
        "bar exam passed at the first attempt, or first-year grades; protected race or sex",
    ),
    "backache": PublicDataset(
        "load_backache", (BACKACHE,), ("id", "col_4", "col_5", "col_6", "col_7", "col_8"), _BENCHMARK
    ),
    "credit": PublicDataset(
        "load_credit",
        (CREDIT,),
        (
            *("duration", "credit_amount", "installment_commitment", "residence_since", "age", "existing_credits"),
            "num_dependents",
        ),
        _BENCHMARK,
    ),
    "australian": PublicDataset("load_australian", (AUSTRALIAN,), ("A2", "A3", "A7", "A10", "A13", "A14"), _BENCHMARK),
    "wdbc": PublicDataset(
        "load_wdbc", (WDBC,), tuple(f"{name}{which}" for which in (1, 2, 3) for name in _MEASURED), _BENCHMARK
    ),
    "magic": PublicDataset(
        "load_magic",
        (MAGIC,),
        ("FLength", "FWidth", "FSize", "FConc", "FConc1", "FAsym", "FM3Long", "FM3Trans", "FAlpha", "FDist"),
        _BENCHMARK,
    ),
}
