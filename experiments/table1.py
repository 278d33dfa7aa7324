"""Table 1 of the paper: how well each fairness test finds the people who are truly treated unfairly.

Every setting of the paper, two target architectures, five re-trainings, two draws of generators, people and targets.
Tests that use an auxiliary have it in three kinds: plain, balanced (it needs labels) and disentangled (the paper's: it
knows which part of x depends on c).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, cast

import torch
from runner import Device, Experiment, Folders, Found, Job, named
from scoring import (
    ALIGNED,
    RANKS,
    aligned_name,
    alignment_shares,
    effects,
    family_scores,
    known_scores,
    linear_scores,
    rank_maps,
    resampled,
    untrained_scores,
)
from settings import PAPER_TABLE1, SETTINGS, Setting, Shape
from table1_bars import bars
from table1_plan import FULL, KINDS, QUICK, Audience, Table1, load_setup, made_before, moved, summaries, trained
from table1_report import SECTIONS, show
from trials import balanced_accuracy, seed_of

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.fairtests.unfair_map import UnfairMap
from fairfox.maps.gan import GanMap, GanSettings

__all__ = ["EXPERIMENT", "FULL", "QUICK", "SECTIONS", "show"]

_REFERENCE_COLUMNS = 8  # of Black et al. 2020: the predictors of Chicago's list


def jobs(plan: Table1, seed: int) -> list[Job]:
    """Return the jobs that score people, the longest first; they come after those that make people and targets."""
    return [
        job
        for part in plan.parts
        for draw in plan.seeds(seed)
        for setting in plan.settings
        for job in part_jobs(plan, part, setting, draw)
    ]


def part_jobs(plan: Table1, part: str, setting: Setting, seed: int) -> list[Job]:
    """Return the jobs of one part, setting and draw; each returns its `retrainings`."""
    after, who = made_before(plan, setting, seed), plan.audience(setting, seed)
    name = f"{part}-{setting.name}-{seed}"
    count, gpu = range(len(plan.auxiliaries)), plan.device.name != "cpu"
    if part == "fliptest":
        own = (plan.gan, len(count), seed_of(seed, setting.name, part), plan.device)
        return [Job(name, score_fliptest, (who, *own), after, on_gpu=gpu, seconds=250)]
    if part == "unfair_map":  # seeds as Maity et al. have them
        seeds = [seed + 10 * (index + 1) for index in count]
        arguments = [(who, plan.attack_steps, own, plan.device) for own in seeds]
        return [Job(f"{name}-{each[-2]}", score_unfair_map, each, after, gpu, 40) for each in arguments]
    if part == "maps":
        return [Job(name, score_maps, (who, tuple(seed_of(seed, index) for index in count)), after, seconds=90)]
    if part in ALIGNED:
        after += tuple(part_jobs(plan, "maps", setting, seed))
    return [
        Job(f"{name}-{index}", score_networks, (who, part, shape, index, seed_of(seed, index)), after)
        for index, shape in enumerate(plan.auxiliaries)
    ]


def score_maps(folder: Path, needed: Folders, who: Audience, seeds: Sequence[int]) -> dict[str, Any]:
    """Return how good the tests are that need no auxiliary network; the effects of the maps are kept for others."""
    here = load_setup(needed, who)
    found = {}
    for name, given in RANKS.items():
        maps = rank_maps(here.fitting, given, seeds)
        found[name] = torch.stack([torch.stack(effects(one, here.models, here.people)) for one in maps])
    torch.save(found, folder / "effects.pt")  # (re-trainings, models, N)
    retrainings = [
        linear_scores(here.models, here.fitting, here.people, seed=seed)
        | {name: list(each[index]) for name, each in found.items()}
        for index, seed in enumerate(seeds)
    ]
    retrainings[0] |= untrained_scores(here.models, here.people)
    return {"retrainings": [here.judged(scores) for scores in retrainings]}


def score_networks(
    folder: Path, needed: Folders, who: Audience, kind: str, shape: Shape, index: int, seed: int
) -> dict[str, Any]:
    """Return how good the tests are with one newly trained auxiliary network of a kind."""
    here = load_setup(needed, who)
    auxiliary = trained(kind, shape, needed[0], who.setting, here.fitting, seed)
    scores = family_scores(auxiliary, here.models, here.fitting, here.people)
    if kind in ALIGNED:
        effect = torch.load(needed[-1] / "effects.pt", weights_only=True)[ALIGNED[kind]][index]
        shares = alignment_shares(auxiliary, here.models, here.fitting, here.people)
        scores[aligned_name(ALIGNED[kind])] = [share * each for share, each in zip(shares, effect, strict=True)]
    quality = balanced_accuracy(auxiliary.members[0], here.people.x, here.people.c[:, 0], cut=0.0)
    return {"retrainings": [here.judged(scores)], "auxiliary_balanced_accuracy": quality}


def score_unfair_map(
    folder: Path, needed: Folders, who: Audience, steps: int, seed: int, device: Device
) -> dict[str, Any]:
    """Return how good Unfair Map is with a metric of resampled rows."""
    here = load_setup(needed, who)
    test = UnfairMap(auxiliary=LinearAuxiliary(), steps=steps).fit(resampled(here.fitting, seed))
    people = here.people.to(device.name)
    scores = [known_scores(test.measure(moved(model, device), people)).cpu() for model in here.models]
    return {"retrainings": [here.judged({"unfair_map": scores})]}


def score_fliptest(
    folder: Path, needed: Folders, who: Audience, gan: GanSettings, refits: int, seed: int, device: Device
) -> dict[str, Any]:
    """Return how good FlipTest is after each re-training: all of them, both ways, train together.

    What it pays for distance grows with the square of the columns; `weight` is scaled so that a column costs as much as
    in the reference, or people would not move at all where there are many.
    """
    here = load_setup(needed, who)
    weight = gan.weight * (_REFERENCE_COLUMNS / here.fitting.x.shape[1]) ** 2
    began = perf_counter()
    (maps,) = GanMap(**asdict(gan) | {"weight": weight}).fit_many(here.fitting.to(device.name), refits, seed=seed)
    seconds = perf_counter() - began
    models, people = [moved(model, device) for model in here.models], here.people.to(device.name)
    checks = [cast(GanMap, one).checks() for one in maps]
    return {
        "retrainings": [here.judged({"fliptest": [e.cpu() for e in effects(one, models, people)]}) for one in maps],
        "checks": {name: fmean(one[name] for one in checks) for name in checks[0]},
        "training": {"seconds": seconds, "device": device.name},
    }


def gather(plan: Table1, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the results file."""
    draws = plan.seeds(about["seed"])

    def parts(part: str, setting: Setting) -> Iterator[list[Any]]:
        for draw in draws:
            yield [found[job.name] for job in part_jobs(plan, part, setting, draw)]

    results = [
        entry
        for setting in plan.settings
        for part in plan.parts
        for entry in summaries(
            setting.name,
            part if part in KINDS else "none",
            [[one for job in own for one in job["retrainings"]] for own in parts(part, setting)],
        )
    ]
    trials = []
    for setting in plan.settings:
        own = {entry["test"]: entry for entry in results if entry["setting"] == setting.name}
        trial: dict[str, Any] = asdict(setting) | {"prevalence": next(iter(own.values()))["prevalence"]}
        trial["fair_over_unfair"] = {test: own[test]["fair"] for test in RANKS if test in own}
        trial["draws"] = [_draw(plan, setting, draw, found) for draw in draws]
        for kind in (part for part in plan.parts if part in KINDS):
            each = [job["auxiliary_balanced_accuracy"] for jobs in parts(kind, setting) for job in jobs]
            trial.setdefault("auxiliaries", {})[kind] = fmean(each)
        if "fliptest" in plan.parts:
            trial["fliptest"] = [job["checks"] | job["training"] for (job,) in parts("fliptest", setting)]
        trials.append(trial)
    paper = {test: dict(zip((s.name for s in SETTINGS), row, strict=True)) for test, row in PAPER_TABLE1.items()}
    generators = [
        {c_y: found[f"generator-{c_y}-{draw}"] for c_y in sorted({f"{s.c}-{s.y}" for s in plan.settings})}
        for draw in draws
    ]
    sections = {"results": results, "trials": trials, "generators": generators, "paper": paper}
    return sections | {"bars": bars(sections)}


def _draw(plan: Table1, setting: Setting, seed: int, found: Found) -> dict[str, Any]:
    """Return a draw's thresholds and how good its targets are, by architecture."""
    _, *made = made_before(plan, setting, seed)
    thresholds, targets = made[: len(plan.targets)], made[len(plan.targets) :]
    return {
        str(shape): {"threshold": found[threshold.name]["threshold"], **found[target.name]}
        for shape, threshold, target in zip(plan.targets, thresholds, targets, strict=True)
    }


def narrow(plan: Table1, names: Sequence[str]) -> Table1:
    """Return the plan for some settings, for some parts, or for some parts of some settings."""
    known: dict[str, Setting | str] = {setting.name: setting for setting in plan.settings}
    chosen = named("setting or part", known | {part: part for part in plan.parts}, names)
    settings = tuple(one for one in chosen if isinstance(one, Setting))
    parts = tuple(one for one in chosen if isinstance(one, str))
    return replace(plan, settings=settings or plan.settings, parts=parts or plan.parts)


EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
