"""Zip archives, looked at before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import BinaryIO

from fairfox.errors import FileError

_MOST = 100  # times its own size that an archive may unpack to


def check_zip(file: Path | BinaryIO, name: str, *, stored: bool = False) -> list[zipfile.ZipInfo]:
    """Return the members of a zip archive, having refused what unpacks to far more than its size.

    Args:
        file: the file, or its content.
        name: what it is called in the refusal.
        stored: refuse compressed members as well.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise FileError(f"'{name}' is no zip archive, or a damaged one: {error}") from error
    if min((m.header_offset for m in members), default=1) != 0:  # an archive inside another file, or none at all
        raise FileError(f"'{name}' is no zip archive, or a damaged one: it does not begin with a member")
    size = file.stat().st_size if isinstance(file, Path) else file.seek(0, io.SEEK_END)
    unpacked = sum(m.file_size for m in members)
    squeezed = stored and any(m.compress_type != zipfile.ZIP_STORED for m in members)
    if squeezed or unpacked > size * (1 if stored else _MOST):
        raise FileError(f"'{name}' would unpack its {size} bytes to {unpacked}, and is not read")
    return members


def is_torchscript(path: Path) -> bool:
    """Return whether a file is a TorchScript archive: a zip with code and constants."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
        return False
    return "constants.pkl" in members and any(name.startswith("code/") for name in members)
