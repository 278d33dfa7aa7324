"""Each benchmark is loaded as a script would be; the file that tests it says its name: BENCH = "bench_score"."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def bench(request):
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module(request.module.BENCH)
    for name in ({path.stem for path in FOLDER.glob("*.py")} & set(sys.modules)) - before:
        del sys.modules[name]


@pytest.fixture(scope="module")
def quick(bench, tmp_path_factory):
    """What --quick writes."""
    out = tmp_path_factory.mktemp("bench") / "deep" / "found.json"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            assert bench.BENCHMARK.run(["--quick", "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(threads)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert all(ratio["holds"] is None for ratio in found["ratios"])  # no bar counts at these sizes
    return found
