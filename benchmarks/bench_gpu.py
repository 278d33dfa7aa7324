"""What one GPU does: rows a second from its own memory and from Parquet, beside what its memory and reading allow.

`python benchmarks/bench_gpu.py` measures, writes results/gpu.json and the numbers in README.md; with `--quick` it takes
small sizes, on the processor where there is no GPU, to see that everything runs, and no bar counts; with `--readme` it
only writes the numbers in README.md, from results/gpu.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from crowds import people
from timing import Benchmark, Ratio, compare
from torch import Tensor

from fairfox.auxiliary.mlp import MLP
from fairfox.data.dataset import Dataset
from fairfox.data.table import load_table
from fairfox.fairtests.storage import from_bytes, to_bytes
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel
from fairfox.pipeline import fit
from fairfox.streaming.files import score_files, worker_count
from fairfox.streaming.sources import ModelSource

SEED = 0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STREAMED = "cpu:0" if DEVICE == "cpu" else DEVICE  # by the way to a GPU
LEAST = 100e6  # rows a second from the GPU's own memory
CLOSE = 1e-4  # scores on the processor and on the GPU
SLOWER = 2.0  # from Parquet to Parquet, over reading
ROW_GROUP = 100_000
MODEL = """
from torch import Tensor, nn
from fairfox.auxiliary.mlp import MLP
predict = nn.Sequential(MLP({features}, width={width}, depth={depth}, seed=1).member(0), nn.Sigmoid())
"""


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    rows: int = 16_000_000
    features: int = 100
    width: int = 64
    depth: int = 2
    reference: int = 4096
    checked: int = 20_000
    file_rows: int = 2_000_000
    files: int = 48  # of so many rows
    workers: int | None = None  # processes from Parquet to Parquet; None: as many as there are cores
    laps: int = 7
    streams: int = 3  # laps of files
    gpu: str = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"


QUICK = Settings(
    rows=4096, features=10, width=8, reference=300, checked=512, file_rows=2048, files=2, workers=1, laps=2,
    streams=1,
)  # fmt: skip


def resident(settings: Settings, test: bytes) -> list[Ratio]:
    """Return rows a second from the device's own memory, the share of its bandwidth, and how far scores are off."""
    here, there = from_bytes(test), from_bytes(test, device=DEVICE)
    few = here.encoding.encode(load_table(people(settings.checked, settings.features, 1, dtype=np.float32))).to(
        torch.float32
    )
    far = scores_of(there.test, target(settings, DEVICE), few.to(DEVICE)).cpu() - scores_of(
        here.test, target(settings, "cpu"), few
    )
    repeats = -(-settings.rows // len(few))
    data = Dataset(
        x=few.x.to(DEVICE).repeat(repeats, 1)[: settings.rows],
        c=few.c.to(DEVICE).repeat(repeats, 1)[: settings.rows],
        protected=few.protected,
        features=few.features,
    )
    model, copy = target(settings, DEVICE), torch.empty_like(data.x)

    def copied() -> None:  # as fast as memory is read and written
        copy.copy_(data.x)
        wait()

    _, _, seconds, copying = compare(lambda: scores_of(there.test, model, data), copied, laps=settings.laps)
    rate, size = settings.rows / seconds, data.x.element_size() * settings.features
    share = rate * size / (2 * settings.rows * size / copying)
    largest = float(far.abs().max())
    return [
        Ratio(
            "rows a second",
            f"faux+ng from the GPU's memory, {rate / 1e6:,.0f} million rows a second",
            f"{LEAST / 1e6:g} million",
            1.0, False, rate / LEAST, rate / LEAST, seconds, settings.rows / LEAST,
        ),
        Ratio(
            "share of the bandwidth",
            f"reading the rows once at that rate, {rate * size / 1e9:,.0f} GB/s",
            f"what a copy reads and writes, {2 * settings.rows * size / copying / 1e9:,.0f} GB/s",
            None, False, share, share, seconds, copying,
        ),
        Ratio(
            "equal to the processor",
            f"largest difference of {settings.checked:,} cosines from the processor's",
            "1",
            CLOSE, True, largest, largest, 0.0, 0.0,
        ),
    ]  # fmt: skip


def target(settings: Settings, device: str) -> TorchModel:
    """Return the network that is audited."""
    net = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0)
    return TorchModel(net.to(device), output=Output("logit"))


def scores_of(test: Any, model: TorchModel, data: Dataset) -> Tensor:
    """Return everyone's score, once the device is done."""
    found: Tensor = test.score(model, data)
    wait()
    return found


def wait() -> None:
    """Wait until the device has done what it was asked."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def end_to_end(settings: Settings, test: bytes, folder: Path) -> list[Ratio]:
    """Return the time from Parquet to scores in Parquet over that which reading takes of it."""
    few, fox = people(min(ROW_GROUP, settings.file_rows), settings.features, 2, dtype=np.float32), folder / "test.fox"
    fox.write_bytes(test)
    sizes = {"features": settings.features, "width": settings.width, "depth": settings.depth}
    (folder / "model.py").write_text(MODEL.format(**sizes), encoding="utf-8")
    tables = [folder / f"people-{n}.parquet" for n in range(settings.files)]
    with pq.ParquetWriter(tables[0], few.schema) as writer:
        for first in range(0, settings.file_rows, ROW_GROUP):
            writer.write_table(few.slice(0, min(ROW_GROUP, settings.file_rows - first)))
    for other in tables[1:]:
        other.hardlink_to(tables[0])  # the same people again, and no room on the disk
    source = ModelSource(str(folder / "model.py:predict"))
    workers, given = worker_count(settings.workers, STREAMED), [str(table) for table in tables]
    spent, seconds = [], []
    for _ in range(settings.streams):
        done = score_files(fox, source, given, folder / "out", device=STREAMED, workers=workers, overwrite=True)
        spent.append(done.settings["seconds_of_workers"])  # without what it takes to get started
        seconds.append(done.settings["seconds_of_scoring"])
    whole, reading = [sum(each.values()) for each in spent], [each["read"] for each in spent]
    rows = settings.files * settings.file_rows
    return [
        Ratio(
            "from Parquet",
            f"faux+ng from Parquet to Parquet, {workers} processes, {rows * workers / median(whole) / 1e6:.1f} million "
            f"rows a second once all have started ({rows / median(seconds) / 1e6:.1f} with the start): all time of the "
            "processes",
            "their time to read",
            SLOWER, True, median(a / b for a, b in zip(whole, reading, strict=True)), min(whole) / min(reading),
            median(whole), median(reading), details={"seconds of workers": spent, "seconds with the start": seconds},
        )
    ]  # fmt: skip


def measure(settings: Settings) -> list[Ratio]:
    """Return all ratios."""
    if DEVICE == "cpu" and settings != QUICK:
        raise SystemExit("There is no GPU here; --quick runs everything at small sizes on the processor")
    reference = people(settings.reference, settings.features, 0, dtype=np.float32)
    fitted = fit(reference, protected="group", test="faux+ng", seed=SEED, options={"refits": 1})
    test = to_bytes(fitted)
    with TemporaryDirectory(prefix="fairfox-") as folder:
        return [*resident(settings, test), *end_to_end(settings, test, Path(folder))]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['features']} features, target and auxiliary of width {s['width']}, depth {s['depth']}, single precision; "
        f"{s['rows']:,} rows in the GPU's memory; {s['files']} Parquet files of {s['file_rows']:,} rows. "
        f"{s['gpu']}."
    )


PACKAGES = ("pyarrow",)
BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
