"""The benchmark runs, and its README shows what it last measured."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_quick_benchmark_runs_and_writes_its_ratios(tmp_path: Path):
    out = tmp_path / "score.json"
    command = [sys.executable, FOLDER / "bench_score.py", "--quick", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [r["name"] for r in found["ratios"]] == ["gradient tests", "row by row", "rank on trees", "training"]
    assert all(r["ratio"] > 0 for r in found["ratios"])
    assert {"seed", "seconds", "machine", "versions", "settings", "quick"} <= set(found)


def test_the_readme_shows_the_results_file():
    bench = runpy.run_path(str(FOLDER / "bench_score.py"))
    found = json.loads((FOLDER / "results" / "score.json").read_text())
    assert not found["quick"]
    assert bench["as_table"](found) in (FOLDER / "README.md").read_text()
