"""Where fairness tests work: average precision by bias, by the auxiliary's accuracy and by the target's gradient norm.

Every ordered pair of the five tables, both fusions, five levels of bias: one draw of networks of random size each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from runner import RESULTS, Clock, Experiment, Found, Job, Parts, named, with_needed
from scoring import Scores, effects, integrated_scores
from settings import ROWS, SOURCES, Rows, Setting, Shape, Sources
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

Cell = dict[str, Any]

TESTS = ("faux", "faux+ng", "faux+ig", "rank", "rank/a", "move", "fta", "lic")
FAMILY = TESTS[:6]  # fta knows no protected variable, lic knows the truth
RECALLS = np.linspace(0.02, 1.0, 50)  # at which precision is read off
LOW, HIGH = 0.25, 1.0  # biases that are compared
HOURS = 2.0


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
    sizes=Sizes(rows=Rows(2_000, 500, 1_000)),
    sources=Sources(rows=2_000, steps=400, pairs=1_000, draws=1),
)
TINY = replace(
    QUICK,
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


def _shapes(plan: Range, seed: int) -> tuple[Shape, Shape]:
    """Return a random shape for the targets and one for the auxiliary."""
    generator = torch.Generator().manual_seed(seed)

    def between(ends: tuple[int, int]) -> int:
        return int(torch.randint(ends[0], ends[1] + 1, (), generator=generator))

    return Shape(between(plan.widths), between(plan.depths)), Shape(between(plan.widths), between(plan.depths))


def judge_cell(
    folder: Path, needed: Folders, cell: Setting, target: Shape, auxiliary: Shape, sizes: Sizes, seed: int
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
    """Return the sections of the results file, from the cells that are done."""
    done = [cell for cell in plan.cells if _name(cell) in found]
    cells = [
        {"name": cell.name, "c": cell.c, "y": cell.y, "fusion": cell.fusion, "bias": cell.bias, **found[_name(cell)]}
        for cell in done
    ]
    generators = {
        name.removeprefix("generator-"): {table: one["model_score"] for table, one in result.items()}
        for name, result in found.items()
        if name.startswith("generator-")
    }
    missing = [cell.name for cell in plan.cells if cell not in done]
    return {"missing": missing, **summary(cells, about["seconds"]), "model_scores": generators}


def curves_of(labels: Tensor, scores: Tensor) -> list[float]:
    """Return the precision at the first place where each of RECALLS is reached; NaN scores come last."""
    curve = precision_recall(labels, scores, abstained=scores.isnan())
    recall, precision = curve.recall[-2::-1], curve.precision[-2::-1]  # from the highest score down
    places = np.searchsorted(recall, RECALLS - 1e-9)
    return [round(float(one), 4) for one in precision[places]]


def summary(cells: list[Cell], seconds: float) -> dict[str, Any]:
    """Return the cells without their curves, all means, and what has to hold."""
    biased = [cell for cell in cells if cell["bias"] > 0]  # without bias, who is treated unfairly is noise
    return {
        "cells": [{key: value for key, value in cell.items() if key != "precisions"} for cell in cells],
        "by_bias": {test: _by_bias(cells, test) for test in TESTS},
        "by_auxiliary_accuracy": by_thirds(biased, "auxiliary_balanced_accuracy"),
        "by_gradient_norm": by_thirds(biased, "mean_gradient_norm"),
        "ng_minus_ig_by_auxiliary_accuracy": ng_minus_ig(biased),
        "curves": {"recall": RECALLS.round(4).tolist(), "precision": {test: _curves(cells, test) for test in TESTS}},
        "bars": bars(cells, seconds),
    }


def _biases(cells: list[Cell]) -> list[float]:
    return sorted({cell["bias"] for cell in cells})


def _with(cells: list[Cell], test: str) -> list[Cell]:
    """Return the cells in which a test has an AP."""
    return [cell for cell in cells if cell["ap"].get(test) is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _means(cells: list[Cell], test: str) -> dict[str, Any]:
    own = _with(cells, test)
    return {
        "ap": _mean([cell["ap"][test] for cell in own]),
        "rho": _mean([cell["rho"][test] for cell in own]),
        "prevalence": _mean([cell["prevalence"] for cell in own]),
        "n": len(own),
    }


def _by_bias(cells: list[Cell], test: str) -> dict[str, Any]:
    return {f"{bias:g}": _means([cell for cell in cells if cell["bias"] == bias], test) for bias in _biases(cells)}


def _curves(cells: list[Cell], test: str) -> dict[str, Any]:
    """Return by bias the mean over cells of the precision at each recall."""
    out: dict[str, Any] = {}
    for bias in _biases(cells):
        own = [cell["precisions"][test] for cell in _with(cells, test) if cell["bias"] == bias]
        out[f"{bias:g}"] = np.mean(own, axis=0).round(4).tolist() if own else None
    return out


def thirds(values: Sequence[float]) -> tuple[list[float], NDArray[np.intp]]:
    """Return the edges of thirds (4,), and in which of them, 0 to 2, each value is."""
    edges = np.quantile(values, [0.0, 1 / 3, 2 / 3, 1.0])
    return edges.tolist(), np.searchsorted(edges[1:3], values, side="left")


def by_thirds(cells: list[Cell], by: str) -> dict[str, Any]:
    """Return the edges of the thirds of a number, and each test's means in each."""
    if not cells:
        return {"edges": [], "tests": {test: [] for test in TESTS}}
    edges, places = thirds([cell[by] for cell in cells])
    parts = [[cell for cell, at in zip(cells, places, strict=True) if at == place] for place in range(3)]
    return {"edges": edges, "tests": {test: [_means(part, test) for part in parts] for test in TESTS}}


def ng_minus_ig(cells: list[Cell]) -> dict[str, Any]:
    """Return how far faux+ng is above faux+ig in thirds of the auxiliary's accuracy, and the line through all cells.

    The paper says that faux+ig is the more reliable of the two when accuracy falls: then the slope is positive.
    """
    own = [cell for cell in cells if None not in (cell["ap"]["faux+ng"], cell["ap"]["faux+ig"])]
    accuracy = np.array([cell["auxiliary_balanced_accuracy"] for cell in own])
    gain = np.array([cell["ap"]["faux+ng"] - cell["ap"]["faux+ig"] for cell in own])
    if len(own) < 3:
        return {"n": len(own), "edges": [], "thirds": [], "slope": None, "slope_error": None, "paper": "undecided"}
    edges, places = thirds(accuracy.tolist())
    slope, error = line(accuracy, gain)
    paper = "undecided" if abs(slope) < 2 * error else "confirmed" if slope > 0 else "refuted"
    return {
        "n": len(own),
        "edges": edges,
        "thirds": [_mean_and_error(gain[places == place]) for place in range(3)],
        "slope": slope,
        "slope_error": error,
        "paper": paper,
    }


def _mean_and_error(values: NDArray[np.float64]) -> dict[str, Any]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(values.mean()) if len(values) else None, "error": error, "n": len(values)}


def line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of the least-squares line of y on x (at least three), and its standard error."""
    at, out = x - x.mean(), y - y.mean()
    size = float(at @ at)
    if size == 0:
        return 0.0, float("inf")
    slope = float(at @ out) / size
    rest = out - slope * at
    return slope, float(np.sqrt(rest @ rest / (len(x) - 2) / size))


def bars(cells: list[Cell], seconds: float) -> list[dict[str, Any]]:
    """Return what has to hold, with the measured values; nothing before a cell of each compared bias is done."""
    compared = {test: low_and_high(cells, test) for test in FAMILY}
    if not all(pair["n"] for pair in compared.values()):
        return []
    grows = all(pair["high"] > pair["low"] for pair in compared.values())
    return [
        {
            "bar": f"AP at bias {HIGH:g} above AP at {LOW:g} for every test of the family, over the same worlds",
            "value": compared,
            "holds": grows,
        },
        {"bar": f"under {HOURS:g} hours", "value": seconds, "holds": seconds < HOURS * 3600},
    ]


def low_and_high(cells: list[Cell], test: str) -> dict[str, Any]:
    """Return a test's mean AP at the low and at the high bias, over the pairs and fusions that have both."""
    ap = {(cell["c"], cell["y"], cell["fusion"], cell["bias"]): cell["ap"][test] for cell in _with(cells, test)}
    both = [(ap[*world, LOW], high) for (*world, bias), high in ap.items() if bias == HIGH and (*world, LOW) in ap]
    return {"low": _mean([low for low, _ in both]), "high": _mean([high for _, high in both]), "n": len(both)}


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    biases = list(next(iter(found["by_bias"].values())))
    lines = [f"| AP of | {' | '.join(f'bias {bias}' for bias in biases)} |", "|---" * (len(biases) + 1) + "|"]
    lines += [
        f"| {test} | {' | '.join(_number(one['ap']) for one in own.values())} |"
        for test, own in found["by_bias"].items()
    ]
    for by, what in (("by_auxiliary_accuracy", "auxiliary accuracy"), ("by_gradient_norm", "gradient norm")):
        edges = found[by]["edges"]
        if edges:
            heads = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
            lines += ["", f"| AP by {what} | {' | '.join(heads)} |", "|---|---|---|---|"]
            lines += [
                f"| {test} | {' | '.join(_number(one['ap']) for one in own)} |"
                for test, own in found[by]["tests"].items()
            ]
    gain = found["ng_minus_ig_by_auxiliary_accuracy"]
    if gain["slope"] is not None:
        lines += [
            "",
            f"NG - IG per unit of auxiliary accuracy: {gain['slope']:.3f} +- {gain['slope_error']:.3f}, "
            f"that IG is more reliable when accuracy falls is {gain['paper']}",
        ]
    lines += ["", *(f"- {'holds' if bar['holds'] else '**fails**'}: {bar['bar']}" for bar in found["bars"])]
    done, missing = len(found["cells"]), len(found["missing"])
    return "\n".join([*lines, f"{done} cells done, {missing} missing"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Write AP by bias and the precision-recall curves as PNG and SVG, where the packages that draw are installed."""
    try:
        import altair as alt
        import vl_convert  # noqa: F401  # altair writes pictures with it
    except ImportError:
        return
    recalls = found["curves"]["recall"]
    means = [
        {"test": test, "bias": float(bias), "ap": one["ap"]}
        for test, own in found["by_bias"].items()
        for bias, one in own.items()
        if one["ap"] is not None
    ]
    points = [
        {"test": test, "bias": f"bias {bias}", "recall": recall, "precision": precision}
        for test, own in found["curves"]["precision"].items()
        for bias, each in own.items()
        for recall, precision in zip(recalls, each or [], strict=False)
    ]
    colour = alt.Color("test:N", sort=list(TESTS), title=None)
    unit = alt.Scale(domain=[0, 1])
    by_bias = (
        alt.Chart(alt.InlineData(values=means))
        .mark_line(point=True)
        .encode(x=alt.X("bias:Q"), y=alt.Y("ap:Q", title="average precision", scale=unit), color=colour)
        .properties(width=260, height=200)
    )
    curves = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line()
        .encode(x=alt.X("recall:Q", scale=unit), y=alt.Y("precision:Q", scale=unit), color=colour)
        .properties(width=180, height=160)
        .facet(column=alt.Column("bias:N", title=None))
    )
    chart = alt.vconcat(by_bias, curves)
    for kind in ("png", "svg"):
        chart.save(f"{path}.{kind}", scale_factor=2 if kind == "png" else 1)


def narrow(plan: Range, names: Sequence[str]) -> Range:
    """Return the plan for some pairs of tables, each named as c-y."""
    return replace(plan, pairs=named("pair", {f"{c}-{y}": (c, y) for c, y in plan.pairs}, names))


EXPERIMENT = Experiment(
    name="operating_range",
    description="Average precision by bias, by the auxiliary's accuracy and by the target's gradient norm. With "
    "--allow-partial a run that is stopped, or in which jobs fail, writes its results from the cells that are done.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
    draw=draw,
)


def main(arguments: Sequence[str] | None = None, experiment: Experiment[Range] = EXPERIMENT) -> int:
    """Run the experiment; with `--allow-partial` write what there is when it is stopped or jobs fail."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--allow-partial", action="store_true")
    parser.add_argument("--out", type=Path)
    options, rest = parser.parse_known_args(arguments)
    rest += ["--out", str(options.out)] if options.out else []
    if not options.allow_partial:
        return experiment.run(rest)
    try:
        if (code := experiment.run(rest)) == 0:
            return 0
    except KeyboardInterrupt:
        code = 130
    except SystemExit as stopped:  # SIGTERM; options that are wrong or only ask for help end here too
        if stopped.code != 143:
            raise
        code = 143
    click.echo("Stopped before all cells were done.", err=True)
    parts = Parts((options.out.parent if options.out else RESULTS) / f"{experiment.name}.parts")
    return _of_finished(experiment, parts).run([one for one in rest if one != "--fresh"]) or code


def _of_finished(experiment: Experiment[Range], parts: Parts) -> Experiment[Range]:
    """Return the experiment whose jobs are those that are done, timed by the runs of all."""

    def finished(plan: Range, seed: int) -> list[Job]:
        done = [job for job in experiment.jobs(plan, seed) if parts.has(job)]
        if not done:
            raise SystemExit("No cell is done yet, so nothing is written; the next run goes on where this one stopped")
        return done

    def timed(plan: Range, found: Found, about: dict[str, Any]) -> dict[str, Any]:
        clock = Clock(parts, with_needed(experiment.jobs(plan, about["seed"])))
        seconds = round(clock.seconds(), 1)
        return {"seconds": seconds, **experiment.gather(plan, found, about | {"seconds": seconds})}

    return replace(experiment, jobs=finished, gather=timed)


if __name__ == "__main__":
    sys.exit(main())
