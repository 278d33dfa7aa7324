"""Files: written whole, recognised by their hash, found on this machine, or downloaded from a server on it."""

import signal
from hashlib import sha256
from pathlib import Path

import pytest
from servers import HangUp, Reply, free_address, serving

from fairfox.data.files import DataFile, cache_home, fetch_file, file_sha256, find_file, undisturbed, written_whole
from fairfox.errors import FileError

CONTENT = b"a\tb\n1\t2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache: it is not there yet, and there is no data home."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FAIRFOX_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data home; the cache is empty too."""
    folder.mkdir()
    monkeypatch.setenv("FAIRFOX_DATA", str(folder.parent))
    return folder.parent


def people(root: str = "http://unused", *more: str) -> DataFile:
    return DataFile(("people.tsv", *more), f"{root}/people.tsv", sha256(CONTENT).hexdigest())


# --- writing and hashes --------------------------------------------------------------------------------------------


def test_a_file_appears_under_its_name_once_it_is_written_and_others_may_read_it(tmp_path: Path):
    path = tmp_path / "new folder" / "result.json"
    with written_whole(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), written_whole(path) as temporary:
        temporary.write_bytes((tmp_path / "no such file").read_bytes())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_and_what_another_one_writes_is_not(tmp_path: Path):
    path = tmp_path / "result.json"
    (tmp_path / ".result.json.0f1e2d3c.tmp").write_text("half")
    (tmp_path / ".other.json.0f1e2d3c.tmp").write_text("of another file")
    with written_whole(path) as temporary, written_whole(path) as second:
        assert sorted(tmp_path.glob(".result*")) == sorted([temporary, second])
    assert sorted(file.name for file in tmp_path.iterdir()) == [".other.json.0f1e2d3c.tmp", "result.json"]


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path):
    with written_whole(tmp_path / ("a" * 255)) as temporary:
        temporary.write_text("whole")
    assert (tmp_path / ("a" * 255)).read_text() == "whole"


def test_a_signal_waits_until_what_is_not_to_be_disturbed_is_done():
    done, before = [], signal.signal(signal.SIGINT, signal.default_int_handler)

    def signalled() -> None:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        signalled()
    assert done == ["all"]
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_a_file_has_the_hash_of_its_bytes_and_what_is_no_file_has_none(tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(b"abc")
    assert file_sha256(tmp_path / "model.onnx") == sha256(b"abc").hexdigest()
    for other in (tmp_path, "package.module:function", "https://example.org/v2/models/x/infer"):
        assert file_sha256(other) is None


# --- finding -------------------------------------------------------------------------------------------------------


def test_the_first_name_in_the_data_home_wins_over_the_cache_and_is_taken_as_it_is(home: Path):
    file = people("http://unused", "people.tsv.gz")
    assert find_file(file) is None
    (home / "cache" / "people.tsv").write_bytes(CONTENT)
    assert find_file(file) == home / "cache" / "people.tsv"
    (home / "people.tsv.gz").write_bytes(b"")
    assert find_file(file) == home / "people.tsv.gz"
    (home / "people.tsv").write_bytes(b"my own")
    assert find_file(file) == fetch_file(file) == home / "people.tsv"


def test_a_data_home_that_is_no_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(folder / "nowhere"))
    with pytest.raises(FileError, match=r"FAIRFOX_DATA is '.*nowhere', which is not a folder"):
        find_file(people())


@pytest.mark.parametrize(
    ("variable", "expected"), [(None, ".cache/fairfox"), ("XDG_CACHE_HOME", "own/fairfox"), ("FAIRFOX_CACHE", "own")]
)
def test_the_cache_is_where_caches_are_kept_unless_it_is_named(
    variable: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("FAIRFOX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert cache_home() == tmp_path / expected


# --- downloading ---------------------------------------------------------------------------------------------------


def test_a_file_is_downloaded_once_through_redirects(folder: Path):
    def answer(asked):
        return Reply(CONTENT) if asked.path == "/media" else Reply(b"", 302, {"Location": "/media"})

    with serving(answer) as server:
        first, second = fetch_file(people(server.root)), fetch_file(people(server.root))
    assert first == second == folder / "people.tsv"
    assert first.read_bytes() == CONTENT
    assert [asked.path for asked in server.asked] == ["/people.tsv", "/media"]
    assert list(folder.iterdir()) == [first]


def test_a_damaged_file_in_the_cache_is_downloaded_again(folder: Path):
    folder.mkdir()
    (folder / "people.tsv").write_bytes(CONTENT[:-1])
    with serving(lambda asked: Reply(CONTENT)) as server:
        assert find_file(people(server.root)) is None
        assert fetch_file(people(server.root)).read_bytes() == CONTENT


def hang_up(asked):
    raise HangUp


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda asked: Reply(b"version https://git-lfs"), r"has the SHA-256 checksum .*, expected .*FAIRFOX_"),
        (lambda asked: Reply(b"gone", 404), "Not Found"),
        (hang_up, "closed connection"),
        (lambda asked: Reply(CONTENT, headers={"Content-Length": "99"}), "IncompleteRead"),
    ],
    ids=["another file", "not found", "no answer", "cut short"],
)
def test_a_server_that_fails_gives_its_reason_and_nothing_is_kept(answer, reason: str, folder: Path):
    with serving(answer) as server, pytest.raises(FileError, match=reason):
        fetch_file(people(server.root))
    assert not folder.exists()


def test_without_a_network_the_message_says_where_to_put_the_file(folder: Path):
    with pytest.raises(FileError) as refused:
        fetch_file(people(free_address()))
    said = str(refused.value)
    assert said.startswith("'people.tsv' is not on this machine and could not be downloaded from http://127.0.0.1")
    assert "Connection refused" in said
    assert said.endswith(f"put it in the folder that FAIRFOX_DATA names, or in '{folder}'")


def test_a_file_without_a_checksum_is_asked_for(home: Path):
    file = DataFile(("x.csv", "x.csv.gz"), by_hand="get it from https://example.org")
    with pytest.raises(FileError) as refused:
        fetch_file(file)
    assert str(refused.value) == (
        "'x.csv' is not on this machine and cannot be downloaded from here; get it from https://example.org, "
        f"and save it as 'x.csv' or 'x.csv.gz' in the folder that FAIRFOX_DATA names ('{home}')"
    )


def test_a_cache_that_cannot_be_written_is_named(folder: Path):
    folder.write_text("a file where the folder should be")
    with (
        serving(lambda asked: Reply(CONTENT)) as server,
        pytest.raises(FileError, match=r"people.tsv' could not be written .*; set FAIRFOX_CACHE to another folder"),
    ):
        fetch_file(people(server.root))
