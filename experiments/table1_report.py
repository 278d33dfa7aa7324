"""Table 1 in words: the tables of docs/benchmark.md, made from its results file alone."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from runner import Results
from settings import PAPER_MODEL_SCORES
from table1_bars import NAMES, Entries, behind
from wording import about, bars, markdown_table

NOT_YET = "There is no full run of the peers' tests yet."
SAME = 1e-3  # how far thresholds of the same people may lie apart, relative: another kind of CPU rounds differently


def table1_text(found: Results) -> str:
    """Return the results file as Markdown: AP beside the paper's, rho, and the bars."""
    parts = ["Average precision over both targets:", average_precisions(found)]
    parts += ["Rank correlation with the true score inside the unfair target:", rank_correlations(found)]
    if found["bars"]:
        parts += [bars(found), *(f"- not ahead in {sentence}" for sentence in behind(found["results"]))]
    return "\n\n".join([*parts, about(found)])


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


def peers(found: Results) -> str:
    """Return the peers beside the best single test, where that is not ahead, what maps are worth, and the runs."""
    entries = Entries(found["results"])
    if not entries.peers:
        return NOT_YET
    parts = [_means(entries, found), *_verdict(found, entries), *_quality(found)]
    runs = {peer: found["runs"][peer] for peer in entries.peers}
    parts += [f"**{peer}** was judged by other targets than the rest of the table." for peer in _strangers(found, runs)]
    return "\n\n".join(
        [*parts, *(f"{', '.join(f'`{name}`' for name in names)}: {about(runs[names[0]])}" for names in _by_run(runs))]
    )


def _means(entries: Entries, found: Results) -> str:
    """Return the means over the settings of the best single test, of each peer, and of peers times the share."""
    best = entries.best()
    rows = []
    maps = [(f"{p}/a", "plain") for p in entries.peers if (NAMES[0], f"{p}/a", "plain") in entries.by_name]
    for test, auxiliary in [best, *((peer, "none") for peer in entries.peers), *maps]:
        ap, rho = (entries.numbers(test, auxiliary, number) for number in ("ap", "rho"))
        spread = max(entries.by_name[name, test, auxiliary]["ap_std"] for name in NAMES)
        printed = found["paper"].get(test)
        theirs = f"*{fmean(printed[name] for name in NAMES):.3f}*" if printed else ""
        rows.append([f"`{test}`", f"{fmean(ap):.3f}", theirs, f"{fmean(rho):.3f}", f"{min(ap):.3f}", f"{spread:.3f}"])
    return markdown_table(["test", "mean AP", "*the paper's*", "mean rho", "lowest AP", "largest ± of AP"], rows)


def _verdict(found: Results, entries: Entries) -> list[str]:
    """Return whether the best single test is ahead on both means, and in bold where it is not."""
    test, _ = entries.best()
    lost = [bar for bar in found["bars"] if bar["bar"].endswith("ahead of every peer's") and not bar["holds"]]
    out = [
        f"`{test}`, fairfox's best single test with what a user has, is ahead of every peer on mean AP and on mean rho."
    ]
    if lost:
        which = " and on ".join("mean AP" if "mean AP" in bar["bar"] else "mean rho" for bar in lost)
        out = [f"**`{test}`, fairfox's best single test with what a user has, is not ahead of every peer on {which}.**"]
    where = behind(found["results"])
    return [*out, *(["Single settings:\n\n" + "\n".join(f"- **{one}**" for one in where)] if where else [])]


def _quality(found: Results) -> list[str]:
    """Return what FlipTest and transport say of their maps."""
    out = []
    details = {test: run.get("details", {}) for test, run in found["runs"].items()}
    if details.get("fliptest"):
        names = ("ks", "ks_unmapped", "ks_chance", "mse", "mse_real")
        rows = [[s, *(f"{one['checks'][name]:.3f}" for name in names)] for s, one in details["fliptest"].items()]
        heads = ["setting", "KS", "before mapping", "by chance", "MSE", "of real people"]
        out += ["FlipTest's own checks of its generators, means over the re-trainings:", markdown_table(heads, rows)]
        worse = [s for s, one in details["fliptest"].items() if one["checks"]["ks"] > one["checks"]["ks_unmapped"]]
        if worse:
            out.append(
                f"**In {len(worse)} of {len(rows)} settings FlipTest fails its own check: people whom it maps look "
                "less like the other group than people who are left alone do (KS).** Read its row as that of "
                "generators that did not learn these people, not of the idea."
            )
        trained = {one["training"]["device"] for one in details["fliptest"].values()}
        out.append(f"They were trained on: {', '.join(sorted(trained))}.")
    if details.get("transport"):
        kept = [one["checks"]["spread_kept"] for one in details["transport"].values()]
        solvers = ", ".join(sorted({one["solver"] for one in details["transport"].values()}))
        out.append(
            f"Transport was solved by {solvers}. Its mapped people have {min(kept):.0%} to {max(kept):.0%} of the "
            "variance of the group they go to."
        )
    return out


def _strangers(found: Results, runs: dict[str, Results]) -> list[str]:
    """Return the tests whose run found other thresholds than the table has: other generators or targets."""
    own = {trial["name"]: trial["thresholds"] for trial in found["trials"]}
    return [
        test
        for test, run in runs.items()
        if any(
            abs(value / own[s][shape] - 1) > SAME
            for s, each in run["thresholds"].items()
            for shape, value in each.items()
        )
    ]


def _by_run(runs: dict[str, Results]) -> list[list[str]]:
    """Return the tests, those of one command together."""
    groups: dict[tuple[str, float], list[str]] = {}
    for test, run in runs.items():
        groups.setdefault((" ".join(run["together"]), run["seconds"]), []).append(test)
    return list(groups.values())


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


def _printed(found: Results, test: str) -> list[str]:
    means = [found["paper"][test][setting] for setting in _settings(found)]
    return [f"`{test}`", "*the paper*", *(f"*{m:.3f}*" for m in [*means, fmean(means)]), ""]


SECTIONS: dict[str, Callable[[Results], str]] = {  # of the page on the benchmark
    "ap": average_precisions,
    "rho": rank_correlations,
    "settings": settings,
    "generators": generators,
    "peers": peers,
    "bars": bars,
}
