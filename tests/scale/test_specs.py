import sys
from hashlib import sha256
from pathlib import Path

import pytest

from fairfox.scale.specs import file_of, hash_of, module_file

FAILS = "raise RuntimeError('it was run')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder people are in, with a package, and one without code of its own; running any of them fails."""
    monkeypatch.chdir(tmp_path)
    for name in ("ours_a/__init__", "ours_a/inner", "ours_b/deep/inner"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FAILS)
    return tmp_path


def test_the_file_of_a_module_is_found_without_running_it(folder: Path):
    assert module_file("ours_a") == folder / "ours_a/__init__.py"
    assert module_file("ours_a.inner") == folder / "ours_a/inner.py"
    assert module_file("ours_b.deep.inner") == folder / "ours_b/deep/inner.py"
    assert hash_of("ours_a.inner:predict") == sha256(FAILS.encode()).hexdigest()
    assert not [name for name in sys.modules if name.startswith("ours_")]


@pytest.mark.parametrize("name", ["sys", "ours_b", "ours_b.deep", "ours_a.other", "ours_c.inner", "", "a/b", "ours_a."])
def test_what_is_no_module_with_a_file_has_none(folder: Path, name: str):
    assert module_file(name) is None
    assert hash_of(f"{name}:predict") is None


def test_the_folder_people_are_in_comes_first_as_when_models_are_imported(folder: Path):
    (folder / "json.py").write_text(FAILS)
    assert module_file("json") == folder / "json.py"


def test_urls_are_told_by_their_names_alone(folder: Path):
    assert hash_of("https://models.example/ours_a:predict") is None
    assert hash_of(f"file://{folder}/ours_a") is None
    assert hash_of(str(folder / "ours_a")) is not None  # a folder is told by its files


def test_what_follows_the_name_of_a_file_is_told_from_it(folder: Path):
    (folder / "a.onnx").touch()
    (folder / "b.py").touch()
    assert file_of("a.onnx#score") == (Path("a.onnx"), "#score")
    assert file_of("b.py:predict") == (Path("b.py"), ":predict")
    assert file_of("a.onnx") == (Path("a.onnx"), "")
    assert file_of("c.py:predict") == (None, ":predict")
    assert file_of("ours_a:predict") == (None, "")
