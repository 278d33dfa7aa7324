"""Each benchmark is loaded as a script would be; the file that tests it says its name: BENCH = "bench_score"."""

import json

import pytest
import torch


@pytest.fixture(scope="module")
def bench(request, load):
    return load("benchmarks", request.module.BENCH)


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
