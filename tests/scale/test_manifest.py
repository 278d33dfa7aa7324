import json
from pathlib import Path

import pytest

from fairfox.errors import FileError
from fairfox.scale.manifest import MANIFEST, Manifest, Record, read_manifest
from fairfox.scale.places import Part, Source

PART = Part(Source("in", "/in/a.parquet", 9, "7"), (2, 4), 100, 50)


def written(folder: Path) -> dict:
    """Write a manifest with one part to come, and return its fields."""
    Manifest({"delta": 0.1}, {"people": 3}, (Record.of(PART, {}, {}).entry("part-00000.parquet"),)).write(folder)
    return json.loads((folder / MANIFEST).read_text())


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path):
    assert read_manifest(tmp_path) is None
    written(tmp_path)
    entry = {"name": "part-00000.parquet", "file": "/in/a.parquet", "size": 9, "stamp": "7", "first_row": 100}
    expected = {**entry, "rows": 50, "sha256": "", "row_groups": [2, 4]}
    assert read_manifest(tmp_path) == Manifest({"delta": 0.1}, {"people": 3}, (expected,))


@pytest.mark.parametrize("lacking", ["name", "file", "size", "stamp", "first_row", "rows", "sha256", "row_groups"])
def test_an_entry_that_lacks_something_is_damage_when_it_is_read(tmp_path: Path, lacking: str):
    fields = written(tmp_path)
    del fields["parts"][0][lacking]
    (tmp_path / MANIFEST).write_text(json.dumps(fields))
    with pytest.raises(
        FileError, match=r"manifest.json' is damaged \(KeyError\); choose another folder, or begin anew"
    ):
        read_manifest(tmp_path)


def test_a_manifest_that_cannot_be_read_and_one_of_another_version_are_told_apart(tmp_path: Path):
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(FileError, match=r"manifest.json' cannot be read \(Is a directory\); choose another folder"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).rmdir()
    (tmp_path / MANIFEST).write_text(json.dumps(written(tmp_path) | {"format": 99}))
    with pytest.raises(FileError, match=r"manifest.json' was written by another version of fairfox"):
        read_manifest(tmp_path)
