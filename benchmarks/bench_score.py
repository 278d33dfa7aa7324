"""What scoring and training cost, as ratios taken side by side in one run.

`python benchmarks/bench_score.py` measures, writes results/score.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/score.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.files import written_whole
from fairfox.data.table import load_table
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA
from fairfox.fairtests.gradient import score_together
from fairfox.maps.rank import RankMap
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel
from fairfox.models.wrap import as_model
from fairfox.nets.mlp import MLP

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "score.json"
README = HERE / "README.md"
BEGIN, END = "<!-- numbers of bench_score.py: begin -->", "<!-- numbers of bench_score.py: end -->"
SEED = 0
PATIENCE, FEWEST_LAPS = 40.0, 5  # seconds, after which a busy machine is asked for no more laps than these


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    rows: int = 65_536
    features: int = 100
    width: int = 64
    depth: int = 2
    block: int = 4096
    naive_rows: int = 300
    table_rows: int = 100_000
    table_columns: int = 10
    training_rows: int = 10_000
    epochs: int = 10
    auxiliaries: int = 5
    training_batch: int = 64
    laps: int = 31
    long_laps: int = 11  # of what takes a second


QUICK = Settings(
    rows=2048, features=20, width=16, naive_rows=20, table_rows=2000, table_columns=4, training_rows=500, epochs=1,
    laps=3, long_laps=3,
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """One measured ratio beside its bar."""

    name: str
    of: str  # what is divided
    over: str  # by what
    bar: float
    at_most: bool  # else at least
    ratio: float  # median over laps
    fastest: float  # fastest lap over fastest lap: what is left of it on a busy machine
    seconds_of: float  # median of one call
    seconds_over: float

    @property
    def holds(self) -> bool:
        """Whether the median keeps the bar."""
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar


def compare(of: Callable[[], object], over: Callable[[], object], *, laps: int) -> tuple[float, float, float, float]:
    """Return the median ratio of two durations, that of the fastest laps, and the median seconds of a call of each.

    A lap times one after the other, so that both see the same machine; what is short is called as often as it
    takes to last as long as the other, so that interruptions hit both alike.
    """
    first, second = (min(_seconds(call, 1) for _ in range(3)) for call in (of, over))  # the warm-up too
    calls = max(1, round(second / first)), max(1, round(first / second))
    pairs, start = [], perf_counter()
    while len(pairs) < laps and (len(pairs) < FEWEST_LAPS or perf_counter() - start < PATIENCE):
        pairs.append((_seconds(of, calls[0]), _seconds(over, calls[1])))
    firsts, seconds = zip(*pairs, strict=True)
    return median(a / b for a, b in pairs), min(firsts) / min(seconds), median(firsts), median(seconds)


def _seconds(call: Callable[[], object], times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def population(rows: int, features: int) -> Dataset:
    """Return people of two groups that differ a little in every feature."""
    generator = torch.Generator().manual_seed(SEED)
    c = (torch.rand(rows, generator=generator) < 0.5).float()
    x = torch.randn(rows, features, generator=generator)
    x = x + 0.5 * c[:, None] * torch.randn(features, generator=generator)
    return Dataset.from_arrays(x, c)


def gradient_tests(settings: Settings) -> list[Ratio]:
    """Return the cost of three gradient tests in forward passes, and of Algorithm 1 row by row in ours."""
    data = population(settings.rows, settings.features)
    target = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0)
    model = TorchModel(target, output=Output("logit"))
    auxiliary = AuxiliaryModel(refits=1, width=settings.width, depth=settings.depth, max_epochs=1, seed=SEED)
    faux = FAux(auxiliary=auxiliary, batch_size=settings.block).fit(data[:4096])
    tests = [faux, FAux(auxiliary=auxiliary, normalise=True), FTA()]
    plain_auxiliary = auxiliary.members[0].net  # type: ignore[attr-defined]

    def forward() -> Tensor:
        with torch.inference_mode():
            return torch.cat([torch.sigmoid(target(rows)) for rows in data.x.split(settings.block)])

    def together() -> list[Tensor]:
        return score_together(tests, model, data, batch_size=settings.block)

    def naive() -> list[float]:
        return [algorithm_1(target, plain_auxiliary, row) for row in data.x[: settings.naive_rows]]

    agreed = torch.tensor(naive())
    torch.testing.assert_close(faux.score(model, data[: settings.naive_rows]), agreed, rtol=1e-3, atol=1e-6)
    passes = compare(together, forward, laps=settings.laps)
    ratio, fastest, loop, ours = compare(naive, lambda: faux.score(model, data), laps=settings.laps)
    scale = settings.rows / settings.naive_rows
    return [
        Ratio("gradient tests", "faux, faux+ng and fta together", "a forward pass of the target", 6.5, True, *passes),
        Ratio(
            "row by row", "Algorithm 1 one row at a time", "faux, per row", 150, False,
            ratio * scale, fastest * scale, loop / settings.naive_rows, ours / settings.rows,
        ),
    ]  # fmt: skip


def algorithm_1(target: nn.Module, auxiliary: nn.Module, row: Tensor) -> float:
    """Return one person's fAux score as the paper writes it down: two gradients, then |g_t . g_a| / (g_a . g_a)."""
    x = row.clone().requires_grad_()
    (grad_tar,) = torch.autograd.grad(torch.sigmoid(target(x)).sum(), x)
    (grad_aux,) = torch.autograd.grad(auxiliary(x).sum(), x)
    return float((grad_tar @ grad_aux).abs() / (grad_aux @ grad_aux))


def rank_on_trees(settings: Settings) -> list[Ratio]:
    """Return the cost of `rank`, fitted once, in predictions of the table by gradient-boosted trees."""
    data = population(settings.table_rows, settings.table_columns)
    matrix, c = data.x.double().numpy(), data.c[:, 0].numpy()
    rng = np.random.default_rng(SEED)
    chances = matrix @ rng.normal(size=settings.table_columns) + rng.normal(size=settings.table_rows)
    trees = HistGradientBoostingClassifier(random_state=SEED).fit(matrix[:20_000], chances[:20_000] > 0)
    names = [f"x{j}" for j in range(settings.table_columns)]
    table = load_table(pa.table({**dict(zip(names, matrix.T, strict=True)), "group": c.astype(int)}))
    encoding = fit_encoding(table, protected=["group"], dtype=torch.float64, seed=SEED)
    people = encoding.encode(table)
    model = as_model(trees, encoding, example=people.x[:1000])
    test = Effect(map=RankMap(), refits=1).fit(people)
    found = compare(lambda: test.score(model, people), lambda: trees.predict_proba(matrix), laps=settings.long_laps)
    return [Ratio("rank on trees", "rank, fitted once", "predict_proba of the table", 2.3, True, *found)]


def training(settings: Settings) -> list[Ratio]:
    """Return the cost of training several auxiliaries together over that of one in a plain DataLoader loop."""
    data = population(round(settings.training_rows / 0.8), settings.features)  # a fifth is held out to stop early

    def together() -> AuxiliaryModel:
        return AuxiliaryModel(
            refits=settings.auxiliaries,
            width=settings.width,
            depth=settings.depth,
            batch_size=settings.training_batch,
            max_epochs=settings.epochs,
            patience=settings.epochs,
            seed=SEED,
        ).fit(data)

    rows = TensorDataset(data.x[: settings.training_rows], data.c[: settings.training_rows, 0])

    def one() -> nn.Sequential:
        net = MLP(settings.features, width=settings.width, depth=settings.depth, seed=SEED).member(0).train()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(settings.epochs):
            for x, c in DataLoader(rows, batch_size=settings.training_batch, shuffle=True):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(net(x)[:, 0], c).backward()
                optimizer.step()
        return net

    found = compare(together, one, laps=settings.long_laps)
    name = f"{settings.auxiliaries} auxiliaries trained together"
    return [Ratio("training", name, "one in a plain DataLoader loop", 1.0, True, *found)]


def measure(settings: Settings, *, quick: bool) -> dict[str, Any]:
    """Return all ratios with what is needed to judge them."""
    start, load = perf_counter(), os.getloadavg()[0]
    torch.manual_seed(SEED)
    ratios = [*gradient_tests(settings), *rank_on_trees(settings), *training(settings)]
    return {
        "seed": SEED,
        "quick": quick,
        "ratios": [{**asdict(r), "holds": None if quick else r.holds} for r in ratios],
        "settings": asdict(settings),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "load": load},
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("fairfox", "torch", "numpy", "scikit-learn")},
        "seconds": round(perf_counter() - start, 1),
    }


def cpu_model() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def as_table(found: dict[str, Any]) -> str:
    """Return the ratios as a Markdown table, with the machine and sizes below."""
    lines = ["| what | over | bar | measured | fastest laps | holds |", "|---|---|---|---|---|---|"]
    for r in found["ratios"]:
        holds = {None: "-", True: "yes", False: "**no**"}[r["holds"]]
        bar = f"{'≤' if r['at_most'] else '≥'} {r['bar']:g}"
        lines.append(f"| {r['of']} | {r['over']} | {bar} | {r['ratio']:.3g} | {r['fastest']:.3g} | {holds} |")
    machine, versions, s = found["machine"], found["versions"], found["settings"]
    lines += [
        "",
        f"Networks: {s['features']} features, width {s['width']}, depth {s['depth']}; {s['rows']:,} rows in blocks of "
        f"{s['block']}. Trees: default HistGradientBoostingClassifier, {s['table_rows']:,} rows, "
        f"{s['table_columns']} numeric columns. Training: {s['training_rows']:,} rows, batch {s['training_batch']}, "
        f"{s['epochs']} epochs.",
        "",
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, load "
        f"{machine['load']:.1f} before the run, with "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f"; {found['seconds']:g} s.",
    ]
    return "\n".join(lines)


def write_readme(found: dict[str, Any]) -> None:
    """Put the numbers between their marks in README.md."""
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    with written_whole(README) as path:
        path.write_text(f"{head}{BEGIN}\n{as_table(found)}\n{END}{tail}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; return 1 where a bar is not kept."""
    parser = argparse.ArgumentParser(description="What scoring and training cost, as ratios in one run.")
    parser.add_argument("--quick", action="store_true", help="small sizes; no bar counts")
    parser.add_argument("--readme", action="store_true", help="only write the numbers in README.md from the results")
    parser.add_argument("--out", type=Path, help="JSON file; default: results/score.json, none with --quick")
    options = parser.parse_args(arguments)
    if options.readme:
        write_readme(json.loads(RESULTS.read_text(encoding="utf-8")))
        return 0
    found = measure(QUICK if options.quick else Settings(), quick=options.quick)
    print(as_table(found))
    out = options.out or (None if options.quick else RESULTS)
    if out is not None:
        with written_whole(out) as path:
            path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        if out.resolve() == RESULTS:
            write_readme(found)
    return 0 if options.quick or all(r["holds"] for r in found["ratios"]) else 1


if __name__ == "__main__":
    sys.exit(main())
