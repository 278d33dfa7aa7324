"""What the name of a model stands for on this machine: the file, the folder or the module, and the hash of it."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

from fairfox.data.hashes import file_sha256
from fairfox.models.http_model import is_url


def file_of(spec: str) -> tuple[Path | None, str]:
    """Return the file that is named and what follows its name: "#output" of an ONNX file, ":function" of code."""
    if Path(spec).is_file():
        return Path(spec), ""
    for ending, mark in ((".onnx", "#"), (".py", ":")):
        place, found, rest = spec.partition(ending + mark)
        if found:
            path = Path(place + ending)
            return (path if path.is_file() else None), mark + rest
    return None, ""


def hash_of(spec: str) -> str | None:
    """Return a hash of the folder or the module that is named; None for what is told by its name alone: URLs,
    and modules without a file of their own.
    """
    if is_url(spec):
        return None
    if Path(spec).is_dir():
        return _folder_sha256(Path(spec))
    module = module_file(spec.rpartition(":")[0])
    return None if module is None else file_sha256(module)


def _folder_sha256(folder: Path) -> str:
    """Return a hash of the names and contents of a folder's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    told = [f"{path.relative_to(folder).as_posix()}:{file_sha256(path)}" for path in files]
    return sha256("\n".join(told).encode()).hexdigest()


def module_file(name: str) -> Path | None:
    """Return the file that importing a module would run, without running it or the packages it lies in.

    None where there is no such module, or it has no file: one that is part of Python itself, or in an archive.
    """
    names, here = name.split("."), str(Path.cwd())
    if not all(each.isidentifier() for each in names):
        return None
    folders = [*sys.path] if here in sys.path else [here, *sys.path]  # as models are imported
    origin = None
    for count in range(1, len(names) + 1):
        origin, folders = _found(".".join(names[:count]), folders)
    return None if origin is None or not Path(origin).is_file() else Path(origin)


def _found(name: str, folders: list[str]) -> tuple[str | None, list[str]]:
    """Return where a module lies that is sought in some folders, and the folders of the modules within it."""
    specs = (finder.find_spec(name, folders) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    try:
        found = next((spec for spec in specs if spec is not None), None)
    except KeyError:  # a folder without code of its own, within another one that is not imported
        inner = [Path(folder) / name.rpartition(".")[2] for folder in folders]
        return None, [str(folder) for folder in inner if folder.is_dir()]
    if found is None:
        return None, []
    return found.origin if found.has_location else None, list(found.submodule_search_locations or ())
