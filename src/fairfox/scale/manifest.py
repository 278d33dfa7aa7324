"""manifest.json: which parts a folder of scores has, and how they came about; whether a run may go on with them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.data.files import written_whole
from fairfox.data.hashes import file_sha256
from fairfox.errors import FileError, OptionError
from fairfox.scale.places import RECORD, Part
from fairfox.scale.sketches import Sketch
from fairfox.scale.summary import as_json

MANIFEST, SUMMARY, SCORES = "manifest.json", "summary.json", "scores.parquet"
LOCK = ".lock"  # names the process that writes
_ENTRY = ("name", "file", "size", "stamp", "first_row", "rows", "sha256", "row_groups")  # of a part in the manifest
_FORMAT = 1
_LOG = logging.getLogger(__name__)
_ANEW = "choose another folder, or begin anew with --overwrite"


@dataclass(frozen=True)
class Record:
    """What a part file says of itself, in its footer, so that file and record appear together."""

    file: str
    size: int
    stamp: str | None
    groups: tuple[int, int]
    first_row: int
    rows: int
    sketch: Sketch = field(repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict)  # reading, scoring and writing took
    run: str = ""  # the key of the manifest it belongs to
    sha256: str = ""  # of the part file itself; not in its footer

    @classmethod
    def of(cls, part: Part, sketch: Sketch, seconds: Mapping[str, float], run: str = "") -> Record:
        """Return the record of a part that was scored."""
        s = part.source
        return cls(s.name, s.size, s.stamp, part.groups, part.first_row, part.rows, sketch, dict(seconds), run)

    def to_bytes(self) -> bytes:
        """Return it as the footer holds it."""
        return json.dumps({k: v for k, v in vars(self).items() if k != "sha256"}).encode()

    def entry(self, name: str) -> dict[str, Any]:
        """Return it as the manifest lists it."""
        own = vars(self) | {"name": name, "row_groups": list(self.groups)}
        return {field: own[field] for field in _ENTRY}


def read_record(path: Path, entry: Mapping[str, Any], run: str) -> Record:
    """Return what a part file says of itself, with the hash of its content; it must be this entry's, of this run."""
    try:
        with pa.OSFile(str(path)) as file:
            fields = json.loads(pq.ParquetFile(file).metadata.metadata[RECORD])
        found = Record(**{**fields, "groups": tuple(fields["groups"])}, sha256=file_sha256(path) or "")
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise FileError(f"'{path}' is no part that fairfox score wrote ({type(error).__name__}); {_ANEW}") from error
    if {**found.entry(entry["name"]), "sha256": ""} != {**entry, "sha256": ""}:
        raise FileError(f"'{path}' holds scores of other people than {MANIFEST} says; {_ANEW}")
    if found.run != run:
        raise FileError(f"'{path}' holds scores of a run with other settings than {MANIFEST} says; {_ANEW}")
    if entry["sha256"] not in ("", found.sha256):
        raise FileError(
            f"'{path}' has changed since it was written: its hash is not the one in {MANIFEST}; delete it, and the "
            "same command scores its people again"
        )
    return found


@dataclass(frozen=True)
class Manifest:
    """What a folder was begun with: settings that must stay, what was settled, and the parts in order."""

    settings: Mapping[str, Any]
    settled: Mapping[str, Any]
    parts: tuple[Mapping[str, Any], ...] = ()  # entries: of parts to come without rows' hashes
    failed: Mapping[str, str] = field(default_factory=dict)  # what is wrong, by file
    complete: bool = False

    @property
    def key(self) -> str:
        """What tells it from runs with other settings; every part has it too."""
        return sha256(as_json({"settings": self.settings, "settled": self.settled}).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write manifest.json, whole or not at all."""
        rows = sum(entry["rows"] for entry in self.parts if entry["sha256"])
        fields = {"format": _FORMAT, "kind": "score", "complete": self.complete, "rows": rows, **vars(self)}
        with written_whole(folder / MANIFEST) as path:
            path.write_text(as_json(fields), encoding="utf-8")

    def check_same(self, settings: Mapping[str, Any], folder: Path) -> None:
        """Refuse to go on with other settings, and say which differ."""
        changed = [name for name in {**self.settings, **settings} if self.settings.get(name) != settings.get(name)]
        if changed:
            name = changed[0]
            was, now = (_shown(each.get(name)) for each in (self.settings, settings))
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise OptionError(f"'{folder}' holds scores with another {name}{more}: {was} there, {now} now; {_ANEW}")

    def planned(self, parts: Sequence[Part], folder: Path, failed: Mapping[str, str]) -> Manifest:
        """Return the manifest with the parts of a plan: those that it has keep their names, new ones follow.

        A file that has changed since, is no longer among the tables or `failed` to open is refused.
        """
        wanted = {(part.source.name, part.groups): part for part in parts}
        kept = []
        for entry in self.parts:
            part = wanted.pop((entry["file"], tuple(entry["row_groups"])), None)
            if part is None and entry["file"] in failed:
                raise FileError(
                    f"'{folder}' holds scores of a file that is not whole now: {failed[entry['file']]}; {_ANEW}"
                )
            if part is None or part.source.identity != {k: entry[k] for k in ("file", "size", "stamp")}:
                why = "is not among the tables now, or has other row groups" if part is None else "has changed since"
                raise FileError(f"'{folder}' holds scores of '{entry['file']}', which {why}; {_ANEW}")
            kept.append(entry)
        new = [
            Record.of(part, {}, {}).entry(f"part-{number:05d}.parquet")
            for number, part in enumerate(wanted.values(), start=len(kept))
        ]
        if sum(entry["rows"] for entry in (*kept, *new)) != sum(part.rows for part in parts):
            raise FileError("Some row groups of the tables have the same name, and would be lost; score them apart")
        return replace(self, parts=(*kept, *new), failed={}, complete=False)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None where there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != _FORMAT:
            raise FileError(f"'{path}' was written by another version of fairfox; {_ANEW}")
        own = {name: fields[name] for name in ("settings", "settled", "failed", "complete")}
        parts = tuple({name: entry[name] for name in _ENTRY} for entry in fields["parts"])
        return Manifest(**own, parts=parts)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"'{path}' cannot be read ({error.strerror or error}); {_ANEW}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(f"'{path}' is damaged ({type(error).__name__}); {_ANEW}") from error


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder, which is made where there is none, until the end, also that of the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error) from error
    with file:
        _lock(file, folder)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {gethostname()}")
        file.flush()
        try:
            yield
        finally:
            if os.name == "posix":  # others delete no file that is open
                (folder / LOCK).unlink(missing_ok=True)


def _lock(file: IO[str], folder: Path) -> None:
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise OptionError(
            f"Another run ({file.read()}) is writing to '{folder}'; wait for it, or choose another folder"
        ) from error
    except OSError as error:  # some file systems of networks have no locks
        _LOG.warning("'%s' cannot be locked (%s): take care that no other run writes to it", folder, error.strerror)
    here = folder / LOCK
    if not (here.exists() and os.path.samestat(here.stat(), os.fstat(file.fileno()))):
        raise OptionError(f"Another run in '{folder}' has just ended; give the same command again")


def unwritable(folder: Path, error: OSError) -> FileError:
    """Return what to say where a folder takes no results."""
    return FileError(f"The results cannot be written to '{folder}' ({error.strerror or error}); choose another folder")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        digest = str(value.get("sha256", ""))[:8]
        return f"'{value.get('name', '')}'" + (f" (hash {digest})" if digest else "")
    return "none" if value is None else f"'{value}'"
