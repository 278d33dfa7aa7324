"""The list of datasets: complete, honest about where each stands, and about files that are nowhere."""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
from pathlib import Path

import pytest
from servers import Reply, serving

import fairfox
from fairfox.data.cache import Remote
from fairfox.data.catalog import CATALOG, DataFile, fetch_file, find_file, find_known
from fairfox.errors import FileError, OptionError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data home; the cache is empty too."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path


def test_every_loader_of_a_real_table_is_listed_and_public():
    public = {name for name in fairfox.__all__ if name.startswith("load_")} - {"load_model"}
    listed = {known.loader for known in CATALOG.values() if known.module != "fairfox.data.pmlb"}
    assert listed == public
    assert len(public) == 6
    for name in public:
        assert callable(getattr(fairfox, name))


@pytest.mark.parametrize("known", CATALOG.values(), ids=list(CATALOG))
def test_every_entry_has_a_loader_that_says_what_is_wrong_and_files_to_find(known):
    module = import_module(known.module)
    text = getattr(module, known.loader).__doc__
    assert text
    assert known.module == "fairfox.data.pmlb" or "What is wrong with it" in text
    assert known.files
    for file in known.files:
        assert file.remote is not None or "https://" in file.by_hand
        assert file.remote is None or (len(file.remote.sha256) == 64 and file.remote.address.startswith("https://"))


def test_without_any_file_the_list_says_how_to_get_each(home: Path):
    standing = {name: known.standing for name, known in CATALOG.items()}
    assert {name for name, where in standing.items() if where == "to be got by hand"} == {"chicago", "law"}
    assert standing["wdbc"] == "with scikit-learn"
    assert {where for name, where in standing.items() if name not in ("chicago", "law", "wdbc")} == {
        "can be downloaded"
    }


def test_a_dataset_of_two_files_stands_where_both_are(home: Path):
    (home / "adult.data.gz").write_bytes(b"")
    assert CATALOG["adult"].standing == "can be downloaded"
    (home / "adult.test").write_bytes(b"")
    assert CATALOG["adult"].standing == "in FAIRFOX_DATA"


def test_the_first_name_in_the_data_home_wins_over_the_cache(home: Path):
    content = b"a,b\n"
    remote = Remote("a.csv", "https://nowhere.invalid/a.csv", sha256(content).hexdigest())
    file = DataFile(("a.csv", "a.csv.gz"), remote)
    assert find_file(file) is None
    (home / "cache").mkdir()
    (home / "cache" / "a.csv").write_bytes(content)
    assert find_file(file) == home / "cache" / "a.csv"
    (home / "a.csv.gz").write_bytes(b"")
    assert find_file(file) == home / "a.csv.gz"
    (home / "a.csv").write_bytes(b"my own")
    assert find_file(file) == fetch_file(file) == home / "a.csv"


def test_a_file_with_a_checksum_is_downloaded(home: Path):
    with serving(lambda asked: Reply(b"x\n1\n")) as server:
        remote = Remote("x.csv", f"{server.root}/x", sha256(b"x\n1\n").hexdigest())
        assert fetch_file(DataFile(("x.csv",), remote)) == home / "cache" / "x.csv"


def test_a_file_without_one_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch):
    file = DataFile(("x.csv", "x.csv.gz"), by_hand="get it from https://example.org")
    with pytest.raises(FileError) as told:
        fetch_file(file)
    assert str(told.value) == (
        "'x.csv' is not on this machine and cannot be downloaded and checked; get it from https://example.org, "
        f"and put it as 'x.csv' or 'x.csv.gz' into the folder that FAIRFOX_DATA names ('{home}')"
    )


def test_a_data_home_that_is_no_folder_is_told(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(home / "nothing"))
    with pytest.raises(FileError, match=r"nothing', which is no folder"):
        _ = CATALOG["adult"].standing


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(OptionError, match=r"There is no dataset 'adlt'. Did you mean 'adult'\?"):
        find_known("adlt")
    assert find_known("law") is CATALOG["law"]
