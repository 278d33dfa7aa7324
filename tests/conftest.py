"""What several tests share."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import fairfox.fairtests.fitted as engine
from fairfox.auxiliary.model import AuxiliaryModel


@pytest.hookimpl(tryfirst=True)  # before any fixture
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let auxiliary models train for two epochs where the mark `brief` says that their quality does not matter."""
    brief = item.get_closest_marker("brief")
    engine.AuxiliaryModel = partial(AuxiliaryModel, max_epochs=2) if brief else AuxiliaryModel  # type: ignore[misc]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawings of pages, which have tests of their own and take most of the time."""
    monkeypatch.setattr("fairfox.report.charts.specs", lambda shown: {name: {} for name in shown})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty data home; the cache is empty too."""
    monkeypatch.setenv("FAIRFOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAIRFOX_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def data_home() -> Path:
    """The folder of real data sets that FAIRFOX_DATA names."""
    folder = os.environ.get("FAIRFOX_DATA")
    if not folder:
        pytest.skip("FAIRFOX_DATA is not set; it names the folder with the real data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"FAIRFOX_DATA names {folder}, which is no folder")
    return Path(folder)


@pytest.fixture
def data_file(data_home: Path) -> Callable[[str], Path]:
    """The path of one real data set, by its file name."""

    def find(name: str) -> Path:
        if not (data_home / name).is_file():
            pytest.skip(f"{name} is not in FAIRFOX_DATA ({data_home})")
        return data_home / name

    return find
