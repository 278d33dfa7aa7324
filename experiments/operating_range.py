"""Where fairness tests work: average precision by bias, by the auxiliary's accuracy and by the target's gradient norm.

Every ordered pair of the five tables, both fusions, five levels of bias: one draw of networks of random size each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from operating_range_report import RECALLS, draw, show, summary
from runner import Experiment, Found, Job, named
from scoring import Scores, effects, integrated_scores
from settings import ROWS, SOURCES, Rows, Setting, Shape, Sources, Target
from torch import Tensor
from trials import Folders, balanced_accuracy, find_threshold, generate, generator_job, load_generator, seed_of
from trials import train_shape as train_target_of

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.evaluation import average_precision, precision_recall, spearman
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA
from fairfox.fairtests.gradient import GradientTest, measure_together
from fairfox.fairtests.lic import LIC
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.share import model_alignment
from fairfox.maps.move import MoveMap
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model
from fairfox.similarity import covariance_metric
from fairfox.synthetic.truth import biased_labels, individual_fairness_score


@dataclass(frozen=True)
class Sizes:
    """How much each cell costs; cells with more than `wide` columns get by with less, and do without `move`."""

    rows: Rows = ROWS
    wide: int = 2_000  # columns
    wide_rows: Rows = Rows(4_000, 1_000, 5_000)  # noqa: RUF009
    wide_share: int = 1_000  # people that the alignment share is read off
    steps: int = 8  # of integrated gradients


@dataclass(frozen=True)
class Range:
    """Which cells there are: pairs of tables (c, y) x fusions x biases."""

    pairs: tuple[tuple[str, str], ...] = tuple(permutations(SOURCES, 2))
    biases: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    widths: tuple[int, int] = (8, 128)  # of targets and auxiliaries, both ends included
    depths: tuple[int, int] = (1, 4)
    sizes: Sizes = Sizes()
    sources: Sources = Sources(draws=1)  # noqa: RUF009

    @property
    def cells(self) -> list[Setting]:
        """The cells, those of one pair and fusion together."""
        return [
            Setting(f"{c}-{y}-{fusion}-{bias:g}", c, y, fusion, bias)
            for fusion in ("outer", "concat")
            for c, y in self.pairs
            for bias in self.biases
        ]


FULL = Range()
QUICK = Range(
    pairs=(("magic", "backache"),),
    biases=(0.25, 1.0),
    sizes=Sizes(rows=Rows(1_000, 250, 400)),
    sources=Sources(rows=1_000, steps=300, pairs=500, draws=1),
)


def jobs(plan: Range, seed: int) -> list[Job]:
    """Return one job per cell, outer fusions with the widest table first: they take longest."""
    ordered = sorted(plan.cells, key=lambda cell: (cell.fusion == "concat", "wdbc" not in cell.pair))
    return [_cell_job(plan, cell, seed) for cell in ordered]


def _cell_job(plan: Range, cell: Setting, seed: int) -> Job:
    own = seed_of(seed, cell.name)
    arguments = (cell, *_shapes(plan, own), plan.sizes, own)
    return Job(_name(cell), judge_cell, arguments, after=(generator_job(cell, plan.sources, seed),))


def _name(cell: Setting) -> str:
    return f"cell-{cell.name}"


def _shapes(plan: Range, seed: int) -> tuple[Target, Shape]:
    """Return a random shape for the targets and one for the auxiliary."""
    generator = torch.Generator().manual_seed(seed)

    def between(ends: tuple[int, int]) -> int:
        return int(torch.randint(ends[0], ends[1] + 1, (), generator=generator))

    return Target(between(plan.widths), between(plan.depths)), Shape(between(plan.widths), between(plan.depths))


def judge_cell(
    folder: Path, needed: Folders, cell: Setting, target: Target, auxiliary: Shape, sizes: Sizes, seed: int
) -> dict[str, Any]:
    """Return how good every test is in one cell, with the precisions of its curve, and how good the networks are."""
    keep_y = load_generator(needed[0]).keep_y(cell.fusion)
    wide = len(keep_y) > sizes.wide
    rows = sizes.wide_rows if wide else sizes.rows
    threshold = find_threshold(folder, needed, cell.fusion, target, rows, seed_of(seed, "unbiased"))["threshold"]
    fitting, people = generate(needed[0], cell.fusion, cell.bias, rows, seed)
    models = [train_target_of(fitting, target, rows, seed, projection=projection) for projection in (None, keep_y)]
    network = AuxiliaryModel(refits=1, width=auxiliary.width, depth=auxiliary.depth, seed=seed).fit(fitting)
    fixed = FixedAuxiliary(network.members, network.held_out)
    scores = all_scores(fixed, models, fitting, people, sizes, wide=wide)
    ifs = [individual_fairness_score(model, people) for model in models]
    return {
        "target": str(target),
        "auxiliary": str(auxiliary),
        "columns": len(keep_y),
        "threshold": threshold,
        "target_balanced_accuracy": balanced_accuracy(models[0], people.x, people.y),
        "auxiliary_balanced_accuracy": balanced_accuracy(network.members[0], people.x, people.c[:, 0], cut=0.0),
        "mean_gradient_norm": float(scores["fta"][0].double().mean()),
        "mean_ifs": float(ifs[0].double().mean()),
        **judged(scores, ifs, threshold),
    }


def all_scores(
    auxiliary: FixedAuxiliary, targets: Sequence[Model], fitting: Dataset, people: Dataset, sizes: Sizes, *, wide: bool
) -> Scores:
    """Return the scores of every test for each target (N,); NaN: the test cannot say."""
    faux, ng = (FAux(auxiliary=auxiliary, normalise=normalise).fit(fitting) for normalise in (False, True))
    ig = FAux(auxiliary=auxiliary, normalise=True, integrated=True, steps=sizes.steps).fit(fitting)
    tests: dict[str, GradientTest] = {"faux": faux, "faux+ng": ng, "fta": FTA()}
    each = [measure_together(list(tests.values()), target, people) for target in targets]
    found: Scores = {name: [_known(one[place]) for one in each] for place, name in enumerate(tests)}
    found |= integrated_scores({"faux+ig": ig}, targets, people)
    found["rank"] = effects(RankMap().fit(fitting), targets, people)
    metric, sharing = covariance_metric(fitting.x), people[: sizes.wide_share] if wide else people
    shares = [model_alignment(target, sharing, auxiliary, metric)[0].value for target in targets]
    found["rank/a"] = [share * scores for share, scores in zip(shares, found["rank"], strict=True)]
    if not wide:
        found["move"] = effects(MoveMap(auxiliary=auxiliary).fit(fitting), targets, people)
    return found | {"lic": [_known(LIC().measure(target, people)) for target in targets]}


def _known(found: Measurement) -> Tensor:
    return torch.where(found.abstained, torch.nan, found.score)


def judged(scores: Scores, ifs: Sequence[Tensor], threshold: float) -> dict[str, Any]:
    """Return the share treated unfairly, AP over both targets' people, rho inside the first, and precisions.

    AP and precisions are None where all people are treated alike: there is nothing to find, or nothing to miss.
    """
    labels = torch.cat([biased_labels(one, threshold) for one in ifs])
    out: dict[str, Any] = {"prevalence": float(labels.double().mean()), "ap": {}, "rho": {}, "precisions": {}}
    mixed = 0.0 < out["prevalence"] < 1.0
    for test, each in scores.items():
        values = torch.cat(list(each))
        rho = spearman(each[0].nan_to_num(nan=-torch.inf, posinf=torch.inf), ifs[0])
        out["rho"][test] = rho if rho == rho else None  # NaN: a constant
        out["ap"][test] = average_precision(labels, values, abstained=values.isnan()) if mixed else None
        out["precisions"][test] = curves_of(labels, values) if mixed else None
    return out


def gather(plan: Range, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the results file."""
    cells = [
        {"name": cell.name, "c": cell.c, "y": cell.y, "fusion": cell.fusion, "bias": cell.bias, **found[_name(cell)]}
        for cell in plan.cells
    ]
    generators = {
        name.removeprefix("generator-"): {table: one["model_score"] for table, one in result.items()}
        for name, result in found.items()
        if name.startswith("generator-")
    }
    return {**summary(cells, about["seconds"]), "model_scores": generators}


def curves_of(labels: Tensor, scores: Tensor) -> list[float]:
    """Return the precision at the first place where each of RECALLS is reached; NaN scores come last."""
    curve = precision_recall(labels, scores, abstained=scores.isnan())
    recall, precision = curve.recall[-2::-1], curve.precision[-2::-1]  # from the highest score down
    places = np.searchsorted(recall, RECALLS - 1e-9)
    return [round(float(one), 4) for one in precision[places]]


def narrow(plan: Range, names: Sequence[str]) -> Range:
    """Return the plan for some pairs of tables, each named as c-y."""
    return replace(plan, pairs=named("pair", {f"{c}-{y}": (c, y) for c, y in plan.pairs}, names))


EXPERIMENT = Experiment(
    name="operating_range",
    description="Average precision by bias, by the auxiliary's accuracy and by the target's gradient norm.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
    draw=draw,
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
