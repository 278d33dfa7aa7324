"""The tables of the pages on experiments, made from the results files alone: python experiments/pages.py writes them.

What stands between `<!-- results: NAME -->` and `<!-- /results -->` on a page belongs to this script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import peer_pages
from settings import PAPER_MODEL_SCORES
from wording import bars, markdown_table

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PLAIN = RESULTS / "table1-plain-targets.json"  # the first full run
DOCS = FOLDER.parent / "docs"
NAMES = (
    "benchmark",
    "real_data",
    "use_cases",
    "abstention",
    "beyond",
    "legitimate",
    "intervals",
    "comparing",
    "verdicts",
)
PAGES = tuple(DOCS / f"{name}.md" for name in NAMES)
SECTION = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)
NOT_YET = "There is no full run of this experiment yet."

Results = dict[str, Any]  # a results file


def page(text: str, results: Path = RESULTS) -> str:
    """Return the page with every section as the results files give it."""
    return SECTION.sub(lambda m: f"{m[1]}\n{section(m[2], results)}\n\n{m[3]}", text)


def section(name: str, results: Path = RESULTS) -> str:
    """Return what the page shows of one experiment; a quick or partial run does not count."""
    experiment, _, part = name.partition("-")
    path = results / f"{experiment}.json"
    if not path.is_file():
        return NOT_YET
    found: Results = json.loads(path.read_text(encoding="utf-8"))
    if found["quick"] or found["only"]:
        return NOT_YET
    script = import_module(experiment)
    if part:
        return (PARTS | getattr(script, "SECTIONS", {}))[part](found)
    own = script.EXPERIMENT.show(found)  # its results file in words
    return "\n\n".join([*_figure(path), own, about(found)])


def average_precisions(found: Results) -> str:
    """Return Table 1: AP of every test with each auxiliary, the paper's row below ours."""
    names = _settings(found)
    rows: list[list[str]] = []
    for test in _tests(found):
        rows += _own(found, test, "ap")
        if test in found["paper"]:
            rows.append(_printed(found, test))
    rows += [_printed(found, test) for test in found["paper"] if test not in _tests(found)]
    return markdown_table(["test", "auxiliary", *map(_short, names), "mean", "largest ±"], rows)


def rank_correlations(found: Results) -> str:
    """Return rho of every test with each auxiliary."""
    rows = [row for test in _tests(found) for row in _own(found, test, "rho")]
    return markdown_table(["test", "auxiliary", *map(_short, _settings(found)), "mean", "largest ±"], rows)


def settings(found: Results) -> str:
    """Return what stands behind each setting: tables, prevalence, thresholds, and how good the networks are."""
    heads = ["setting", "c from", "y from", "fusion", "bias", "prevalence", "threshold", "mean true score"]
    heads += ["unfair target", "fair target", "plain auxiliary", "disentangled auxiliary"]
    rows = []
    for trial in found["trials"]:
        targets = trial["targets"].values()
        numbers = [
            [_entry(found, trial["name"], "lic", "none")["prevalence"]],
            trial["thresholds"].values(),
            [each["unfair"]["mean_ifs"] for each in targets],
            *([each[kind]["balanced_accuracy"] for each in targets] for kind in ("unfair", "fair")),
            *(trial["auxiliary_balanced_accuracy"][kind] for kind in ("plain", "disentangled")),
        ]
        names = [trial["name"], trial["c"], trial["y"], trial["fusion"], f"{trial['bias']:g}"]
        rows.append([*names, *(f"{fmean(each):.3f}" for each in numbers)])
    return markdown_table(heads, rows)


def generators(found: Results) -> str:
    """Return the model scores and spreads of the generated tables beside the paper's."""
    tables = {name: one for pair in found["generators"].values() for name, one in pair.items()}
    rows = [
        [
            name,
            f"{one['model_score']:.3f}",
            f"{PAPER_MODEL_SCORES[name]:.3f}",
            ", ".join(f"{draw:.3f}" for draw in one["draws"]),
            f"{one['spread']:.2f}",
        ]
        for name, one in sorted(tables.items(), key=lambda item: float(item[1]["model_score"]))
    ]
    return markdown_table(["table", "model score", "the paper's", "all draws", "spread, of the real one"], rows)


def about(found: Results) -> str:
    """Return where, how long and with what an experiment ran."""
    machine, versions = found["machine"], ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"Seed {found['seed']}; {found['seconds'] / 60:.1f} minutes with {machine['workers']} workers on "
        f"{machine['cores']} cores ({found['core_seconds'] / 3600:.1f} core hours); {versions}."
    )


def beside_plain_targets(found: Results) -> str:
    """Return ranges over the settings beside those of the run whose targets were trained without decay."""
    plain: Results = json.loads(PLAIN.read_text(encoding="utf-8"))
    rows = [
        [what, *(_range(numbers(run)) for run in (plain, found))]
        for what, numbers in {
            "threshold": lambda run: [value for trial in run["trials"] for value in trial["thresholds"].values()],
            "prevalence": lambda run: [e["prevalence"] for e in run["results"] if e["test"] == "lic"],
            "`lic`": lambda run: _means(run, "lic", "none"),
            "`fta`": lambda run: _means(run, "fta", "none"),
            "`faux`, disentangled": lambda run: _means(run, "faux", "disentangled"),
            "better of `faux+ng` and `faux+ig`, disentangled": lambda run: [
                max(pair)
                for pair in zip(*(_means(run, t, "disentangled") for t in ("faux+ng", "faux+ig")), strict=True)
            ],
            "`rank/a`, plain, mean": lambda run: [fmean(_means(run, "rank/a", "plain"))],
            "`rank`, mean rho": lambda run: [fmean(_means(run, "rank", "none", "rho"))],
            "balanced accuracy of unfair targets": lambda run: _accuracies(run, "unfair"),
            "balanced accuracy of fair targets": lambda run: _accuracies(run, "fair"),
        }.items()
    ]
    return markdown_table(["", "plain targets", "this run"], rows)


def peers(found: Results) -> str:
    """Return the peers' tests beside the best single test."""
    return peer_pages.peers(found, markdown_table, about)


def costs(found: Results) -> str:
    """Return what every test costs."""
    return peer_pages.costs(found, markdown_table, about)


PARTS: dict[str, Callable[[Results], str]] = {
    "ap": average_precisions,
    "rho": rank_correlations,
    "settings": settings,
    "generators": generators,
    "peers": peers,
    "costs": costs,
    "bars": bars,
    "about": about,
    "plain-targets": beside_plain_targets,
}


def _settings(found: Results) -> list[str]:
    return [trial["name"] for trial in found["trials"]]


def _short(name: str) -> str:
    return name.removeprefix("Synthetic-")


def _tests(found: Results) -> list[str]:
    """Return the tests: as in the paper, then the others, `lic` last."""
    tests = dict.fromkeys(entry["test"] for entry in found["results"])
    order = [test for test in found["paper"] if test in tests and test != "lic"]
    return [*order, *sorted(set(tests) - {*order, "lic"}), *(["lic"] if "lic" in tests else [])]


def _entry(found: Results, setting: str, test: str, auxiliary: str) -> dict[str, float]:
    wanted = (setting, test, auxiliary)
    return next(e for e in found["results"] if (e["setting"], e["test"], e["auxiliary"]) == wanted)


def _own(found: Results, test: str, number: str) -> list[list[str]]:
    """Return our rows of a test: one for each auxiliary it was measured with."""
    kinds = sorted({e["auxiliary"] for e in found["results"] if e["test"] == test}, reverse=True)  # plain first
    rows = []
    for kind in kinds:
        entries = [_entry(found, setting, test, kind) for setting in _settings(found)]
        means = [entry[f"{number}_mean"] for entry in entries]
        spread = max(entry[f"{number}_std"] for entry in entries)
        shown = "" if kind == "none" else kind
        rows.append([f"`{test}`", shown, *(f"{m:.3f}" for m in [*means, fmean(means), spread])])
    return rows


def _means(found: Results, test: str, auxiliary: str, number: str = "ap") -> list[float]:
    return [_entry(found, setting, test, auxiliary)[f"{number}_mean"] for setting in _settings(found)]


def _accuracies(found: Results, target: str) -> list[float]:
    return [each[target]["balanced_accuracy"] for trial in found["trials"] for each in trial["targets"].values()]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def _printed(found: Results, test: str) -> list[str]:
    means = [found["paper"][test][setting] for setting in _settings(found)]
    return [f"`{test}`", "*the paper*", *(f"*{m:.3f}*" for m in [*means, fmean(means)]), ""]


def _figure(path: Path) -> list[str]:
    """Return the picture beside a results file, where there is one."""
    picture = path.with_suffix(".png")
    return [f"![{path.stem}](../experiments/results/{picture.name})"] if picture.is_file() else []


if __name__ == "__main__":
    for own in PAGES:
        own.write_text(page(own.read_text(encoding="utf-8")), encoding="utf-8")
