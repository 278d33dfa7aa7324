"""Experiments are loaded as their scripts would be; the file that tests one says its name: EXPERIMENT = "table1"."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def experiment(request):
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module(request.module.EXPERIMENT)
    for name in {path.stem for path in FOLDER.glob("*.py")} & set(sys.modules) - before:
        del sys.modules[name]
