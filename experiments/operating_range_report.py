"""What the cells of the operating range add up to: means, curves, what has to hold, words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from figures import save
from numpy.typing import NDArray
from wording import number

Cell = dict[str, Any]

TESTS = ("faux", "faux+ng", "faux+ig", "rank", "rank/a", "move", "fta", "lic")
FAMILY = TESTS[:6]  # fta knows no protected variable, lic knows the truth
RECALLS = np.linspace(0.02, 1.0, 50)  # at which precision is read off
LOW, HIGH = 0.25, 1.0  # biases that are compared
HOURS = 2.0
ACCURACY, NORM = "auxiliary_balanced_accuracy", "mean_gradient_norm"  # of a cell
THIRDS = ("lowest third", "middle third", "highest third")


def summary(cells: list[Cell], seconds: float) -> dict[str, Any]:
    """Return the cells without their curves, all means, and what has to hold."""
    biased = [cell for cell in cells if cell["bias"] > 0]  # without bias, who is treated unfairly is noise
    return {
        "cells": [{key: value for key, value in cell.items() if key != "precisions"} for cell in cells],
        "by_bias": {test: _by_bias(cells, test) for test in TESTS},
        "by_auxiliary_accuracy": by_thirds(biased, ACCURACY),
        "by_gradient_norm": by_thirds(biased, NORM),
        "ng_minus_ig_by_auxiliary_accuracy": ng_minus_ig(biased),
        "curves": {
            "recall": RECALLS.round(4).tolist(),
            "precision": {test: _curves(_parts_by_bias(cells), test) for test in TESTS},
            "by_auxiliary_accuracy": {test: _curves(_parts_by_thirds(biased, ACCURACY), test) for test in TESTS},
            "by_gradient_norm": {test: _curves(_parts_by_thirds(biased, NORM), test) for test in TESTS},
        },
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
    return {bias: _means(part, test) for bias, part in _parts_by_bias(cells).items()}


def _parts_by_bias(cells: list[Cell]) -> dict[str, list[Cell]]:
    return {f"{bias:g}": [cell for cell in cells if cell["bias"] == bias] for bias in _biases(cells)}


def _parts_by_thirds(cells: list[Cell], by: str) -> dict[str, list[Cell]]:
    """Return the cells in thirds of a number: lowest, middle, highest."""
    places = thirds([cell[by] for cell in cells])[1] if cells else []
    return {
        name: [cell for cell, at in zip(cells, places, strict=True) if at == place] for place, name in enumerate(THIRDS)
    }


def _curves(parts: dict[str, list[Cell]], test: str) -> dict[str, Any]:
    """Return for each part the mean over its cells of the precision at each recall."""
    out: dict[str, Any] = {}
    for name, cells in parts.items():
        own = [cell["precisions"][test] for cell in _with(cells, test)]
        out[name] = np.mean(own, axis=0).round(4).tolist() if own else None
    return out


def thirds(values: Sequence[float]) -> tuple[list[float], NDArray[np.intp]]:
    """Return the edges of thirds (4,), and in which of them, 0 to 2, each value is."""
    edges = np.quantile(values, [0.0, 1 / 3, 2 / 3, 1.0])
    return edges.tolist(), np.searchsorted(edges[1:3], values, side="left")


def by_thirds(cells: list[Cell], by: str) -> dict[str, Any]:
    """Return the edges of the thirds of a number, and each test's means in each."""
    if not cells:
        return {"edges": [], "tests": {test: [] for test in TESTS}}
    edges, _ = thirds([cell[by] for cell in cells])
    parts = _parts_by_thirds(cells, by).values()
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
        f"| {test} | {' | '.join(number(one['ap']) for one in own.values())} |"
        for test, own in found["by_bias"].items()
    ]
    for by, what in (("by_auxiliary_accuracy", "auxiliary accuracy"), ("by_gradient_norm", "gradient norm")):
        edges = found[by]["edges"]
        if edges:
            heads = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
            lines += ["", f"| AP by {what} | {' | '.join(heads)} |", "|---|---|---|---|"]
            lines += [
                f"| {test} | {' | '.join(number(one['ap']) for one in own)} |"
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
    return "\n".join([*lines, f"{len(found['cells'])} cells"])


def draw(found: dict[str, Any], path: Path) -> None:
    """Write AP by bias and the precision-recall curves as PNG and SVG, where the packages that draw are installed."""
    save(lambda: chart(found), path)


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

    def curves(part: str, title: str) -> alt.FacetChart:
        points = [
            {"test": test, "part": name, "recall": recall, "precision": precision}
            for test, own in found["curves"][part].items()
            for name, each in own.items()
            for recall, precision in zip(recalls, each or [], strict=False)
        ]
        names = list(dict.fromkeys(point["part"] for point in points))
        return (
            alt.Chart(alt.InlineData(values=points))
            .mark_line()
            .encode(x=alt.X("recall:Q", scale=unit), y=alt.Y("precision:Q", scale=unit), color=colour)
            .properties(width=180, height=160)
            .facet(column=alt.Column("part:N", title=title, sort=names))
        )

    rows = {"precision": "bias", "by_auxiliary_accuracy": "auxiliary accuracy", "by_gradient_norm": "gradient norm"}
    return alt.vconcat(by_bias, *(curves(part, title) for part, title in rows.items()))
