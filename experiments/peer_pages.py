"""What docs/benchmark.md says of the peers' tests and of costs, made from the results file of Table 1 alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from table1_bars import NAMES, Entries, behind

NOT_YET = "There is no full run of the peers' tests yet."
NO_COSTS = "Costs have not been measured yet."
SAME = 1e-3  # how far thresholds of the same people may lie apart, relative: another kind of CPU rounds differently

Results = dict[str, Any]  # a results file
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def peers(found: Results, table: Table, about: Callable[[Results], str]) -> str:
    """Return the peers beside the best single test, where that is not ahead, what maps are worth, and the runs."""
    entries = Entries(found["results"])
    if not entries.peers:
        return NOT_YET
    parts = [_means(entries, found, table), *_verdict(found, entries), *_quality(found, table)]
    runs = {peer: found["runs"][peer] for peer in entries.peers}
    parts += [f"**{peer}** was judged by other targets than the rest of the table." for peer in _strangers(found, runs)]
    return "\n\n".join([*parts, *(f"{_together(names)}: {about(runs[names[0]])}" for names in _by_run(runs))])


def costs(found: Results, table: Table, about: Callable[[Results], str]) -> str:
    """Return what every test costs, and where that was measured."""
    if "costs" not in found:
        return NO_COSTS
    own = found["costs"]
    rows = [
        [f"`{test}`", f"{one['training_seconds']:.2f}", f"{one['parameters']:,}", f"{one['rows_per_second']:,.0f}"]
        for test, one in own["tests"].items()
    ]
    return "\n\n".join(
        [
            table(["test", "training, s", "trained numbers", "people scored in a second"], rows),
            f"{own['setting']} ({own['columns']} columns): fitted once on {own['fitting_rows']:,} people, then scoring "
            f"{own['scored_rows']:,} for one target of {own['target']} ({own['device']}; the median lap).",
            about(found["runs"]["costs"]),
        ]
    )


def _means(entries: Entries, found: Results, table: Table) -> str:
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
    return table(["test", "mean AP", "*the paper's*", "mean rho", "lowest AP", "largest ± of AP"], rows)


def _verdict(found: Results, entries: Entries) -> list[str]:
    """Return whether the best single test is ahead on both means, and in bold where it is not."""
    test, _ = entries.best()
    bars = [bar for bar in found["bars"] if bar["bar"].endswith("ahead of every peer's")]
    lost = [bar for bar in bars if not bar["holds"]]
    out = [
        f"`{test}`, fairfox's best single test with what a user has, is ahead of every peer on mean AP and on mean rho."
    ]
    if lost:
        which = " and on ".join("mean AP" if "mean AP" in bar["bar"] else "mean rho" for bar in lost)
        out = [f"**`{test}`, fairfox's best single test with what a user has, is not ahead of every peer on {which}.**"]
    where = behind(found["results"])
    return [*out, *(["Single settings:\n\n" + "\n".join(f"- **{one}**" for one in where)] if where else [])]


def _quality(found: Results, table: Table) -> list[str]:
    """Return what FlipTest and transport say of their maps."""
    out = []
    details = {test: run.get("details", {}) for test, run in found["runs"].items()}
    if details.get("fliptest"):
        names = ("ks", "ks_unmapped", "ks_chance", "mse", "mse_real")
        rows = [[s, *(f"{one['checks'][name]:.3f}" for name in names)] for s, one in details["fliptest"].items()]
        heads = ["setting", "KS", "before mapping", "by chance", "MSE", "of real people"]
        out += ["FlipTest's own checks of its generators, means over the re-trainings:", table(heads, rows)]
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


def _together(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
