"""Every claim of the paper with our number, its spread and a verdict, and what fairfox adds: from results files alone.

A claim is *reproduced* where it holds each time (in every draw, for every test and table that it is about), *not* where
it never does, and *partly* otherwise. The fAux tests of Table 1 have disentangled auxiliaries, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from paper_figures import four_points
from runner import Results, read_json
from table1_bars import FAMILY, NAMES, OUTER, PEERS, Entries, partner
from table1_plan import deviation
from wording import in_words, markdown_table

Row = tuple[str, str, str, str]  # the claim, where it is, our number, the verdict
TABLES = {"adult": "Adult", "bank": "Bank"}
FAIR = "3"  # the target that hides c
ADVERSARIAL = "faux+ig (adversarial auxiliary)"  # what the paper has on real tables
REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not"
CLOSE = 0.05  # of AP: what counts as competitive


def claims(results: Path) -> str:
    """Return the table of all claims, and how many of them are reproduced."""
    rows = [row for name, of in CLAIMS.items() for row in of(read_json(results / f"{name}.json"))]
    table = [[*row[:3], row[3] if row[3] == REPRODUCED else f"**{row[3]}**"] for row in rows]
    counts = ", ".join(f"{sum(row[3] == verdict for row in rows)} {verdict}" for verdict in (REPRODUCED, PARTLY, NOT))
    return markdown_table(["the paper says", "where", "ours", "verdict"], table) + f"\n\n{len(rows)} claims: {counts}."


def judged(holds: Iterable[bool]) -> str:
    """Return the verdict on a claim by whether it holds each time."""
    each = [*holds]
    return REPRODUCED if all(each) else PARTLY if any(each) else NOT


def of_table1(found: Results) -> Iterator[Row]:
    """Yield the claims about Table 1: means over settings, ± their standard deviation over draws."""
    rows, place = Entries(found["results"]), "section 4.2, Table 1"
    chance = fmean(trial["prevalence"] for trial in found["trials"])
    fta = {test: rows.draws(test) for test in ("fta", "fta+linear")}
    low = judged(ap < chance for ap in fta["fta"])
    yield "tests by awareness (FTA) can have low precision", "section 1", f"{_named(fta)}; by chance {chance:.3f}", low
    lic = {test: rows.lead("lic", test) for test in (*FAMILY, *PEERS)}
    told = f"AP {_spread(rows.draws('lic'))}, ahead of the next by {_spread(_least(lic))}"
    yield "the true derivative (LIC) is the upper bound", place, told, _each(lic)
    lead, linears = {test: rows.lead(test, "fta+linear") for test in FAMILY}, rows.means("fta+linear")
    won = [own > linear for test in FAMILY for own, linear in zip(rows.means(test), linears, strict=True)]
    told = f"lead in mean AP: {_named(lead)}; ahead in {sum(won)} of {len(won)} rows and settings"
    yield "every fAux test beats the weighted norm (`fta+linear`) in all settings", place, told, judged(won)
    peers = {test: _least({peer: rows.lead(test, peer) for peer in PEERS}) for test in FAMILY}
    told = f"lead in mean AP over the best of them: {_named(peers)}"
    yield "fAux beats the other tests on synthetic data", "abstract, section 5", told, _each(peers)
    first = {test: rows.lead("faux+ng", test) for test in ("faux", "faux+ig")}
    yield "`faux+ng` is the best of the three", place, f"lead in mean AP over {_named(first)}", _each(first)
    last = {test: rows.lead(test, "faux") for test in FAMILY[1:]}
    yield "`faux` is the weakest of the three", place, f"lead in mean AP over it: {_named(last)}", _each(last)
    accuracy = {trial["name"]: trial["auxiliaries"]["disentangled"] for trial in found["trials"]}
    ordered = sorted(NAMES, key=lambda name: accuracy[name])
    low_high = {"less accurate": ordered[:4], "more accurate": ordered[4:]}
    gains = {words: rows.lead("faux+ig", "faux+ng", half) for words, half in low_high.items()}
    more = judged(worse > better for worse, better in zip(*gains.values(), strict=True))
    told = f"its lead over `faux+ng` in four settings each: {_named(gains)}"
    yield "`faux+ig` is the more reliable one as auxiliaries get less accurate (Table 1)", place, told, more
    spread = {test: fmean(rows.of(test, "ap_retrainings")) for test in ("fliptest", *FAMILY)}
    told = f"standard deviation of AP over re-trainings: {in_words(spread)}"
    yield "FlipTest varies more than fAux", place, told, judged(spread["fliptest"] > spread[test] for test in FAMILY)
    best = [max(each) for each in zip(*map(rows.means, FAMILY), strict=True)]
    close = [own - flip < CLOSE for own, flip in zip(best, rows.means("fliptest"), strict=True)]
    told = f"within {CLOSE:g} of the best fAux test in {sum(close)} of {len(close)} settings"
    yield "FlipTest is competitive in some settings", place, told, judged([any(close)])
    by_fusion = [
        rows.draws("fliptest", settings=names) for names in ([partner(s) for s in OUTER], [s.name for s in OUTER])
    ]
    falls = [concat - outer for concat, outer in zip(*by_fusion, strict=True)]
    told = f"mean AP lower by {_spread(falls)}"
    yield "FlipTest is worse on outer products than on concatenations", place, told, judged(f > 0 for f in falls)


def of_operating_range(found: Results) -> Iterator[Row]:
    """Yield the claims about where fAux works: means over cells, ± their standard error."""
    places = ("4.4, sensitivity", "4.4, sensitivity", "4.4, auxiliary", "4.2", "4.4, target")
    for claim, place in zip(found["claims"], places, strict=True):
        yield claim["claim"], f"section {place}", in_words(claim["value"]), _stored(claim)


def of_histograms(found: Results) -> Iterator[Row]:
    """Yield the claim about bias and true effects."""
    (grows,) = found["bars"]
    told = f"mean true score at bias 0, 0.5 and 1: {in_words(grows['value'])}"
    yield "models trained on less biased data discriminate less", "section 4.4", told, judged([grows["holds"]])


def of_real_tables(found: Results) -> Iterator[Row]:
    """Yield the claims about fair and unfair targets on real tables: means over splits, ± standard deviation."""
    auc = {(e["table"], e["test"]): e["auc"] for e in found["results"] if e["target"] == FAIR}
    for test in FAMILY:
        told = "; ".join(f"{title} {auc[t, test][0]:.2f} ± {auc[t, test][1]:.2f}" for t, title in TABLES.items())
        higher = judged(auc[t, test][0] - auc[t, test][1] > 0.5 for t in TABLES)
        yield f"`{test}` scores the unfair model higher than the fair one", "section 4.3", f"AUC: {told}", higher
    best = {t: [max((auc[t, n][0], n) for n in names) for names in (FAMILY, PEERS)] for t in TABLES}
    told = "; ".join(f"{TABLES[t]} " + ", ".join(f"`{n}` {v:.2f}" for v, n in pair) for t, pair in best.items())
    ahead = judged(own > peers for own, peers in best.values())
    yield "fAux separates fair and unfair models better than other tests", "section 4.3", f"highest AUC: {told}", ahead


def of_transparency(found: Results) -> Iterator[Row]:
    """Yield the claim about explanations: means of re-trainings, ± standard deviation."""
    own = {(e["table"], e["method"]): e for e in found["results"] if e["aggregation"] == "mean"}
    numbers = {
        t: [(own[t, m]["ndcg_paper_mean"], own[t, m]["ndcg_paper_std"]) for m in (ADVERSARIAL, "fliptest")]
        for t in TABLES
    }
    told = "; ".join(f"{TABLES[t]} " + " against ".join(f"{m:.3f} ± {s:.3f}" for m, s in p) for t, p in numbers.items())
    better = judged(ours[0] > theirs[0] for ours, theirs in numbers.values())
    yield "`faux+ig` explains better than FlipTest (NDCG)", "appendix, transparency reports", told, better


def of_resources(found: Results) -> Iterator[Row]:
    """Yield the claims about cost."""
    for name, words, share in (("parameters", "parameters", 0.05), ("training", "training time", 0.1)):
        ours = {TABLES[e["table"]]: 1 / e["ratios"][name] for e in found["results"] if e["table"] in TABLES}
        within = judged(own <= 2 * share for own in ours.values())  # the paper says "about"
        told = "; ".join(f"{title} {own:.1%}" for title, own in ours.items())
        yield f"fAux takes about {share:.0%} of FlipTest's {words}", "appendix, transparency reports", told, within


def of_generators(found: Results) -> Iterator[Row]:
    """Yield the claims about FlipTest's own checks."""
    for claim in found["claims"]:
        told = f"rank correlation with AP: {in_words(claim['value'])}"
        yield claim["claim"], "appendix, hyperparameters for GANs", told, _stored(claim)


def of_use_cases(found: Results) -> Iterator[Row]:
    """Yield the claims about single points and people: the first picture, and the case of policing."""
    points = four_points()
    scores = {test: [round(point[test], 2) for point in points] for test in ("inner", "faux", "faux+ng")}
    second = judged(sorted(each)[-1] == each[1] > sorted(each)[-2] for each in scores.values())
    told = f"inner product, `faux` and `faux+ng` at the four points: {'; '.join(map(in_words, scores.values()))}"
    yield "of four points only the second is unfair", "Figure 1", told, second
    answer = found["cases"]["policing"]["found"]["unawareness"].partition(";")[0]
    told, place = f"fairfox refuses: {answer}", "appendix, use cases"
    yield "unawareness does not apply where the column is no input", place, told, judged(["does not take" in answer])


CLAIMS: dict[str, Callable[[Results], Iterator[Row]]] = {  # by results file
    "use_cases": of_use_cases,
    "table1": of_table1,
    "operating_range": of_operating_range,
    "bias_histograms": of_histograms,
    "fair_vs_unfair": of_real_tables,
    "transparency": of_transparency,
    "resources": of_resources,
    "gan_metrics": of_generators,
}


def adds(results: Path) -> str:
    """Return what fairfox has on the same runs beside the best of the paper's tests."""
    table1, real, known = (read_json(results / f"{name}.json") for name in ("table1", "fair_vs_unfair", "known_truth"))
    entries, auc = Entries(table1["results"]), {(e["table"], e["test"], e["target"]): e["auc"] for e in real["results"]}

    def ap(*row: str) -> str:
        return f"`{row[0]}` {_spread(entries.draws(*row))}"

    def separates(table: str, *tests: str) -> str:
        (mean, std), test = max((auc[table, test, FAIR], test) for test in tests)
        return f"`{test}` {mean:.2f} ± {std:.2f}"

    n, words = known["verdicts"]["seeds"], known["verdicts"]["words"]
    held = [e["coverage"] for e in known["intervals"]["results"] if e["barred"]]
    best = max(FAMILY, key=lambda test: fmean(entries.means(test, "plain")))
    right = f"{words['biased'].get('fails', 0)} fail, {words['fair'].get('passes', 0)} pass"
    rho = [
        f"`{row[0]}` {fmean(entries.means(*row, 'rho')):.3f}" for row in (("faux", "plain"), ("rank given y", "none"))
    ]
    rows = [
        ["mean AP in Table 1, without labels", ap(best, "plain"), ap("rank/a", "plain")],
        ["mean AP in Table 1, with labels", "labels are not used", ap("rank/a given y", "balanced")],
        ["mean rho in Table 1", *rho],
        *([f"{name}: AUC, unfair over fair", separates(t, *FAMILY), separates(t, *OWN)] for t, name in TABLES.items()),
        ["90 % intervals hold, mean over worlds (lowest)", "no intervals", f"{fmean(held):.1%} ({min(held):.1%})"],
        [f"verdicts on {n} biased and {n} fair models", "no verdicts", right],
    ]
    return markdown_table(["on the same runs", "the best fAux test", "fairfox"], rows)


OWN = ("rank/a", "move/a", "faux+ng/s")  # what fairfox has to compare models
OF_ALL: dict[str, Callable[[Path], str]] = {"table": claims, "adds": adds}


def _spread(draws: Sequence[float]) -> str:
    return f"{fmean(draws):.3f} ± {deviation(draws):.3f}"


def _named(each: Mapping[str, Sequence[float]]) -> str:
    return "; ".join(f"{name} {_spread(draws)}" for name, draws in each.items())


def _least(leads: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the smallest lead of each draw."""
    return [min(own) for own in zip(*leads.values(), strict=True)]


def _each(leads: Mapping[str, Sequence[float]]) -> str:
    """Return the verdict by whether every lead is one, draw by draw."""
    return judged(least > 0 for least in _least(leads))


def _stored(claim: Results) -> str:
    """Return the verdict of an experiment in the words of this page: a claim may be about several tests."""
    return judged(" confirmed" in f" {part}".replace("not confirmed", "") for part in claim["verdict"].split(","))
