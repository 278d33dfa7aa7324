"""A world for engines of many machines: a test, a model, people, and everyone's scores from one machine."""

from pathlib import Path

import pytest

from tests.engines.checks import PEOPLE
from tests.streaming.world import make_world, score_here


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("world"), people=PEOPLE, row_group=500, id="name")
    score_here(folder, "local")
    return folder
