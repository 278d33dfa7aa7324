"""What one GPU does: rows a second from its own memory and from Parquet, beside what its memory and reading allow.

`python benchmarks/bench_gpu.py` measures, writes results/gpu.json and the numbers in README.md; with `--quick` it takes
small sizes, on the processor where there is no GPU, to see that everything runs, and no bar counts; with `--readme` it
only writes the numbers in README.md, from results/gpu.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from timing import Benchmark, Ratio, compare
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.gradient import score_together
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP

HERE = Path(__file__).parent
SEED = 0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LEAST = 100e6  # rows a second from the GPU's own memory
CLOSE = 1e-4  # of scores on the processor and on the GPU


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    rows: int = 16_000_000
    features: int = 100
    width: int = 64
    depth: int = 2
    checked: int = 20_000
    file_rows: int = 4_000_000
    laps: int = 7


QUICK = Settings(rows=4096, features=10, width=8, checked=512, file_rows=2048, laps=2)


def people(rows: int, features: int, device: str) -> Dataset:
    """Return people of two groups that differ a little in every feature."""
    generator = torch.Generator(device).manual_seed(SEED)
    c = (torch.rand(rows, generator=generator, device=device) < 0.5).float()
    x = torch.randn(rows, features, generator=generator, device=device)
    x += 0.2 * c[:, None]
    return Dataset.from_arrays(x, c)


def fitted(settings: Settings) -> tuple[FAux, TorchModel]:
    """Return `faux+ng` with one auxiliary of the target's size, and the target, both on the device."""
    few = people(4096, settings.features, "cpu").to(DEVICE)
    auxiliary = AuxiliaryModel(refits=1, width=settings.width, depth=settings.depth, max_epochs=1, seed=SEED)
    target = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0).to(DEVICE)
    return FAux(auxiliary=auxiliary, normalise=True).fit(few), TorchModel(target, output=Output("logit"))


def scores_of(test: FAux, model: TorchModel, data: Dataset) -> Tensor:
    """Return everyone's score, once the device is done."""
    (found,) = score_together([test], model, data)
    wait()
    return found


def wait() -> None:
    """Wait until the device has done what it was asked."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
