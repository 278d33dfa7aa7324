"""What the paper's experiments are made of: datasets, settings, networks, and the numbers it printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fairfox.benchmark.source import SourceSettings
from fairfox.benchmark.truth import TargetTraining
from fairfox.data.dataset import Dataset
from fairfox.data.datasets import load_australian, load_backache, load_credit, load_magic, load_wdbc

# Modes and depth as in the paper, its widths up to 256; latent and weights of the divergence it does not print.
SOURCES: dict[str, tuple[Callable[[], Dataset], SourceSettings]] = {
    "backache": (load_backache, SourceSettings(modes=3, width=186, depth=6)),
    "credit": (load_credit, SourceSettings(modes=7, width=256, depth=3)),
    "australian": (load_australian, SourceSettings(modes=5, width=256, depth=5)),
    "wdbc": (load_wdbc, SourceSettings(modes=4, width=256, depth=1)),
    "magic": (load_magic, SourceSettings(modes=2, width=256, depth=2, kl_weight=0.3)),
}


@dataclass(frozen=True)
class Shape:
    """A network: units of each hidden layer, and how many layers."""

    width: int
    depth: int

    def __str__(self) -> str:
        return f"{self.width}x{self.depth}"


@dataclass(frozen=True)
class Target(Shape):
    """A target network and how it is trained."""

    training: TargetTraining = TargetTraining()  # noqa: RUF009


@dataclass(frozen=True)
class Setting:
    """One column of Table 1: which table gives c and which gives y, how they are fused, how biased they are."""

    name: str
    c: str
    y: str
    fusion: Literal["concat", "outer"]
    bias: float

    @property
    def pair(self) -> tuple[str, str]:
        """The two tables, the one that gives c first."""
        return self.c, self.y


@dataclass(frozen=True)
class Rows:
    """How many people are generated: to train on, to see when to stop, to be judged by."""

    train: int
    valid: int
    test: int

    @property
    def fitting(self) -> int:
        """Rows that fairness tests may learn from."""
        return self.train + self.valid


@dataclass(frozen=True)
class Sources:
    """How tables are modelled: from how many of their rows, in how many steps, and how often.

    Models of small tables differ much from each other; of several the one with the median score is taken.
    """

    rows: int | None = None  # all
    steps: int = 3_000
    pairs: int = 10_000  # that the model score is taken from
    models: int = 3


SETTINGS = (
    Setting("Synthetic-1", "magic", "backache", "outer", 0.5),
    Setting("Synthetic-2", "magic", "backache", "concat", 0.5),
    Setting("Synthetic-3", "magic", "backache", "outer", 1.0),
    Setting("Synthetic-4", "magic", "backache", "concat", 1.0),
    Setting("Synthetic-5", "australian", "credit", "outer", 0.5),
    Setting("Synthetic-6", "australian", "credit", "concat", 0.5),
    Setting("Synthetic-7", "australian", "credit", "outer", 1.0),
    Setting("Synthetic-8", "australian", "credit", "concat", 1.0),
)

ROWS = Rows(10_000, 2_000, 5_000)

TARGETS = (Target(64, 2), Target(32, 3))

# The paper draws widths from 8 to 128 and depths from 1 to 4; these five spread over both.
AUXILIARIES = (Shape(64, 2), Shape(32, 1), Shape(128, 3), Shape(48, 4), Shape(8, 1))

# Balanced accuracy of a simple classifier on generated pairs.
PAPER_MODEL_SCORES = {"backache": 0.545, "credit": 0.657, "australian": 0.721, "wdbc": 0.815, "magic": 0.987}

# Average precision in Synthetic-1 .. Synthetic-8.
PAPER_TABLE1 = {
    "fta": (0.307, 0.306, 0.307, 0.307, 0.466, 0.293, 0.355, 0.309),
    "fta+linear": (0.402, 0.683, 0.451, 0.455, 0.709, 0.658, 0.672, 0.612),
    "unfair_map": (0.407, 0.400, 0.576, 0.820, 0.571, 0.653, 0.687, 0.732),
    "fliptest": (0.598, 0.880, 0.433, 0.633, 0.600, 0.678, 0.701, 0.732),
    "faux": (0.332, 0.998, 0.311, 1.000, 0.615, 0.937, 0.564, 0.997),
    "faux+ng": (0.876, 0.999, 0.978, 1.000, 0.815, 0.947, 0.910, 0.998),
    "faux+ig": (0.717, 0.998, 0.937, 1.000, 0.886, 0.944, 0.979, 0.999),
    "lic": (0.998, 0.999, 1.000, 1.000, 0.965, 0.966, 0.999, 0.999),
}
