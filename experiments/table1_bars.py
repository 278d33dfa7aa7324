"""What Table 1 has to show, each bar with its measured value."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from settings import SETTINGS, Setting
from wording import bar

NAMES = [setting.name for setting in SETTINGS]
OUTER = [setting for setting in SETTINGS if setting.fusion == "outer"]
CONCAT = [setting.name for setting in SETTINGS if setting.fusion == "concat"]
FAMILY = ("faux", "faux+ng", "faux+ig")
PEERS = ("fta", "fta+linear", "unfair_map", "fliptest")
FLIPTEST = ("fliptest", "none")
PRENAMED = ("rank/a given y", "balanced")  # the row of ours that bars speak of, chosen before the run
ROWS = (*((test, "none") for test in (*PEERS, "rank", "rank given y", "lic")), ("rank/a", "plain"), PRENAMED)
ROWS += tuple((test, kind) for test in FAMILY for kind in ("plain", "disentangled", "balanced"))


class Entries:
    """The entries of `results`; fAux tests have disentangled auxiliaries, as in the paper, where no other is named."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self.by_name = {(e["setting"], e["test"], e["auxiliary"]): e for e in results}

    @property
    def whole(self) -> bool:
        """Whether all rows are there in all settings; FlipTest's may be missing, which takes a GPU."""
        return all((name, *row) in self.by_name for name in NAMES for row in ROWS if row != FLIPTEST)

    def of(self, test: str, field: str, auxiliary: str | None = None, settings: Sequence[str] = NAMES) -> list[Any]:
        """Return a field of a test's entries, setting by setting."""
        kind = auxiliary or ("disentangled" if test in FAMILY else "none")
        return [self.by_name[name, test, kind][field] for name in settings]

    def means(self, test: str, auxiliary: str | None = None, number: str = "ap") -> list[float]:
        """Return the mean AP or rho over draws, setting by setting."""
        return self.of(test, f"{number}_mean", auxiliary)

    def draws(self, test: str, auxiliary: str | None = None, settings: Sequence[str] = NAMES) -> list[float]:
        """Return the mean AP over settings of each draw."""
        return [fmean(each) for each in zip(*self.of(test, "ap_draws", auxiliary, settings), strict=True)]

    def lead(self, test: str, other: str, settings: Sequence[str] = NAMES) -> list[float]:
        """Return how far a test is ahead of another in each draw."""
        both = (self.draws(one, settings=settings) for one in (test, other))
        return [a - b for a, b in zip(*both, strict=True)]


def bars(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every bar with its measured value and whether it holds; none where settings or rows are missing."""
    entries = Entries(found["results"])
    if not entries.whole:
        return []
    prevalence = [trial["prevalence"] for trial in found["trials"]]
    lic, fta = entries.means("lic"), entries.means("fta")
    faux = dict(zip(NAMES, entries.means("faux"), strict=True))
    gaps = [faux[partner(outer)] - faux[outer.name] for outer in OUTER]
    better = [max(pair) for pair in zip(*(entries.means(test) for test in FAMILY[1:]), strict=True)]
    ap, rho = (entries.means(*PRENAMED, number) for number in ("ap", "rho"))
    row = f"{PRENAMED[0]}, gate, {PRENAMED[1]} auxiliary (named beforehand)"
    fair = {trial["name"]: trial["fair_over_unfair"]["rank given y"] for trial in found["trials"]}
    concat = [fair[name] for name in CONCAT]
    told = "rank given y: mean |effect| on fair targets over that on unfair ones at most"
    return [
        bar("prevalence from 0.45 to 0.50 in all settings", prevalence, all(0.45 <= p <= 0.5 for p in prevalence)),
        bar("lic: AP at least 0.98 in all settings", lic, min(lic) >= 0.98),
        bar("fta: AP at most 0.50 in all settings", fta, max(fta) <= 0.5),
        bar("faux, disentangled: AP lower on outer than on concat for each pair and bias", gaps, min(gaps) > 0),
        bar(
            "the better of faux+ng and faux+ig, disentangled: AP at least 0.90 in at least six settings",
            better,
            sum(value >= 0.9 for value in better) >= 6,
        ),
        bar(f"{row}: mean AP at least 0.98", fmean(ap), fmean(ap) >= 0.98),
        bar(f"{row}: AP at least 0.95 in the worst setting", min(ap), min(ap) >= 0.95),
        bar(f"{row}: mean rho at least 0.72", fmean(rho), fmean(rho) >= 0.72),
        bar(f"{told} 0.22, mean over the settings", fmean(fair.values()), fmean(fair.values()) <= 0.22),
        bar(f"{told} 0.05 in each concat setting", concat, max(concat) <= 0.05),
    ]


def partner(outer: Setting) -> str:
    """Return the concat setting of the same pair and bias."""
    return next(s.name for s in SETTINGS if (*s.pair, s.bias, s.fusion) == (*outer.pair, outer.bias, "concat"))
