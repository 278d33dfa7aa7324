"""What streaming costs: memory, reading and writing, workers, growth with the number of people, Spark and Dask.

`python benchmarks/bench_stream.py` measures, writes results/stream.json and the numbers in docs/research/speed.md; with
`--quick` it takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the
numbers in docs/research/speed.md, from results/stream.json. Files go to the folder for temporary ones: 5 GB of them.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import memory
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crowds import people
from timing import Benchmark, Ratio

from fairfox.fairtests.storage import save_test
from fairfox.pipeline import fit
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource

SEED = 0
ROW_GROUP = 100_000

MODEL = '''
import os, signal
from pathlib import Path
from torch import Tensor
from fairfox.auxiliary.mlp import MLP
net = MLP({features}, width={width}, depth={depth}, seed=1).member(0)
driver, died = Path({folder!r}) / "driver", Path({folder!r}) / "died"

def predict(x: Tensor) -> Tensor:
    return net(x.float()).sigmoid()

def deadly(x: Tensor) -> Tensor:
    """End the process of one worker, once."""
    if not driver.exists():
        driver.write_text(str(os.getpid()))
    elif driver.read_text() != str(os.getpid()) and len(x) > 1000 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return predict(x)
'''


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    most: int = 10_000_000
    many: int = 1_000_000
    few: int = 100_000
    engine_rows: int = 2_000_000
    features: int = 20
    width: int = 64
    depth: int = 2
    refits: int = 2
    reference: int = 5000
    part_rows: int = 500_000
    laps: int = 3  # of every run on one machine: the largest memory of one run scatters


QUICK = Settings(
    most=40_000, many=20_000, few=10_000, engine_rows=6000, features=4, width=8, reference=300, part_rows=5000,
    laps=1,
)  # fmt: skip


Run = dict[str, Any]  # the numbers of one run
Kind = tuple[int, int]  # people, worker processes


def write_people(path: Path, rows: int, features: int) -> None:
    """Write people to one file, a row group at a time, each with a number of their own."""
    writer = None
    for n, first in enumerate(range(0, rows, ROW_GROUP), start=1):
        table = named(people(min(ROW_GROUP, rows - first), features, n), n)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def named(table: pa.Table, group: int) -> pa.Table:
    """Return people with names: their numbers in the whole table, of which this is one row group."""
    return table.append_column("name", pa.array(np.arange(len(table)) + group * ROW_GROUP))


def run(folder: Path, kind: Kind, part_rows: int) -> Run:
    """Return what a run in a fresh process took, and the load before it."""
    rows, workers = kind
    load = os.getloadavg()[0]
    given = [str(folder), str(folder / f"{rows}.parquet"), str(workers), str(part_rows)]
    done = subprocess.run([sys.executable, __file__, "--run", *given], stdout=subprocess.PIPE, text=True, check=True)
    found: Run = {**json.loads(done.stdout.splitlines()[-1]), "load": round(load, 2)}
    print(f"{rows:,} people, {workers} worker(s): {found}", file=sys.stderr)
    return found


def run_here(folder: Path, table: str, workers: int, part_rows: int) -> Run:
    """Return seconds, and the largest resident memory of this process and its workers above imports, in MB."""
    for late in ("scipy.optimize", "scipy.stats", "pandas"):  # imported where they are used, and imports all the same
        import_module(late)
    imports, peaks = memory.peak("self"), dict[str, float]()
    Thread(target=memory.watch, args=(peaks,), daemon=True).start()
    model = ModelSource(str(folder / "model.py:predict"))
    with TemporaryDirectory(dir=folder) as out:
        given = {"workers": workers, "part_rows": part_rows}
        settings = score_files(folder / "test.fox", model, [table], Path(out) / "scores", **given).settings
    own = [
        memory.peak("self"),
        *(peak for peak in peaks.values() if peak > imports / 2),
    ]  # helpers of Python are smaller
    spent = settings["seconds_of_workers"]
    return {
        "seconds": settings["seconds"],
        "scoring": settings["seconds_of_scoring"],
        "work": sum(spent.values()),  # of all workers; start-up is not among it
        "moved": spent["read"] + spent["write"],
        "largest": max(own) - imports,
        "total": sum(peak - imports for peak in own),
    }


def streams(settings: Settings, folder: Path) -> list[Ratio]:
    """Return memory, the share of reading and writing, the gain of a second worker, and the growth with people."""
    kinds = kinds_of(settings)
    for rows in {rows for rows, _ in kinds}:
        write_people(folder / f"{rows}.parquet", rows, settings.features)
    # one kind after the other in each lap, so that all see the same machine
    laps = [{kind: run(folder, kind, settings.part_rows) for kind in kinds} for _ in range(settings.laps)]
    return ratios(settings, {kind: [lap[kind] for lap in laps] for kind in kinds})


def ratios(settings: Settings, runs: dict[Kind, list[Run]]) -> list[Ratio]:
    """Return what runs say, each number a median over laps, beside what the lowest of each says; and every lap's."""
    few, many, one, two = kinds_of(settings)
    most, less, span = f"{two[0]:,} people", f"{many[0]:,} people", f"{few[0]:,} to {one[0]:,} people"
    laps = f"median of {settings.laps} run{'s' if settings.laps > 1 else ''}"
    growth = f"log-log slope of one worker's time, {laps}"
    loads = {kind: "load before " + ", ".join(f"{lap['load']:.1f}" for lap in runs[kind]) for kind in (one, two)}
    rows = [  # name, what, over, bar, whether at most, the runs it comes from, the numbers of them that say it
        ("memory", f"MB above imports, largest process, {laps}", most, 300, True, (two, two), ("largest",)),
        ("memory, all", f"MB above imports, three processes together, {laps}", most, 900, True, (two, two), ("total",)),
        ("flat", f"memory above imports at {most}, {laps}", f"at {less}", 1.1, True, (two, many), ("largest",)),
        ("input and output", f"reading and writing, {laps}", "all time of workers", 0.25, True, (two, two),
         ("moved", "work")),
        ("verdict", f"all time with verdict, list and page, {most}, {laps}", "the time for scores alone", 1.3, True,
         (two, two), ("seconds", "scoring")),
        ("workers", f"one process, {most}, {laps} ({loads[one]})", f"two worker processes ({loads[two]})", 1.0, False,
         (one, two), ("seconds",)),
        ("slope, from above", growth, span, 1.05, True, (one, few), ("work",)),
        ("slope, from below", growth, span, 0.95, False, (one, few), ("work",)),
    ]  # fmt: skip
    middle, lowest = ({kind: reduced(each, by) for kind, each in runs.items()} for by in (median, min))
    out = []
    for name, of, over, bar, at_most, kinds, fields in rows:
        ratio, fastest = (values(settings, each)[name] for each in (middle, lowest))
        seconds = (middle[kind]["seconds"] for kind in kinds)
        details = {
            _words(kind): {each: [lap[each] for lap in runs[kind]] for each in (*fields, "load")} for kind in kinds
        }
        out.append(Ratio(name, of, over, bar, at_most, ratio, fastest, *seconds, details=details))
    return out


def values(settings: Settings, runs: dict[Kind, Run]) -> dict[str, float]:
    """Return every number by its name."""
    few, many, one, two = (runs[kind] for kind in kinds_of(settings))
    slope = math.log(one["work"] / few["work"]) / math.log(settings.most / settings.few)
    return {
        "memory": two["largest"],
        "memory, all": two["total"],
        "flat": two["largest"] / many["largest"],
        "input and output": two["moved"] / two["work"],
        "verdict": two["seconds"] / two["scoring"],
        "workers": one["seconds"] / two["seconds"],
        "slope, from above": slope,
        "slope, from below": slope,
    }


def kinds_of(settings: Settings) -> tuple[Kind, Kind, Kind, Kind]:
    """Return what is run: few people alone, many with two workers, and most with one and with two."""
    return (settings.few, 1), (settings.many, 2), (settings.most, 1), (settings.most, 2)


def reduced(laps: Sequence[Run], reduce: Callable[[Sequence[float]], float]) -> Run:
    """Return laps in one."""
    return {name: reduce([lap[name] for lap in laps]) for name in laps[0]}


def _words(kind: Kind) -> str:
    return f"{kind[0]:,} people, {kind[1]} worker{'s' if kind[1] > 1 else ''}"


def engines(settings: Settings, folder: Path) -> list[Ratio]:
    """Return the largest difference between an engine that loses a worker and one machine, over everyone."""
    table = folder / "engines.parquet"
    write_people(table, settings.engine_rows, settings.features)
    given = {"part_rows": max(settings.part_rows // 4, 1), "workers": 2}
    kind = ModelSource(str(folder / "model.py:predict"))
    local = score_files(folder / "test.fox", kind, [str(table)], folder / "local", **given)
    expected = pq.read_table(folder / "local/scores.parquet", columns=["row_id", "score"]).sort_by("row_id")
    out = []
    for engine in ("spark", "dask"):
        for mark in ("driver", "died"):
            (folder / mark).unlink(missing_ok=True)
        model, load = ModelSource(str(folder / "model.py:deadly")), os.getloadavg()[0]
        done = score_files(folder / "test.fox", model, [str(table)], folder / engine, engine=engine, **given)
        found = pq.read_table(folder / engine / "scores.parquet", columns=["row_id", "score"]).sort_by("row_id")
        assert (folder / "died").exists(), "no worker was lost"
        assert found["row_id"].equals(expected["row_id"]), "not everyone is there once"
        same = [(each.tally, each.groups, each.verdict, each.listed) for each in (done.record, local.record)]
        assert same[0] == same[1], "another verdict, or other groups"
        far = pc.max(pc.abs(pc.subtract(found["score"], expected["score"]))).as_py()
        of = (
            f"largest difference of a score on {engine.title()}, a worker killed; verdict, groups and list are the same"
        )
        over = f"one machine, {settings.engine_rows:,} people"
        seconds = done.settings["seconds"], local.settings["seconds"]
        out.append(Ratio(engine, of, over, 1e-6, True, far, far, *seconds, details={"load": round(load, 2)}))
    return out


def measure(settings: Settings) -> list[Ratio]:
    """Return all that is measured."""
    with TemporaryDirectory(prefix="bench-stream-") as name:
        folder = Path(name)
        reference = named(people(settings.reference, settings.features, SEED), 0)
        columns = [f"x{j}" for j in range(settings.features)]
        more = {"refits": settings.refits, "id": "name"}
        fitted = fit(reference, protected="group", columns=columns, seed=SEED, options=more)
        save_test(fitted, folder / "test.fox")
        sizes = {"features": settings.features, "width": settings.width, "depth": settings.depth}
        (folder / "model.py").write_text(MODEL.format(folder=name, **sizes))
        return [*streams(settings, folder), *engines(settings, folder)]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    laps = s["laps"]
    repeated = f" Runs on one machine: {laps} of each, in turns, and their medians." if laps > 1 else ""
    return (
        f"Test `rank` with {s['refits']} refits on {s['reference']:,} people; a network of {s['features']} features, "
        f"width {s['width']} and depth {s['depth']}; parts of {s['part_rows']:,} people.{repeated}"
    )


PACKAGES = ("pyarrow", "pyspark", "dask")
README = "docs/research/speed.md"
BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        where, file, processes, rows = sys.argv[2:]
        print(json.dumps(run_here(Path(where), file, int(processes), int(rows))))
    else:
        sys.exit(BENCHMARK.run())
