"""What ten classes cost over two: the same people, columns and target, side by side in one run.

`python benchmarks/bench_classes.py` measures, writes results/classes.json and the numbers in README.md; with `--quick`
it takes small sizes to see that everything runs, and no bar counts; with `--readme` it only writes the numbers in
README.md, from results/classes.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from timing import Benchmark, Ratio, compare
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.fairtests.protocol import FairnessTest
from fairfox.fairtests.registry import make_test
from fairfox.models.torch import TorchModel

SEED = 0
TESTS = ("rank", "move", "faux", "faux+ng", "faux+ig", "fta+linear")
BAR = 12.0


@dataclass(frozen=True)
class Settings:
    """Sizes of everything that is measured."""

    rows: int = 50_000
    numbers: int = 20
    categories: tuple[int, ...] = (4, 6)  # levels of each categorical column
    classes: int = 10
    width: int = 64
    depth: int = 2
    fitting_rows: int = 10_000
    refits: int = 2
    laps: int = 5


QUICK = Settings(rows=400, numbers=4, categories=(3,), classes=4, width=8, fitting_rows=400, refits=1, laps=2)


def population(settings: Settings) -> Dataset:
    """Return people of many classes, which differ a little in every column."""
    generator = torch.Generator().manual_seed(SEED)
    c = torch.arange(settings.rows) % settings.classes
    shift = 0.5 * torch.randn(settings.classes, settings.numbers, generator=generator)
    parts = [torch.randn(settings.rows, settings.numbers, generator=generator) + shift[c]]
    features = [Feature(f"x{j}", "continuous", j, j + 1) for j in range(settings.numbers)]
    for levels in settings.categories:
        chances = torch.randn(settings.classes, levels, generator=generator).softmax(1)[c]  # (N, L)
        chosen = torch.multinomial(chances, 1, generator=generator)[:, 0]
        parts.append(nn.functional.one_hot(chosen, levels).float())
        start = features[-1].stop
        names = tuple(f"level {k}" for k in range(levels))
        features.append(Feature(f"x{len(features)}", "categorical", start, start + levels, names))
    variable = Protected("class", "categorical", tuple(f"class {k}" for k in range(settings.classes)))
    return Dataset(x=torch.cat(parts, dim=1), c=c[:, None].float(), protected=(variable,), features=tuple(features))


def halved(data: Dataset) -> Dataset:
    """Return the same people in two groups: the lower and the upper half of the classes."""
    half = Protected("half", "binary", ("lower", "upper"))
    return replace(data, c=(data.c >= len(data.protected[0].levels) / 2).float(), protected=(half,))


def fitted(name: str, auxiliary: FixedAuxiliary, data: Dataset, settings: Settings) -> FairnessTest:
    """Return a test fitted on the first rows."""
    test = make_test(name, auxiliary=auxiliary, refits=settings.refits, seed=SEED)
    return test.fit(data[: settings.fitting_rows])


def trained(data: Dataset, settings: Settings) -> FixedAuxiliary:
    """Return the auxiliary that all tests on these groups share; a short training is enough to time it."""
    model = AuxiliaryModel(
        refits=settings.refits, width=settings.width, depth=settings.depth, max_epochs=2, seed=SEED
    ).fit(data[: settings.fitting_rows])
    return FixedAuxiliary(model.members, model.held_out)


def measure(settings: Settings) -> list[Ratio]:
    """Return the cost of each test's scores on many classes over those on two."""
    many = population(settings)
    two = halved(many)
    target = MLP(many.x.shape[1], width=settings.width, depth=settings.depth, seed=1).member(0)
    model = TorchModel(nn.Sequential(target, nn.Sigmoid()))
    auxiliaries = [(data, trained(data, settings)) for data in (many, two)]
    ratios = []
    for name in TESTS:
        of, over = ((fitted(name, auxiliary, data, settings), data) for data, auxiliary in auxiliaries)

        def scores(one: tuple[FairnessTest, Dataset]) -> Tensor:
            return one[0].score(model, one[1])

        found = compare(lambda of=of: scores(of), lambda over=over: scores(over), laps=settings.laps)
        ratios.append(Ratio(name, f"{name}, {settings.classes} classes", "two groups", BAR, True, *found))
    return ratios


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return (
        f"{s['rows']:,} people, {s['numbers']} numeric columns and {len(s['categories'])} categorical of "
        f"{' and '.join(map(str, s['categories']))} levels; target and auxiliaries of width {s['width']}, depth "
        f"{s['depth']}; fitted {s['refits']} times on {s['fitting_rows']:,} of the people."
    )


BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
