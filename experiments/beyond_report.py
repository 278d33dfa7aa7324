"""What the methods add up to over worlds: means, worst worlds, standard errors, and what has to be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from wording import bar, markdown_table, number
from wording import bars as bars_in_words

Entry = dict[str, Any]  # of one world and method: lists with a number (or none) for each draw

DEFAULT = "rank"  # what speaks about people; with /a about models
KNOWS = "lic"  # knows the generator
WEAK = 0.25
FAMILIES = {
    "settings": "Synthetic-1 to 8",
    "wdbc": "fusions with wdbc",
    "additive": "additive worlds",
    "mixed": "mixed worlds",
    "difficult": "interaction, three classes, confounding, label bias",
    "all": "all worlds",
}


def report(results: Sequence[Entry], *, full: bool) -> dict[str, Any]:
    """Return the summaries at bias 0.5 and above and at 0.25, what is seen where there is nothing, and the bars."""
    strong = [entry for entry in results if entry["bias"] > WEAK]
    weak = [entry for entry in results if entry["bias"] == WEAK]
    found = {"summary": summaries(strong), "weak": summaries(weak), "nothing": nothing(results)}
    return found | {"bars": bars(strong, found) if full else []}


def summaries(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a line for each family and method: the mean over worlds with its standard error, and the worst world."""
    out = []
    for family in FAMILIES:
        own = [entry for entry in entries if family in (entry["family"], "all")]
        for method in dict.fromkeys(entry["method"] for entry in own):
            out.append({"family": family, "method": method, **_line([e for e in own if e["method"] == method])})
    return out


def _line(own: Sequence[Entry]) -> dict[str, Any]:
    line: dict[str, Any] = {"worlds": len(own)}
    for name in ("ap", "rho"):
        of_worlds = [mean for mean in (_mean(entry[name]) for entry in own) if mean is not None]
        line |= {name: _mean(of_worlds), f"{name}_se": _standard_error([entry[name] for entry in own])}
        line[f"{name}_worst"] = min(of_worlds, default=None)
    return line | {name: _mean(_mean(entry[name]) for entry in own) for name in ("units", "fair")}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _standard_error(of_worlds: Sequence[Sequence[float | None]]) -> float | None:
    """Return the standard error over draws of the mean over worlds."""
    of_draws = [_mean(each) for each in zip(*of_worlds, strict=True)]
    known = [mean for mean in of_draws if mean is not None]
    return float(stdev(known) / len(known) ** 0.5) if len(known) > 1 else None


def nothing(results: Sequence[Entry]) -> dict[str, float | None]:
    """Return each method's mean score where c acts on nothing, over what it is in the same world at full bias."""
    full = {(e["world"], e["method"]): _mean(e["mean"]) for e in results if e["bias"] == 1.0}
    shares: dict[str, list[float]] = {}
    for entry in results:
        whole, none = full.get((entry["world"], entry["method"])), _mean(entry["mean"])
        if entry["bias"] == 0.0 and whole and none is not None:
            shares.setdefault(entry["method"], []).append(none / whole)
    return {method: _mean(each) for method, each in shares.items()}


def bars(strong: Sequence[Entry], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the default has to show, with the measured values; nothing where a method or family is missing."""
    of, weak = (_by_name(found[part]) for part in ("summary", "weak"))
    aligned = f"{DEFAULT}/a"
    needed = [(family, method) for family in FAMILIES for method in (DEFAULT, aligned, "faux+ng")]
    if any(pair not in of for pair in [*needed, ("settings", KNOWS)]) or ("all", aligned) not in weak:
        return []
    return [*_against_the_truth(strong, of), *_first(of), _weak(weak), *_units(strong, of)]


Lines = dict[tuple[str, str], dict[str, Any]]


def _by_name(lines: Sequence[dict[str, Any]]) -> Lines:
    return {(line["family"], line["method"]): line for line in lines}


def _against_the_truth(strong: Sequence[Entry], of: Lines) -> list[dict[str, Any]]:
    aligned, settings = of["settings", f"{DEFAULT}/a"], of["settings", DEFAULT]
    knows = of["settings", KNOWS]
    rho = {(e["world"], e["method"]): _mean(e["rho"]) or 0.0 for e in strong if e["family"] == "settings"}
    worlds = dict.fromkeys(world for world, _ in rho)
    ahead = [world for world in worlds if rho[world, DEFAULT] > rho[world, KNOWS]]
    value = {f"{DEFAULT}/a": aligned["ap"], KNOWS: knows["ap"]}
    out = [
        bar(
            f"{DEFAULT}/a: mean AP over the settings at most 0.005 below {KNOWS}",
            value,
            aligned["ap"] >= knows["ap"] - 0.005,
        ),
        bar(
            f"{DEFAULT}: rho above {KNOWS} in at least six of the eight settings",
            f"{len(ahead)} of {len(worlds)}",
            len(ahead) >= 6,
        ),
    ]
    for family, least in (("settings", 0.64), ("additive", 0.97), ("mixed", 0.68)):
        own = of[family, DEFAULT]["rho"]
        out.append(bar(f"{DEFAULT}: mean rho at least {least} ({FAMILIES[family]})", own, own >= least))
    aim = {"mean": settings["rho"], "worst": settings["rho_worst"]}
    what = f"{DEFAULT}: the aim over the settings, mean rho at least 0.75 and the worst above 0.6"
    return [*out, bar(what, aim, settings["rho"] >= 0.75 and settings["rho_worst"] > 0.6)]


def _first(of: Lines) -> list[dict[str, Any]]:
    out = []
    for name, method in (("ap", f"{DEFAULT}/a"), ("rho", DEFAULT)):
        own = of["all", method][name]
        rivals = {m: line[name] for (f, m), line in of.items() if f == "all" and m not in (KNOWS, method)}
        known = {m: value for m, value in rivals.items() if value is not None}
        best = max(known, key=lambda m: known[m])
        what = f"{method}: no mean {'AP' if name == 'ap' else name} over all worlds is higher, {KNOWS} apart"
        out.append(bar(what, {method: own, best: known[best]}, own >= known[best]))
    return out


def _weak(weak: Lines) -> dict[str, Any]:
    """At bias 0.25: ahead of the paper's best by 0.10 in all worlds, or as good as can be where that is known."""
    own, paper = weak["all", f"{DEFAULT}/a"]["ap"], weak["all", "faux+ng"]["ap"]
    value = {f"{DEFAULT}/a": own, "faux+ng": paper}
    holds = own >= paper + 0.10
    if ("settings", KNOWS) in weak:
        ceiling, settings = weak["settings", KNOWS]["ap"], weak["settings", f"{DEFAULT}/a"]["ap"]
        value |= {f"{DEFAULT}/a in the settings": settings, f"{KNOWS} there": ceiling}
        holds = holds or settings >= ceiling - 0.005
    what = f"{DEFAULT}/a at bias {WEAK}: mean AP at least 0.10 above faux+ng, or that of {KNOWS} in the settings"
    return bar(what, value, holds)


def _units(strong: Sequence[Entry], of: Lines) -> list[dict[str, Any]]:
    fused = ("settings", "wdbc")
    own = [entry for entry in strong if entry["method"] == DEFAULT]

    def fair(chosen: Callable[[str], bool]) -> float:
        return _mean(_mean(entry["fair"]) for entry in own if chosen(entry["family"])) or 0.0

    causal, tables = fair(lambda f: f not in fused), fair(lambda f: f in fused)
    units = of["all", DEFAULT]["units"]
    told = f"{DEFAULT}: mean score of fair targets over that of unfair ones at most"
    return [
        bar(f"{DEFAULT}: mean score over mean true score from 0.8 to 1.2", units, 0.8 <= units <= 1.2),
        bar(f"{told} 0.10 in causal worlds", causal, causal <= 0.10),
        bar(f"{told} 0.20 where tables are fused", tables, tables <= 0.20),
    ]


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown: a line for each method over all worlds, and the bars."""
    return "\n\n".join([_table(found), *([bars_in_words(found)] if found["bars"] else [])])


def _table(found: dict[str, Any]) -> str:
    """Return the methods over all worlds at bias 0.5 and above, at 0.25 and at none; families are in the results."""
    heads = ["method", "worlds", "mean AP", "worst AP", "mean rho", "worst rho", "units", "fair / unfair"]
    heads += [f"mean AP at {WEAK}", "no bias / full bias"]
    own = [line for line in found["summary"] if line["family"] == "all"]
    weak = {line["method"]: line["ap"] for line in found["weak"] if line["family"] == "all"}
    own.sort(key=lambda line: -(line["ap"] if line["ap"] is not None else -1.0))
    rows = [
        [
            line["method"],
            str(line["worlds"]),
            _with_error(line, "ap"),
            number(line["ap_worst"]),
            _with_error(line, "rho"),
            number(line["rho_worst"]),
            number(line["units"]),
            number(line["fair"]),
            number(weak.get(line["method"])),
            number(found["nothing"].get(line["method"])),
        ]
        for line in own
    ]
    return markdown_table(heads, rows)


def _with_error(line: dict[str, Any], name: str) -> str:
    error = line[f"{name}_se"]
    return number(line[name]) + (f" ± {error:.3f}" if error is not None else "")
