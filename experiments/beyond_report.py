"""What the methods add up to over worlds: means, worst worlds, standard errors, and what has to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev
from typing import Any

from wording import bar, markdown_table, mean, number
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
        of_worlds = [each for each in (mean(entry[name]) for entry in own) if each is not None]
        line |= {name: mean(of_worlds), f"{name}_se": _standard_error([entry[name] for entry in own])}
        line[f"{name}_worst"] = min(of_worlds, default=None)
    return line | {name: mean(mean(entry[name]) for entry in own) for name in ("units", "fair")}


def _standard_error(of_worlds: Sequence[Sequence[float | None]]) -> float | None:
    """Return the standard error over draws of the mean over worlds."""
    of_draws = [mean(each) for each in zip(*of_worlds, strict=True)]
    known = [each for each in of_draws if each is not None]
    return float(stdev(known) / len(known) ** 0.5) if len(known) > 1 else None


def nothing(results: Sequence[Entry]) -> dict[str, float | None]:
    """Return each method's mean score where c acts on nothing, over what it is in the same world at full bias."""
    full = {(e["world"], e["method"]): mean(e["mean"]) for e in results if e["bias"] == 1.0}
    shares: dict[str, list[float]] = {}
    for entry in results:
        whole, none = full.get((entry["world"], entry["method"])), mean(entry["mean"])
        if entry["bias"] == 0.0 and whole and none is not None:
            shares.setdefault(entry["method"], []).append(none / whole)
    return {method: mean(each) for method, each in shares.items()}


def bars(strong: Sequence[Entry], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the default has to show, with the measured values; nothing where a method or family is missing."""
    of, weak = ({(one["family"], one["method"]): one for one in found[part]} for part in ("summary", "weak"))
    aligned, paper = f"{DEFAULT}/a", "faux+ng"
    needed = [(family, method) for family in FAMILIES for method in (DEFAULT, aligned, paper)]
    if any(pair not in of for pair in [*needed, ("settings", KNOWS)]) or ("all", aligned) not in weak:
        return []
    ap = {method: of["settings", method]["ap"] for method in (aligned, KNOWS)}
    out = [
        bar(f"{aligned}: mean AP over the settings at most 0.005 below {KNOWS}", ap, ap[aligned] >= ap[KNOWS] - 0.005)
    ]
    rho = {(e["world"], e["method"]): mean(e["rho"]) or 0.0 for e in strong if e["family"] == "settings"}
    ahead = [rho[world, method] > rho[world, KNOWS] for world, method in rho if method == DEFAULT]
    what = f"{DEFAULT}: rho above {KNOWS} in at least six of the eight settings"
    out.append(bar(what, f"{sum(ahead)} of {len(ahead)}", sum(ahead) >= 6))
    aim = {name: of["settings", DEFAULT][name] for name in ("rho", "rho_worst")}
    what = f"{DEFAULT}: the aim over the settings, mean rho at least 0.75 and the worst above 0.6"
    out.append(bar(what, aim, aim["rho"] >= 0.75 and aim["rho_worst"] > 0.6))
    for family, least in (("settings", 0.64), ("additive", 0.97), ("mixed", 0.68)):
        own = of[family, DEFAULT]["rho"]
        out.append(bar(f"{DEFAULT}: mean rho at least {least} ({FAMILIES[family]})", own, own >= least))
    for name, words, method in (("ap", "AP", aligned), ("rho", "rho", DEFAULT)):
        others = {m: one[name] for (f, m), one in of.items() if f == "all" and m not in (KNOWS, method) and one[name]}
        own, best = of["all", method][name], max(others, key=lambda m: others[m])
        what = f"{method}: no mean {words} over all worlds is higher, {KNOWS} apart"
        out.append(bar(what, {method: own, best: others[best]}, own >= others[best]))
    ap = {method: weak["all", method]["ap"] for method in (aligned, paper)}
    within = {method: weak["settings", method]["ap"] for method in (aligned, KNOWS)}
    what = f"{aligned} at bias {WEAK}: mean AP at least 0.10 above {paper}, or that of {KNOWS} in the settings"
    holds = ap[aligned] >= ap[paper] + 0.10 or within[aligned] >= within[KNOWS] - 0.005
    out.append(bar(what, ap | {"in the settings": within}, holds))
    units = of["all", DEFAULT]["units"]
    out.append(bar(f"{DEFAULT}: mean score over mean true score from 0.8 to 1.2", units, 0.8 <= units <= 1.2))
    for fused, most, words in ((False, 0.10, "in causal worlds"), (True, 0.20, "where tables are fused")):
        own = [e for e in strong if e["method"] == DEFAULT and (e["family"] in ("settings", "wdbc")) == fused]
        fair = mean(mean(entry["fair"]) for entry in own) or 0.0
        told = f"{DEFAULT}: mean score of fair targets over that of unfair ones at most {most:.2f} {words}"
        out.append(bar(told, fair, fair <= most))
    return out


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
