"""The results of coverage over draws, what they have to show, and in words with the reason where intervals fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from settings import SETTINGS
from wording import bar, markdown_table
from wording import bars as table_of_bars

ADDITIVE = ("additive", "additive, skewed", "additive, long tails")
PERSISTENT = (*ADDITIVE, "three classes", "label bias")  # every number keeps its rank among the others of its group
BOUNDS, LEAST = (0.85, 0.95), 0.75  # of the share of intervals that hold: of all people, and in each fifth by score
LEVELS = (0.05, 0.1, 0.2)  # of false discoveries
_CATEGORIES = "the map spreads people over categories, the truth puts everyone in one"
_FUSED = {
    "outer": "every column mixes what depends on the group with what does not, and the rank moves both",
    "concat": "columns are parts of mixtures, which do not keep their rank one by one",
}
REASONS = {
    "three classes": "smaller groups, and the larger of two effects counts",
    "label bias": "one direction carries the effect, so that in a draw nearly all hold or few: 40 draws say little",
    "lending": f"{_CATEGORIES}, and income depends on it",
    "categorical proxies": _CATEGORIES,
    "heavy tails": f"{_CATEGORIES}, and what people drive depends on it",
    "interaction": "what the group changes depends on ability, which nobody sees",
    "confounded": "much of what differs between the groups is not due to the group",
} | {setting.name: _FUSED[setting.fusion] for setting in SETTINGS}


def over_draws(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws; of the coverage also that of the draw below which a tenth of them lie."""
    coverage = torch.tensor([one["coverage"] for one in draws], dtype=torch.float64)
    out: dict[str, Any] = {"coverage, lowest tenth": rounded(float(coverage.quantile(0.1)))}
    for name, first in draws[0].items():
        if name == "lists":
            out[name] = {delta: _mean_lists([one[name][delta] for one in draws]) for delta in first}
        elif isinstance(first, list):
            out[name] = [rounded(fmean(each)) for each in zip(*(one[name] for one in draws), strict=True)]
        else:
            out[name] = rounded(fmean(one[name] for one in draws))
    return out


def _mean_lists(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws; the power over those where there is somebody to be found."""
    out: dict[str, Any] = {"over": rounded(fmean(one["over"] for one in draws))}
    for level in map("{:g}".format, LEVELS):
        power = [one[level]["power"] for one in draws if one[level]["power"] is not None]
        false = rounded(fmean(one[level]["false"] for one in draws))
        out[level] = {"false": false, "power": rounded(fmean(power)) if power else None}
    return out


def rounded(value: float) -> float:
    """Return four digits."""
    return float(f"{value:.4g}")


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown."""
    (low, high), out = BOUNDS, []
    additive = [one for one in results if one["world"] in ADDITIVE]
    every = {_named(one): one["coverage"] for one in additive}
    holds = all(low <= value <= high for value in every.values())
    out.append(bar(f"additive models: 90 % intervals hold for {low:.0%} to {high:.0%} of people", every, holds))
    fifths = {_named(one): min(one["fifths"]) for one in additive}
    what = f"additive models: and for at least {LEAST:.0%} in each fifth by score (the lowest of the five)"
    out.append(bar(what, fifths, all(value >= LEAST for value in fifths.values())))
    for level in LEVELS:
        most: dict[str, float] = {}
        for one in results:
            if one["world"] in PERSISTENT:
                worst = max(each[f"{level:g}"]["false"] for each in one["lists"].values())
                most[one["world"]] = max(most.get(one["world"], 0.0), worst)
        what = f"models in which ranks persist: at most {level:g} of a list made at that level is false (highest)"
        out.append(bar(what, most, all(value <= level for value in most.values())))
    return out


def _named(one: dict[str, Any]) -> str:
    return f"{one['world']} {one['bias']:g} ({one['learns from']})"


def show(found: Mapping[str, Any]) -> str:
    """Return the results file as Markdown."""
    results = found["results"]
    return "\n\n".join([_intervals(results), _lists(results), table_of_bars(dict(found))]).rstrip()


def _intervals(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world, bias and way: how often intervals hold, how wide they are, and what errors are left."""
    heads = ["world", "bias", "maps learn from", "holds", "lowest tenth of draws", "fifths by score", "median width"]
    heads += ["mean true size", "error", "expected error", "error with ten times the people", "mean ± t sd/√M holds"]
    rows = []
    for one in results:
        fifths = " ".join(f"{value:.2f}" for value in one["fifths"])
        names = ["coverage", "coverage, lowest tenth", "width", "size", "error", "standard error", "error that stays"]
        names.append("coverage by the error of the mean")
        holds, lowest, *numbers = (f"{one[name]:.3f}" for name in names)
        own = [one["world"], f"{one['bias']:g}", one["learns from"], f"**{holds}**", lowest, fifths]
        rows.append([*own, *numbers])
    return markdown_table(heads, rows)


def _lists(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world, bias and delta: how much of each list is false, and how many it finds."""
    chosen = [one for one in results if one["learns from"] == results[0]["learns from"]]
    levels = [level for level in next(iter(chosen[0]["lists"].values())) if level != "over"]
    heads = ["world", "bias", "delta", "truly over it", *(f"false at {level}, power" for level in levels)]
    rows = []
    for one in chosen:
        for delta, own in one["lists"].items():
            cells = [f"{own[level]['false']:.3f}, {_power(own[level]['power'])}" for level in levels]
            rows.append([one["world"], f"{one['bias']:g}", delta, f"{own['over']:.2f}", *cells])
    return markdown_table(heads, rows)


def _power(value: float | None) -> str:
    return "nobody" if value is None else f"{value:.2f}"


def reasons(found: Mapping[str, Any]) -> str:
    """Return why intervals hold less often than they say, world by world."""
    rows = []
    for world, why in REASONS.items():
        own = [one["coverage"] for one in found["results"] if one["world"] == world]
        if own:
            low, high = min(own), max(own)
            rows.append([world, f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}", why])
    return markdown_table(["world", "holds", "why"], rows)
