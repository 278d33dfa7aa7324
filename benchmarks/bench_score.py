"""What scoring and training cost, as ratios taken side by side in one run.

`python benchmarks/bench_score.py` measures, writes results/score.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/score.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from baselines import forward_pass, trained_alone
from crowds import population
from sklearn.ensemble import HistGradientBoostingClassifier
from timing import Benchmark, Ratio, compare
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import FAux
from fairfox.maps.rank import RankMap
from fairfox.models.adapters import as_model
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

SEED = 0
GAP = 0.5  # between the groups


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
    long_laps: int = 15  # of what takes a second


QUICK = Settings(
    rows=2048, features=20, width=16, naive_rows=20, table_rows=2000, table_columns=4, training_rows=500, epochs=1,
    laps=3, long_laps=3,
)  # fmt: skip


def gradient_tests(settings: Settings) -> list[Ratio]:
    """Return the cost of `faux` in forward passes, and of Algorithm 1 row by row in ours."""
    data = population(settings.rows, settings.features, gap=GAP)
    target = MLP(settings.features, width=settings.width, depth=settings.depth, seed=1).member(0)
    model = TorchModel(target, output=Output("logit"))
    auxiliary = AuxiliaryModel(refits=1, width=settings.width, depth=settings.depth, max_epochs=1, seed=SEED)
    faux = FAux(auxiliary=auxiliary, batch_size=settings.block).fit(data[:4096])
    plain_auxiliary = auxiliary.members[0].net  # type: ignore[attr-defined]

    def forward() -> Tensor:
        return forward_pass(target, data.x, settings.block)

    def naive() -> list[float]:
        return [algorithm_1(target, plain_auxiliary, row) for row in data.x[: settings.naive_rows]]

    agreed = torch.tensor(naive())
    torch.testing.assert_close(faux.score(model, data[: settings.naive_rows]), agreed, rtol=1e-3, atol=1e-6)
    passes = compare(lambda: faux.score(model, data), forward, laps=settings.laps)
    ratio, fastest, loop, ours = compare(naive, lambda: faux.score(model, data), laps=settings.laps)
    scale = settings.rows / settings.naive_rows
    return [
        Ratio("gradient tests", "faux", "a forward pass of the target", 6.5, True, *passes),
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
    data = population(settings.table_rows, settings.table_columns, gap=GAP)
    matrix, c = data.x.double().numpy(), data.c[:, 0].numpy()
    rng = np.random.default_rng(SEED)
    chances = matrix @ rng.normal(size=settings.table_columns) + rng.normal(size=settings.table_rows)
    trees = HistGradientBoostingClassifier(random_state=SEED).fit(matrix[:20_000], chances[:20_000] > 0)
    names = [f"x{j}" for j in range(settings.table_columns)]
    table = load_table(pa.table({**dict(zip(names, matrix.T, strict=True)), "group": c.astype(int)}))
    encoding = fit_encoding(table, protected=["group"], dtype=torch.float64)
    people = encoding.encode(table)
    model = as_model(trees, encoding, example=people.x[:1000])
    test = Effect(map=RankMap(), refits=1).fit(people)
    found = compare(lambda: test.score(model, people), lambda: trees.predict_proba(matrix), laps=settings.long_laps)
    return [Ratio("rank on trees", "rank, fitted once", "predict_proba of the table", 2.3, True, *found)]


def training(settings: Settings) -> list[Ratio]:
    """Return the cost of training several auxiliaries together over that of one in a plain DataLoader loop."""
    rows = round(settings.training_rows / 0.8)  # a fifth is held out to stop early
    data = population(rows, settings.features, gap=GAP)

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

    x, c = data.x[: settings.training_rows], data.c[: settings.training_rows, 0]

    def one() -> nn.Sequential:
        sizes = {"width": settings.width, "depth": settings.depth, "batch": settings.training_batch}
        return trained_alone(x, c, **sizes, epochs=settings.epochs, seed=SEED)

    found = compare(together, one, laps=settings.long_laps)
    name = f"{settings.auxiliaries} auxiliaries trained together"
    return [Ratio("training", name, "one in a plain DataLoader loop", 1.0, True, *found)]


def measure(settings: Settings) -> list[Ratio]:
    """Return all ratios."""
    return [*gradient_tests(settings), *rank_on_trees(settings), *training(settings)]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"Networks: {s['features']} features, width {s['width']}, depth {s['depth']}; {s['rows']:,} rows in blocks of "
        f"{s['block']}. Trees: default HistGradientBoostingClassifier, {s['table_rows']:,} rows, "
        f"{s['table_columns']} numeric columns. Training: {s['training_rows']:,} rows, batch {s['training_batch']}, "
        f"{s['epochs']} epochs."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
