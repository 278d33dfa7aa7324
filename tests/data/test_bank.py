"""Bank: the real file against its published counts, made-up clients in the same form, and UCI's nested archive."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest
import torch
from servers import Reply, serving

from fairfox.data import bank
from fairfox.data.bank import FILES, bank_table, load_bank
from fairfox.errors import ColumnError, FileError

TEXT = (
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
        file.writestr(member, TEXT)
    with ZipFile(outer, "w") as file:
        file.writestr("bank.zip", b"the older table")
        file.writestr("bank-additional.zip", inner.getvalue())
    return outer.getvalue()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data home; the cache is empty too."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path


def test_the_file_has_the_checksum_of_the_table_in_the_archive(data_file):
    content = gzip.decompress(data_file("bank-additional-full.csv.gz").read_bytes())
    assert sha256(content).hexdigest() == "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8"


def test_everyone_is_there_and_age_is_no_feature(data_file):
    data_file("bank-additional-full.csv.gz")
    data = load_bank()
    assert len(data) == 41_188
    assert int((data.c == 0).sum()) == 1_068  # under 25
    assert int(data.y.sum()) == 4_640
    assert data.protected[0].levels == ("not age>=25", "age>=25")
    assert "age" not in [feature.name for feature in data.features]
    assert torch.isfinite(data.x).all()
    young = data.y[data.c[:, 0] == 0].mean(), data.y[data.c[:, 0] == 1].mean()
    assert [round(float(rate), 3) for rate in young] == [0.240, 0.109]


def test_people_with_an_unknown_can_be_left_out(data_file):
    data_file("bank-additional-full.csv.gz")
    data = load_bank(complete=True)
    assert (len(data), int((data.c == 0).sum()), int(data.y.sum())) == (30_488, 864, 3_859)


def test_the_table_is_the_file_cell_by_cell(data_file):
    path = data_file("bank-additional-full.csv.gz")
    pd.testing.assert_frame_equal(bank_table().to_pandas(), pd.read_csv(path, sep=";"))


def test_25_counts_as_older_and_duration_can_be_left_out(home: Path):
    (home / "bank-additional-full.csv").write_bytes(TEXT)
    data = load_bank(duration=False)
    assert data.c[:, 0].tolist() == [0, 1, 1]
    assert data.y.tolist() == [1, 0, 0]
    assert set(load_bank().names) - set(data.names) == {"duration"}
    assert bank_table(complete=True)["age"].to_list() == [24, 74]


def test_the_archive_is_downloaded_once_and_read(home: Path, monkeypatch: pytest.MonkeyPatch):
    content = archive()
    with serving(lambda asked: Reply(content)) as server:
        remote = replace(FILES[0].remote, address=f"{server.root}/b.zip", sha256=sha256(content).hexdigest())
        monkeypatch.setattr(bank, "FILES", (replace(FILES[0], remote=remote),))
        ages = [bank_table()["age"].to_list() for _ in range(2)]
    assert ages == [[24, 25, 74]] * 2
    assert [asked.path for asked in server.asked] == ["/b.zip"]


def test_the_archive_may_lie_in_the_data_home(home: Path):
    (home / "bank+marketing.zip").write_bytes(archive())
    assert bank_table()["y"].to_list() == ["yes", "no", "no"]


def test_an_archive_without_the_table_is_refused(home: Path):
    (home / "bank+marketing.zip").write_bytes(archive("something/else.csv"))
    with pytest.raises(FileError, match=r"has no 'bank-additional/bank-additional-full.csv'.*give UCI's archive"):
        bank_table()
    (home / "bank+marketing.zip").write_bytes(b"no archive")
    with pytest.raises(FileError, match="File is not a zip file"):
        bank_table()


def test_another_table_under_its_name_is_refused(home: Path):
    (home / "bank-additional-full.csv").write_bytes(b"age;job\n24;student\n")
    with pytest.raises(ColumnError, match=r"is not the file it should be: Column 'marital'"):
        load_bank()
