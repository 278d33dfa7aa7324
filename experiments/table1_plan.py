"""What the jobs of Table 1 share: how large it is, who is judged by which targets, and what re-trainings add up to."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from runner import Device, Folders, Job
from scoring import Scores, fair_over_unfair, judge_known
from settings import AUXILIARIES, ROWS, SETTINGS, TARGETS, Rows, Setting, Shape, Sources, Target
from torch import Tensor, nn
from trials import generate, generator_job, load_generator, load_trial, seed_of, targets_job, threshold_job
from wording import mean

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary, ProjectedAuxiliary
from fairfox.benchmark.judge import Trial
from fairfox.data.dataset import Dataset
from fairfox.maps.gan import GanSettings
from fairfox.models.torch import TorchModel

KINDS = ("plain", "disentangled", "balanced")  # of auxiliaries
PARTS = ("fliptest", "maps", "unfair_map", *KINDS)  # what is run in jobs of its own, the longest first
NUMBERS = ("ap", "rho")


@dataclass(frozen=True)
class Audience:
    """Who is judged by which targets: all that decides a `Setup` beside the jobs before it."""

    setting: Setting
    targets: tuple[Target, ...]
    rows: Rows
    seed: int


@dataclass(frozen=True)
class Table1:
    """How large the table is, and how the peers' tests are set; their values are the references'."""

    settings: tuple[Setting, ...] = SETTINGS
    parts: tuple[str, ...] = PARTS
    draws: int = 2  # of generators, people and targets
    rows: Rows = ROWS
    targets: tuple[Target, ...] = TARGETS
    auxiliaries: tuple[Shape, ...] = AUXILIARIES  # one for each re-training
    sources: Sources = Sources()  # noqa: RUF009
    gan: GanSettings = GanSettings()  # noqa: RUF009
    attack_steps: int = 200
    device: Device = Device()  # noqa: RUF009

    def seeds(self, seed: int) -> range:
        """Return a seed for each draw; those of another seed of the whole table are others."""
        return range(seed * self.draws, (seed + 1) * self.draws)

    def audience(self, setting: Setting, seed: int) -> Audience:
        """Return who is judged in a setting and draw."""
        return Audience(setting, self.targets, self.rows, seed_of(seed, setting.name))


FULL = Table1()
QUICK = Table1(
    settings=SETTINGS[2:4],
    draws=2,
    rows=Rows(1_200, 300, 500),
    targets=TARGETS[:1],
    auxiliaries=AUXILIARIES[:2],
    sources=Sources(rows=1_500, steps=300, pairs=500, models=1),
    gan=GanSettings(steps=60, rate=1e-3),
    attack_steps=30,
)


def made_before(plan: Table1, setting: Setting, seed: int) -> tuple[Job, ...]:
    """Return the jobs whose folders `load_setup` reads: the generator, then thresholds and targets by architecture."""
    generator = generator_job(setting, plan.sources, seed)
    thresholds = [threshold_job(generator, setting, shape, plan.rows, seed) for shape in plan.targets]
    targets = [targets_job(generator, setting, shape, plan.rows, seed) for shape in plan.targets]
    return (generator, *thresholds, *targets)


@dataclass(frozen=True)
class Setup:
    """The people of one setting and the targets that treat them: of each architecture the unfair, then the fair one."""

    fitting: Dataset
    people: Dataset
    trials: list[Trial]

    @property
    def models(self) -> list[TorchModel]:
        """All targets."""
        return [model for trial in self.trials for model in (trial.unfair, trial.fair)]  # type: ignore[misc]

    def judged(self, scores: Scores) -> dict[str, dict[str, float | None]]:
        """Return how good each test's scores are, the mean over the architectures."""
        return {test: self._judged(each) for test, each in scores.items()}

    def _judged(self, scores: Sequence[Tensor]) -> dict[str, float | None]:
        pairs = list(zip(scores[::2], scores[1::2], strict=True))
        each = [judge_known(pair, trial) for pair, trial in zip(pairs, self.trials, strict=True)]
        fair = [fair_over_unfair(*pair) for pair in pairs]
        return {
            **{name: fmean(one[name] for one in each) for name in (*NUMBERS, "prevalence")},
            "fair": None if None in fair else fmean(cast(list[float], fair)),
        }


def load_setup(needed: Folders, who: Audience) -> Setup:
    """Return people and targets from the folders of the jobs `made_before`."""
    fitting, people = generate(needed[0], who.setting.fusion, who.setting.bias, who.rows, who.seed)
    count = len(who.targets)
    thresholds, places = needed[1 : 1 + count], needed[1 + count : 1 + 2 * count]
    both = zip(places, thresholds, strict=True)
    return Setup(fitting, people, [load_trial(fitting, people, *each) for each in both])


def moved(model: TorchModel, device: Device) -> TorchModel:
    """Return a target whose weights are on a device."""
    module = cast(nn.Module, copy.deepcopy(model.module))
    return TorchModel(module.to(device.name), output=model.output)


def trained(kind: str, shape: Shape, place: Path, setting: Setting, fitting: Dataset, seed: int) -> FixedAuxiliary:
    """Return a newly trained auxiliary of a kind."""
    own: AuxiliaryModel | ProjectedAuxiliary
    own = AuxiliaryModel(refits=1, width=shape.width, depth=shape.depth, seed=seed, balance=kind == "balanced")
    if kind == "disentangled":
        own = ProjectedAuxiliary(load_generator(place).keep_c(setting.fusion), own)
    own.fit(fitting)
    return FixedAuxiliary(own.members, own.held_out, balance=kind == "balanced")


def summaries(setting: str, auxiliary: str, draws: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one entry per test of what its re-trainings found in each draw: means, and how much draws differ.

    `ap_std` is the standard deviation over the draws, `ap_retrainings` that over the re-trainings of a draw, the mean
    over the draws.
    """
    out = []
    for test in draws[0][0]:
        entry: dict[str, Any] = {"setting": setting, "test": test, "auxiliary": auxiliary}
        each = [[one[test] for one in draw if test in one] for draw in draws]
        for name in NUMBERS:
            means = [fmean(one[name] for one in draw) for draw in each]
            entry |= {f"{name}_mean": fmean(means), f"{name}_std": deviation(means), f"{name}_draws": means}
            entry[f"{name}_retrainings"] = fmean(deviation([one[name] for one in draw]) for draw in each)
        entry |= {name: mean(one[name] for draw in each for one in draw) for name in ("prevalence", "fair")}
        out.append(entry)
    return out


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0
