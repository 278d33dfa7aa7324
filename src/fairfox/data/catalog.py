"""The public datasets fairfox knows: their files and columns, what each is for and what is wrong with it.

`fairfox.data.datasets` has their loaders. The list alone needs neither torch nor pandas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from fairfox.data.files import DataFile, data_home, find_file
from fairfox.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class PublicDataset:
    """A public dataset: its loader and files, what it is for and what is wrong with it."""

    loader: str
    files: tuple[DataFile, ...]
    columns: Mapping[str, pa.DataType]  # that are read, in the order of the files
    people: str
    purpose: str
    trouble: str
    bundled: bool = False  # scikit-learn has it too

    @property
    def availability(self) -> str:
        """Where it is, or how to get it."""
        places = [find_file(file) for file in self.files]
        if all(places):
            home = data_home()
            return "in FAIRFOX_DATA" if all(place and place.parent == home for place in places) else "in the cache"
        if self.bundled:
            return "with scikit-learn"
        return "can be downloaded" if all(file.address for file in self.files) else "to be got by hand"


def find_dataset(name: str) -> PublicDataset:
    """Return the dataset of this name, or raise an OptionError that suggests the closest one."""
    if name not in DATASETS:
        raise OptionError(f"There is no dataset '{name}'.{did_you_mean(name, list(DATASETS))}")
    return DATASETS[name]


# --- the files, and the columns that are read of them --------------------------------------------------------------

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

# The checksums are those of the gzipped copies' content, which has UCI's bytes: others publish the same two sums.
ADULT = (
    DataFile(
        ("adult.data", "adult.data.gz"),
        f"{_UCI}/adult/adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
    DataFile(
        ("adult.test", "adult.test.gz"),
        f"{_UCI}/adult/adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ),
)
_ADULT_COLUMNS = {
    "age": _WHOLE,
    "workclass": _TEXT,
    "fnlwgt": _WHOLE,
    "education": _TEXT,
    "education-num": _WHOLE,
    **dict.fromkeys(("marital-status", "occupation", "relationship", "race", "sex"), _TEXT),
    **dict.fromkeys(("capital-gain", "capital-loss", "hours-per-week"), _WHOLE),
    "native-country": _TEXT,
    "income-per-year": _TEXT,
}

# UCI has the table in an archive within an archive. The sum of the outer one cannot be computed from the table: it is
# the one that many public projects check. The table in it has the sum 74adfc578bf7... as the copies of it have.
BANK = (
    DataFile(
        ("bank+marketing.zip", "bank-additional-full.csv", "bank-additional-full.csv.gz"),
        "https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
        "e0bf5f5de5b846e2f18e9d90606637267d46dfa260e0f17bb12e605db5efbeb4",
    ),
)
_BANK_COLUMNS = {
    "age": _WHOLE,
    **dict.fromkeys(("job", "marital", "education", "default", "housing", "loan"), _TEXT),
    **dict.fromkeys(("contact", "month", "day_of_week"), _TEXT),
    **dict.fromkeys(("duration", "campaign", "pdays", "previous"), _WHOLE),
    "poutcome": _TEXT,
    **dict.fromkeys(("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"), _NUMBER),
    "y": _TEXT,
}

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
_CHICAGO_COLUMNS = {
    "SSL SCORE": _NUMBER,
    "PREDICTOR RAT AGE AT LATEST ARREST": _TEXT,
    **{
        f"PREDICTOR RAT {what}": _NUMBER
        for what in (
            *("VICTIM SHOOTING INCIDENTS", "VICTIM BATTERY OR ASSAULT", "ARRESTS VIOLENT OFFENSES"),
            *("GANG AFFILIATION", "NARCOTIC ARRESTS", "TREND IN CRIMINAL ACTIVITY", "UUW ARRESTS"),
        )
    },
    "SEX CODE CD": _TEXT,
    "RACE CODE CD": _TEXT,
}

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
_COMPAS_COLUMNS = {
    "sex": _TEXT,
    "age": _WHOLE,
    **dict.fromkeys(("age_cat", "race"), _TEXT),
    **dict.fromkeys(("juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"), _WHOLE),
    "c_charge_degree": _TEXT,
    "decile_score": _WHOLE,
    "score_text": _TEXT,
    "two_year_recid": _WHOLE,
    **{"days_b_screening_arrest": _NUMBER, "is_recid": _WHOLE},  # only to choose people by
}

# The checksum is that of a gzipped copy's content, which has UCI's bytes: others publish the same sum.
GERMAN = (
    DataFile(
        ("german.data", "german.data.gz"),
        f"{_UCI}/statlog/german/german.data",
        "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
    ),
)
# Columns in the file's order; numbers are numbers, codes are followed by what UCI's description says they mean.
GERMAN_CODES: dict[str, dict[str, str] | None] = {
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
    "personal_status": {
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
    "class": {"1": "good", "2": "bad"},
}
_GERMAN_COLUMNS = {name: _WHOLE if words is None else _TEXT for name, words in GERMAN_CODES.items()}

# Copies of the file differ in how numbers are written, so no public one has a checksum we could give.
LAW = (
    DataFile(
        ("law_data.csv", "law_data.csv.gz"),
        by_hand="get it from https://github.com/mkusner/counterfactual-fairness or out of the package ethik (0.0.2)",
    ),
)
_LAW_COLUMNS = {
    "race": _TEXT,
    "sex": _WHOLE,
    **dict.fromkeys(("LSAT", "UGPA"), _NUMBER),
    "region_first": _TEXT,
    **dict.fromkeys(("ZFYA", "sander_index", "first_pf"), _NUMBER),
}


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
_MEASURED = (
    *("Radius", "Texture", "Perimeter", "Area", "Smoothness"),
    *("Compactness", "Concavity", "Concave_points", "Symmetry", "Fractal_dimension"),
)
_PMLB_COLUMNS = {
    "backache": ("id", "col_4", "col_5", "col_6", "col_7", "col_8"),
    "credit": (
        *("duration", "credit_amount", "installment_commitment", "residence_since", "age", "existing_credits"),
        "num_dependents",
    ),
    "australian": ("A2", "A3", "A7", "A10", "A13", "A14"),
    "wdbc": tuple(f"{name}{which}" for which in (1, 2, 3) for name in _MEASURED),  # mean, standard error, worst
    "magic": ("FLength", "FWidth", "FSize", "FConc", "FConc1", "FAsym", "FM3Long", "FM3Trans", "FAlpha", "FDist"),
}

# --- the list -------------------------------------------------------------------------------------------------------

_BENCHMARK = "columns and label for generated biased data"

DATASETS: dict[str, PublicDataset] = {
    "adult": PublicDataset(
        "load_adult",
        ADULT,
        _ADULT_COLUMNS,
        "48,842 people of a US census survey (45,222 without gaps)",
        "income above 50,000 dollars, protected sex; the paper's first real table",
        "the threshold is that of 1994 and lies high, most of all for women; husband and wife name the sex",
    ),
    "bank": PublicDataset(
        "load_bank",
        BANK,
        _BANK_COLUMNS,
        "41,188 clients of a Portuguese bank, 1,068 of them under 25",
        "who subscribes a deposit, protected age >= 25; the paper's third real table",
        "the duration of the call is known only after the outcome; the young are 2.6 %",
    ),
    "chicago": PublicDataset(
        "load_chicago_ssl",
        CHICAGO,
        _CHICAGO_COLUMNS,
        "about 398,000 people arrested in Chicago, with the police's score",
        "the Strategic Subject List, protected race; the paper's second real table",
        "the label is the police's own score, the predictors are contacts with the police",
    ),
    "compas": PublicDataset(
        "load_compas",
        COMPAS,
        _COMPAS_COLUMNS,
        "7,214 defendants in Broward County (6,172 as ProPublica filters them)",
        "arrested again within two years, protected race",
        "an arrest is not a crime; the two years were applied to those arrested again only",
    ),
    "german": PublicDataset(
        "load_german",
        GERMAN,
        _GERMAN_COLUMNS,
        "1,000 applicants for credit in Germany, 1973 to 1975",
        "good or bad credit, protected sex or age",
        "sex is folded into marital status, and UCI's words for the codes are partly wrong",
    ),
    "law": PublicDataset(
        "load_law_school",
        LAW,
        _LAW_COLUMNS,
        "21,791 law students in the US, who began in 1991",
        "bar exam passed at the first attempt, or first-year grades; protected race or sex",
        "only students who took the exam; the admission that came before is a selection",
    ),
    "backache": PublicDataset(
        "load_backache",
        (BACKACHE,),
        dict.fromkeys(_PMLB_COLUMNS["backache"], _NUMBER),
        *("180 women in pregnancy", _BENCHMARK, "no protected variable; one column only numbers the rows"),
    ),
    "credit": PublicDataset(
        "load_credit",
        (CREDIT,),
        dict.fromkeys(_PMLB_COLUMNS["credit"], _NUMBER),
        *("the 1,000 applicants of german, seven numbers", _BENCHMARK, "no protected variable is kept"),
    ),
    "australian": PublicDataset(
        "load_australian",
        (AUSTRALIAN,),
        dict.fromkeys(_PMLB_COLUMNS["australian"], _NUMBER),
        *("690 applicants for credit cards", _BENCHMARK, "no protected variable; the columns have no names"),
    ),
    "wdbc": PublicDataset(
        "load_wdbc",
        (WDBC,),
        dict.fromkeys(_PMLB_COLUMNS["wdbc"], _NUMBER),
        *("569 breast tumours", _BENCHMARK, "no people and no protected variable"),
        bundled=True,
    ),
    "magic": PublicDataset(
        "load_magic",
        (MAGIC,),
        dict.fromkeys(_PMLB_COLUMNS["magic"], _NUMBER),
        *("19,020 showers seen by a telescope", _BENCHMARK, "simulated; no people and no protected variable"),
    ),
}
