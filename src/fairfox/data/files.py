"""Files: written whole or not at all, recognised by their hash, found in FAIRFOX_DATA, in the cache or downloaded."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from http.client import HTTPException
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.request import urlopen

from fairfox.errors import FileError, first_line

_log = logging.getLogger("fairfox")
_MOST = 2**20  # bytes of files that people write
_DOTS = 500  # in a line of TOML: a key of many parts takes the square of their number
_PATIENCE = 60.0  # seconds without a byte from a server


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, delete it on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
        temporary = Path(handle.name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_text(path: Path, *, most: int = _MOST) -> str:
    """Return the text of a file in UTF-8, after no more than `most` bytes of it: some files never end."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) <= most:
            return content.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise FileError(f"'{path}' cannot be read ({reason}); give a text file in UTF-8") from error
    raise FileError(f"'{path}' is larger than {most / 2**20:g} MiB, the most that is read; give a smaller file")


def read_toml(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file; one whose keys or lists are nested deep is refused before it takes forever."""
    text = read_text(path)
    try:
        if max(line.count(".") for line in text.split("\n")) > _DOTS:
            raise ValueError(f"a line has more than {_DOTS} dots")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"'{path}' is no TOML that can be read: {first_line(error)}") from error


def file_sha256(path: str | Path) -> str | None:
    """Return the hash of a file's bytes; None where the path names no file, as for code and URLs."""
    if not Path(path).is_file():
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
        raise FileError(f"FAIRFOX_DATA names '{home}', which is no folder; name the folder that has the data files")
    return home


def cache_home() -> Path:
    """Return the folder of downloads: FAIRFOX_CACHE, else a folder `fairfox` in XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("FAIRFOX_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairfox"


def find_file(file: DataFile) -> Path | None:
    """Return where the file is on this machine, or None; one in the cache counts only when its checksum is right."""
    home = data_home()
    own = [] if home is None else [home / name for name in file.names if (home / name).is_file()]
    if own:
        return own[0]
    cached = cache_home() / file.names[0]
    return cached if file.sha256 and file_sha256(cached) == file.sha256 else None


def fetch_file(file: DataFile) -> Path:
    """Return where the file is, after downloading it to the cache where it is nowhere; else say how to get it."""
    if found := find_file(file):
        return found
    if file.address:
        return _download(file)
    home = data_home()
    raise FileError(
        f"'{file.names[0]}' is not on this machine and cannot be downloaded and checked; {file.by_hand}, and put it as "
        f"{' or '.join(repr(name) for name in file.names)} into the folder that FAIRFOX_DATA names"
        f"{' (it is not set)' if home is None else f' ({str(home)!r})'}"
    )


def _download(file: DataFile) -> Path:
    name, path = file.names[0], cache_home() / file.names[0]
    advice = f"get it elsewhere and put it into the folder that FAIRFOX_DATA names, or into '{path.parent}'"
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
            f"'{path}' could not be written ({error.strerror or error}); name another folder in FAIRFOX_CACHE"
        ) from error
    return path
