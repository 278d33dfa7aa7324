"""What the experiments on real tables share: the tables, who is judged, targets that hide c more and less, generators.

Everything of one table and one number depends on a `Ground`: its people are split anew for each number, networks and
generators learn from four fifths of them, and the others are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from runner import Folders, Job
from trials import save_target, seed_of
from wording import finite

from fairfox.auxiliary.adversarial import HidingSettings, train_networks
from fairfox.benchmark.truth import train_target
from fairfox.data.dataset import Dataset
from fairfox.data.datasets import load_adult, load_bank, load_chicago_ssl
from fairfox.errors import FileError
from fairfox.maps.gan import GanMap, GanSettings
from fairfox.models.torch import TorchModel, load_mlp, save_mlp
from fairfox.remedies.hiding import measure

TABLES: dict[str, Callable[[], Dataset]] = {
    "adult": load_adult,
    "adult-without-relationship": partial(load_adult, relationship=False),
    "bank": load_bank,
    "bank-without-duration": partial(load_bank, duration=False),
    "chicago": load_chicago_ssl,
}
TITLES = {name: name.capitalize().replace("-", " ") for name in TABLES} | {"chicago": "Chicago SSL"}
NOT_RUN = "not run: file not available"
HELD_OUT = 0.2  # of the people: they are judged

FAMILY = ("faux", "faux+ng", "faux+ig")
ADVERSARIAL = " (adversarial auxiliary)"  # after the name of a test whose auxiliary hides y

Floor = float | None  # None: a plain target, which hides nothing
FLOORS: tuple[Floor, ...] = (None, 0.0, 0.5, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Ground:
    """Who takes part: the people of a table, or so many of them, split by a number of their own."""

    table: str
    number: int
    seed: int  # of the experiment
    rows: int | None = None  # all

    @property
    def name(self) -> str:
        """The table and the number."""
        return f"{self.table}-{self.number}"

    def seed_for(self, what: str) -> int:
        """Return a seed of its own for something on this ground."""
        return seed_of(self.seed, self.name, what)

    def people(self) -> tuple[Dataset, Dataset]:
        """Return the people to learn from and those to be judged; each has every group's share of the table."""
        data = TABLES[self.table]()
        if self.rows is not None and self.rows < len(data):
            data = data.split(self.rows / len(data), seed=self.seed_for("sample"))[0]
        return data.split(1 - HELD_OUT, seed=self.seed_for("split"))


def lacking(tables: Sequence[str], loaders: Mapping[str, Callable[[], object]] = TABLES) -> dict[str, str]:
    """Return the tables whose file is not to be had, each with the words for it; stop where that is all of them."""
    reasons = {}
    for table in tables:
        try:
            loaders[table]()
        except FileError as error:
            reasons[table] = str(error)
    if reasons and len(reasons) == len(tables):
        raise SystemExit(next(iter(reasons.values())))
    return dict.fromkeys(reasons, NOT_RUN)


def floor_name(floor: Floor) -> str:
    """Return a target by how much it hides: "plain", "0", "0.5"."""
    return "plain" if floor is None else f"{floor:g}"


def targets_job(ground: Ground, floors: Sequence[Floor], hiding: HidingSettings | None) -> Job:
    """Return the job that trains a target for each floor; `load_targets` reads its folder."""
    return Job(f"targets-{ground.name}", train_targets, (ground, tuple(floors), hiding), seconds=80)


def train_targets(
    folder: Path, needed: Folders, ground: Ground, floors: Sequence[Floor], hiding: HidingSettings | None
) -> list[dict[str, Any]]:
    """Train the targets, those that hide c at once, and save them; return what each tells to people it never saw."""
    fitting, people = ground.people()
    seed, shape = ground.seed_for("targets"), hiding or HidingSettings()
    hide = [floor for floor in floors if floor is not None]
    nets = train_networks(fitting, floors=hide, seeds=[seed] * len(hide), settings=hiding) if hide else []
    if None in floors:
        # It stops when people it does not learn from say so. Trained for all the epochs of a hiding one it would learn
        # its people by heart: less accurate on others, and its gradients are noise.
        plain = train_target(fitting, width=shape.width, depth=shape.depth, seed=seed)
        save_target(plain, folder / f"{floor_name(None)}.safetensors")
    for floor, net in zip(hide, nets, strict=True):
        save_mlp(net, folder / f"{floor_name(floor)}.safetensors")
    models = load_targets(folder, floors)
    return [
        {"floor": floor, **asdict(measure(model(people.x)[:, 0], people))}
        for floor, model in zip(floors, models, strict=True)
    ]


def load_targets(folder: Path, floors: Sequence[Floor]) -> list[TorchModel]:
    """Return the targets that `train_targets` saved: encoded people to probabilities."""
    return [TorchModel(load_mlp(folder / f"{floor_name(floor)}.safetensors")) for floor in floors]


def gan_job(ground: Ground, settings: GanSettings) -> Job:
    """Return the job that trains FlipTest's generators both ways; `load_gan` reads its folder."""
    return Job(f"gan-{ground.name}", train_gan, (ground, settings), seconds=180)


def train_gan(folder: Path, needed: Folders, ground: Ground, settings: GanSettings) -> dict[str, float | None]:
    """Train FlipTest's generators and save them; return its checks, null where a generator diverged."""
    one = GanMap(**asdict(settings), seed=ground.seed_for("gan")).fit(ground.people()[0])
    torch.save(one, folder / "gan.pt")
    return {name: finite(value) for name, value in one.checks().items()}


def load_gan(folder: Path) -> GanMap:
    """Return the map that `train_gan` saved."""
    gan = torch.load(folder / "gan.pt", weights_only=False)
    assert isinstance(gan, GanMap)
    return gan
