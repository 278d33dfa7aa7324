"""Experiments are loaded as their scripts would be; the file that tests one says its name: EXPERIMENT = "table1"."""

import json

import pytest
import torch

from fairfox.data.catalog import DATASETS
from fairfox.data.files import find_file


@pytest.fixture(scope="module")
def experiment(request, load):
    return load("experiments", request.module.EXPERIMENT)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """Run an experiment in small, and return what it wrote; the global generator stays as it was."""

    def run(experiment, *arguments, out=None):
        out = out or tmp_path_factory.mktemp("quick") / f"{experiment.name}.json"
        before = torch.random.get_rng_state()
        assert experiment.run(["--quick", "--workers", "1", "--out", str(out), *arguments]) == 0
        assert torch.equal(torch.random.get_rng_state(), before)
        return json.loads(out.read_text(encoding="utf-8"))

    return run


@pytest.fixture(scope="module")
def quick(experiment, request, quick_run, load, need):
    """What the experiment of a test module writes in small, or its PART of one; skip without the tables it NEEDS."""
    need(*getattr(request.module, "NEEDS", ()))
    if not hasattr(request.module, "PART"):
        return quick_run(experiment.EXPERIMENT)
    name, part = request.module.PART
    script = load("experiments", name)
    found = quick_run(script.EXPERIMENT, "--only", part)
    assert found.keys() & script.PARTS.keys() == found["settings"].keys() == {part}
    return load("experiments", "runner").part_of(found, part) | {"settings": found["settings"][part]}


@pytest.fixture(scope="module")
def need():
    """Skip where one of the tables is not on this machine."""

    def check(*names):
        lacking = [name for name in names if any(find_file(file) is None for file in DATASETS[name].files)]
        if lacking:
            pytest.skip(f"{', '.join(lacking)}: not on this machine; FAIRFOX_DATA names the folder of real data sets")

    return check


@pytest.fixture(scope="module")
def pmlb(need):
    """Skip where two of the paper's tables are not on this machine."""
    need("magic", "backache")
