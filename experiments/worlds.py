"""Worlds with a known truth, fused or causal: their people, an unfair and a fair target, and an auxiliary.

A *ground* is one draw of all that: jobs make it once, and every fairness test is judged on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal_worlds import DELTA, WORLDS, draw_people
from runner import Folders, Job, read_json, write_json
from settings import Rows, Setting, Shape, Sources, Target
from torch import Tensor, nn
from trials import (
    balanced_accuracy,
    find_threshold,
    generate,
    generator_job,
    load_generator,
    seed_of,
    train_shape,
)

from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, FixedAuxiliary
from fairfox.auxiliary.training import usable_columns
from fairfox.benchmark.judge import Trial
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset
from fairfox.fairtests.effect import model_alignment
from fairfox.gradients.alignment import covariance_metric
from fairfox.models.torch import TorchModel, load_mlp, save_mlp

TARGETS = ("unfair", "fair")


@dataclass(frozen=True)
class World:
    """One world at one level of bias: two fused tables, or a causal model by its name."""

    name: str
    family: str
    bias: float
    fused: Setting | None = None

    @property
    def place(self) -> str:
        """The name with the bias, as jobs have it."""
        return f"{self.name}-{self.bias:g}".replace(" ", "_").replace(",", "")


@dataclass(frozen=True)
class Draw:
    """What decides a ground: how many people, which networks, and the seeds."""

    rows: Rows
    target: Target
    auxiliary: Shape
    number: int  # of the draw
    seed: int


@dataclass(frozen=True)
class Ground:
    """People, targets and an auxiliary, and what the ground job measured of them."""

    fitting: Dataset
    people: Dataset
    models: tuple[TorchModel, TorchModel]  # unfair, fair
    auxiliary: FixedAuxiliary
    threshold: float
    shares: list[float]  # alignment share of each target
    seed: int

    @property
    def trial(self) -> Trial:
        """Both targets before the people."""
        return Trial(self.fitting, self.people, *self.models, self.threshold)


def ground_job(world: World, how: Draw, sources: Sources, seed: int) -> Job:
    """Return the job that makes a ground; of fused tables it comes after their generator and the threshold."""
    after: tuple[Job, ...] = ()
    if world.fused is not None:
        generator = generator_job(world.fused, sources, seed)
        after = (generator, _threshold_job(generator, world.fused, how, seed))
    return Job(f"ground-{world.place}-{how.number}", make_ground, (world, how), after=after)


def _threshold_job(generator: Job, setting: Setting, how: Draw, seed: int) -> Job:
    """Return the job that finds the threshold of a pair and fusion; all levels of bias share it."""
    name = f"variance-{setting.c}-{setting.y}-{setting.fusion}-{how.number}"
    arguments = (setting.fusion, how.target, how.rows, seed_of(seed, name))
    return Job(name, find_threshold, arguments, after=(generator,))


def make_ground(folder: Path, needed: Folders, world: World, how: Draw) -> dict[str, Any]:
    """Train and save both targets and the auxiliary; return how good they are and what they do to people."""
    fitting, people, legitimate = _people(needed[:1], world, how)
    models = {
        "unfair": train_shape(fitting, how.target, how.rows, how.seed),
        "fair": train_shape(fitting, how.target, how.rows, how.seed, projection=legitimate),
    }
    for name, model in models.items():
        assert isinstance(model.module, nn.Sequential)
        save_mlp(nn.Sequential(*list(model.module)[:-1]), folder / f"{name}.safetensors")
    auxiliary = _network(how).fit(fitting)
    (member,) = auxiliary.members
    assert isinstance(member, AuxiliaryMember)
    save_mlp(member.net, folder / "auxiliary.safetensors", returns="value")
    metric = covariance_metric(fitting.x)
    shares = [model_alignment(model, people, auxiliary, metric)[0].value for model in models.values()]
    threshold = read_json(needed[1] / "result.json")["result"]["threshold"] if world.fused is not None else DELTA
    write_json(folder / "ground.json", {"shares": shares, "threshold": threshold})
    return {
        "columns": people.x.shape[1],
        "threshold": threshold,
        "target_balanced_accuracy": balanced_accuracy(models["unfair"], people.x, people.y),
        "auxiliary_accuracy": _accuracy(member, people),
        "shares": shares,
        "mean_ifs": float(individual_fairness_score(models["unfair"], people).double().mean()),
    }


def load_ground(needed: Folders, world: World, how: Draw) -> Ground:
    """Return what `make_ground` left in the first folder; the second is that of the generator of fused tables."""
    fitting, people, _ = _people(needed[1:], world, how)
    known = read_json(needed[0] / "ground.json")
    unfair, fair = (TorchModel(load_mlp(needed[0] / f"{name}.safetensors")) for name in TARGETS)
    learned, held_out = fitting.split(0.8, seed=how.seed)  # as the auxiliary splits them
    net = load_mlp(needed[0] / "auxiliary.safetensors")
    assert isinstance(net, nn.Sequential)
    member = AuxiliaryMember(net, usable_columns(learned))
    auxiliary = FixedAuxiliary([member], held_out)
    return Ground(fitting, people, (unfair, fair), auxiliary, known["threshold"], known["shares"], how.seed)


def _people(generator: Folders, world: World, how: Draw) -> tuple[Dataset, Dataset, Tensor]:
    """Return people to learn from, people to be judged by, and the projection onto what c does not act on."""
    if world.fused is None:
        drawn = draw_people(WORLDS[world.name].at(world.bias), how.rows.fitting, how.rows.test, seed=how.seed)
        return drawn.fitting, drawn.people, drawn.legitimate
    fusion = world.fused.fusion
    fitting, people = generate(generator[0], fusion, world.bias, how.rows, how.seed)
    return fitting, people, load_generator(generator[0]).keep_y(fusion)


def _network(how: Draw) -> AuxiliaryModel:
    return AuxiliaryModel(refits=1, width=how.auxiliary.width, depth=how.auxiliary.depth, seed=how.seed)


def _accuracy(member: AuxiliaryMember, people: Dataset) -> float:
    """Return the share of people whose class the auxiliary tells."""
    outputs = member(people.x)
    told = outputs.argmax(1) if outputs.shape[1] > 1 else outputs[:, 0] > 0
    return float((told == people.c[:, 0]).double().mean())
