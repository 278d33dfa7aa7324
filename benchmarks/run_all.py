"""Every benchmark, one after the other, and one file with all results.

`python benchmarks/run_all.py` runs each bench_*.py as it would run alone (its results, its numbers in README.md, which
is the documentation's page on speed) and puts all results into results/bench.json, and every ratio into one table at
the top of README.md. `--quick` runs everything at small sizes and writes nothing; `--collect` only writes the file and
the table, from the results that are there; `--only` takes some.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from timing import Benchmark, judged, put_between

from fairfox.data.files import written_whole

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "bench.json"
README = HERE / "README.md"
MARKS = ("<!-- summary of run_all.py: begin -->", "<!-- summary of run_all.py: end -->")


def benchmarks() -> dict[str, Benchmark]:
    """Return every benchmark of this folder by its script's name; scripts that say nothing of themselves are not."""
    names = sorted(path.stem for path in HERE.glob("bench_*.py"))
    found = {name: getattr(importlib.import_module(name), "BENCHMARK", None) for name in names}
    return {name: one for name, one in found.items() if one is not None}


def has_what_it_needs(name: str) -> bool:
    """Return whether a benchmark can run here: that of GPUs needs one."""
    return name != "bench_gpu" or torch.cuda.is_available()


def collect(to: Path) -> dict[str, Any]:
    """Write the results of all benchmarks into one file, and return them."""
    files = {name: one.results for name, one in benchmarks().items()}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    with written_whole(to) as path:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found


def summary(found: dict[str, Any]) -> str:
    """Return every ratio of every benchmark with its bar, and whether it holds, in one Markdown table."""
    lines = ["| script | what | over | bar | measured | holds |", "|---|---|---|---|---|---|"]
    ratios = [(name, ratio) for name, one in found.items() for ratio in one["ratios"]]
    for name, ratio in ratios:
        bar, holds = judged(ratio)
        what, over = short(ratio["of"]), short(ratio["over"])
        lines.append(f"| {name.removeprefix('bench_')} | {what} | {over} | {bar} | {ratio['ratio']:.3g} | {holds} |")
    bars = [ratio["holds"] for _, ratio in ratios if ratio["bar"] is not None]
    return "\n".join([f"{sum(map(bool, bars))} of {len(bars)} bars are kept.", "", *lines])


def short(words: str) -> str:
    """Return what is measured without its circumstances: what follows in brackets, after a colon or a semicolon."""
    return re.split(r" \(|[:;] ", words)[0]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return 1 where a script did not keep a bar."""
    parser = argparse.ArgumentParser(description="Every benchmark, one after the other.")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--collect", action="store_true", help="only write results/bench.json and its table")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these scripts, such as bench_score, instead of all")
    options = parser.parse_args(arguments)
    every = benchmarks()
    chosen = [name for name in every if has_what_it_needs(name)] if options.only is None else options.only
    unknown = [name for name in chosen if name not in every]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(every)}")
    codes = []
    for name in () if options.collect else chosen:
        print(f"\n{name}", flush=True)
        codes.append(every[name].run(["--quick"] if options.quick else []))
    if not options.quick:
        put_between(README, MARKS, summary(collect(RESULTS)))
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(run())
