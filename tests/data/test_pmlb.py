"""The five PMLB tables, from real files where FAIRFOX_DATA has them, from scikit-learn, and through a server."""

import gzip
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from servers import Reply, serving
from sklearn.datasets import load_breast_cancer

from fairfox.data import pmlb
from fairfox.data.pmlb import load_australian, load_backache, load_credit, load_magic, load_wdbc
from fairfox.errors import ColumnError, FileError


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache; there is no data home."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path))
    monkeypatch.delenv("FAIRFOX_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("load", "source", "shape", "positive"),
    [
        (load_backache, pmlb.BACKACHE, (180, 6), 25),
        (load_credit, pmlb.CREDIT, (1000, 7), 700),
        (load_australian, pmlb.AUSTRALIAN, (690, 6), 307),
        (load_wdbc, pmlb.WDBC, (569, 30), 212),
        (load_magic, pmlb.MAGIC, (19_020, 10), 6688),
    ],
    ids=["backache", "credit", "australian", "wdbc", "magic"],
)
def test_the_real_tables_are_complete_and_have_their_checksums(load, source, shape, positive, data_file):
    file = data_file(source.remote.name)
    assert sha256(file.read_bytes()).hexdigest() == source.remote.sha256
    data = load()
    assert tuple(data.x.shape) == shape
    assert data.names == source.columns
    assert torch.isfinite(data.x).all()
    assert (data.x.std(0) > 0).all()
    assert data.y is not None
    assert data.y.unique().tolist() == [0, 1]
    assert int(data.y.sum()) == positive
    assert data.c.shape == (shape[0], 0)
    assert data.protected == ()


def test_columns_are_in_their_own_units(data_file):
    data_file("pmlb_credit_g.tsv.gz")
    first = dict(zip(load_credit().names, load_credit().x[0].tolist(), strict=True))
    assert (first["duration"], first["credit_amount"], first["age"]) == (6.0, 1169.0, 67.0)


def test_wdbc_needs_no_file_and_no_network(nowhere: Path):
    data = load_wdbc()
    assert tuple(data.x.shape) == (569, 30)
    assert data.y is not None
    assert int(data.y.sum()) == 212
    malignant = torch.as_tensor(load_breast_cancer().target == 0)  # the opposite coding
    assert torch.equal(data.y == 1, malignant)
    assert list(nowhere.iterdir()) == []


def test_wdbc_of_scikit_learn_is_that_of_the_file(data_file, nowhere: Path, monkeypatch: pytest.MonkeyPatch):
    file = data_file("pmlb_wdbc.tsv.gz")
    bundled = load_wdbc()
    monkeypatch.setenv("FAIRFOX_DATA", str(file.parent))
    read = load_wdbc()
    assert bundled.names == read.names
    assert torch.equal(bundled.y, read.y)
    torch.testing.assert_close(bundled.x, read.x, rtol=0, atol=0.00101)  # 0.5115 is rounded up in the file
    assert int((bundled.x - read.x).abs().gt(1e-9).sum()) <= 1


def from_server(source: pmlb.Source, content: bytes, root: str) -> pmlb.Source:
    remote = replace(source.remote, address=f"{root}/x.tsv.gz", sha256=sha256(content).hexdigest())
    return replace(source, remote=remote)


def test_a_table_that_is_not_here_is_downloaded_and_read(nowhere: Path, monkeypatch: pytest.MonkeyPatch):
    content = gzip.compress(
        b"A1\tA2\tA3\tA7\tA10\tA13\tA14\ttarget\n9\t1.5\t2\t3\t4\t5\t6\t1\n9\t1\t2\t3\t4\t5\t6.5\t0\n"
    )
    with serving(lambda asked: Reply(content)) as server:
        monkeypatch.setattr(pmlb, "AUSTRALIAN", from_server(pmlb.AUSTRALIAN, content, server.root))
        data = load_australian()
    assert data.x.tolist() == [[1.5, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6.5]]
    assert data.y is not None
    assert data.y.tolist() == [1, 0]


def test_a_file_of_the_data_home_without_a_column_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    with gzip.open(tmp_path / "pmlb_magic.tsv.gz", "wt") as file:
        file.write("FLength\ttarget\n1.0\t0\n")
    with pytest.raises(ColumnError, match="The table has no column 'FWidth'"):
        load_magic()


def test_what_another_source_sends_is_refused(nowhere: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda asked: Reply(b"something else")) as server:
        monkeypatch.setattr(pmlb, "MAGIC", from_server(pmlb.MAGIC, b"magic", server.root))
        with pytest.raises(FileError, match=r"pmlb_magic.tsv.gz.*expected"):
            load_magic()


def test_files_are_fetched_from_their_projects_own_folder():
    sources = (pmlb.BACKACHE, pmlb.CREDIT, pmlb.AUSTRALIAN, pmlb.WDBC, pmlb.MAGIC)
    for source in sources:
        folder, name = source.remote.address.removeprefix("https://github.com/EpistasisLab/pmlb/raw/master/").split(
            "/"
        )[1:]
        assert name == f"{folder}.tsv.gz"
        assert source.remote.name == f"pmlb_{folder.removeprefix('_deprecated_')}.tsv.gz"
    assert len({source.remote.sha256 for source in sources}) == 5
