"""Every example runs."""

import importlib.util
from functools import partial
from pathlib import Path
from runpy import run_path
from types import ModuleType

import pytest

from fairfox.data.catalog import DATASETS
from fairfox.data.files import find_file

pytestmark = pytest.mark.brief
COMPAS = DATASETS["compas"].files
GERMAN = DATASETS["german"].files

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
NEED = {"policing.py": COMPAS, "credit.py": GERMAN}  # tables that do not come with fairfox


def load(name: str) -> ModuleType:
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name.removesuffix('.py')}", FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.name not in NEED], ids=lambda path: path.name)
def test_the_example_runs_and_prints(path: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 5


@pytest.mark.parametrize("name", NEED)
def test_the_example_on_a_table_of_its_own_runs_on_some_of_its_people_and_prints(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if any(find_file(file) is None for file in NEED[name]):
        pytest.skip("its table is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    example = load(name)
    monkeypatch.setattr(example, "investigate", partial(example.investigate, rows=180, refits=2))
    example.main()
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) >= 5
    assert shown.err == ""


@pytest.mark.parametrize("name", NEED)
def test_without_its_table_the_example_says_so_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    nowhere = "http://127.0.0.1:9"  # nothing listens there
    away = {"FAIRFOX_DATA": str(tmp_path), "FAIRFOX_CACHE": str(tmp_path / "cache"), "https_proxy": nowhere}
    for variable, value in away.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        run_path(str(FOLDER / name), run_name="__main__")
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "is not on this machine" in shown.err
    assert len(shown.err.splitlines()) == 1
