"""Every benchmark, one after the other, and one file with all results.

`python benchmarks/run_all.py` runs each bench_*.py as it would run alone (its results, its numbers in README.md, which
is the documentation's page on speed) and puts all results into results/bench.json, every ratio into one table at the
top of README.md, and the main ones at the top of docs/research/speed.md. `--quick` runs everything at small sizes and
writes nothing; `--collect` only writes the file and the pages, from the results that are there; `--only` takes some.
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
FRONT = HERE.parent / "docs" / "research" / "speed.md"
FRONT_MARKS = ("<!-- speed by run_all.py: begin -->", "<!-- speed by run_all.py: end -->")


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


def headlines(found: dict[str, Any]) -> str:
    """Return the main numbers, for the top of the page on speed; everything else is in the table."""
    by = {name: {ratio["name"]: ratio for ratio in one["ratios"]} for name, one in found.items()}
    engine, stream, score, gpu = (by[f"bench_{name}"] for name in ("engine", "stream", "score", "gpu"))
    streamed, resident = (found[f"bench_{name}"]["settings"] for name in ("stream", "gpu"))
    one, two, four = (f"{engine[f'integrated gradients, depth {depth}']['ratio']:.0f}" for depth in (1, 2, 4))
    rate = resident["rows"] / gpu["rows a second"]["seconds_of"] / 1e6
    lines = (
        f"{streamed['most']:,} people with {streamed['features']} features, from Parquet to scores in Parquet with "
        f"{found['bench_stream']['machine']['cores']} cores: {stream['workers']['seconds_over']:.0f} s, and "
        f"{stream['memory']['ratio']:.0f} MB above what imports take, however many people there are.",
        f"Scores of everyone by {score['gradient tests']['of']}: "
        f"{engine['gradient tests (100, 64, 2)']['ratio']:.1f} forward passes of the model; the paper's Algorithm 1, "
        f"one person at a time, takes {score['row by row']['ratio']:.0f} "
        "times as long as `faux`.",
        f"Integrated gradients of ReLU networks, with smaller errors: captum takes {one}, {two} and {four} times as "
        f"long at depth 1, 2 and 4. The search of inFairness' auditor takes {engine['auditor']['ratio']:.0f} times as "
        "long as `faux`.",
        f"One GPU ({resident['gpu']}): {rate:.0f} million people with {resident['features']} features a second by "
        "`faux+ng`, from its own memory.",
    )
    return "\n".join(f"- {line}" for line in lines)


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
        found = collect(RESULTS)
        put_between(README, MARKS, summary(found))
        put_between(FRONT, FRONT_MARKS, headlines(found))
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(run())
