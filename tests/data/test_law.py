"""Law school: the real file against its published counts, made-up students, and what is said without a file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fairfox.data.law import law_school_table, load_law_school
from fairfox.errors import DataError, FileError, OptionError

TEXT = (
    ",race,sex,LSAT,UGPA,region_first,ZFYA,sander_index,first_pf\n"
    "0,White,1,39,3.1,GL,-0.98,0.782738095,1\n"
    "1,Black,2,36.5,3,GL,0.09,0.735714286,0\n"
    "5,Asian,2,30.0,3.1,MS,0.5,0.670238095,1.0\n"
)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "law_data.csv").write_text(TEXT)
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path / "law_data.csv"


def test_everyone_is_there(data_file):
    data_file("law_data.csv.gz")
    data = load_law_school()
    assert (len(data), int(data.y.sum()), int(data.c.sum())) == (21_791, 19_360, 18_285)
    assert [feature.name for feature in data.features] == ["sex", "LSAT", "UGPA", "region_first"]
    sexes = load_law_school(protected="sex")
    assert int((sexes.c == 0).sum()) == 9_537  # women


def test_the_table_is_the_file_with_words_for_sex(data_file):
    file = pd.read_csv(data_file("law_data.csv.gz"), index_col=0)
    table = law_school_table().to_pandas()
    assert (table["sex"] == "Female").tolist() == (file["sex"] == 1).tolist()
    for name in file.columns.drop("sex"):
        assert table[name].tolist() == file[name].tolist(), name
    index = table["LSAT"] / 80 + table["UGPA"] * 2 / 21  # what the docstring says of it
    assert (index - table["sander_index"]).abs().max() < 1e-9


def test_numbers_may_be_written_with_and_without_decimals(made_up: Path):
    assert law_school_table()["LSAT"].to_list() == [39.0, 36.5, 30.0]
    data = load_law_school()
    assert data.y.tolist() == [1, 0, 1]
    assert data.c[:, 0].tolist() == [1, 0, 0]


def test_the_average_of_the_first_year_can_be_the_label(made_up: Path):
    data = load_law_school(label="ZFYA")
    assert "first_pf" not in {feature.name for feature in data.features}
    with pytest.raises(OptionError, match="'zfya' is none of first_pf, ZFYA"):
        load_law_school(label="zfya")


def test_another_code_for_sex_is_refused(made_up: Path):
    made_up.write_text(TEXT.replace("White,1,", "White,0,"))
    with pytest.raises(DataError, match="has the sex 0; expected 1 or 2"):
        load_law_school()


def test_without_the_file_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"'law_data.csv' is not on this machine.*get it from https://.*put it as"):
        load_law_school()
    monkeypatch.delenv("FAIRFOX_DATA")
    with pytest.raises(FileError, match=r"FAIRFOX_DATA names \(it is not set\)"):
        load_law_school()
