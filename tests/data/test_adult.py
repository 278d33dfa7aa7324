"""Adult: the real files against their published counts, made-up lines in the same form, and the download."""

from __future__ import annotations

import gzip
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from servers import Reply, serving
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fairfox
from fairfox.data import adult
from fairfox.data.adult import FILES, LABEL, adult_table, load_adult
from fairfox.data.encode import fit_encoding
from fairfox.errors import FileError

ANN = b"39, Private, 77516, Bachelors, 13, Divorced, Sales, Wife, White, Female, 0, 0, 40, Cuba, <=50K\n"
BOB = b"50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Male, 2174, 0, 13, ?, >50K\n"
CID = b"25, Private, 226802, 11th, 7, Divorced, Sales, Own-child, Black, Male, 0, 7, 40, Peru, >50K.\n"
TRAIN, TEST = ANN + BOB + b"\n", b"|1x3 Cross validator\n" + CID + b"\n"


@pytest.fixture
def real(data_file) -> tuple[Path, Path]:
    return data_file("adult.data.gz"), data_file("adult.test.gz")


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data home with three people, one of whom has gaps."""
    (tmp_path / "adult.data").write_bytes(TRAIN)
    (tmp_path / "adult.test.gz").write_bytes(gzip.compress(TEST))
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path


def test_the_files_have_the_checksums_of_their_public_source(real):
    for path, file in zip(real, FILES, strict=True):
        assert file.remote is not None
        assert sha256(gzip.decompress(path.read_bytes())).hexdigest() == file.remote.sha256


def test_everyone_is_there(real):
    data = load_adult(complete=False)
    assert len(data) == 48_842
    assert int(data.y.sum()) == 11_687
    assert int((data.c[:, 0] == 0).sum()) == 16_192  # women
    assert data.protected[0].levels == ("Female", "Male")


def test_people_without_gaps_are_the_default(real):
    data = load_adult()
    assert len(data) == 45_222
    assert torch.isfinite(data.x).all()
    names = [feature.name for feature in data.features]
    assert not {"sex", "fnlwgt", LABEL} & set(names)
    numbers = [f.start for f in data.features if f.kind == "continuous"]
    torch.testing.assert_close(data.x[:, numbers].mean(0), torch.zeros(len(numbers)), atol=1e-4, rtol=0)
    torch.testing.assert_close(data.x[:, numbers].std(0), torch.ones(len(numbers)), atol=1e-3, rtol=0)
    assert not data.withheld.any()


def test_the_table_is_the_joined_one_cell_by_cell(real, data_file):
    joined = pd.read_csv(data_file("adult.csv.gz")).drop(columns="split")
    table = adult_table(complete=False).to_pandas()
    assert list(table.columns) == list(joined.columns)
    for name in joined.columns:
        here, there = table[name].to_numpy(dtype=object), joined[name].to_numpy(dtype=object)
        assert ((here == there) | (pd.isna(here) & pd.isna(there))).all(), name
    assert table.isna().sum()[["workclass", "occupation", "native-country"]].tolist() == [2799, 2809, 857]


def test_a_pipeline_on_the_raw_table_is_audited(real):
    people = adult_table().to_pandas()
    categories, numbers = ["occupation", "marital-status"], ["education-num", "hours-per-week"]
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), categories), (StandardScaler(), numbers))
    model = make_pipeline(encoder, LogisticRegression(max_iter=300))
    model.fit(people[categories + numbers][:2000], people[LABEL][:2000])
    result = fairfox.audit(model, people[-400:], protected="sex", label=LABEL, positive=">50K", refits=2)
    assert result.scores.shape == (400,)
    women = torch.tensor((people["sex"][-400:] == "Female").tolist())
    assert float(result.signed[women].mean()) > 0  # a higher prediction as men


def test_made_up_people_are_read_without_blanks_stops_and_comments(made_up: Path):
    table = adult_table(complete=False).to_pandas()
    assert table["sex"].tolist() == ["Female", "Male", "Male"]
    assert table[LABEL].tolist() == ["<=50K", ">50K", ">50K"]
    assert table["hours-per-week"].tolist() == [40, 13, 40]
    assert table["occupation"].isna().tolist() == [False, True, False]
    assert adult_table().to_pandas()["age"].tolist() == [39, 25]


def test_relationship_can_be_left_out(made_up: Path):
    with_it, without = load_adult(), load_adult(relationship=False)
    assert "relationship=Wife" in with_it.names
    assert set(with_it.names) - set(without.names) == {"relationship=Wife", "relationship=Own-child"}


def test_protected_variables_can_be_chosen(made_up: Path):
    data = load_adult(complete=False, protected=("sex", "age<30"))
    assert [p.name for p in data.protected] == ["sex", "age<30"]
    assert data.c.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert not {"sex", "age"} & {feature.name for feature in data.features}
    one = fit_encoding(adult_table(), protected=["race"], label=LABEL).encode(adult_table())
    assert one.c[:, 0].tolist() == [1, 0]  # Black 0, White 1


def test_files_that_are_nowhere_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path))
    monkeypatch.delenv("FAIRFOX_DATA", raising=False)
    content = {"/adult.data": TRAIN, "/adult.test": TEST}
    with serving(lambda asked: Reply(content[asked.path])) as server:
        files = [
            replace(file, remote=replace(file.remote, address=server.root + path, sha256=sha256(text).hexdigest()))
            for file, (path, text) in zip(FILES, content.items(), strict=True)
        ]
        monkeypatch.setattr(adult, "FILES", tuple(files))
        first, again = load_adult(), load_adult()
    assert np.array_equal(first.x, again.x)
    assert [asked.path for asked in server.asked] == ["/adult.data", "/adult.test"]


def test_a_damaged_file_is_told(made_up: Path):
    (made_up / "adult.data").write_bytes(b"39, Private\n")
    with pytest.raises(FileError, match=r"adult.data' cannot be read and may be damaged: .*Expected 15 columns"):
        load_adult()
