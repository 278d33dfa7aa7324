"""Where fairness tests work: average precision by bias, by the auxiliary's accuracy and by the target's gradient norm.

Twelve ordered pairs of four tables, both fusions, four levels of bias: one draw of networks of random size each.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from runner import Experiment, Folders, Found, Job, pick
from scipy.stats import linregress
from scoring import (
    ALIGNED,
    FAMILY,
    RANKS,
    Scores,
    agreement,
    aligned_name,
    alignment_shares,
    effects,
    family_scores,
    untrained_scores,
)
from settings import SOURCES, Rows, Setting, Shape, Sources, Target
from sklearn.metrics import precision_recall_curve
from table1_plan import trained
from torch import Tensor
from trials import balanced_accuracy, find_threshold, generate, generator_job, load_generator, seed_of
from trials import train_shape as train_target_of
from wording import claim, finite, mean, verdict
from wording import claims as claims_in_words

from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.benchmark.truth import biased_labels, individual_fairness_score
from fairfox.data.dataset import Dataset
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model

Cell = dict[str, Any]

TESTS = (*FAMILY, "rank", "rank/a", "rank given y", "rank/a given y", "fta", "lic")
RECALLS = np.linspace(0.02, 1.0, 50)  # at which precision is read off
LOW, MIDDLE = 0.25, 0.5  # biases up to which the paper's tests lose their use, and are less reliable
ACCURACY, NORM = "auxiliary_balanced_accuracy", "mean_gradient_norm"  # of a cell
_FEWEST = 20  # cells for a claim


def summary(cells: list[Cell]) -> dict[str, Any]:
    """Return the cells without their curves, all means, and what the paper says about them."""
    biased = [cell for cell in cells if cell["bias"] > 0]  # without bias, who is treated unfairly is noise
    levels = sorted({cell["bias"] for cell in cells})
    parts = {f"{bias:g}": [cell for cell in cells if cell["bias"] == bias] for bias in levels}
    return {
        "cells": [{key: value for key, value in cell.items() if key != "precisions"} for cell in cells],
        "by_bias": {test: {bias: _means(part, test) for bias, part in parts.items()} for test in TESTS},
        "curves": {
            "recall": RECALLS.round(4).tolist(),
            "precision": {test: {bias: _curve(part, test) for bias, part in parts.items()} for test in TESTS},
        },
        "claims": claims(cells, biased),
    }


def _with(cells: list[Cell], test: str) -> list[Cell]:
    """Return the cells in which a test has an AP."""
    return [cell for cell in cells if cell["ap"].get(test) is not None]


def _means(cells: list[Cell], test: str) -> dict[str, Any]:
    own = _with(cells, test)
    of = {name: [cell[name][test] for cell in own] for name in ("ap", "rho")}
    of["prevalence"] = [cell["prevalence"] for cell in own]
    return {name: mean(values) for name, values in of.items()} | {"n": len(own)}


def _curve(cells: list[Cell], test: str) -> list[float] | None:
    """Return the mean over cells of the precision at each recall."""
    own = [cell["precisions"][test] for cell in _with(cells, test)]
    return np.mean(own, axis=0).round(4).tolist() if own else None


def claims(cells: list[Cell], biased: list[Cell]) -> list[dict[str, Any]]:
    """Return what the paper says of its tests, with means or slopes and their standard errors; nothing of few cells."""
    own = [cell for cell in biased if cell["ap"]["faux"] is not None]
    if len(own) < _FEWEST:
        return []
    weak = [cell for cell in cells if cell["bias"] <= LOW and cell["ap"]["faux"] is not None]
    norms = np.array([cell[NORM] for cell in own])
    large = norms > np.quantile(norms, 2 / 3)
    aps = {test: np.array([cell["ap"][test] for cell in own]) for test in FAMILY}
    accuracy = np.array([cell[ACCURACY] for cell in own])
    lift = {test: _mean_and_error(np.array([c["ap"][test] - c["prevalence"] for c in weak])) for test in FAMILY}
    return [
        _claim(
            f"AP is higher above bias {MIDDLE:g} than up to it (gain, worlds paired)",
            {test: _mean_and_error(_gains(own, test)) for test in FAMILY},
        ),
        claim(
            f"up to bias {LOW:g} the tests are no better than chance (AP above the prevalence)",
            _in_words(lift),
            _together({test: "refuted" if mean > 2 * error else "confirmed" for test, (mean, error) in lift.items()}),
        ),
        _claim(
            "AP is higher with a more accurate auxiliary (slope)",
            {test: _slope(accuracy, ap) for test, ap in aps.items()},
        ),
        _claim(
            "faux+ig is the more reliable one as the auxiliary gets less accurate (slope of its lead over faux+ng by 1 "
            "- accuracy)",
            {"faux+ig": _slope(1 - accuracy, aps["faux+ig"] - aps["faux+ng"])},
        ),
        _claim(
            "AP is lower where the target's gradients are large (highest third of the cells below the others)",
            {test: _difference(ap[~large], ap[large]) for test, ap in aps.items()},
        ),
    ]


Estimate = tuple[float, float]  # a number and its standard error


def _claim(what: str, value: dict[str, Estimate]) -> dict[str, Any]:
    """Return a claim that numbers are above zero."""
    return claim(what, _in_words(value), _together({test: verdict(*each) for test, each in value.items()}))


def _together(verdicts: dict[str, str]) -> str:
    """Return the verdict that all tests share, else each test's."""
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    return ", ".join(f"{test} {verdict}" for test, verdict in verdicts.items())


def _in_words(value: dict[str, Estimate]) -> dict[str, str]:
    return {test: f"{mean:.3f} ± {error:.3f}" for test, (mean, error) in value.items()}


def _gains(cells: list[Cell], test: str) -> NDArray[np.float64]:
    """Return for each pair of tables and fusion the mean AP above the middle bias minus that up to it."""
    worlds: dict[tuple[str, ...], tuple[list[float], list[float]]] = {}
    for cell in cells:
        low_high = worlds.setdefault((cell["c"], cell["y"], cell["fusion"]), ([], []))
        low_high[cell["bias"] > MIDDLE].append(cell["ap"][test])
    return np.array([np.mean(high) - np.mean(low) for low, high in worlds.values() if low and high])


def _mean_and_error(values: NDArray[np.float64]) -> Estimate:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _difference(these: NDArray[np.float64], those: NDArray[np.float64]) -> Estimate:
    (a, error_a), (b, error_b) = _mean_and_error(these), _mean_and_error(those)
    return a - b, float(np.hypot(error_a, error_b))


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> Estimate:
    line = linregress(x, y)
    return float(line.slope), float(line.stderr)


def show(found: dict[str, Any]) -> str:
    """Return what the paper says and what was measured as Markdown; the picture has the numbers."""
    return "\n\n".join([claims_in_words(found), f"{len(found['cells'])} cells"])


def chart(found: dict[str, Any]) -> Any:
    """Return AP by bias and the precision-recall curves."""
    import altair as alt

    recalls = found["curves"]["recall"]
    means = [
        {"test": test, "bias": float(bias), "ap": one["ap"]}
        for test, own in found["by_bias"].items()
        for bias, one in own.items()
        if one["ap"] is not None
    ]
    colour = alt.Color("test:N", sort=list(TESTS), title=None)
    unit = alt.Scale(domain=[0, 1])
    by_bias = (
        alt.Chart(alt.InlineData(values=means))
        .mark_line(point=True)
        .encode(x=alt.X("bias:Q"), y=alt.Y("ap:Q", title="average precision", scale=unit), color=colour)
        .properties(width=260, height=200)
    )

    points = [
        {"test": test, "bias": bias, "recall": recall, "precision": precision}
        for test, own in found["curves"]["precision"].items()
        for bias, each in own.items()
        for recall, precision in zip(recalls, each or [], strict=False)
    ]
    curves = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line()
        .encode(x=alt.X("recall:Q", scale=unit), y=alt.Y("precision:Q", scale=unit), color=colour)
        .properties(width=180, height=160)
        .facet(column=alt.Column("bias:N", title="bias"))
    )
    return alt.vconcat(by_bias, curves)


@dataclass(frozen=True)
class Range:
    """Which cells there are: pairs of tables (c-y) x fusions x biases."""

    pairs: tuple[str, ...] = tuple(map("-".join, permutations((name for name in SOURCES if name != "wdbc"), 2)))
    biases: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    widths: tuple[int, int] = (8, 128)  # of targets and auxiliaries, both ends included
    depths: tuple[int, int] = (1, 4)
    rows: Rows = Rows(5_000, 1_000, 2_000)  # noqa: RUF009
    steps: int = 8  # of integrated gradients
    sources: Sources = Sources(models=1)  # noqa: RUF009

    @property
    def cells(self) -> list[Setting]:
        """The cells, those of one pair and fusion together."""
        return [
            Setting(f"{pair}-{fusion}-{bias:g}", *pair.split("-"), fusion, bias)
            for fusion in ("outer", "concat")
            for pair in self.pairs
            for bias in self.biases
        ]


FULL = Range()
QUICK = Range(
    pairs=("magic-backache",),
    biases=(0.25, 1.0),
    rows=Rows(1_000, 250, 400),
    sources=Sources(rows=1_000, steps=300, pairs=500, models=1),
)


def jobs(plan: Range, seed: int) -> list[Job]:
    """Return one job per cell."""
    out = []
    for cell in plan.cells:
        own = seed_of(seed, cell.name)
        arguments = (cell, *_shapes(plan, own), plan.rows, plan.steps, own)
        after, seconds = (generator_job(cell, plan.sources, seed),), 60 if cell.fusion == "outer" else 10
        out.append(Job(_name(cell), judge_cell, arguments, after, seconds=seconds))
    return out


def _name(cell: Setting) -> str:
    return f"cell-{cell.name}"


def _shapes(plan: Range, seed: int) -> tuple[Target, Shape]:
    """Return a random shape for the targets and one for the auxiliary."""
    generator = torch.Generator().manual_seed(seed)

    def between(ends: tuple[int, int]) -> int:
        return int(torch.randint(ends[0], ends[1] + 1, (), generator=generator))

    return Target(between(plan.widths), between(plan.depths)), Shape(between(plan.widths), between(plan.depths))


def judge_cell(
    folder: Path, needed: Folders, cell: Setting, target: Target, auxiliary: Shape, rows: Rows, steps: int, seed: int
) -> dict[str, Any]:
    """Return how good every test is in one cell, with the precisions of its curve, and how good the networks are."""
    keep_y = load_generator(needed[0]).keep_y(cell.fusion)
    threshold = find_threshold(folder, needed, cell.fusion, target, rows, seed_of(seed, "unbiased"))["threshold"]
    fitting, people = generate(needed[0], cell.fusion, cell.bias, rows, seed)
    models = [train_target_of(fitting, target, rows, seed, projection=projection) for projection in (None, keep_y)]
    auxiliaries = {kind: trained(kind, auxiliary, needed[0], cell, fitting, seed) for kind in ALIGNED}
    scores = all_scores(auxiliaries, models, fitting, people, steps)
    ifs = [individual_fairness_score(model, people) for model in models]
    return {
        "target": str(target),
        "auxiliary": str(auxiliary),
        "columns": len(keep_y),
        "threshold": threshold,
        "target_balanced_accuracy": balanced_accuracy(models[0], people.x, people.y),
        "auxiliary_balanced_accuracy": balanced_accuracy(
            auxiliaries["plain"].members[0], people.x, people.c[:, 0], cut=0.0
        ),
        "mean_gradient_norm": float(scores["fta"][0].double().mean()),
        "mean_ifs": float(ifs[0].double().mean()),
        **judged(scores, ifs, threshold),
    }


def all_scores(
    auxiliaries: Mapping[str, FixedAuxiliary], targets: Sequence[Model], fitting: Dataset, people: Dataset, steps: int
) -> Scores:
    """Return the scores of every test for each target (N,), integrated gradients in so many steps; NaN: none."""
    found = family_scores(auxiliaries["plain"], targets, fitting, people, steps=steps)
    for name, given in RANKS.items():
        found[name] = effects(RankMap(given=given, gate=True).fit(fitting), targets, people)
    for kind, name in ALIGNED.items():
        shares = alignment_shares(auxiliaries[kind], targets, fitting, people)
        found[aligned_name(name)] = [share * scores for share, scores in zip(shares, found[name], strict=True)]
    return found | untrained_scores(targets, people)


def judged(scores: Scores, ifs: Sequence[Tensor], threshold: float) -> dict[str, Any]:
    """Return the share treated unfairly, AP over both targets' people, rho inside the first, and precisions.

    AP and precisions are None where all people are treated alike: there is nothing to find, or nothing to miss.
    """
    labels = torch.cat([biased_labels(one, threshold) for one in ifs])
    out: dict[str, Any] = {"prevalence": float(labels.double().mean()), "ap": {}, "rho": {}, "precisions": {}}
    for test, each in scores.items():
        found = agreement(each, ifs, threshold)
        out |= {name: out[name] | {test: finite(found[name])} for name in ("ap", "rho")}
        out["precisions"][test] = None if out["ap"][test] is None else curves_of(labels, torch.cat(list(each)))
    return out


def gather(plan: Range, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the results file."""
    cells = [
        {"name": cell.name, "c": cell.c, "y": cell.y, "fusion": cell.fusion, "bias": cell.bias, **found[_name(cell)]}
        for cell in plan.cells
    ]
    return summary(cells)


def curves_of(labels: Tensor, scores: Tensor) -> list[float]:
    """Return the precision at the first place where each of RECALLS is reached; NaN scores come last."""
    ranks = torch.where(scores.isnan(), -torch.inf, scores).unique(return_inverse=True)[1]
    curve = precision_recall_curve(labels.double().numpy(), ranks.numpy())
    precision, recall = (each[-2::-1] for each in curve[:2])  # from the highest score down
    places = np.searchsorted(recall, RECALLS - 1e-9)
    return [round(float(one), 4) for one in precision[places]]


narrow = pick("pairs", "pair")

CHARTS = {"": chart}
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
