"""What the jobs of Table 1 share: how large it is, who is judged by which targets, and what re-trainings add up to."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from runner import Folders, Job
from scoring import Scores, judge_known
from settings import AUXILIARIES, ROWS, SETTINGS, TARGETS, Rows, Setting, Shape, Sources, Target
from torch import nn
from trials import generate, generator_job, load_generator, load_trial, targets_job, threshold_job

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary, ProjectedAuxiliary
from fairfox.benchmark.judge import Trial
from fairfox.data.dataset import Dataset
from fairfox.models.torch import TorchModel


@dataclass(frozen=True)
class Table1:
    """How large the table is."""

    settings: tuple[Setting, ...] = SETTINGS
    rows: Rows = ROWS
    targets: tuple[Target, ...] = TARGETS
    auxiliaries: tuple[Shape, ...] = AUXILIARIES
    sources: Sources = Sources()  # noqa: RUF009
    others: tuple[str, ...] = ("wdbc",)  # tables in no setting, modelled for their score alone

    @property
    def retrainings(self) -> range:
        """The numbers of the re-trainings."""
        return range(len(self.auxiliaries))

    @property
    def longest_first(self) -> list[Setting]:
        """The settings, those with the most columns first."""
        return sorted(self.settings, key=lambda s: (s.fusion == "concat", s.c == "magic"))


FULL = Table1()
QUICK = Table1(
    settings=SETTINGS[2:4],
    rows=Rows(1_200, 300, 500),
    targets=TARGETS[:1],
    auxiliaries=AUXILIARIES[:2],
    sources=Sources(rows=1_500, steps=300, pairs=500, draws=1),
    others=(),
)


@dataclass(frozen=True)
class Device:
    """Where tensors are. It changes rounding alone, so that no job's digest has it: what is done is not done again."""

    name: str = field(default="cpu", repr=False)


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
    shapes: Sequence[Target]

    @property
    def models(self) -> list[TorchModel]:
        """All targets."""
        return [model for trial in self.trials for model in (trial.unfair, trial.fair)]  # type: ignore[misc]

    def judged(self, scores: Scores) -> dict[str, Any]:
        """Return how good each test's scores are, for each architecture."""
        entries = []
        for test, each in scores.items():
            for trial, shape in zip(self.trials, self.shapes, strict=True):
                judged = judge_known(self.models, each, trial)
                numbers = {
                    "ap": judged.ap,
                    "rho": judged.rho,
                    "ap_within": judged.ap_within,
                    "prevalence": judged.prevalence,
                }
                entries.append({"test": test, "target": str(shape), **numbers})
        return {"entries": entries}


def load_setup(needed: Folders, setting: Setting, targets: Sequence[Target], rows: Rows, people_seed: int) -> Setup:
    """Return a setting's people and targets from the folders of the jobs `made_before`."""
    fitting, people = generate(needed[0], setting.fusion, setting.bias, rows, people_seed)
    spreads, places = needed[1 : 1 + len(targets)], needed[1 + len(targets) : 1 + 2 * len(targets)]
    return Setup(fitting, people, [load_trial(fitting, people, *e) for e in zip(places, spreads, strict=True)], targets)


def moved(model: TorchModel, device: Device) -> TorchModel:
    """Return a target whose weights are on a device."""
    module = cast(nn.Module, copy.deepcopy(model.module))
    return TorchModel(module.to(device.name), output=model.output)


def trained(kind: str, shape: Shape, place: Path, setting: Setting, fitting: Dataset, seed: int) -> FixedAuxiliary:
    """Return a newly trained auxiliary of a kind."""
    network = AuxiliaryModel(refits=1, width=shape.width, depth=shape.depth, seed=seed)
    if kind == "plain":
        network.fit(fitting)
        return FixedAuxiliary(network.members, network.held_out)
    projected = ProjectedAuxiliary(load_generator(place).keep_c(setting.fusion), network).fit(fitting)
    return FixedAuxiliary(projected.members, projected.held_out)


def summaries(setting: Setting, kind: str, parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per test: architectures are averaged, then mean and spread are taken over re-trainings."""
    values: dict[str, list[dict[str, float]]] = defaultdict(list)  # of each re-training
    for part in parts:
        for test in dict.fromkeys(entry["test"] for entry in part["entries"]):
            own = [entry for entry in part["entries"] if entry["test"] == test]
            numbers = ("ap", "rho", "ap_within", "prevalence")
            values[test].append({name: fmean(entry[name] for entry in own) for name in numbers})
    return [
        {"setting": setting.name, "test": test, "auxiliary": kind, **_moments(each)} for test, each in values.items()
    ]


def _moments(each: list[dict[str, float]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name in ("ap", "rho", "ap_within"):
        own = [one[name] for one in each]
        out |= {f"{name}_mean": fmean(own), f"{name}_std": stdev(own) if len(own) > 1 else 0.0}
    return out | {"prevalence": fmean(one["prevalence"] for one in each), "retrainings": len(each)}


def thresholds_of(plan: Table1, setting: Setting, found: dict[str, Any]) -> dict[str, float]:
    """Return from which true score on people count as treated unfairly, for each architecture."""
    name = f"threshold-{setting.c}-{setting.y}-{setting.fusion}"
    return {str(shape): found[f"{name}-{shape}"]["threshold"] for shape in plan.targets}
