"""What the engine costs: scores over forward passes, and what others would write over ours, side by side in one run.

`python benchmarks/bench_engine.py` measures, writes results/engine.json and the numbers in README.md; with `--quick` it
takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/engine.json.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from baselines import forward_pass, trained_alone
from captum.attr import IntegratedGradients
from crowds import population
from timing import Benchmark, Ratio, compare
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.auxiliary.training import binary_loss, train
from fairfox.fairtests.faux import FAux
from fairfox.gradients.alignment import Head, inverse_direction, pseudo_solve
from fairfox.gradients.integrated import choose_path, integrated_jacobian
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

SEED = 0
BARS = {(100, 64, 2): 5.0, (400, 64, 2): 3.5, (100, 128, 4): 5.5, (100, 1024, 4): 4.5}
INTEGRATED_BARS = {1: 80.0, 2: 20.0, 4: 5.0}  # by depth


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    sizes: tuple[tuple[int, int, int, int], ...] = (
        (100, 64, 2, 65_536),
        (400, 64, 2, 32_768),
        (100, 128, 4, 32_768),
        (100, 1024, 4, 8192),
    )  # features, width, depth, rows
    depths: tuple[int, ...] = (1, 2, 4)
    integrated_rows: int = 4096
    reference_rows: int = 128
    reference_points: int = 8192
    captum_steps: int = 50
    auditor_rows: int = 16_384
    auditor_features: int = 50
    auditor_steps: int = 50
    classes: int = 10
    solve_rows: int = 4096
    training_rows: int = 10_000
    training_epochs: int = 10
    auxiliaries: int = 10
    laps: int = 15
    long_laps: int = 5


QUICK = Settings(
    sizes=((12, 8, 2, 512), (20, 8, 2, 512)), depths=(1, 2), integrated_rows=64, reference_rows=8, reference_points=512,
    captum_steps=5, auditor_rows=128, auditor_features=6, auditor_steps=2, solve_rows=64, training_rows=300,
    training_epochs=1, auxiliaries=2, laps=2, long_laps=2,
)  # fmt: skip


def gradient_tests(settings: Settings) -> list[Ratio]:
    """Return the cost of `faux` in forward passes, at each size."""
    return [_faux(*size, settings.laps if size[1] < 512 else settings.long_laps) for size in settings.sizes]


def _faux(features: int, width: int, depth: int, rows: int, laps: int) -> Ratio:
    data = population(rows, features)
    target = MLP(features, width=width, depth=depth, seed=1).member(0)
    model = TorchModel(target, output=Output("logit"))
    auxiliary = AuxiliaryModel(refits=1, width=width, depth=depth, max_epochs=1, seed=SEED)
    test = FAux(auxiliary=auxiliary).fit(data[:2048])
    block = test.batch_size
    found = compare(lambda: test.score(model, data), lambda: forward_pass(target, data.x, block), laps=laps)
    return Ratio(
        f"gradient tests ({features}, {width}, {depth})",
        f"faux, {features} features, width {width}, depth {depth}",
        f"a forward pass of the target, blocks of {block}",
        BARS.get((features, width, depth), 5.0), True, *found,
    )  # fmt: skip


def integrated(settings: Settings) -> list[Ratio]:
    """Return captum's cost over ours at each depth; it counts only where our errors are no larger."""
    return [_integrated(depth, settings) for depth in settings.depths]


def _integrated(depth: int, settings: Settings) -> Ratio:
    data = population(settings.integrated_rows, 100)
    assert data.y is not None
    together = MLP(100, width=64, depth=depth, seed=1)
    train(together, data.x, data.y, loss=binary_loss, valid_x=data.x, valid_targets=data.y, max_epochs=4)
    net = together.member(0)
    x, baseline = data.x, data.x.mean(0)
    model, engine = TorchModel(net), IntegratedGradients(net)
    few, start = x[: settings.reference_rows], baseline.expand_as(x)

    def theirs() -> Tensor:
        return engine.attribute(x, baselines=start, target=0, n_steps=settings.captum_steps)

    def ours() -> Tensor:
        return integrated_jacobian(model, x, baseline=baseline)[:, 0]

    truth = reference(net, few, baseline, settings.reference_points)
    errors = [_errors(found()[: len(few)], truth) for found in (theirs, ours)]
    steps = len(choose_path(model, baseline).nodes) - 1
    found = compare(theirs, ours, laps=settings.long_laps)
    return Ratio(
        f"integrated gradients, depth {depth}",
        f"captum, {settings.captum_steps} steps, depth {depth} ({_words(errors[0])})",
        f"ours, {steps} interval{'s' if steps > 1 else ''} ({_words(errors[1])})",
        INTEGRATED_BARS[depth], False, *found,
        sound=all(a <= b for a, b in zip(errors[1], errors[0], strict=True)),
    )  # fmt: skip


def reference(net: nn.Module, x: Tensor, baseline: Tensor, points: int) -> Tensor:
    """Return integrated gradients (N, D) in float64: the midpoint rule with many points, and autograd."""
    precise = copy.deepcopy(net).double()
    at = (torch.arange(points, dtype=torch.float64)[:, None] + 0.5) / points
    rows = []
    for one in (x - baseline).double():
        way = (baseline.double() + at * one).requires_grad_()
        (gradient,) = torch.autograd.grad(precise(way).sum(), way)
        rows.append(one * gradient.mean(0))
    return torch.stack(rows)


def _errors(found: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return the median and the 95th percentile over people of the relative error."""
    error = (found.detach().double() - truth).norm(dim=1) / truth.norm(dim=1)
    return float(error.median()), float(error.quantile(0.95))


def _words(errors: tuple[float, float]) -> str:
    return f"error {errors[0]:.1e}, 95th percentile {errors[1]:.1e}"


def auditor(settings: Settings) -> list[Ratio]:
    """Return the cost of SenSR's search for everyone's worst case over that of `faux`."""
    data = population(settings.auditor_rows, settings.auditor_features)
    assert data.y is not None
    y = data.y[:, None]
    target = MLP(settings.auditor_features, width=64, depth=2, seed=1).member(0)
    model = TorchModel(target, output=Output("logit"))
    faux = FAux(auxiliary=AuxiliaryModel(refits=1, max_epochs=1, seed=SEED)).fit(data)
    weights = (data.x[data.c[:, 0] == 1].mean(0) - data.x[data.c[:, 0] == 0].mean(0))[:, None]  # (D, 1)
    whose, search = sensr(weights, steps=settings.auditor_steps)

    def attack() -> Tensor:
        blocks = zip(data.x.split(4096), y.split(4096), strict=True)
        return torch.cat([search(target, x, labels) for x, labels in blocks])

    found = compare(attack, lambda: faux.score(model, data), laps=settings.long_laps)
    of = f"SenSR's auditor{whose}, {settings.auditor_steps} steps"
    over = f"faux, {settings.auditor_features} features, width 64, depth 2"
    return [Ratio("auditor", of, over, 45, False, *found)]


Search = Callable[[nn.Module, Tensor, Tensor], Tensor]  # network, x, labels (n, 1) -> worst cases (n, D)


def sensr(weights: Tensor, *, steps: int) -> tuple[str, Search]:
    """Return whose search this is, and the search: moves along the weights (D, 1) cost nothing."""
    loss = nn.BCEWithLogitsLoss(reduction="none")
    if find_spec("inFairness") is None:
        return " (its published loop, written anew)", partial(worst_case, weights=weights, steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is older than Python's newer warnings
        auditors, distances = (import_module(f"inFairness.{part}") for part in ("auditor", "distances"))
    distance = distances.SensitiveSubspaceDistance()
    distance.fit(weights)
    theirs = auditors.SenSRAuditor(loss_fn=loss, distance_x=distance, num_steps=steps, lr=1e-2)
    weight = torch.tensor(1.0)
    return " of inFairness", lambda net, x, y: theirs.generate_worst_case_examples(net, x, y, lambda_param=weight)


def worst_case(net: nn.Module, x: Tensor, y: Tensor, *, weights: Tensor, steps: int) -> Tensor:
    """Return where Adam takes everyone who climbs the loss less the squared fair distance (Yurochkin et al. 2020)."""
    basis = torch.linalg.qr(weights).Q
    delta = nn.Parameter(torch.rand_like(x) * 0.2 - 0.1)
    optimizer = torch.optim.Adam([delta], lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        costly = delta - (delta @ basis) @ basis.T
        loss = F.binary_cross_entropy_with_logits(net(x + delta), y, reduction="none")
        (costly.square().sum(1, keepdim=True) - loss).mean().backward()
        optimizer.step()
    return (x + delta).detach()


def solving(settings: Settings) -> list[Ratio]:
    """Return the cost of pseudo-inverses over that of our solve: of J Jᵀ, and of everyone's Jacobian J itself."""
    generator = torch.Generator().manual_seed(SEED)
    jac = torch.randn(settings.solve_rows, settings.classes, 100, generator=generator, dtype=torch.float64)
    jac = jac - jac.mean(1, keepdim=True)  # centred logits
    expected, jac = torch.linalg.pinv(jac[:64]), jac.float()
    heads, gram = [Head(settings.classes, centred=True)], jac @ jac.mT
    torch.testing.assert_close(inverse_direction(jac[:64], heads=heads).double(), expected, rtol=1e-3, atol=1e-5)
    laps, classes = settings.long_laps, f"{settings.classes} classes"
    solve = compare(lambda: torch.linalg.pinv(gram), lambda: pseudo_solve(gram, heads), laps=laps)
    whole = compare(lambda: torch.linalg.pinv(jac), lambda: inverse_direction(jac, heads=heads), laps=laps)
    return [
        Ratio("solve", f"torch.linalg.pinv of J Jᵀ, {classes}", "our solve", 10, False, *solve),
        Ratio("direction", f"torch.linalg.pinv of J, {classes}, 100 features", "our dx/dc", 10, False, *whole),
    ]


def training(settings: Settings) -> list[Ratio]:
    """Return how many times faster, per model, many auxiliaries train together than one in a DataLoader loop."""
    data = population(round(settings.training_rows / 0.8), 100)  # a fifth is held out to stop early
    epochs, count = settings.training_epochs, settings.auxiliaries

    def together() -> AuxiliaryModel:
        return AuxiliaryModel(refits=count, batch_size=64, max_epochs=epochs, patience=epochs, seed=SEED).fit(data)

    x, c = data.x[: settings.training_rows], data.c[: settings.training_rows, 0]

    def one() -> nn.Sequential:
        return trained_alone(x, c, width=64, depth=2, batch=64, epochs=epochs, seed=SEED)

    ratio, fastest, alone, all_of_them = compare(one, together, laps=settings.long_laps)
    return [
        Ratio(
            "training", "an auxiliary in a plain DataLoader loop", f"one of {count} trained together", 7, False,
            ratio * count, fastest * count, alone, all_of_them / count,
        )
    ]  # fmt: skip


def measure(settings: Settings) -> list[Ratio]:
    """Return all ratios."""
    parts = (gradient_tests, integrated, auditor, solving, training)
    return [ratio for part in parts for ratio in part(settings)]


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    rows = ", ".join(f"{each[3]:,}" for each in s["sizes"])
    return (
        f"Gradient tests: one auxiliary of the target's size, {rows} rows. Integrated gradients: 100 features, "
        f"width 64, {s['integrated_rows']:,} rows from their mean; errors of {s['reference_rows']} of them against the "
        f"midpoint rule with {s['reference_points']:,} points in float64. Auditor: {s['auditor_rows']:,} rows. Solve: "
        f"{s['solve_rows']:,} rows. Training: 100 features, width 64, depth 2, {s['training_rows']:,} rows, batch 64, "
        f"{s['training_epochs']} epochs."
    )


PACKAGES = ("captum", "inFairness")
BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
