import io
import zipfile
from pathlib import Path

import pytest

from fairfox.errors import FileError
from fairfox.models.archives import check_zip, is_torchscript


def archive(path: Path, *, squeeze: bool = False, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if squeeze else zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_the_members_of_an_archive_are_returned(tmp_path: Path):
    path = archive(tmp_path / "a.zip", one=b"1", two=b"22")
    assert [m.filename for m in check_zip(path, "a.zip", stored=True)] == ["one", "two"]
    assert [m.filename for m in check_zip(io.BytesIO(path.read_bytes()), "a.zip")] == ["one", "two"]


def test_an_archive_may_be_compressed_but_not_out_of_all_proportion(tmp_path: Path):
    check_zip(archive(tmp_path / "a.zip", squeeze=True, text=b"fair " * 100), "a.zip")
    bomb = archive(tmp_path / "b.zip", squeeze=True, zeros=bytes(10**6))
    with pytest.raises(FileError, match=r"'b.zip' would unpack its \d+ bytes to 1000000, and is not read"):
        check_zip(bomb, "b.zip")


def test_a_compressed_member_is_refused_where_none_may_be(tmp_path: Path):
    with pytest.raises(FileError, match=r"'a.zip' would unpack its"):
        check_zip(archive(tmp_path / "a.zip", squeeze=True, one=b"1"), "a.zip", stored=True)


@pytest.mark.parametrize("damage", [lambda b: b[:-5], lambda b: b"", lambda b: b"before " + b, lambda b: b"PK\x03\x04"])
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, damage):
    path = archive(tmp_path / "a.zip", one=b"1")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=r"'a.zip' is no zip archive, or a damaged one"):
        check_zip(path, "a.zip")


def test_torchscript_is_told_by_its_code_and_constants(tmp_path: Path):
    assert is_torchscript(archive(tmp_path / "a.pt", **{"a/constants.pkl": b"", "a/code/__torch__.py": b""}))
    assert not is_torchscript(archive(tmp_path / "b.pt", **{"b/data.pkl": b""}))
    (tmp_path / "c.pt").write_bytes(b"no zip")
    assert not is_torchscript(tmp_path / "c.pt")
