"""What streaming costs: memory, reading and writing, workers, growth with the number of people, Spark and Dask.

`python benchmarks/bench_stream.py` measures, writes results/stream.json and the numbers in docs/scale.md; with
`--quick` it takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the
numbers in docs/scale.md, from results/stream.json. Files go to the folder for temporary ones: 5 GB of them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from timing import Benchmark, Ratio

from fairfox.fitting import fit_test
from fairfox.scale.files import score_files
from fairfox.scale.job import ModelSource
from fairfox.storage import save_test

HERE = Path(__file__).parent
SEED = 0
ROW_GROUP = 100_000

MODEL = '''
import os, signal
from pathlib import Path
from torch import Tensor
from fairfox.nets.mlp import MLP
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


QUICK = Settings(
    most=40_000, many=20_000, few=10_000, engine_rows=6000, features=4, width=8, reference=300, part_rows=5000
)  # fmt: skip


def people(rows: int, features: int, seed: int) -> pa.Table:
    """Return people of two groups that differ a little in every feature."""
    rng = np.random.default_rng(seed)
    group = rng.random(rows) < 0.5
    shift = 0.5 * np.random.default_rng(SEED).normal(size=features)
    columns = {f"x{j}": rng.normal(size=rows) + shift[j] * group for j in range(features)}
    return pa.table({**columns, "group": np.where(group, "a", "b"), "name": np.arange(rows) + seed * ROW_GROUP})


def write_people(path: Path, rows: int, features: int) -> None:
    """Write people to one file, a row group at a time, each with a number of their own."""
    writer = None
    for n, first in enumerate(range(0, rows, ROW_GROUP), start=1):
        table = people(min(ROW_GROUP, rows - first), features, n)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def run(folder: Path, table: str, workers: int, part_rows: int) -> dict[str, Any]:
    """Return what a run in a fresh process took."""
    given = [str(folder), table, str(workers), str(part_rows)]
    done = subprocess.run([sys.executable, __file__, "--run", *given], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_here(folder: Path, table: str, workers: int, part_rows: int) -> dict[str, Any]:
    """Return seconds, and the largest resident memory of this process and its workers above imports, in MB."""
    for late in ("scipy.optimize", "scipy.stats", "pandas"):  # imported where they are used, and imports all the same
        import_module(late)
    imports, peaks = _peak("self"), dict[str, float]()
    Thread(target=_watch, args=(peaks,), daemon=True).start()
    model = ModelSource(str(folder / "model.py:predict"))
    out = folder / f"out-{Path(table).stem}-{workers}"
    summary = score_files(folder / "test.fox", model, [table], out, workers=workers, part_rows=part_rows)
    own = [_peak("self"), *(peak for peak in peaks.values() if peak > imports / 2)]  # helpers of Python are smaller
    return {
        "seconds": summary["settings"]["seconds"],
        "of_workers": summary["settings"]["seconds_of_workers"],
        "largest": max(own) - imports,
        "total": sum(peak - imports for peak in own),
        "imports": imports,
    }


def _peak(process: str) -> float:
    """Return the largest resident memory that a process has had, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _watch(peaks: dict[str, float]) -> None:
    while True:
        for child in _children():
            try:
                peaks[child] = _peak(child)
            except OSError:  # it has just ended
                continue
        sleep(0.2)


def _children() -> Iterator[str]:
    for thread in Path("/proc/self/task").iterdir():
        yield from (thread / "children").read_text().split()


def streams(settings: Settings, folder: Path) -> list[Ratio]:
    """Return memory, the share of reading and writing, the gain of a second worker, and the growth with people."""
    two, one = {}, {}
    for rows in (settings.few, settings.many, settings.most):
        write_people(folder / f"{rows}.parquet", rows, settings.features)
        for runs, workers in ((two, 2), (one, 1)):
            runs[rows] = run(folder, str(folder / f"{rows}.parquet"), workers, settings.part_rows)
            print(f"{rows:,} people, {workers} worker(s): {runs[rows]}", file=sys.stderr)
    most, many = two[settings.most], two[settings.many]
    work = {rows: sum(found["of_workers"].values()) for rows, found in one.items()}  # start-up is not among it
    moved = most["of_workers"]["read"] + most["of_workers"]["write"]
    slope = math.log(work[settings.most] / work[settings.few]) / math.log(settings.most / settings.few)
    share, gain = moved / sum(most["of_workers"].values()), one[settings.most]["seconds"] / most["seconds"]
    names, range_of = (
        (f"{settings.most:,} people", f"{settings.many:,} people"),
        f"{settings.few:,} to {settings.most:,}",
    )
    largest, total, growth = most["largest"], most["total"], most["largest"] / many["largest"]
    alone, few = one[settings.most], one[settings.few]
    return [
        _ratio("memory", "MB above imports, largest process", names[0], 300, True, largest, most, most),
        _ratio("memory, all", "MB above imports, three processes together", names[0], 900, True, total, most, most),
        _ratio("flat", f"memory above imports at {names[0]}", f"at {names[1]}", 1.1, True, growth, most, many),
        _ratio("input and output", "reading and writing", "all time of workers", 0.25, True, share, most, most),
        _ratio("workers", f"one process, {names[0]}", "two worker processes", 1.0, False, gain, alone, most),
        _ratio("slope, from above", "log-log slope of one worker's time", range_of, 1.05, True, slope, alone, few),
        _ratio("slope, from below", "the same", "the same", 0.95, False, slope, alone, few),
    ]  # fmt: skip


def _ratio(
    name: str, of: str, over: str, bar: float, at_most: bool, value: float, a: dict[str, Any], b: dict[str, Any]
) -> Ratio:
    return Ratio(name, of, over, bar, at_most, value, value, a["seconds"], b["seconds"])


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
        model = ModelSource(str(folder / "model.py:deadly"))
        done = score_files(folder / "test.fox", model, [str(table)], folder / engine, engine=engine, **given)
        found = pq.read_table(folder / engine / "scores.parquet", columns=["row_id", "score"]).sort_by("row_id")
        assert (folder / "died").exists(), "no worker was lost"
        assert found["row_id"].equals(expected["row_id"]), "not everyone is there once"
        far = pc.max(pc.abs(pc.subtract(found["score"], expected["score"]))).as_py()
        of = f"largest difference of a score on {engine.title()}, a worker killed"
        over = f"one machine, {settings.engine_rows:,} people"
        seconds = done["settings"]["seconds"], local["settings"]["seconds"]
        out.append(Ratio(engine, of, over, 1e-6, True, far, far, *seconds))
    return out


def measure(settings: Settings) -> list[Ratio]:
    """Return all that is measured."""
    with TemporaryDirectory(prefix="bench-stream-") as name:
        folder = Path(name)
        reference = people(settings.reference, settings.features, 0)
        columns = [f"x{j}" for j in range(settings.features)]
        given = {"protected": "group", "columns": columns, "refits": settings.refits, "id": "name", "seed": SEED}
        save_test(fit_test(reference, **given), folder / "test.fox")
        sizes = {"features": settings.features, "width": settings.width, "depth": settings.depth}
        (folder / "model.py").write_text(MODEL.format(folder=name, **sizes))
        return [*streams(settings, folder), *engines(settings, folder)]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"Test `rank` with {s['refits']} re-fits on {s['reference']:,} people; a network of {s['features']} features, "
        f"width {s['width']} and depth {s['depth']}; parts of {s['part_rows']:,} people."
    )


BENCHMARK = Benchmark(
    description="What streaming costs.",
    measure=measure,
    settings=Settings(),
    quick=QUICK,
    seed=SEED,
    sizes=sizes,
    results=HERE / "results" / "stream.json",
    readme=HERE.parent / "docs" / "scale.md",
    marks=("<!-- numbers of bench_stream.py: begin -->", "<!-- numbers of bench_stream.py: end -->"),
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        where, file, processes, rows = sys.argv[2:]
        print(json.dumps(run_here(Path(where), file, int(processes), int(rows))))
    else:
        sys.exit(BENCHMARK.run())
