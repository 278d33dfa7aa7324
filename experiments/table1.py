"""Table 1 of the paper: how well each fairness test finds the people who are truly treated unfairly.

Every setting of the paper, two target architectures, ten re-trainings; tests that use an auxiliary once with a plain
one (what a user has) and once with a disentangled one (the paper's: it is told which part of x depends on c).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from runner import Experiment, Found, Job, named
from scoring import Scores, judge_known, scores_with, scores_without
from settings import AUXILIARIES, PAPER_TABLE1, ROWS, SETTINGS, TARGETS, Rows, Setting, Shape, Sources
from table1_bars import bars, table1_text
from trials import (
    Folders,
    balanced_accuracy,
    generate,
    generator_job,
    load_generator,
    load_trial,
    seed_of,
    targets_job,
    threshold_job,
)

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.auxiliary.projected import ProjectedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.evaluation import Trial, average_precision

KINDS = ("none", "plain", "disentangled")


@dataclass(frozen=True)
class Table1:
    """How large the table is."""

    settings: tuple[Setting, ...] = SETTINGS
    rows: Rows = ROWS
    targets: tuple[Shape, ...] = TARGETS
    auxiliaries: tuple[Shape, ...] = AUXILIARIES
    sources: Sources = Sources()  # noqa: RUF009


FULL = Table1()
QUICK = Table1(
    settings=SETTINGS[2:4],
    rows=Rows(2_000, 500, 1_000),
    targets=TARGETS[:1],
    auxiliaries=AUXILIARIES[:2],
    sources=Sources(rows=3_000, steps=600, pairs=2_000, draws=1),
)
TINY = replace(
    QUICK,
    rows=Rows(1_200, 300, 500),
    auxiliaries=AUXILIARIES[:1],
    sources=Sources(rows=1_500, steps=300, pairs=500, draws=1),
)


def jobs(plan: Table1, seed: int) -> list[Job]:
    """Return the jobs that score people, the longest first; they come after those that make people and targets."""
    wide_first = sorted(plan.settings, key=lambda s: (s.fusion == "concat", s.c == "magic"))
    return [
        _scoring_job(plan, setting, kind, index, seed)
        for setting in wide_first
        for kind in KINDS
        for index in range(len(plan.auxiliaries))
    ]


def _scoring_job(plan: Table1, setting: Setting, kind: str, index: int, seed: int) -> Job:
    generator = generator_job(setting, plan.sources, seed)
    thresholds = [threshold_job(generator, setting, shape, plan.rows, seed) for shape in plan.targets]
    targets = [targets_job(generator, setting, shape, plan.rows, seed) for shape in plan.targets]
    shape = plan.auxiliaries[index] if kind != "none" else None
    arguments = (setting, plan.targets, kind, shape, plan.rows, seed_of(seed, setting.name), seed_of(seed, index))
    name = f"scores-{setting.name}-{kind}-{index}"
    return Job(name, score_people, arguments, after=(generator, *thresholds, *targets))


def score_people(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Shape],
    kind: str,
    shape: Shape | None,
    rows: Rows,
    people_seed: int,
    seed: int,
) -> dict[str, Any]:
    """Return how good every test is after one re-training, for each target architecture."""
    fitting, people = generate(needed[0], setting.fusion, setting.bias, rows, people_seed)
    spreads, places = needed[1 : 1 + len(targets)], needed[1 + len(targets) :]
    trials = [load_trial(fitting, people, *each) for each in zip(places, spreads, strict=True)]
    models = [model for trial in trials for model in (trial.unfair, trial.fair)]
    if shape is None:
        scores = scores_without(models, fitting, people, seed=seed)
        lic = scores["lic"]
        return _judged(scores, models, trials, targets) | {"shuffled": _shuffled(lic, models, trials, seed)}
    auxiliary = _trained(kind, shape, needed[0], setting, fitting, seed)
    scores = scores_with(auxiliary, models, fitting, people, seed=seed)
    quality = balanced_accuracy(auxiliary.members[0], people.x, people.c[:, 0], cut=0.0)
    return _judged(scores, models, trials, targets) | {"auxiliary_balanced_accuracy": quality}


def _trained(kind: str, shape: Shape, place: Path, setting: Setting, fitting: Dataset, seed: int) -> FixedAuxiliary:
    """Return a newly trained auxiliary of a kind."""
    network = AuxiliaryModel(refits=1, width=shape.width, depth=shape.depth, seed=seed)
    if kind == "plain":
        network.fit(fitting)
        return FixedAuxiliary(network.members, network.held_out)
    projected = ProjectedAuxiliary(load_generator(place).keep_c(setting.fusion), network).fit(fitting)
    return FixedAuxiliary(projected.members, projected.held_out)


def _judged(scores: Scores, models: list[Any], trials: list[Trial], targets: Sequence[Shape]) -> dict[str, Any]:
    entries = []
    for test, each in scores.items():
        for trial, shape in zip(trials, targets, strict=True):
            judged = judge_known(models, each, trial)
            numbers = {
                "ap": judged.ap,
                "rho": judged.rho,
                "ap_within": judged.ap_within,
                "prevalence": judged.prevalence,
            }
            entries.append({"test": test, "target": str(shape), **numbers})
    return {"entries": entries}


def _shuffled(scores: list[torch.Tensor], models: list[Any], trials: list[Trial], seed: int) -> float:
    """Return the mean AP of the best scores when they are given to the wrong people: about the prevalence."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for trial in trials:
        judged = judge_known(models, scores, trial)
        order = torch.randperm(len(judged.scores), generator=generator).numpy()
        found.append(average_precision(judged.labels, judged.scores[order]))
    return fmean(found)


def gather(plan: Table1, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the results file."""
    results = [
        entry
        for setting in plan.settings
        for kind in KINDS
        for entry in _summaries(setting, kind, [found[f"scores-{setting.name}-{kind}-{i}"] for i in _places(plan)])
    ]
    sections = {
        "results": results,
        "trials": [_trial_summary(plan, setting, found) for setting in plan.settings],
        "generators": {
            name.removeprefix("generator-"): one for name, one in found.items() if name.startswith("generator-")
        },
        "paper": {test: dict(zip((s.name for s in SETTINGS), row, strict=True)) for test, row in PAPER_TABLE1.items()},
    }
    return sections | {"bars": bars(sections, about)}


def _places(plan: Table1) -> range:
    return range(len(plan.auxiliaries))


def _summaries(setting: Setting, kind: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _trial_summary(plan: Table1, setting: Setting, found: Found) -> dict[str, Any]:
    """Return what stands behind a setting's numbers: its targets, thresholds, auxiliaries, and AP by chance."""
    by_kind = {kind: [found[f"scores-{setting.name}-{kind}-{i}"] for i in _places(plan)] for kind in KINDS}
    return {
        **asdict(setting),
        "targets": {str(shape): found[f"targets-{setting.name}-{shape}"] for shape in plan.targets},
        "thresholds": {
            str(shape): found[f"threshold-{setting.c}-{setting.y}-{setting.fusion}-{shape}"]["threshold"]
            for shape in plan.targets
        },
        "auxiliary_balanced_accuracy": {
            kind: [part["auxiliary_balanced_accuracy"] for part in by_kind[kind]] for kind in KINDS[1:]
        },
        "shuffled_ap": fmean(part["shuffled"] for part in by_kind["none"]),
    }


def narrow(plan: Table1, names: Sequence[str]) -> Table1:
    """Return the plan for some of the settings."""
    return replace(plan, settings=named("setting", {setting.name: setting for setting in plan.settings}, names))


EXPERIMENT = Experiment(
    name="table1",
    description="Table 1 of the paper: average precision of every fairness test on eight synthetic settings.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=table1_text,
    narrow=narrow,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
