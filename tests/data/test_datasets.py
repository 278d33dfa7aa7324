"""The public datasets: real files against published counts, made-up rows in the same form, downloads, and the list."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import torch
from servers import Reply, serving

import fairfox
from fairfox.data import datasets
from fairfox.data.catalog import DATASETS
from fairfox.data.datasets import (
    ADULT_LABEL,
    CHICAGO_AGE,
    CHICAGO_PREDICTORS,
    CHICAGO_RACE,
    CHICAGO_SCORE,
    CHICAGO_SEX,
    adult_table,
    bank_table,
    chicago_ssl_table,
    compas_table,
    german_table,
    law_school_table,
    load_adult,
    load_bank,
    load_chicago_ssl,
    load_compas,
    load_german,
    load_law_school,
    load_magic,
    load_wdbc,
)
from fairfox.errors import ColumnError, DataError, FairfoxError, FileError, OptionError

REAL = ("adult", "bank", "chicago", "compas", "german", "law")


def serve(monkeypatch: pytest.MonkeyPatch, name: str, root: str, *contents: bytes) -> None:
    """Let the files of a dataset come from a server on this machine: /0, /1 and so on."""
    files = [
        replace(file, address=f"{root}/{place}", sha256=sha256(content).hexdigest())
        for place, (file, content) in enumerate(zip(DATASETS[name].files, contents, strict=True))
    ]
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], files=tuple(files)))


def columns_of(data: fairfox.Dataset) -> set[str]:
    return {feature.name for feature in data.features}


# --- the list ------------------------------------------------------------------------------------------------------


def test_every_loader_of_a_real_table_is_listed_and_public():
    public = {name for name in fairfox.__all__ if name.startswith("load_")} - {"load_model", "load_test"}
    assert {DATASETS[name].loader for name in REAL} == public
    for name in public:
        assert callable(getattr(fairfox, name))


@pytest.mark.parametrize("name", list(DATASETS))
def test_every_entry_has_a_loader_that_says_what_is_wrong_and_files_to_find(name: str):
    text = getattr(datasets, DATASETS[name].loader).__doc__
    assert text
    assert name not in REAL or "What is wrong with it" in text
    assert DATASETS[name].files
    for file in DATASETS[name].files:
        assert file.address.startswith("https://") or "https://" in file.by_hand
        assert len(file.sha256) == (64 if file.address else 0)


# --- every real table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "load", "people", "positive", "first_group", "levels"),
    [
        ("adult.test.gz", load_adult, 45_222, 11_208, 14_695, ("Female", "Male")),
        ("adult.test.gz", lambda: load_adult(complete=False), 48_842, 11_687, 16_192, ("Female", "Male")),
        ("bank-additional-full.csv.gz", load_bank, 41_188, 4_640, 1_068, ("not age>=25", "age>=25")),
        (
            *("bank-additional-full.csv.gz", lambda: load_bank(complete=True)),
            *(30_488, 3_859, 864, ("not age>=25", "age>=25")),
        ),
        (
            *("compas-two-years-deidentified.csv.gz", load_compas, 6_172, 2_809, 6_172 - 3_175),
            ("not race=African-American", "race=African-American"),
        ),
        ("german.data.gz", load_german, 1_000, 700, 310, ("female", "male")),
        ("law_data.csv.gz", load_law_school, 21_791, 19_360, 21_791 - 18_285, ("not race=White", "race=White")),
        ("law_data.csv.gz", lambda: load_law_school(protected="sex"), 21_791, 19_360, 9_537, ("Female", "Male")),
    ],
)
def test_the_real_tables_have_their_published_counts(name, load, people, positive, first_group, levels, data_file):
    data_file(name)
    data = load()
    assert (len(data), int(data.y.sum()), int((data.c == 0).sum())) == (people, positive, first_group)
    assert data.protected[0].levels == levels
    assert torch.isfinite(data.x).all()
    assert not data.withheld.any()  # what is protected is no feature


@pytest.mark.parametrize(
    ("name", "checksum"),
    [
        ("adult.data.gz", DATASETS["adult"].files[0].sha256),
        ("adult.test.gz", DATASETS["adult"].files[1].sha256),
        ("german.data.gz", DATASETS["german"].files[0].sha256),
        ("bank-additional-full.csv.gz", "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8"),
    ],
)
def test_the_real_files_have_the_checksums_of_their_public_source(name: str, checksum: str, data_file):
    assert sha256(gzip.decompress(data_file(name).read_bytes())).hexdigest() == checksum


def adult_file(path: Path) -> pd.DataFrame:
    return pd.read_csv(path).drop(columns="split")


def law_file(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, index_col=0).replace({"sex": {1: "Female", 2: "Male"}})


@pytest.mark.parametrize(
    ("name", "read", "table"),
    [
        ("adult.csv.gz", adult_file, lambda: adult_table(complete=False)),
        ("bank-additional-full.csv.gz", lambda path: pd.read_csv(path, sep=";"), bank_table),
        (
            "compas-two-years-deidentified.csv.gz",
            lambda path: pd.read_csv(path, keep_default_na=False),
            lambda: compas_table(filtered=False),
        ),
        ("law_data.csv.gz", law_file, law_school_table),
    ],
)
def test_the_table_is_the_file_cell_by_cell(
    name: str, read: Callable[[Path], pd.DataFrame], table: Callable[[], object], data_file
):
    file, found = read(data_file(name)), table().to_pandas()
    assert len(found) == len(file)
    for column in found.columns:
        here, there = found[column].to_numpy(dtype=object), file[column].to_numpy(dtype=object)
        assert ((here == there) | (pd.isna(here) & pd.isna(there))).all(), column


@pytest.mark.parametrize(
    ("files", "load", "kind", "message"),
    [
        (
            {"adult.data": b"39, Private\n", "adult.test": b""},
            *(load_adult, FileError, r"adult.data' cannot be read and may be damaged: .*Expected 15 columns"),
        ),
        (
            {"bank-additional-full.csv": b"age;job\n24;student\n"},
            *(load_bank, ColumnError, "is not the expected file: Column 'marital'"),
        ),
        ({"bank+marketing.zip": b"no archive"}, bank_table, FileError, "File is not a zip file"),
        (
            {"pmlb_magic.tsv.gz": gzip.compress(b"FLength\ttarget\n1.0\t0\n")},
            *(load_magic, ColumnError, "is not the expected file: Column 'FWidth'"),
        ),
        ({}, load_law_school, FileError, r"'law_data.csv' is not on this machine.*get it from https://.*save it as"),
        ({}, load_chicago_ssl, FileError, r"'chicago-ssl-clean.csv' is not on this machine.*4aki-r3np"),
    ],
)
def test_files_that_are_damaged_others_or_nowhere_are_refused(files, load, kind, message: str, home: Path):
    for name, content in files.items():
        (home / name).write_bytes(content)
    with pytest.raises(FairfoxError, match=message) as refused:
        load()
    assert refused.type is kind


# --- Adult ---------------------------------------------------------------------------------------------------------

ANN = b"39, Private, 77516, Bachelors, 13, Divorced, Sales, Wife, White, Female, 0, 0, 40, Cuba, <=50K\n"
BOB = b"50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Male, 2174, 0, 13, ?, >50K\n"
CID = b"25, Private, 226802, 11th, 7, Divorced, Sales, Own-child, Black, Male, 0, 7, 40, Peru, >50K.\n"
TRAIN, TEST = ANN + BOB + b"\n", b"|1x3 Cross validator\n" + CID + b"\n"


@pytest.fixture
def adults(home: Path) -> None:
    """A data home with three people, one of whom has gaps."""
    (home / "adult.data").write_bytes(TRAIN)
    (home / "adult.test.gz").write_bytes(gzip.compress(TEST))


def test_adult_is_read_without_blanks_stops_and_comments(adults):
    table = adult_table(complete=False).to_pandas()
    assert table["sex"].tolist() == ["Female", "Male", "Male"]
    assert table[ADULT_LABEL].tolist() == ["<=50K", ">50K", ">50K"]
    assert table["hours-per-week"].tolist() == [40, 13, 40]
    assert table["occupation"].isna().tolist() == [False, True, False]
    assert adult_table().to_pandas()["age"].tolist() == [39, 25]


def test_adult_may_leave_out_relationship_and_have_other_protected_variables(adults):
    with_it, without = load_adult(), load_adult(relationship=False)
    assert set(with_it.names) - set(without.names) == {"relationship=Wife", "relationship=Own-child"}
    data = load_adult(complete=False, protected=("sex", "age<30"))
    assert data.c.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert not {"sex", "age", "fnlwgt", ADULT_LABEL} & columns_of(data)


# --- bank ----------------------------------------------------------------------------------------------------------

CLIENTS = (
    b'"age";"job";"marital";"education";"default";"housing";"loan";"contact";"month";"day_of_week";"duration";'
    b'"campaign";"pdays";"previous";"poutcome";"emp.var.rate";"cons.price.idx";"cons.conf.idx";"euribor3m";'
    b'"nr.employed";"y"\r\n'
    b'24;"student";"single";"basic.4y";"no";"no";"no";"cellular";"may";"mon";261;1;999;0;"nonexistent";1.1;93.994;'
    b'-36.4;4.857;5191;"yes"\r\n'
    b'25;"services";"married";"high.school";"unknown";"no";"no";"telephone";"may";"mon";149;1;999;0;"nonexistent";'
    b'1.1;93.994;-36.4;4.857;5191;"no"\r\n'
    b'74;"retired";"married";"basic.4y";"no";"yes";"no";"cellular";"nov";"fri";239;3;6;1;"failure";-1.1;94.767;'
    b'-50.8;1.028;4963.6;"no"\r\n'
)


def archive(member: str = "bank-additional/bank-additional-full.csv") -> bytes:
    """Return an archive in an archive, as UCI has it."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with ZipFile(inner, "w") as file:
        file.writestr(member, CLIENTS)
    with ZipFile(outer, "w") as file:
        file.writestr("bank.zip", b"the older table")
        file.writestr("bank-additional.zip", inner.getvalue())
    return outer.getvalue()


def test_of_the_bank_25_counts_as_older_and_duration_can_be_left_out(home: Path):
    (home / "bank-additional-full.csv").write_bytes(CLIENTS)
    data = load_bank(duration=False)
    assert data.c[:, 0].tolist() == [0, 1, 1]
    assert data.y.tolist() == [1, 0, 0]
    assert set(load_bank().names) - set(data.names) == {"duration"}
    assert bank_table(complete=True)["age"].to_list() == [24, 74]


def test_the_archive_of_the_bank_may_lie_in_the_data_home(home: Path):
    (home / "bank+marketing.zip").write_bytes(archive())
    assert bank_table()["y"].to_list() == ["yes", "no", "no"]
    (home / "bank+marketing.zip").write_bytes(archive("something/else.csv"))
    with pytest.raises(FileError, match=r"has no 'bank-additional/bank-additional-full.csv'.*give UCI's archive"):
        bank_table()


# --- Chicago: the real file is not at hand, so these are exactly the two published formats --------------------------

CLEAN = [CHICAGO_SCORE, *CHICAGO_PREDICTORS, CHICAGO_SEX, CHICAGO_RACE]
PORTAL = [*CLEAN, "WEAPON I", "DRUG I", "AGE GROUP", "LATEST DATE", "COMMUNITY AREA", "Location"]
BANDS = ["less than 20", "20-30", "30-40", "40-50", "50-60", "60-70", "70-80"]
RACES = ["BLK", "WHI", "WWH", "WBH", "API", "I", "U"]


def arrested(people: int) -> list[list[object]]:
    """Return made-up people in the columns of the cleaned form."""
    rng = np.random.default_rng(0)
    return [
        [
            int(rng.integers(0, 501)),
            str(rng.choice(BANDS)),
            *(int(n) for n in rng.poisson([0.1, 0.2, 0.5])),
            int(rng.integers(0, 2)),
            int(rng.poisson(0.6)),
            0 if i < 100 else round(float(rng.normal(0, 1)), 1),  # whole numbers first
            int(rng.poisson(0.1)),
            str(rng.choice(["M", "F", "X"], p=[0.75, 0.2, 0.05])),
            str(rng.choice(RACES, p=[0.5, 0.2, 0.2, 0.03, 0.03, 0.02, 0.02])),
        ]
        for i in range(people)
    ]


def write(path: Path, header: list[str], people: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *people])
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return write(tmp_path / "chicago-ssl-clean.csv", CLEAN, arrested(400))


def test_black_and_white_people_are_kept_with_the_first_year_of_their_age_band(clean: Path):
    kept = [row for row in arrested(400) if row[-1] in ("BLK", "WHI")]
    ages = [10 if row[1] == "less than 20" else int(str(row[1])[:2]) for row in kept]
    assert chicago_ssl_table(clean)[CHICAGO_AGE].to_list() == ages
    data = load_chicago_ssl(clean)
    assert int((data.c == 0).sum()) == Counter(row[-1] for row in kept)["BLK"]
    assert data.protected[0].levels == ("BLK", "WHI")
    assert tuple(feature.name for feature in data.features) == CHICAGO_PREDICTORS
    scaled = (np.array(ages) - np.mean(ages)) / np.std(ages)
    torch.testing.assert_close(data.x[:, 0].double(), torch.tensor(scaled), atol=1e-5, rtol=0)


def test_the_label_of_chicago_is_a_high_score_or_the_score_itself_and_sex_can_be_protected(clean: Path):
    scores = chicago_ssl_table(clean)[CHICAGO_SCORE].to_list()
    for threshold in (345, 250):
        expected = [float(score >= threshold) for score in scores]
        assert load_chicago_ssl(clean, threshold=threshold).y.tolist() == expected
    assert load_chicago_ssl(clean, threshold=None).y.tolist() == scores
    data = load_chicago_ssl(str(clean), protected=CHICAGO_SEX)
    assert data.protected[0].levels == ("F", "M", "X")
    assert not {CHICAGO_SEX, CHICAGO_RACE} & columns_of(data)


def test_the_portals_file_says_the_same_but_for_its_gaps(clean: Path, home: Path):
    people = [[*row, "Y", "", "20-30", "05/12/2016", "AUSTIN", "(41.8, -87.6)\n"] for row in arrested(400)]
    people[0][PORTAL.index(CHICAGO_AGE)] = ""  # the portal's file has gaps
    clean.rename(home / "mine.csv")
    write(home / "Strategic_Subject_List_-_Historical.csv", PORTAL, people)
    one, two = chicago_ssl_table(home / "mine.csv").to_pandas(), chicago_ssl_table().to_pandas()
    assert list(two.columns) == CLEAN
    kept = one[int(arrested(1)[0][-1] in ("BLK", "WHI")) :].reset_index(drop=True)  # the first person has a gap
    assert two.equals(kept)


def test_what_is_not_chicagos_list_is_refused(tmp_path: Path, data_file):
    people = arrested(30)
    people[0][1], people[0][-1] = "young", "BLK"
    with pytest.raises(DataError, match="has the age 'young'; expected 'less than 20' or a band"):
        load_chicago_ssl(write(tmp_path / "a.csv", CLEAN, people))
    with pytest.raises(DataError, match="has nobody of race BLK or WHI"):
        load_chicago_ssl(write(tmp_path / "b.csv", CLEAN, [[*row[:-1], "API"] for row in people]))
    with pytest.raises(FileError, match=r"There is no file '.*nothing.csv'; check the path, or get the CSV"):
        load_chicago_ssl(tmp_path / "nothing.csv")
    with pytest.raises(ColumnError, match="is not the expected file: Column 'SSL SCORE'"):
        load_chicago_ssl(data_file("ssl_counts_by_score_race_sex_age.csv.gz"))


# --- COMPAS --------------------------------------------------------------------------------------------------------

DEFENDANTS = "\n".join(
    [
        "id,name,sex,age,age_cat,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,priors_count,"
        "days_b_screening_arrest,c_charge_degree,is_recid,decile_score,score_text,priors_count,two_year_recid",
        "1,a,Male,69,Greater than 45,Other,0,1,0,0,0,-1,F,0,9,Low,8,0",
        "2,b,Female,34,25 - 45,African-American,0,3,0,0,4,30,M,1,9,Low,8,1",
        "3,c,Male,20,Less than 25,Caucasian,1,3,0,0,1,,F,0,9,Low,8,0",  # no day of the arrest
        "4,d,Male,20,Less than 25,Caucasian,1,3,0,0,1,31,F,0,9,Low,8,0",  # too late
        "5,e,Male,20,Less than 25,Caucasian,1,3,0,0,1,0,F,-1,9,Low,8,0",  # no known outcome
        "6,f,Male,20,Less than 25,Caucasian,1,3,0,0,1,0,O,0,9,Low,8,0",  # a traffic offence
        "7,g,Male,20,Less than 25,Caucasian,1,-1,0,0,1,0,F,0,9,N/A,8,0",  # no score
        "8,h,Male,21,Less than 25,Caucasian,1,3,0,2,1,-30,F,0,9,High,8,0\n",
    ]
).encode()


def test_of_compas_the_filter_the_first_of_two_columns_and_no_scores_are_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "propublica/compas-analysis" in DATASETS["compas"].files[0].address
    with serving(lambda asked: Reply(DEFENDANTS)) as server:
        serve(monkeypatch, "compas", server.root, DEFENDANTS)
        everyone = compas_table(filtered=False)
    assert everyone["decile_score"].to_list() == [1, 3, 3, 3, 3, 3, -1, 3]
    assert everyone["priors_count"].to_list() == [0, 4, 1, 1, 1, 1, 1, 1]
    assert compas_table()["age"].to_list() == [69, 34, 21]
    data = load_compas()
    assert (data.c[:, 0].tolist(), data.y.tolist()) == ([0, 1, 0], [0, 1, 0])
    assert not columns_of(data) & {"decile_score", "score_text", "age_cat", "race", "two_year_recid", "is_recid"}
    assert {"sex", "age", "priors_count", "c_charge_degree"} <= columns_of(data)


# --- German credit -------------------------------------------------------------------------------------------------

APPLICANTS = (
    b"A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1\n"
    b"A12 48 A32 A410 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A201 2\n"
    b"A14 12 A34 A46 2096 A61 A74 2 A95 A101 3 A121 25 A143 A152 1 A172 2 A191 A202 1\n"
)


def test_german_credit_has_words_for_codes_and_sex_from_marital_status(home: Path):
    (home / "german.data").write_bytes(APPLICANTS)
    table = german_table()
    assert table["sex"].to_list() == ["male", "female", "female"]
    assert table["purpose"].to_list() == ["radio or television", "others", "education"]
    assert table["credit_amount"].to_list() == [1169, 5951, 2096]
    data = load_german(protected=("sex", "age<=25"))
    assert (data.c.tolist(), data.y.tolist()) == ([[1, 0], [0, 1], [0, 1]], [1, 0, 1])
    assert "personal_status" not in columns_of(data)
    (home / "german.data").write_bytes(APPLICANTS.replace(b"A75", b"A79"))
    with pytest.raises(DataError, match="has the code 'A79' for employment; expected one of A71, "):
        load_german()


# --- law school ----------------------------------------------------------------------------------------------------

STUDENTS = (
    ",race,sex,LSAT,UGPA,region_first,ZFYA,sander_index,first_pf\n"
    "0,White,1,39,3.1,GL,-0.98,0.782738095,1\n"
    "1,Black,2,36.5,3,GL,0.09,0.735714286,0\n"
    "5,Asian,2,30.0,3.1,MS,0.5,0.670238095,1.0\n"
)


def test_of_law_school_either_outcome_is_the_label_and_another_code_for_sex_is_refused(home: Path):
    (home / "law_data.csv").write_text(STUDENTS)
    assert law_school_table()["LSAT"].to_list() == [39.0, 36.5, 30.0]
    assert law_school_table()["sex"].to_list() == ["Female", "Male", "Male"]
    data = load_law_school()
    assert (data.y.tolist(), data.c[:, 0].tolist()) == ([1, 0, 1], [1, 0, 0])
    assert [feature.name for feature in data.features] == ["sex", "LSAT", "UGPA", "region_first"]
    assert "first_pf" not in columns_of(load_law_school(label="ZFYA"))
    with pytest.raises(OptionError, match="The label is 'zfya'; expected one of first_pf, ZFYA"):
        load_law_school(label="zfya")
    (home / "law_data.csv").write_text(STUDENTS.replace("White,1,", "White,0,"))
    with pytest.raises(DataError, match="has the sex 0; expected 1 or 2"):
        load_law_school()


# --- benchmarks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "positive"),
    [
        ("backache", (180, 6), 25),
        ("credit", (1000, 7), 700),
        ("australian", (690, 6), 307),
        ("wdbc", (569, 30), 212),
        ("magic", (19_020, 10), 6688),
    ],
)
def test_the_benchmarks_are_complete_and_have_their_checksums(
    name: str, shape: tuple[int, int], positive: int, data_file
):
    (file,) = DATASETS[name].files
    assert sha256(data_file(file.names[0]).read_bytes()).hexdigest() == file.sha256
    assert file.address.startswith("https://github.com/EpistasisLab/pmlb/raw/master/datasets/")
    data = getattr(datasets, DATASETS[name].loader)()
    assert tuple(data.x.shape) == shape
    assert data.names == tuple(DATASETS[name].columns)
    assert (data.x.isfinite().all(0) & (data.x.std(0) > 0)).all()
    assert (data.y.unique().tolist(), int(data.y.sum())) == ([0, 1], positive)
    assert name != "credit" or data.x[0, [0, 1, 4]].tolist() == [6.0, 1169.0, 67.0]  # months, marks, years
    assert (data.c.shape, data.protected) == ((shape[0], 0), ())


def test_wdbc_of_scikit_learn_is_that_of_the_file(data_file, home: Path, monkeypatch: pytest.MonkeyPatch):
    bundled, file = load_wdbc(), data_file("pmlb_wdbc.tsv.gz")  # the first needs no file
    monkeypatch.setenv("FAIRFOX_DATA", str(file.parent))
    read = load_wdbc()
    assert bundled.names == read.names
    assert torch.equal(bundled.y, read.y)
    torch.testing.assert_close(bundled.x, read.x, rtol=0, atol=0.00101)  # 0.5115 is rounded up in the file
    assert int((bundled.x - read.x).abs().gt(1e-9).sum()) <= 1
