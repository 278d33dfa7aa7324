"""Table 1 in words: the tables of docs/research/paper.md, made from its results file alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from runner import Results
from settings import PAPER_MODEL_SCORES
from table1_plan import KINDS, deviation
from wording import about, bars, markdown_table, number

Row = tuple[str, str]  # a test and its auxiliary


def show(found: Results) -> str:
    """Return the results file as Markdown: AP beside the paper's, means and bars."""
    parts = ["Average precision over both targets:", average_precisions(found)]
    return "\n\n".join([*parts, summary(found), bars(found), about(found)])


def average_precisions(found: Results) -> str:
    """Return Table 1: AP of every test with each auxiliary, the paper's row below ours."""
    rows = []
    for test in dict.fromkeys(test for test, _ in _rows(found)):
        rows += [_own(found, row) for row in _rows(found) if row[0] == test]
        if test in found["paper"]:
            means = [found["paper"][test][trial["name"]] for trial in found["trials"]]
            rows.append([f"`{test}`", "*the paper*", *(f"*{m:.3f}*" for m in [*means, fmean(means)]), "", ""])
    names = [trial["name"].removeprefix("Synthetic-") for trial in found["trials"]]
    return markdown_table(["test", "auxiliary", *names, "mean", "± of the mean", "largest ±"], rows)


def summary(found: Results) -> str:
    """Return every row in a line: mean and lowest AP, mean rho, and what it says of fair targets."""
    rows = []
    for row in _rows(found):
        own = _entries(found, row)
        ap, rho = ([entry[f"{name}_mean"] for entry in own] for name in ("ap", "rho"))
        fair = [entry["fair"] for entry in own if entry["fair"] is not None]
        error = deviation(_draw_means(own))
        numbers = [f"{fmean(ap):.3f} ± {error:.3f}", f"{min(ap):.3f}", f"{fmean(rho):.3f}"]
        rows.append([f"`{row[0]}`", _shown(row), *numbers, number(fmean(fair) if fair else None)])
    rows.sort(key=lambda cells: cells[2], reverse=True)
    return markdown_table(["test", "auxiliary", "mean AP", "lowest AP", "mean rho", "fair / unfair"], rows)


def settings(found: Results) -> str:
    """Return what stands behind each setting: tables, prevalence, thresholds, and how good the networks are."""
    heads = ["setting", "c from", "y from", "fusion", "bias", "prevalence", "threshold", "mean true score"]
    heads += ["unfair target", "fair target", *(f"{kind} auxiliary" for kind in KINDS)]
    heads += ["`rank`: fair / unfair", "`rank given y`"]
    rows = []
    for trial in found["trials"]:
        targets = [target for draw in trial["draws"] for target in draw.values()]
        numbers = [
            trial["prevalence"],
            fmean(target["threshold"] for target in targets),
            fmean(target["unfair"]["mean_ifs"] for target in targets),
            *(fmean(target[kind]["balanced_accuracy"] for target in targets) for kind in ("unfair", "fair")),
            *(trial["auxiliaries"][kind] for kind in KINDS),
            *trial["fair_over_unfair"].values(),
        ]
        names = [trial["name"], trial["c"], trial["y"], trial["fusion"], f"{trial['bias']:g}"]
        rows.append([*names, *(f"{value:.3f}" if value > 0.01 else f"{value:.2g}" for value in numbers)])
    return markdown_table(heads, rows)


def generators(found: Results) -> str:
    """Return the model scores and spreads of the generated tables, draw by draw, beside the paper's."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for draw in found["generators"]:
        for name, one in (item for pair in draw.values() for item in pair.items()):
            tables.setdefault(name, []).append(one)
    rows = [
        [
            name,
            ", ".join(f"{one['model_score']:.3f}" for one in own),
            ", ".join(f"{one['spread']:.2f}" for one in own),
            f"{PAPER_MODEL_SCORES[name]:.3f}",
        ]
        for name, own in tables.items()
    ]
    return markdown_table(["table", "model score, by draw", "spread, of the real one", "the paper's score"], rows)


def fliptest(found: Results) -> str:
    """Return what FlipTest says of its generators."""
    checks = {trial["name"]: trial["fliptest"] for trial in found["trials"]}
    names = ("ks", "ks_unmapped", "ks_chance", "mse", "mse_real")
    means = {setting: {name: fmean(one[name] for one in own) for name in names} for setting, own in checks.items()}
    rows = [[setting, *(f"{own[name]:.3f}" for name in names)] for setting, own in means.items()]
    out = [markdown_table(["setting", "KS", "before mapping", "by chance", "MSE", "of real people"], rows)]
    worse = [setting for setting, own in means.items() if own["ks"] > own["ks_unmapped"]]
    if worse:
        out.append(
            f"In {len(worse)} of {len(rows)} settings FlipTest fails its own check (KS): mapped people look less like "
            "the other group than unmapped ones. Its row says something about these generators, not about the idea."
        )
    devices = sorted({one["device"] for own in checks.values() for one in own})
    return "\n\n".join([*out, f"They were trained on: {', '.join(devices)}."])


def _rows(found: Results) -> Iterator[Row]:
    """Yield the rows: tests as in the paper, then the others, `lic` last."""
    rows = dict.fromkeys((entry["test"], entry["auxiliary"]) for entry in found["results"])
    ours = ["rank", "rank/a", "rank given y", "rank/a given y"]
    order = [*(test for test in found["paper"] if test != "lic"), *ours, "lic"]
    yield from sorted(rows, key=lambda row: (order.index(row[0]), row[1] != "none" and KINDS.index(row[1])))


def _entries(found: Results, row: Row) -> list[dict[str, Any]]:
    """Return the entries of a row, setting by setting."""
    return [entry for entry in found["results"] if (entry["test"], entry["auxiliary"]) == row]


def _own(found: Results, row: Row) -> list[str]:
    """Return the cells of a row of ours: settings, their mean, and how much draws differ."""
    own = _entries(found, row)
    means = [entry["ap_mean"] for entry in own]
    spreads = [deviation(_draw_means(own)), max(entry["ap_std"] for entry in own)]
    return [f"`{row[0]}`", _shown(row), *(f"{value:.3f}" for value in [*means, fmean(means), *spreads])]


def _draw_means(own: list[dict[str, Any]]) -> list[float]:
    """Return the mean AP over the settings of each draw."""
    return [fmean(each) for each in zip(*(entry["ap_draws"] for entry in own), strict=True)]


def _shown(row: Row) -> str:
    return "" if row[1] == "none" else row[1]


SECTIONS: dict[str, Callable[[Results], str]] = {  # of the page on the benchmark
    "ap": average_precisions,
    "summary": summary,
    "settings": settings,
    "generators": generators,
    "fliptest": fliptest,
    "bars": bars,
}
