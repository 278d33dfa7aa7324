"""Generated people and the targets that are tested on them: jobs whose files other jobs read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from runner import Folders, Job, read_json
from settings import SOURCES, Rows, Setting, Sources, Target
from torch import Tensor, nn

from fairfox.benchmark.cvae import Training
from fairfox.benchmark.fusion import Fusion
from fairfox.benchmark.generator import SyntheticBias
from fairfox.benchmark.judge import Trial
from fairfox.benchmark.source import SourceModel, SourceSettings, generator_score
from fairfox.benchmark.truth import individual_fairness_score, train_target, unbiased_variance
from fairfox.data.dataset import Dataset
from fairfox.models.protocol import Model, predict
from fairfox.models.torch import TorchModel, load_mlp, save_mlp


def seed_of(seed: int, *names: object) -> int:
    """Return a seed of its own for whatever has these names."""
    return crc32("/".join(map(str, (seed, *names))).encode()) % 2**31  # scikit-learn takes no more


def generator_job(setting: Setting, sources: Sources, seed: int) -> Job:
    """Return the job that makes the generator of a setting's two tables; settings of one pair share it."""
    c, y = setting.pair
    after = tuple(source_job(name, number, sources, seed) for name in setting.pair for number in range(sources.models))
    return Job(f"generator-{c}-{y}-{seed}", join_sources, (setting.pair, sources.models), after=after)


def source_job(name: str, number: int, sources: Sources, seed: int) -> Job:
    """Return the job that models one table once."""
    alone = replace(sources, models=1)  # how many there are changes none of them
    arguments = (name, SOURCES[name][1], alone, seed_of(seed, name, number))
    return Job(f"source-{name}-{number}-{seed}", fit_source, arguments, seconds=30)


def threshold_job(generator: Job, setting: Setting, shape: Target, rows: Rows, seed: int) -> Job:
    """Return the job that finds from which true score on people count as treated unfairly.

    It is the same at every bias: settings of one pair and fusion share it.
    """
    name = f"threshold-{setting.c}-{setting.y}-{setting.fusion}-{shape}-{seed}"
    return Job(name, find_threshold, (setting.fusion, shape, rows, seed_of(seed, name)), after=(generator,))


def targets_job(generator: Job, setting: Setting, shape: Target, rows: Rows, seed: int) -> Job:
    """Return the job that trains a setting's unfair and its fair target."""
    arguments = (setting, shape, rows, seed_of(seed, setting.name), seed_of(seed, setting.name, shape))
    return Job(f"targets-{setting.name}-{shape}-{seed}", train_targets, arguments, after=(generator,))


def fit_source(
    folder: Path, needed: Folders, name: str, how: SourceSettings, sources: Sources, seed: int
) -> dict[str, Any]:
    """Model a table, save it, and return how well the model reproduces it."""
    table = SOURCES[name][0]()
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))[: sources.rows]]
    model = SourceModel.fit(table, how, seed=seed, training=Training(max_steps=sources.steps))
    torch.save(model.state(), folder / "source.pt")
    return {"spread": model.spread, "model_score": generator_score(model, pairs=sources.pairs)}


def join_sources(folder: Path, needed: Folders, pair: tuple[str, str], models: int) -> dict[str, Any]:
    """Save the generator of the two tables' median models; return how they reproduce their tables."""

    def score(place: Path) -> float:
        return float(result_of(place)["model_score"])

    chosen = [sorted(part, key=score)[models // 2] for part in (needed[:models], needed[models:])]
    sources = [SourceModel.restored(torch.load(place / "source.pt", weights_only=True)) for place in chosen]
    SyntheticBias.of(*sources).save(folder / "generator.pt")
    return {name: result_of(place) for name, place in zip(pair, chosen, strict=True)}


def result_of(place: Path) -> dict[str, Any]:
    """Return what the job with this folder returned."""
    found: dict[str, Any] = read_json(place / "result.json")["result"]
    return found


def find_threshold(
    folder: Path, needed: Folders, fusion: Fusion, shape: Target, rows: Rows, seed: int
) -> dict[str, Any]:
    """Return the variance of the true scores of a target that is trained without bias."""
    fitting, people = generate(needed[0], fusion, 0.0, rows, seed)
    return {"threshold": unbiased_variance(train_shape(fitting, shape, rows, seed), people)}


def train_targets(
    folder: Path, needed: Folders, setting: Setting, shape: Target, rows: Rows, people_seed: int, seed: int
) -> dict[str, Any]:
    """Train and save a plain target and one that cannot see c; return how well they predict."""
    fitting, people = generate(needed[0], setting.fusion, setting.bias, rows, people_seed)
    projections = {"unfair": None, "fair": load_generator(needed[0]).keep_y(setting.fusion)}
    found: dict[str, Any] = {}
    for name, projection in projections.items():
        model = train_shape(fitting, shape, rows, seed, projection=projection)
        save_target(model, folder / f"{name}.safetensors")
        found[name] = {
            "balanced_accuracy": balanced_accuracy(model, people.x, people.y),
            "mean_ifs": float(individual_fairness_score(model, people).mean()),
        }
    return found


def save_target(model: TorchModel, path: Path) -> None:
    """Save a target; its last layer, the sigmoid, is declared and not stored."""
    assert isinstance(model.module, nn.Sequential)
    save_mlp(nn.Sequential(*list(model.module)[:-1]), path)


def train_shape(
    fitting: Dataset, shape: Target, rows: Rows, seed: int, *, projection: Tensor | None = None
) -> TorchModel:
    """Return a target of a shape, trained on the training rows and stopped by the others."""
    train, valid = fitting[: rows.train], fitting[rows.train :]
    return train_target(
        train,
        valid=valid,
        width=shape.width,
        depth=shape.depth,
        seed=seed,
        projection=projection,
        training=shape.training,
    )


def load_generator(folder: Path) -> SyntheticBias:
    """Return what `join_sources` saved."""
    return SyntheticBias.load(folder / "generator.pt")


def generate(folder: Path, fusion: Fusion, bias: float, rows: Rows, seed: int) -> tuple[Dataset, Dataset]:
    """Return people to learn from, training rows first, and people to be judged by."""
    generator = load_generator(folder)
    fitting = generator.sample(rows.fitting, bias=bias, fusion=fusion, seed=seed_of(seed, "fitting"))
    return fitting, generator.sample(rows.test, bias=bias, fusion=fusion, seed=seed_of(seed, "people"), derivative=True)


def load_targets(folder: Path) -> list[TorchModel]:
    """Return the unfair and the fair target of a folder."""
    return [TorchModel(load_mlp(folder / f"{name}.safetensors")) for name in ("unfair", "fair")]


def load_trial(fitting: Dataset, people: Dataset, targets: Path, threshold: Path) -> Trial:
    """Return the trial of two targets by a threshold, from the folders of the jobs that found them."""
    return Trial(fitting, people, *load_targets(targets), result_of(threshold)["threshold"])


def balanced_accuracy(model: Model, x: Tensor, labels: Tensor | None, *, cut: float = 0.5) -> float:
    """Return the mean over the two labels of the share that a model gets right by saying 1 above the cut."""
    assert labels is not None
    right = (predict(model, x) > cut) == (labels == 1)
    return sum(float(right[labels == label].double().mean()) for label in (0, 1)) / 2
