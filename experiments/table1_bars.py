"""What Table 1 has to show: each bar with its measured value, and the table in words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from settings import PAPER_MODEL_SCORES, PAPER_TABLE1, SETTINGS, Setting

NAMES = [setting.name for setting in SETTINGS]
OUTER = [setting for setting in SETTINGS if setting.fusion == "outer"]
CONCAT = [setting for setting in SETTINGS if setting.fusion == "concat"]
HARD = ("Synthetic-1", "Synthetic-3", "Synthetic-5")
FAMILY = ("faux", "faux+ng", "faux+ig")
PEERS = ("unfair_map", "fliptest", "transport")
CHANCE = 0.03  # how far AP may lie from the prevalence when scores are shuffled


class Entries:
    """The entries of `results`, found by setting, test and auxiliary."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self.by_name = {(e["setting"], e["test"], e["auxiliary"]): e for e in results}

    def ap(self, setting: str, test: str, auxiliary: str) -> float:
        """Return a mean AP."""
        return float(self.by_name[setting, test, auxiliary]["ap_mean"])

    def aps(self, test: str, auxiliary: str, settings: Sequence[str] = NAMES) -> list[float]:
        """Return mean APs, setting by setting."""
        return [self.ap(setting, test, auxiliary) for setting in settings]

    def numbers(self, test: str, auxiliary: str, number: str) -> list[float]:
        """Return the mean AP or rho of a test, setting by setting."""
        return [float(self.by_name[name, test, auxiliary][f"{number}_mean"]) for name in NAMES]

    @property
    def peers(self) -> list[str]:
        """The peers' tests that are there in all settings."""
        return [peer for peer in PEERS if all((name, peer, "none") in self.by_name for name in NAMES)]

    @property
    def has_own(self) -> bool:
        """Whether the table's own tests are there in all settings."""
        return all((name, "lic", "none") in self.by_name for name in NAMES)

    def best(self) -> tuple[str, str]:
        """Return the test and its auxiliary with the largest mean AP, among fairfox's own that a user could run."""
        usable = {(t, a) for _, t, a in self.by_name if a != "disentangled" and t.split("/")[0] not in ("lic", *PEERS)}
        return max(sorted(usable), key=lambda pair: fmean(self.aps(*pair)))


def bars(found: dict[str, Any], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every bar with its measured value and whether it holds; none where settings or own tests are missing."""
    entries = Entries(found["results"])
    if not entries.has_own:
        return []
    shown = [*_basic(entries, found), *_pattern(entries), *_ours(entries), *_generators(found["generators"])]
    return [*shown, _time(about["seconds"], about["machine"]["workers"]), *_peers(entries)]


def _bar(what: str, value: object, holds: bool) -> dict[str, Any]:
    return {"bar": what, "value": value, "holds": holds}


def _basic(entries: Entries, found: dict[str, Any]) -> list[dict[str, Any]]:
    prevalence = [entries.by_name[name, "lic", "none"]["prevalence"] for name in NAMES]
    lic = entries.aps("lic", "none")
    away = [abs(t["shuffled_ap"] - p) for t, p in zip(found["trials"], prevalence, strict=True)]
    fta = entries.aps("fta", "none")
    return [
        _bar(
            "prevalence from 0.40 to 0.50 in all settings",
            _rounded(prevalence),
            all(0.4 <= p <= 0.5 for p in prevalence),
        ),
        _bar("lic: AP at least 0.95 in all settings", _rounded(lic), min(lic) >= 0.95),
        _bar(f"shuffled scores: AP within {CHANCE} of the prevalence", _rounded(away), max(away) <= CHANCE),
        _bar("fta: AP at most 0.5 in at least six settings", _rounded(fta), sum(ap <= 0.5 for ap in fta) >= 6),
    ]


def _pattern(entries: Entries) -> list[dict[str, Any]]:
    """The paper's pattern, with its disentangled auxiliary."""
    gaps = [
        entries.ap(_partner(outer).name, "faux", "disentangled") - entries.ap(outer.name, "faux", "disentangled")
        for outer in OUTER
    ]
    concat = entries.aps("faux", "disentangled", [setting.name for setting in CONCAT])
    better = [max(entries.ap(name, test, "disentangled") for test in FAMILY[1:]) for name in NAMES]
    return [
        _bar("faux, disentangled: lower on outer than on concat for each pair and bias", _rounded(gaps), min(gaps) > 0),
        _bar("faux, disentangled: lower by 0.25 on average", round(fmean(gaps), 4), fmean(gaps) >= 0.25),
        _bar("faux, disentangled: AP at least 0.93 in the four concat settings", _rounded(concat), min(concat) >= 0.93),
        _bar(
            "the better of faux+ng and faux+ig, disentangled: AP at least 0.90 in at least six settings",
            _rounded(better),
            sum(ap >= 0.9 for ap in better) >= 6,
        ),
    ]


def _ours(entries: Entries) -> list[dict[str, Any]]:
    """What a user gets, with the plain auxiliary: the best single test."""
    test, auxiliary = entries.best()
    what = f"best single test with what a user has ({test})"
    mean = fmean(entries.aps(test, auxiliary))
    rho = fmean(entries.by_name[name, test, auxiliary]["rho_mean"] for name in NAMES)
    hard = {name: (entries.ap(name, test, auxiliary), _best_printed(name)) for name in HARD}
    won = [name for name, (ours, printed) in hard.items() if ours > printed]
    return [
        _bar(f"{what}: mean AP at least 0.97", round(mean, 4), mean >= 0.97),
        _bar(
            f"{what}: AP above the paper's best printed fAux row in at least two of {', '.join(HARD)}",
            {name: {"ours": round(ours, 4), "paper": printed} for name, (ours, printed) in hard.items()},
            len(won) >= 2,
        ),
        _bar(f"{what}: mean rho at least 0.60 in the same runs", round(rho, 4), rho >= 0.6),
    ]


def _peers(entries: Entries) -> list[dict[str, Any]]:
    """Whether the best single test is ahead of every peer; nothing where no peer has run."""
    if not entries.peers:
        return []
    test, auxiliary = entries.best()
    out = []
    for number, words in (("ap", "AP"), ("rho", "rho")):
        ours = fmean(entries.numbers(test, auxiliary, number))
        theirs = {peer: fmean(entries.numbers(peer, "none", number)) for peer in entries.peers}
        value = {name: round(mean, 4) for name, mean in ({test: ours} | theirs).items()}
        what = f"best single test with what a user has ({test}): mean {words} ahead of every peer's"
        out.append(_bar(what, value, ours > max(theirs.values())))
    return out


def behind(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each setting and number in which a peer is ahead of the best single test, or as good."""
    entries = Entries(results)
    test, auxiliary = entries.best()
    out = []
    for number, words in (("ap", "AP"), ("rho", "rho")):
        ours = entries.numbers(test, auxiliary, number)
        for peer in entries.peers:
            for name, own, other in zip(NAMES, ours, entries.numbers(peer, "none", number), strict=True):
                if other >= own:
                    out.append(f"{name}: {peer} has the higher {words}, {other:.3f} against {own:.3f} of {test}")
    return out


def _generators(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """How far generated pairs are from the paper's, and from the tables they stand for."""
    tables = {name: one for pair in found.values() for name, one in pair.items()}
    scores = {name: tables[name]["model_score"] for name in PAPER_MODEL_SCORES if name in tables}
    used = [name for name in scores if any(name in setting.pair for setting in SETTINGS)]
    close = {name: abs(scores[name] - PAPER_MODEL_SCORES[name]) for name in ("backache", "credit", "australian")}
    spreads = {name: tables[name]["spread"] for name in scores}
    return [
        _bar(
            "model score of backache, credit and australian within 0.06 of the paper's",
            {name: {"ours": round(scores[name], 4), "paper": PAPER_MODEL_SCORES[name]} for name in close},
            max(close.values()) <= 0.06,
        ),
        _bar(
            "model scores in the paper's order, from hard to easy",
            {name: round(scores[name], 4) for name in used},
            used == sorted(used, key=lambda name: scores[name]),
        ),
        _bar(
            "spread of the generated features at least half of the real one, on average",
            {name: round(spread, 4) for name, spread in spreads.items()},
            min(spreads.values()) >= 0.5,
        ),
    ]


def _time(seconds: float, workers: int) -> dict[str, Any]:
    minutes = 25 if workers >= 16 else 180
    return _bar(f"at most {minutes} minutes with {workers} workers", round(seconds / 60, 1), seconds <= 60 * minutes)


def _partner(outer: Setting) -> Setting:
    """Return the concat setting of the same pair and bias."""
    return next(s for s in CONCAT if s.pair == outer.pair and s.bias == outer.bias)


def _best_printed(name: str) -> float:
    return max(PAPER_TABLE1[test][NAMES.index(name)] for test in FAMILY)


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def table1_text(found: dict[str, Any]) -> str:
    """Return the results file as Markdown: AP beside the paper's, rho, costs, and the bars."""
    shown = [name for name in NAMES if any(entry["setting"] == name for entry in found["results"])]
    lines = ["Average precision over both targets (± over re-trainings)", ""]
    lines += _table(found, shown, "ap", paper=True)
    lines += ["", "Rank correlation with the true score inside the unfair target", ""]
    lines += _table(found, shown, "rho", paper=False)
    if "costs" in found:
        lines += ["", "| test | training seconds | trained numbers | people scored in a second |", "|---|---|---|---|"]
        lines += [
            f"| {test} | {one['training_seconds']:.2f} | {one['parameters']} | {one['rows_per_second']:.0f} |"
            for test, one in found["costs"]["tests"].items()
        ]
    lines += [
        "",
        *(f"- {'holds' if bar['holds'] else '**fails**'}: {bar['bar']}: {bar['value']}" for bar in found["bars"]),
    ]
    if found["bars"]:
        lines += [f"- not ahead in {sentence}" for sentence in behind(found["results"])]
    took, machine = found["seconds"], found["machine"]
    return "\n".join(
        [*lines, "", f"{took:g} s with {machine['workers']} workers ({found['core_seconds']:g} s in all)."]
    )


def _table(found: dict[str, Any], shown: list[str], number: str, *, paper: bool) -> list[str]:
    """Return the lines of a Markdown table, tests by settings; with `paper` its own row below each of ours."""
    entries = Entries(found["results"])
    lines = ["| test | auxiliary | " + " | ".join(shown) + " | mean |", "|---" * (len(shown) + 3) + "|"]
    every = dict.fromkeys((test, auxiliary) for _, test, auxiliary in entries.by_name)
    pairs = [pair for pair in every if all((name, *pair) in entries.by_name for name in shown)]
    each = {entry["setting"]: entry["prevalence"] for entry in found["results"]}
    prevalence = [each[name] for name in shown]
    for test, auxiliary in sorted(pairs, key=lambda pair: (pair[0].split("/")[0], pair)):
        own = [entries.by_name[name, test, auxiliary] for name in shown]
        cells = [f"{e[f'{number}_mean']:.3f} ± {e[f'{number}_std']:.3f}" for e in own]
        lines.append(_line(test, auxiliary, cells, fmean(e[f"{number}_mean"] for e in own)))
    if paper and shown:
        for test, row in PAPER_TABLE1.items():
            printed = [row[NAMES.index(name)] for name in shown]
            lines.append(_line(test, "the paper", [f"{ap:.3f}" for ap in printed], fmean(printed)))
        lines.append(_line("(prevalence)", "", [f"{p:.3f}" for p in prevalence], fmean(prevalence)))
    return lines


def _line(test: str, auxiliary: str, cells: list[str], mean: float) -> str:
    return f"| {test} | {auxiliary} | {' | '.join(cells)} | {mean:.3f} |"
