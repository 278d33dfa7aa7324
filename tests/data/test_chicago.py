"""Chicago's list: files made here in exactly the two published formats; the real one is not at hand."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from fairfox.data.chicago import AGE, PREDICTORS, RACE, SCORE, SEX, chicago_ssl_table, load_chicago_ssl
from fairfox.errors import ColumnError, DataError, FileError

CLEAN = [
    "SSL SCORE",
    "PREDICTOR RAT AGE AT LATEST ARREST",
    "PREDICTOR RAT VICTIM SHOOTING INCIDENTS",
    "PREDICTOR RAT VICTIM BATTERY OR ASSAULT",
    "PREDICTOR RAT ARRESTS VIOLENT OFFENSES",
    "PREDICTOR RAT GANG AFFILIATION",
    "PREDICTOR RAT NARCOTIC ARRESTS",
    "PREDICTOR RAT TREND IN CRIMINAL ACTIVITY",
    "PREDICTOR RAT UUW ARRESTS",
    "SEX CODE CD",
    "RACE CODE CD",
]
PORTAL = [*CLEAN, "WEAPON I", "DRUG I", "AGE GROUP", "LATEST DATE", "COMMUNITY AREA", "Location"]
BANDS = ["less than 20", "20-30", "30-40", "40-50", "50-60", "60-70", "70-80"]
RACES = ["BLK", "WHI", "WWH", "WBH", "API", "I", "U"]


def rows(people: int) -> list[list[object]]:
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
    return write(tmp_path / "chicago-ssl-clean.csv", CLEAN, rows(400))


@pytest.fixture
def portal(tmp_path: Path) -> Path:
    more = ["Y", "", "20-30", "05/12/2016", "AUSTIN", "(41.8, -87.6)\n"]
    people = [[*row, *more] for row in rows(400)]
    people[0][PORTAL.index(AGE)] = ""  # the portal's file has gaps
    return write(tmp_path / "Strategic_Subject_List_-_Historical_20200101.csv", PORTAL, people)


def test_black_and_white_people_are_kept(clean: Path):
    count = Counter(str(row[-1]) for row in rows(400))
    data = load_chicago_ssl(clean)
    assert len(data) == count["BLK"] + count["WHI"]
    assert int((data.c == 0).sum()) == count["BLK"]
    assert data.protected[0].levels == ("BLK", "WHI")
    assert tuple(feature.name for feature in data.features) == PREDICTORS
    assert list(PREDICTORS) == CLEAN[1:9]


def test_ages_are_the_first_year_of_their_band_and_numbers_are_standardised(clean: Path):
    kept = [row for row in rows(400) if row[-1] in ("BLK", "WHI")]
    ages = [10 if row[1] == "less than 20" else int(str(row[1])[:2]) for row in kept]
    assert chicago_ssl_table(clean)[AGE].to_list() == ages
    data = load_chicago_ssl(clean)
    scaled = (np.array(ages) - np.mean(ages)) / np.std(ages)
    torch.testing.assert_close(data.x[:, data.names.index(AGE)].double(), torch.tensor(scaled), atol=1e-5, rtol=0)


def test_the_label_is_a_high_score_or_the_score_itself(clean: Path):
    scores = chicago_ssl_table(clean)[SCORE].to_list()
    assert load_chicago_ssl(clean).y.tolist() == [float(score >= 345) for score in scores]
    assert load_chicago_ssl(clean, threshold=250).y.tolist() == [float(score >= 250) for score in scores]
    assert load_chicago_ssl(clean, threshold=None).y.tolist() == scores


def test_the_portals_file_says_the_same_but_for_its_gaps(clean: Path, portal: Path):
    one, two = chicago_ssl_table(clean).to_pandas(), chicago_ssl_table(portal).to_pandas()
    assert list(two.columns) == CLEAN
    kept = one[int(rows(1)[0][-1] in ("BLK", "WHI")) :].reset_index(drop=True)  # the first person has a gap
    assert two.equals(kept)


def test_sex_can_be_protected_and_is_no_feature(clean: Path):
    data = load_chicago_ssl(str(clean), protected=SEX)
    assert data.protected[0].levels == ("F", "M", "X")
    assert not {SEX, RACE} & {feature.name for feature in data.features}


@pytest.mark.parametrize("name", ["chicago-ssl-clean.csv", "Strategic_Subject_List_-_Historical.csv"])
def test_a_file_in_the_data_home_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / name, CLEAN, rows(50))
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    assert len(load_chicago_ssl()) == len(load_chicago_ssl(tmp_path / name)) > 20


def test_without_a_file_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    with pytest.raises(FileError) as told:
        load_chicago_ssl()
    for part in ("4aki-r3np", "https://data.cityofchicago.org", "FAIRFOX_DATA", str(tmp_path), "chicago-ssl-clean.csv"):
        assert part in str(told.value)
    with pytest.raises(FileError, match=r"There is no file '.*nothing.csv'; check the path, or get the CSV"):
        load_chicago_ssl(tmp_path / "nothing.csv")


def test_the_aggregated_counts_are_not_the_list(data_file):
    with pytest.raises(ColumnError, match="is not the file it should be: Column 'SSL SCORE'"):
        load_chicago_ssl(data_file("ssl_counts_by_score_race_sex_age.csv.gz"))


def test_strange_ages_and_lists_without_either_group_are_refused(tmp_path: Path):
    people = rows(30)
    people[0][1], people[0][-1] = "young", "BLK"
    with pytest.raises(DataError, match="has the age 'young'; expected 'less than 20' or a band"):
        load_chicago_ssl(write(tmp_path / "a.csv", CLEAN, people))
    nobody = [[*row[:-1], "API"] for row in people]
    with pytest.raises(DataError, match="has nobody with the race BLK or WHI"):
        load_chicago_ssl(write(tmp_path / "b.csv", CLEAN, nobody))
