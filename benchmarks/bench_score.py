"""What scoring and training cost, as ratios taken side by side in one run.

python benchmarks/bench_score.py            # measures, writes results/score.json and the table in README.md
python benchmarks/bench_score.py --quick    # small sizes, no bars: does it run?
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fairfox.auxiliary.model import AuxiliaryMember, FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.files import written_whole
from fairfox.data.table import load_table
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA
from fairfox.fairtests.gradient import score_together
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import predict
from fairfox.models.torch_model import TorchModel
from fairfox.models.wrap import as_model
from fairfox.nets.mlp import MLP
from fairfox.nets.training import binary_loss, train

FOLDER = Path(__file__).parent
TABLE = re.compile(r"(<!-- score -->\n).*?(<!-- /score -->)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One ratio, and the bar it must meet."""

    name: str
    ratio: float
    bar: float
    at_most: bool
    numerator_s: float
    denominator_s: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar


def seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def side_by_side(
    name: str, first: Callable[[], object], second: Callable[[], object], *, bar: float, at_most: bool, laps: int
) -> Row:
    """Return the median ratio of laps in which both run one after the other; the first lap is warm-up."""
    pairs = [(seconds(first), seconds(second)) for _ in range(laps + 1)][1:]
    ratio = median(a / b for a, b in pairs)
    return Row(name, ratio, bar, at_most, median(a for a, _ in pairs), median(b for _, b in pairs))


def network(features: int, seed: int) -> nn.Sequential:
    return MLP(features, width=64, depth=2, seed=seed).member(0)


def people(rows: int, features: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    c = (torch.arange(rows) % 2).float()
    return Dataset.from_arrays(torch.randn(rows, features, generator=generator) + 0.3 * c[:, None], c=c)


def gradient_tests(data: Dataset) -> tuple[TorchModel, FixedAuxiliary]:
    target = TorchModel(nn.Sequential(*network(data.x.shape[1], 1), nn.Sigmoid()))
    mask = torch.ones(data.x.shape[1], dtype=torch.bool)
    return target, FixedAuxiliary([AuxiliaryMember(network(data.x.shape[1], 2), mask, data.protected)])


def bench_together(rows: int, laps: int) -> Row:
    data = people(rows, 100)
    target, auxiliary = gradient_tests(data)
    tests = [FAux(auxiliary=auxiliary), FAux(auxiliary=auxiliary, normalise=True), FTA()]
    return side_by_side(
        "faux, faux+ng and fta together / one forward pass",
        lambda: score_together(tests, target, data),
        lambda: predict(target, data.x),
        bar=6.5,
        at_most=True,
        laps=laps,
    )


def algorithm_1(target: nn.Module, auxiliary: nn.Module, x: Tensor) -> Tensor:
    """The paper's Algorithm 1 as it is printed: one person after the other."""
    scores = []
    for row in x:
        row = row.clone().requires_grad_()
        (grad_tar,) = torch.autograd.grad(target(row).squeeze(), row)
        (grad_aux,) = torch.autograd.grad(auxiliary(row).squeeze(), row)
        scores.append((grad_tar @ grad_aux / (grad_aux @ grad_aux)).abs())
    return torch.stack(scores)


def bench_naive(rows: int, naive_rows: int, laps: int) -> Row:
    data = people(rows, 100)
    target, auxiliary = gradient_tests(data)
    plain_target, plain_auxiliary = nn.Sequential(network(100, 1), nn.Sigmoid()), network(100, 2)
    test = FAux(auxiliary=auxiliary)
    few = data.x[:naive_rows]
    torch.testing.assert_close(
        test.score(target, data)[:naive_rows], algorithm_1(plain_target, plain_auxiliary, few), atol=1e-4, rtol=1e-3
    )
    row = side_by_side(
        "Algorithm 1, row by row / faux, per person",
        lambda: algorithm_1(plain_target, plain_auxiliary, few),
        lambda: test.score(target, data),
        bar=150.0,
        at_most=False,
        laps=laps,
    )
    scale = rows / naive_rows
    return Row(row.name, row.ratio * scale, row.bar, row.at_most, row.numerator_s * scale, row.denominator_s)


def bench_rank(rows: int, laps: int) -> Row:
    rng = np.random.default_rng(0)
    male = rng.integers(0, 2, rows)
    table = pd.DataFrame(rng.normal(0, 1, (rows, 10)) + 0.3 * male[:, None], columns=[f"x{j}" for j in range(10)])
    label = table.sum(axis=1) + rng.normal(0, 1, rows) > 1.5
    model = HistGradientBoostingClassifier(random_state=0).fit(table[:20_000], label[:20_000])
    encoding = fit_encoding(load_table(table.assign(sex=male)), protected=["sex"], dtype=torch.float64)
    data = encoding.encode(load_table(table.assign(sex=male)))
    target = as_model(model, encoding, example=data.x[:100])
    test = Effect(map=RankMap(), refits=1).fit(data)
    return side_by_side(
        "rank on HistGradientBoosting, numeric columns, one fit / one predict",
        lambda: test.score(target, data),
        lambda: model.predict_proba(table),
        bar=2.3,
        at_most=True,
        laps=laps,
    )


def bench_training(rows: int, epochs: int, laps: int) -> Row:
    data = people(rows, 20)
    x, y = data.x, data.c[:, 0]

    def together() -> None:
        net = MLP(20, members=5, seed=0)
        train(net, x, y, loss=binary_loss, valid_x=x[:500], valid_targets=y[:500], max_epochs=epochs, patience=epochs)

    def alone() -> None:
        net = network(20, 0).train()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
        for _ in range(epochs):
            for rows_x, rows_y in loader:
                optimizer.zero_grad()
                nn.functional.binary_cross_entropy_with_logits(net(rows_x)[:, 0], rows_y).backward()
                optimizer.step()
            with torch.no_grad():
                nn.functional.binary_cross_entropy_with_logits(net(x[:500])[:, 0], y[:500])

    return side_by_side(
        "five auxiliaries trained together / one in a DataLoader loop",
        together,
        alone,
        bar=1.0,
        at_most=True,
        laps=laps,
    )


def measured(*, quick: bool) -> list[Row]:
    if quick:
        return [bench_together(4096, 1), bench_naive(4096, 20, 1), bench_rank(4000, 1), bench_training(1000, 1, 1)]
    return [
        bench_together(100_000, 15),
        bench_naive(100_000, 300, 7),
        bench_rank(100_000, 9),
        bench_training(5000, 3, 5),
    ]


def machine() -> dict[str, object]:
    names = {"torch", "numpy", "scikit-learn", "fairfox"}
    model = next(
        (line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    versions = {"python": platform.python_version(), **{name: version(name) for name in sorted(names)}}
    return {"cpu": model, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "versions": versions}


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def readme_table(found: dict[str, object]) -> str:
    """Return the table for README.md from the results file's content."""
    lines = ["", "| what | ratio | bar |", "|---|---|---|"]
    for row in found["rows"]:
        sign = "<=" if row["at_most"] else ">="
        lines.append(f"| {row['name']} | {row['ratio']:.2f} | {sign} {row['bar']:g} |")
    at = found["machine"]
    lines += ["", f"{at['cpu']}, {at['cores']} cores, torch {at['versions']['torch']}.", "", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes; writes only to --out")
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "score.json")
    options = parser.parse_args()
    start = perf_counter()
    rows = measured(quick=options.quick)
    for row in rows:
        sign = "<=" if row.at_most else ">="
        print(f"{row.ratio:8.2f}  (bar {sign} {row.bar:g}: {'holds' if row.holds else 'MISSED'})  {row.name}")
    found = {
        "seed": 0,
        "quick": options.quick,
        "seconds": round(perf_counter() - start, 1),
        "machine": machine(),
        "rows": [asdict(row) | {"holds": row.holds} for row in rows],
    }
    with written_whole(options.out) as temporary:
        temporary.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if not options.quick:
        page = FOLDER / "README.md"
        page.write_text(TABLE.sub(lambda m: m[1] + readme_table(found) + m[2], page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
