"""What Table 1 has to show, each bar with its measured value; and how several commands share its results file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from runner import Results
from settings import PAPER_MODEL_SCORES, PAPER_TABLE1, SETTINGS, Setting
from wording import bar

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


def _basic(entries: Entries, found: dict[str, Any]) -> list[dict[str, Any]]:
    prevalence = [entries.by_name[name, "lic", "none"]["prevalence"] for name in NAMES]
    lic = entries.aps("lic", "none")
    away = [abs(t["shuffled_ap"] - p) for t, p in zip(found["trials"], prevalence, strict=True)]
    fta = entries.aps("fta", "none")
    return [
        bar(
            "prevalence from 0.40 to 0.50 in all settings",
            _rounded(prevalence),
            all(0.4 <= p <= 0.5 for p in prevalence),
        ),
        bar("lic: AP at least 0.95 in all settings", _rounded(lic), min(lic) >= 0.95),
        bar(f"shuffled scores: AP within {CHANCE} of the prevalence", _rounded(away), max(away) <= CHANCE),
        bar("fta: AP at most 0.5 in at least six settings", _rounded(fta), sum(ap <= 0.5 for ap in fta) >= 6),
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
        bar("faux, disentangled: lower on outer than on concat for each pair and bias", _rounded(gaps), min(gaps) > 0),
        bar("faux, disentangled: lower by 0.25 on average", round(fmean(gaps), 4), fmean(gaps) >= 0.25),
        bar("faux, disentangled: AP at least 0.93 in the four concat settings", _rounded(concat), min(concat) >= 0.93),
        bar(
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
        bar(f"{what}: mean AP at least 0.97", round(mean, 4), mean >= 0.97),
        bar(
            f"{what}: AP above the paper's best printed fAux row in at least two of {', '.join(HARD)}",
            {name: {"ours": round(ours, 4), "paper": printed} for name, (ours, printed) in hard.items()},
            len(won) >= 2,
        ),
        bar(f"{what}: mean rho at least 0.60 in the same runs", round(rho, 4), rho >= 0.6),
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
        out.append(bar(what, value, ours > max(theirs.values())))
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
        bar(
            "model score of backache, credit and australian within 0.06 of the paper's",
            {name: {"ours": round(scores[name], 4), "paper": PAPER_MODEL_SCORES[name]} for name in close},
            max(close.values()) <= 0.06,
        ),
        bar(
            "model scores in the paper's order, from hard to easy",
            {name: round(scores[name], 4) for name in used},
            used == sorted(used, key=lambda name: scores[name]),
        ),
        bar(
            "spread of the generated features at least half of the real one, on average",
            {name: round(spread, 4) for name, spread in spreads.items()},
            min(spreads.values()) >= 0.5,
        ),
    ]


def _time(seconds: float, workers: int) -> dict[str, Any]:
    minutes = 25 if workers >= 16 else 180
    return bar(f"at most {minutes} minutes with {workers} workers", round(seconds / 60, 1), seconds <= 60 * minutes)


def _partner(outer: Setting) -> Setting:
    """Return the concat setting of the same pair and bias."""
    return next(s for s in CONCAT if s.pair == outer.pair and s.bias == outer.bias)


def _best_printed(name: str) -> float:
    return max(PAPER_TABLE1[test][NAMES.index(name)] for test in FAMILY)


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def keep_rest(earlier: Results, found: Results) -> Results:
    """Return a results file in which some tests are replaced or added; everything else stays."""
    whole = dict(earlier)
    whole["results"] = _joined(earlier["results"], found["results"])
    whole["runs"] = earlier.get("runs", {}) | found["runs"]
    return _with_bars(whole)


def keep_peers(earlier: Results, found: Results) -> Results:
    """Return a whole table with the peers' tests of an earlier file, where that has the same settings."""
    if "runs" not in earlier or ground(earlier) != ground(found):
        return found
    own = {entry["test"] for entry in found["results"]}
    peers = [entry for entry in earlier["results"] if entry["test"] not in own]
    return _with_bars(found | {"runs": earlier["runs"], "results": _joined(peers, found["results"])})


def _with_bars(whole: Results) -> Results:
    return whole | {"bars": bars(whole, whole)}


def _joined(earlier: list[Results], found: list[Results]) -> list[Results]:
    """Return all entries, setting by setting; of two for the same test the later one."""
    entries = {(e["setting"], e["test"], e["auxiliary"]): e for e in [*earlier, *found]}
    return sorted(entries.values(), key=lambda entry: str(entry["setting"]))


def ground(about: Results) -> object:
    """Return what all entries of a file must have in common, as JSON gives it back."""
    settings = about["settings"]
    return json.loads(json.dumps([about["seed"], about["quick"], settings.get("table", settings)]))
