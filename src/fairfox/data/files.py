"""Files: written atomically, identified by hash, and found in FAIRFOX_DATA, in the cache or by download."""

from __future__ import annotations

import logging
import os
import signal
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from http.client import HTTPException
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.request import urlopen

from fairfox.errors import FileError, first_line

_log = logging.getLogger("fairfox")
# what ends a process: Ctrl-C, an end that is asked for, a terminal that is closed
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_MOST = 2**20  # bytes of files that people write
_DOTS = 500  # in a line of TOML: a key of many parts takes the square of their number
_PATIENCE = 60.0  # seconds without a byte from a server


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, delete it on failure.

    The file's mode follows the umask and is never wider than its folder's. Leftovers of killed processes are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name[:100]}."  # a name may be as long as the system allows
    for left in [entry for entry in path.parent.iterdir() if entry.name.startswith(start) and entry.suffix == ".tmp"]:
        with suppress(OSError), left.open("rb") as file:
            if lock(file.fileno()):  # no living process writes it
                left.unlink()
    temporary = path.parent / f"{start}{token_hex(4)}.tmp"
    mode = 0o666 & path.parent.stat().st_mode | 0o600
    try:
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            lock(file.fileno())  # as long as this process lives
            yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(text: str, path: str | Path | None) -> str:
    """Return a text, after writing it atomically to `path` where one is given."""
    if path is not None:
        with written_whole(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="replace")  # names of files may hold what is no text
    return text


def lock(handle: int) -> bool | None:
    """Return whether an open file or folder is locked for this process now; None where there are no locks.

    The lock ends when the file is closed or the process ends.
    """
    if os.name != "posix":
        return None
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems of networks have none
        return None
    return True


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer signals that would end the process until the block is done."""
    came: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in ENDING if here}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for number in came[:1]:
            signal.raise_signal(number)


def keep_inputs(outputs: Iterable[Path], *inputs: str | Path | None) -> None:
    """Raise where an output would overwrite an input, under any path, or a file in a model's folder."""
    written = {_file_id(output): output for output in outputs}
    for path in (Path(given).expanduser() for given in inputs if given is not None):
        parts = path.rglob("*") if _file_id(path / "MLmodel") else ()
        for read in (path, *parts):
            if (found := _file_id(read)) and found in written:
                raise FileError(f"'{written[found]}' is an input and would be overwritten; choose another --out")


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return what names of one file have in common; None where there is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # also of names that the system does not allow
        return None
    return found.st_dev, found.st_ino


def read_text(path: Path, *, most: int = _MOST) -> str:
    """Return the text of a UTF-8 file of at most `most` bytes; some files never end."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) <= most:
            return content.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise FileError(f"'{path}' cannot be read ({reason}); give a text file in UTF-8") from error
    raise FileError(f"'{path}' is larger than {most / 2**20:g} MiB, the largest size that is read; give a smaller file")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; deep nesting is refused, because it would take forever to read."""
    text = read_text(path)
    try:
        if max(line.count(".") for line in text.split("\n")) > _DOTS:
            raise ValueError(f"a line has more than {_DOTS} dots")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"'{path}' is not valid TOML: {first_line(error)}") from error


def file_sha256(path: str | Path) -> str | None:
    """Return the hash of a file; None where the path is not a file, as for code and URLs."""
    if not os.path.isfile(path):  # unlike Path.is_file, also for names the system does not allow
        return None
    with Path(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class DataFile:
    """A public data file: its names in the folder FAIRFOX_DATA, and its address and checksum or how to get it."""

    names: tuple[str, ...]  # the first that is there is taken, as it is; downloads have the first name
    address: str = ""  # "": no public file whose checksum is known
    sha256: str = ""
    by_hand: str = ""  # where to get it then


def data_home() -> Path | None:
    """Return the folder FAIRFOX_DATA names, None without it; files there are taken as they are."""
    folder = os.environ.get("FAIRFOX_DATA")
    if not folder:
        return None
    home = Path(folder).expanduser()
    if not home.is_dir():
        raise FileError(f"FAIRFOX_DATA is '{home}', which is not a folder; set it to the folder with the data files")
    return home


def cache_home() -> Path:
    """Return the folder of downloads: FAIRFOX_CACHE, else a folder `fairfox` in XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("FAIRFOX_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairfox"


def find_file(file: DataFile) -> Path | None:
    """Return the file's path on this machine, or None; in the cache only if its checksum is right."""
    home = data_home()
    own = [] if home is None else [home / name for name in file.names if (home / name).is_file()]
    if own:
        return own[0]
    cached = cache_home() / file.names[0]
    return cached if file.sha256 and file_sha256(cached) == file.sha256 else None


def fetch_file(file: DataFile) -> Path:
    """Return the file's path, after a download to the cache if needed; raise with how to get it where that fails."""
    if found := find_file(file):
        return found
    if file.address:
        return _download(file)
    home = data_home()
    raise FileError(
        f"'{file.names[0]}' is not on this machine and cannot be downloaded from here; {file.by_hand}, and save it as "
        f"{' or '.join(repr(name) for name in file.names)} in the folder that FAIRFOX_DATA names"
        f"{' (it is not set)' if home is None else f' ({str(home)!r})'}"
    )


def _download(file: DataFile) -> Path:
    name, path = file.names[0], cache_home() / file.names[0]
    advice = f"get it elsewhere and put it in the folder that FAIRFOX_DATA names, or in '{path.parent}'"
    _log.info("downloading %s", file.address)
    try:
        with urlopen(file.address, timeout=_PATIENCE) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FileError(
            f"'{name}' is not on this machine and could not be downloaded from {file.address} ({reason}); {advice}"
        ) from error
    if (found := sha256(content).hexdigest()) != file.sha256:
        raise FileError(
            f"'{name}' from {file.address} has the SHA-256 checksum {found}, expected {file.sha256}; "
            f"the source has changed or the download is damaged: {advice}"
        )
    try:
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise FileError(
            f"'{path}' could not be written ({error.strerror or error}); set FAIRFOX_CACHE to another folder"
        ) from error
    return path
