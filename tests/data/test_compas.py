"""COMPAS: the real file against published counts, and made-up defendants in ProPublica's form, names repeated."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
from servers import Reply, serving

from fairfox.data import compas
from fairfox.data.compas import FILES, compas_table, load_compas

HEADER = (
    "id,name,sex,age,age_cat,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,priors_count,"
    "days_b_screening_arrest,c_charge_degree,is_recid,decile_score,score_text,priors_count,two_year_recid"
)
PEOPLE = [
    "1,a,Male,69,Greater than 45,Other,0,1,0,0,0,-1,F,0,9,Low,8,0",
    "2,b,Female,34,25 - 45,African-American,0,3,0,0,4,30,M,1,9,Low,8,1",
    "3,c,Male,20,Less than 25,Caucasian,1,3,0,0,1,,F,0,9,Low,8,0",  # no day of the arrest
    "4,d,Male,20,Less than 25,Caucasian,1,3,0,0,1,31,F,0,9,Low,8,0",  # too late
    "5,e,Male,20,Less than 25,Caucasian,1,3,0,0,1,0,F,-1,9,Low,8,0",  # no known outcome
    "6,f,Male,20,Less than 25,Caucasian,1,3,0,0,1,0,O,0,9,Low,8,0",  # a traffic offence
    "7,g,Male,20,Less than 25,Caucasian,1,-1,0,0,1,0,F,0,9,N/A,8,0",  # no score
    "8,h,Male,21,Less than 25,Caucasian,1,3,0,2,1,-30,F,0,9,High,8,0",
]
TEXT = "\n".join([HEADER, *PEOPLE]).encode() + b"\n"


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compas-scores-two-years.csv").write_bytes(TEXT)
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))


def test_the_filter_leaves_whom_propublica_kept(data_file):
    data_file("compas-two-years-deidentified.csv.gz")
    data = load_compas()
    assert (len(data), int(data.y.sum()), int(data.c.sum())) == (6_172, 2_809, 3_175)
    everyone = load_compas(filtered=False, protected="race")
    assert (len(everyone), int(everyone.y.sum())) == (7_214, 3_251)
    assert len(everyone.protected[0].levels) == 6


def test_the_table_is_the_file(data_file):
    file = pd.read_csv(data_file("compas-two-years-deidentified.csv.gz"), keep_default_na=False)
    table = compas_table(filtered=False).to_pandas()
    for name in table.columns:
        assert table[name].tolist() == file[name].tolist(), name


def test_of_two_columns_with_one_name_the_first_is_read(made_up):
    table = compas_table(filtered=False)
    assert table["decile_score"].to_list() == [1, 3, 3, 3, 3, 3, -1, 3]
    assert table["priors_count"].to_list() == [0, 4, 1, 1, 1, 1, 1, 1]


def test_each_part_of_the_filter_leaves_someone_out(made_up):
    assert compas_table()["age"].to_list() == [69, 34, 21]


def test_scores_and_repeated_age_are_no_features(made_up):
    data = load_compas()
    assert data.c[:, 0].tolist() == [0, 1, 0]
    assert data.y.tolist() == [0, 1, 0]
    names = {feature.name for feature in data.features}
    assert not names & {"decile_score", "score_text", "age_cat", "race", "two_year_recid"}
    assert {"sex", "age", "priors_count", "c_charge_degree"} <= names


def test_the_public_file_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path))
    monkeypatch.delenv("FAIRFOX_DATA", raising=False)
    assert "propublica/compas-analysis" in FILES[0].remote.address
    with serving(lambda asked: Reply(TEXT)) as server:
        remote = replace(FILES[0].remote, address=f"{server.root}/c.csv", sha256=sha256(TEXT).hexdigest())
        monkeypatch.setattr(compas, "FILES", (replace(FILES[0], remote=remote),))
        assert len(load_compas()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["compas-scores-two-years.csv"]
