"""Where data files are found and how they are downloaded, from a server on this machine."""

from hashlib import sha256
from pathlib import Path

import pytest
from servers import HangUp, Reply, free_address, serving

from fairfox.data import cache
from fairfox.data.cache import Remote, cache_home, fetch, find
from fairfox.errors import FileError

CONTENT = b"a\tb\n1\t2\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache: empty, and there is no data home."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FAIRFOX_DATA", raising=False)
    return tmp_path / "cache"


def remote(root: str, content: bytes = CONTENT) -> Remote:
    return Remote("people.tsv", f"{root}/people.tsv", sha256(content).hexdigest())


def test_a_file_is_downloaded_once(folder: Path):
    with serving(lambda asked: Reply(CONTENT)) as server:
        first, second = fetch(remote(server.root)), fetch(remote(server.root))
    assert first == second == folder / "people.tsv"
    assert first.read_bytes() == CONTENT
    assert [asked.path for asked in server.asked] == ["/people.tsv"]
    assert list(folder.iterdir()) == [first]


def test_redirects_are_followed(folder: Path):
    def answer(asked):
        return Reply(CONTENT) if asked.path == "/media" else Reply(b"", 302, {"Location": "/media"})

    with serving(answer) as server:
        assert fetch(remote(server.root)).read_bytes() == CONTENT


def test_the_data_home_comes_first_and_its_files_are_taken_as_they_are(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    (tmp_path / "people.tsv").write_bytes(b"my own")
    folder.mkdir()
    (folder / "people.tsv").write_bytes(CONTENT)
    assert fetch(remote(free_address())) == tmp_path / "people.tsv"


def test_a_data_home_without_the_file_leaves_it_to_the_cache(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    folder.mkdir()
    (folder / "people.tsv").write_bytes(CONTENT)
    assert fetch(remote(free_address())) == folder / "people.tsv"


def test_a_data_home_that_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileError, match=r"FAIRFOX_DATA names '.*nowhere', which is no folder"):
        find(remote("http://unused"))


def test_a_damaged_file_in_the_cache_is_downloaded_again(folder: Path):
    folder.mkdir()
    (folder / "people.tsv").write_bytes(CONTENT[:-1])
    with serving(lambda asked: Reply(CONTENT)) as server:
        assert find(remote(server.root)) is None
        assert fetch(remote(server.root)).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(folder: Path):
    with (
        serving(lambda asked: Reply(b"version https://git-lfs.github.com/spec/v1")) as server,
        pytest.raises(FileError, match=r"'people.tsv' from http.* has the SHA-256 checksum .*, expected .*FAIRFOX_"),
    ):
        fetch(remote(server.root))
    assert not folder.exists()


def test_without_a_network_it_is_said_where_to_put_the_file(folder: Path):
    with pytest.raises(FileError) as refused:
        fetch(remote(free_address()))
    said = str(refused.value)
    assert said.startswith("'people.tsv' is not on this machine and could not be downloaded from http://127.0.0.1")
    assert "Connection refused" in said
    assert said.endswith(f"put it into the folder that FAIRFOX_DATA names, or into '{folder}'")
    assert not folder.exists()


def hang_up(asked):
    raise HangUp


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda asked: Reply(b"gone", 404), "Not Found"),
        (hang_up, "closed connection"),
        (lambda asked: Reply(CONTENT, headers={"Content-Length": "99"}), "IncompleteRead"),
    ],
    ids=["not found", "no answer", "cut short"],
)
def test_a_server_that_fails_gives_its_reason(answer, reason: str, folder: Path):
    with serving(answer) as server, pytest.raises(FileError, match=reason):
        fetch(remote(server.root))
    assert not folder.exists()


def test_a_server_that_stays_silent_is_left_alone_after_a_while(monkeypatch: pytest.MonkeyPatch):
    import threading

    monkeypatch.setattr(cache, "_PATIENCE", 0.1)
    done = threading.Event()

    def answer(asked):
        done.wait(5)
        raise HangUp

    with serving(answer) as server:
        with pytest.raises(FileError, match="timed out"):
            fetch(remote(server.root))
        done.set()


def test_a_cache_that_cannot_be_written_is_named(folder: Path):
    folder.parent.joinpath("cache").write_text("a file where the folder should be")
    with (
        serving(lambda asked: Reply(CONTENT)) as server,
        pytest.raises(FileError, match=r"people.tsv' could not be written .*; name another folder in FAIRFOX_CACHE"),
    ):
        fetch(remote(server.root))


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, ".cache/fairfox"),
        ("linux", "XDG_CACHE_HOME", "own/fairfox"),
        ("darwin", None, "Library/Caches/fairfox"),
        ("win32", None, "AppData/Local/fairfox/Cache"),
        ("win32", "LOCALAPPDATA", "own/fairfox/Cache"),
        ("linux", "FAIRFOX_CACHE", "own"),
        ("darwin", "FAIRFOX_CACHE", "own"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches_unless_told(
    platform: str, variable: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("FAIRFOX_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert cache_home() == tmp_path / expected
