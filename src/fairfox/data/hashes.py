"""SHA-256 hashes that say which rows, predictions and files a result is about."""

from __future__ import annotations

from hashlib import file_digest, sha256
from pathlib import Path

from torch import Tensor

from fairfox.data.dataset import Dataset


def file_sha256(path: str | Path) -> str | None:
    """Return the hash of a file's bytes; None where the path names no file, as for code and URLs."""
    if not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def rows_sha256(data: Dataset) -> str:
    """Return the hash of encoded rows and protected values."""
    return tensors_sha256(data.x, data.c)


def tensors_sha256(*parts: Tensor) -> str:
    """Return the hash of the numbers of tensors, one after the other."""
    found = sha256()
    for part in parts:
        found.update(part.contiguous().numpy(force=True).tobytes())
    return found.hexdigest()
