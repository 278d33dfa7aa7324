"""German credit: the real file against its published counts and PMLB's copy, and made-up applicants."""

from __future__ import annotations

import gzip
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from fairfox.data.german import FILES, german_table, load_german
from fairfox.data.table import load_table
from fairfox.errors import DataError

ROWS = (
    b"A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1\n"
    b"A12 48 A32 A410 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A201 2\n"
    b"A14 12 A34 A46 2096 A61 A74 2 A95 A101 3 A121 25 A143 A152 1 A172 2 A191 A202 1\n"
)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "german.data").write_bytes(ROWS)
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path / "german.data"


def test_the_real_file_has_its_checksum_and_counts(data_file):
    content = gzip.decompress(data_file("german.data.gz").read_bytes())
    assert sha256(content).hexdigest() == FILES[0].remote.sha256
    data = load_german()
    assert (len(data), int(data.y.sum())) == (1_000, 700)
    assert data.protected[0].levels == ("female", "male")
    assert int(data.c.sum()) == 690
    assert "personal_status" not in {feature.name for feature in data.features}


def test_numbers_are_those_of_the_copy_at_pmlb(data_file):
    data_file("german.data.gz")
    copy = load_table(data_file("pmlb_credit_g.tsv.gz"))
    table = german_table()
    names = {
        "duration": "duration",
        "credit_amount": "credit_amount",
        "installment_rate": "installment_commitment",
        "residence_since": "residence_since",
        "age": "age",
        "existing_credits": "existing_credits",
        "dependents": "num_dependents",
    }
    for here, there in names.items():
        assert table[here].to_list() == copy[there].to_list(), here
    assert [int(one == "good") for one in table["class"].to_list()] == copy["target"].to_list()


def test_every_code_has_words_of_its_own_column(data_file):
    data_file("german.data.gz")
    table = german_table()
    assert table.shape == (1_000, 22)
    assert Counter(table["personal_status"].to_list()) == {
        "male, single": 548,
        "female, divorced, separated or married": 310,
        "male, married or widowed": 92,
        "male, divorced or separated": 50,
    }


def test_sex_is_read_off_marital_status(made_up: Path):
    table = german_table()
    assert table["sex"].to_list() == ["male", "female", "female"]
    assert table["purpose"].to_list() == ["radio or television", "others", "education"]
    assert table["credit_amount"].to_list() == [1169, 5951, 2096]
    assert table["foreign_worker"].to_list() == ["yes", "yes", "no"]


def test_age_can_be_protected(made_up: Path):
    data = load_german(protected=("sex", "age<=25"))
    assert data.c.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert data.y.tolist() == [1, 0, 1]


def test_a_code_without_a_meaning_is_refused(made_up: Path):
    made_up.write_bytes(ROWS.replace(b"A75", b"A79"))
    with pytest.raises(DataError, match="has the code 'A79' for employment; expected one of A71, "):
        load_german()
