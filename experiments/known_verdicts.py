"""How often the verdict on a model is right: the demo's models as they are, with shuffled groups, and with few people.

A biased and a fair lending model are trained for every seed. Where everyone's sex is somebody else's, no model can
treat people by it, and both have to pass; the biased model as it is has to fail; and few people must never be enough.
The tipping point is looked at as the planted bias grows, and where a common cause is not in the table the report has
to say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from causal_worlds import CONFOUNDED
from runner import Folders, Found, Job
from wording import bar, bars, markdown_table

from fairfox.benchmark.scm import Population
from fairfox.benchmark.worlds import LENDING
from fairfox.cli.demo import audit_lending, lending_model
from fairfox.findings import AuditRecord
from fairfox.report.sentences import verdict_lines

WORDS = ("passes", "fails", "cannot tell")
CASES = {
    "biased": "the biased model",
    "fair": "the fair model",
    "shuffled, biased": "the biased model, shuffled groups",
    "shuffled, fair": "the fair model, shuffled groups",
    "few, biased": "the biased model, few people",
    "few, fair": "the fair model, few people",
    "confounded": "a common cause outside the table",
}
BIASES = (0.2, 0.3, 0.4, 0.6, 1.0)  # planted, for tipping points
_RANK = {"passes": 0, "cannot tell": 1, "fails": 2}


@dataclass(frozen=True)
class Verdicts:
    """How many seeds, and how many people."""

    seeds: int = 30
    people: int = 10_000
    few: int = 50
    tipping: int = 5  # seeds for tipping points
    cases: tuple[str, ...] = tuple(CASES)


FULL = Verdicts()
QUICK = Verdicts(seeds=1, people=1000, tipping=1)


def jobs(plan: Verdicts, seed: int) -> list[Job]:
    """Return one job per seed."""
    each = [
        Job(f"verdicts-{number}", judge_seed, (plan.people, plan.few, plan.cases, seed + number), seconds=40)
        for number in range(plan.seeds)
    ]
    return each + [Job(f"tipping-{n}", tip_seed, (plan.people, seed + n), seconds=40) for n in range(plan.tipping)]


def judge_seed(folder: Path, needed: Folders, people: int, few: int, cases: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the verdict of every case, with the numbers of people surely and perhaps over delta."""
    past, new = LENDING.sample(people, seed=2 * seed), LENDING.sample(people, seed=2 * seed + 1)
    found = {}
    for name, columns in (("biased", past.features), ("fair", past.legitimate)):
        net, _ = lending_model(past, new, columns, seed=seed)
        tables = {
            name: (new.table, past.table),
            f"shuffled, {name}": (shuffled(new, seed), shuffled(past, seed + 1)),
            f"few, {name}": (new.table.slice(0, few), None),
        }
        for case in [case for case in tables if case in cases]:
            table, reference = tables[case]
            found[case] = _counts(audit_lending(net, new, table, reference, columns, seed=seed))
    if "confounded" in cases:
        past, new = CONFOUNDED.sample(people, seed=2 * seed), CONFOUNDED.sample(people, seed=2 * seed + 1)
        net, _ = lending_model(past, new, past.features, seed=seed)
        result = audit_lending(net, new, new.table, past.table, past.features, seed=seed)
        told = any("common cause" in line for line in verdict_lines(result))
        found["confounded"] = _counts(result) | {"told": told}
    return found


def _counts(result: AuditRecord) -> dict[str, Any]:
    verdict = result.verdict
    assert verdict is not None
    counts = {"judged": verdict.judged, "surely": verdict.significant, "perhaps": verdict.possible}
    return {"word": verdict.word, **counts}


def tip_seed(folder: Path, needed: Folders, people: int, seed: int) -> list[list[Any]]:
    """Return the verdict and its tipping point at each planted bias, and where there is none."""
    out: list[list[Any]] = []
    for bias in (0.0, *BIASES):
        past, new = (LENDING.at(bias).sample(people, seed=2 * seed + place) for place in (0, 1))
        net, _ = lending_model(past, new, past.features, seed=seed)
        verdict = audit_lending(net, new, new.table, past.table, past.features, seed=seed).verdict
        assert verdict is not None
        out.append([bias, verdict.word, verdict.tipping])
    return out


def shuffled(population: Population, seed: int) -> pa.Table:
    """Return the table in which everyone's sex is that of somebody else."""
    (name,) = population.protected
    order = np.random.default_rng(seed).permutation(len(population.table))
    place = population.table.column_names.index(name)
    return population.table.set_column(place, name, population.table[name].take(pa.array(order)))


def gather(plan: Verdicts, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return how often each word was said in each case, and what has to be shown."""
    runs = [found[f"verdicts-{number}"] for number in range(plan.seeds)]
    words = {case: dict(Counter(run[case]["word"] for run in runs)) for case in plan.cases}

    def share(case: str, name: str) -> float:
        return float(np.mean([run[case][name] / max(run[case]["judged"], 1) for run in runs]))

    shares = {case: {name: share(case, name) for name in ("surely", "perhaps")} for case in plan.cases}
    told = sum(run["confounded"]["told"] for run in runs)
    tipping = [found[f"tipping-{number}"] for number in range(plan.tipping)]
    sections = {"seeds": plan.seeds, "words": words, "shares": shares, "told": told, "tipping": tipping}
    return sections | {"bars": [] if about["quick"] else shown(plan, sections)}


def shown(plan: Verdicts, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what has to be shown about the cases."""
    needed = [("biased", "fails", 0.99, 1), ("fair", "passes", 0.97, 1), ("shuffled, biased", "passes", 0.95, 1)]
    needed += [("shuffled, biased", "fails", 0.0, 0), ("shuffled, fair", "fails", 0.0, 0)]
    for case in ("few, biased", "few, fair"):
        needed += [(case, "passes", 0.0, 0), (case, "fails", 0.0, 0.01)]
    out = []
    for case, word, least, most in needed:
        said = found["words"][case].get(word, 0)
        what = f"at least {least:.0%}" if least else f"at most {most:.0%}"
        holds = least * plan.seeds <= said <= (most if not least else 1) * plan.seeds
        out.append(bar(f"{CASES[case]} {word}: {what} of {plan.seeds}", said, holds))
    what = f"{CASES['confounded']}: the report says how strong it would have to be, each time"
    out.append(bar(what, found["told"], found["told"] == plan.seeds))
    rising = [_rises(one[1:]) for one in found["tipping"]]
    fair = [one[0][1] == "passes" and one[0][2] == 0 for one in found["tipping"]]
    out.append(bar("more bias never makes a verdict milder", sum(rising), all(rising)))
    return [*out, bar("a model that is exactly fair tips nowhere", sum(fair), all(fair))]


def _rises(steps: Sequence[Sequence[Any]]) -> bool:
    """Return whether verdicts get no milder: passes, cannot tell, fails; and of fails the tipping point no higher."""
    harsh = [(_RANK[word], -tipping if word == "fails" else 0.0) for _, word, tipping in steps]
    return harsh == sorted(harsh)


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    rows = [
        [
            CASES[case],
            *(str(said.get(word, 0)) for word in WORDS),
            *(f"{100 * found['shares'][case][name]:.1f} %" for name in ("surely", "perhaps")),
        ]
        for case, said in found["words"].items()
    ]
    heads = [f"of {found['seeds']} audits", *WORDS, "significantly over delta", "possibly over delta"]
    tips = [[f"{bias:g}", *_words([one[place] for one in found["tipping"]])] for place, bias in enumerate((0, *BIASES))]
    parts = [markdown_table(heads, rows), markdown_table(["planted bias", *WORDS, "tipping points of fails"], tips)]
    return "\n\n".join([*parts, *([bars(found)] if found["bars"] else [])])


def _words(steps: Sequence[Sequence[Any]]) -> list[str]:
    counts = Counter(word for _, word, _ in steps)
    points = sorted(tipping for _, word, tipping in steps if word == "fails")
    return [*(str(counts[word]) for word in WORDS), f"{points[0]:g} to {points[-1]:g}" if points else ""]
