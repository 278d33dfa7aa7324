"""Worlds with a known truth, fused or causal: their people, an unfair and a fair target, and an auxiliary.

A *ground* is one draw of all that: jobs make it once, and every fairness test is judged on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal_worlds import DELTA, WORLDS, draw_people
from runner import Folders, Job
from scoring import alignment_shares
from settings import Rows, Setting, Shape, Sources, Target
from torch import Tensor, nn
from trials import TARGETS, generate, generator_job, load_generator, result_of, save_target, threshold_job, train_shape

from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, FixedAuxiliary
from fairfox.auxiliary.training import usable_columns
from fairfox.benchmark.judge import Trial
from fairfox.data.dataset import Dataset
from fairfox.models.torch import TorchModel, load_mlp, save_mlp


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
        after = (generator, threshold_job(generator, world.fused, how.target, how.rows, seed))
    return Job(f"ground-{world.place}-{how.number}", make_ground, (world, how), after=after)


def make_ground(folder: Path, needed: Folders, world: World, how: Draw) -> dict[str, Any]:
    """Train and save both targets and the auxiliary; return the alignment shares of the targets and the threshold."""
    fitting, people, legitimate = _people(needed[:1], world, how)
    models = {
        "unfair": train_shape(fitting, how.target, how.rows, how.seed),
        "fair": train_shape(fitting, how.target, how.rows, how.seed, projection=legitimate),
    }
    for name, model in models.items():
        save_target(model, folder / f"{name}.safetensors")
    auxiliary = AuxiliaryModel(refits=1, width=how.auxiliary.width, depth=how.auxiliary.depth, seed=how.seed).fit(
        fitting
    )
    (member,) = auxiliary.members
    assert isinstance(member, AuxiliaryMember)
    save_mlp(member.net, folder / "auxiliary.safetensors", returns="value")
    shares = alignment_shares(auxiliary, [*models.values()], fitting, people)
    return {"shares": shares, "threshold": DELTA if world.fused is None else result_of(needed[1])["threshold"]}


def load_ground(needed: Folders, world: World, how: Draw) -> Ground:
    """Return what `make_ground` left in the first folder; the second is that of the generator of fused tables."""
    fitting, people, _ = _people(needed[1:], world, how)
    known = result_of(needed[0])
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
