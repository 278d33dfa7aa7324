"""Scripts of experiments/ and benchmarks/ are loaded as if run, and forgotten after the file that tests them."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def load():
    """Import a script of a folder, with those beside it."""
    before, folders = set(sys.modules), []
    with pytest.MonkeyPatch.context() as patch:

        def loaded(folder, name):
            folders.append(ROOT / folder)
            patch.syspath_prepend(folders[-1])
            return importlib.import_module(name)

        yield loaded
    scripts = {path.stem for folder in folders for path in folder.glob("*.py")}
    for name in (scripts & set(sys.modules)) - before:
        del sys.modules[name]
