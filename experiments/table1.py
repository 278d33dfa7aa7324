"""Table 1 of the paper: how well each fairness test finds the people who are truly treated unfairly.

Every setting of the paper, two target architectures, ten re-trainings; tests that use an auxiliary once with a plain
one (what a user has) and once with a disentangled one (the paper's: it is told which part of x depends on c). The
peers' tests are commands of their own: --only fliptest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from runner import Experiment, Folders, Found, Job, pick
from scoring import judge_known, scores_with, scores_without
from settings import PAPER_TABLE1, SETTINGS, Rows, Setting, Shape, Target
from table1_bars import bars, ground, keep_peers
from table1_peers import PEERS, TESTS
from table1_plan import FULL, QUICK, Setup, Table1, load_setup, made_before, summaries, thresholds_of, trained
from table1_report import SECTIONS, table1_text
from trials import balanced_accuracy, seed_of, source_job

from fairfox.benchmark.judge import average_precision

__all__ = ["EXPERIMENT", "FULL", "PEERS", "QUICK", "SECTIONS", "keep_peers", "main"]

KINDS = ("none", "plain", "disentangled")


def jobs(plan: Table1, seed: int) -> list[Job]:
    """Return the jobs that score people, the longest first; they come after those that make people and targets.

    And those that model tables which are in no setting, since the paper has their model score too.
    """
    others = [source_job(name, draw, plan.sources, seed) for name in plan.others for draw in range(plan.sources.draws)]
    return others + [
        _scoring_job(plan, setting, kind, index, seed)
        for setting in plan.longest_first
        for kind in KINDS
        for index in plan.retrainings
    ]


def _scoring_job(plan: Table1, setting: Setting, kind: str, index: int, seed: int) -> Job:
    shape = plan.auxiliaries[index] if kind != "none" else None
    arguments = (setting, plan.targets, kind, shape, plan.rows, seed_of(seed, setting.name), seed_of(seed, index))
    name = f"scores-{setting.name}-{kind}-{index}"
    return Job(name, score_people, arguments, after=made_before(plan, setting, seed))


def score_people(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    kind: str,
    shape: Shape | None,
    rows: Rows,
    people_seed: int,
    seed: int,
) -> dict[str, Any]:
    """Return how good every test is after one re-training, for each target architecture."""
    here = load_setup(needed, setting, targets, rows, people_seed)
    if shape is None:
        scores = scores_without(here.models, here.fitting, here.people, seed=seed)
        return here.judged(scores) | {"shuffled": _shuffled(scores["lic"], here, seed)}
    auxiliary = trained(kind, shape, needed[0], setting, here.fitting, seed)
    scores = scores_with(auxiliary, here.models, here.fitting, here.people, seed=seed)
    quality = balanced_accuracy(auxiliary.members[0], here.people.x, here.people.c[:, 0], cut=0.0)
    return here.judged(scores) | {"auxiliary_balanced_accuracy": quality}


def _shuffled(scores: list[torch.Tensor], here: Setup, seed: int) -> float:
    """Return the mean AP of the best scores when they are given to the wrong people: about the prevalence."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for trial in here.trials:
        judged = judge_known(here.models, scores, trial)
        order = torch.randperm(len(judged.scores), generator=generator).numpy()
        found.append(average_precision(judged.labels, judged.scores[order]))
    return fmean(found)


def gather(plan: Table1, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the results file."""
    results = [
        entry
        for setting in plan.settings
        for kind in KINDS
        for entry in summaries(setting, kind, [found[f"scores-{setting.name}-{kind}-{i}"] for i in plan.retrainings])
    ]
    sections = {
        "results": results,
        "trials": [_trial_summary(plan, setting, found) for setting in plan.settings],
        "generators": _generators(plan, found),
        "paper": {test: dict(zip((s.name for s in SETTINGS), row, strict=True)) for test, row in PAPER_TABLE1.items()},
    }
    return sections | {"bars": bars(sections, about)}


def _generators(plan: Table1, found: Found) -> dict[str, Any]:
    """Return how well each pair of tables is reproduced, and the tables in no setting."""
    out = {name.removeprefix("generator-"): one for name, one in found.items() if name.startswith("generator-")}
    for name in plan.others:
        out[name] = {name: _median([found[f"source-{name}-{draw}"] for draw in range(plan.sources.draws)])}
    return out


def _median(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how the median model of a table reproduces it, and the scores of all."""
    ordered = sorted(draws, key=lambda one: float(one["model_score"]))
    own = ordered[len(ordered) // 2]
    return {k: v for k, v in own.items() if k != "description"} | {"draws": [one["model_score"] for one in ordered]}


def _trial_summary(plan: Table1, setting: Setting, found: Found) -> dict[str, Any]:
    """Return what stands behind a setting's numbers: its targets, thresholds, auxiliaries, and AP by chance."""
    by_kind = {kind: [found[f"scores-{setting.name}-{kind}-{i}"] for i in plan.retrainings] for kind in KINDS}
    return {
        **asdict(setting),
        "targets": {str(shape): found[f"targets-{setting.name}-{shape}"] for shape in plan.targets},
        "thresholds": thresholds_of(plan, setting, found),
        "auxiliary_balanced_accuracy": {
            kind: [part["auxiliary_balanced_accuracy"] for part in by_kind[kind]] for kind in KINDS[1:]
        },
        "shuffled_ap": fmean(part["shuffled"] for part in by_kind["none"]),
    }


EXPERIMENT = Experiment(
    name="table1",
    description="Table 1 of the paper: average precision of every fairness test on eight synthetic settings. --only "
    f"names settings, or instead of all other tests some of {', '.join(TESTS)}: these go into the same results file.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=table1_text,
    narrow=pick("settings", "setting"),
    merge=keep_peers,
    ground=ground,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table's own tests or, where `--only` names them, the peers' tests."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--only", nargs="+", action="extend", default=[])
    options, _ = parser.parse_known_args(arguments)
    return (PEERS if set(options.only) & set(TESTS) else EXPERIMENT).run(arguments)


if __name__ == "__main__":
    sys.exit(main())
