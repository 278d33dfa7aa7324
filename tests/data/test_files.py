import pytest

from fairfox.data.files import written_whole


def test_a_file_appears_under_its_name_once_it_is_written(tmp_path):
    path = tmp_path / "new folder" / "result.json"
    with written_whole(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), written_whole(path) as temporary:
        temporary.write_bytes((tmp_path / "no such file").read_bytes())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_the_file(tmp_path):
    path = tmp_path / "report.html"
    with written_whole(path) as temporary:
        temporary.write_text("<p>")
    assert path.stat().st_mode & 0o777 == 0o644
