"""Where data files come from: the folder FAIRFOX_DATA, the cache, or their public source, checked by checksum."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fairfox.data.files import written_whole
from fairfox.errors import FileError

_log = logging.getLogger("fairfox")
_PATIENCE = 60.0  # seconds without a byte from a server


@dataclass(frozen=True)
class Remote:
    """A public data file: its name in folders of ours, its address, and its SHA-256 checksum."""

    name: str
    address: str
    sha256: str


def cache_home() -> Path:
    """Return the folder of downloads: FAIRFOX_CACHE, else a folder `fairfox` where the platform keeps caches."""
    if own := os.environ.get("FAIRFOX_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fairfox" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fairfox"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairfox"


def find(remote: Remote) -> Path | None:
    """Return where the file is on this machine, or None.

    A file in FAIRFOX_DATA is taken as it is; one in the cache only when its checksum is right.
    """
    if folder := os.environ.get("FAIRFOX_DATA"):
        home = Path(folder).expanduser()
        if not home.is_dir():
            raise FileError(f"FAIRFOX_DATA names '{home}', which is no folder; name the folder that has the data files")
        if (home / remote.name).is_file():
            return home / remote.name
    cached = cache_home() / remote.name
    return cached if cached.is_file() and _checksum(cached.read_bytes()) == remote.sha256 else None


def fetch(remote: Remote) -> Path:
    """Return where the file is on this machine, after downloading it to the cache where it is not."""
    return find(remote) or _download(remote)


def _download(remote: Remote) -> Path:
    _log.info("downloading %s", remote.address)
    try:
        with urlopen(remote.address, timeout=_PATIENCE) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FileError(
            f"'{remote.name}' is not on this machine and could not be downloaded from {remote.address} ({reason}); "
            f"{_advice()}"
        ) from error
    if (found := _checksum(content)) != remote.sha256:
        raise FileError(
            f"'{remote.name}' from {remote.address} has the SHA-256 checksum {found}, expected {remote.sha256}; "
            f"the source has changed or the download is damaged: {_advice()}"
        )
    path = cache_home() / remote.name
    try:
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise FileError(
            f"'{path}' could not be written ({error.strerror or error}); name another folder in FAIRFOX_CACHE"
        ) from error
    return path


def _advice() -> str:
    return f"get it elsewhere and put it into the folder that FAIRFOX_DATA names, or into '{cache_home()}'"


def _checksum(content: bytes) -> str:
    return sha256(content).hexdigest()
