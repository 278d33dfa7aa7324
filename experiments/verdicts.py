"""How often the verdict on a model is right: the demo's models as they are, with shuffled groups, and with few people.

A biased and a fair lending model are trained for every seed. Where everyone's sex is somebody else's, no model can
treat people by it, and both have to pass; the biased model as it is has to fail; and few people must never be enough
to pass.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from runner import Experiment, Folders, Found, Job, pick
from wording import bars, markdown_table

from fairfox.benchmark.scm import Population
from fairfox.benchmark.worlds import LENDING
from fairfox.cli.demo import audit_lending, lending_model

WORDS = ("passes", "fails", "cannot tell")
CASES = {
    "biased": "the biased model",
    "fair": "the fair model",
    "shuffled, biased": "the biased model, shuffled groups",
    "shuffled, fair": "the fair model, shuffled groups",
    "few, biased": "the biased model, few people",
    "few, fair": "the fair model, few people",
}


@dataclass(frozen=True)
class Verdicts:
    """How many seeds, and how many people."""

    seeds: int = 100
    people: int = 10_000
    few: int = 50
    cases: tuple[str, ...] = tuple(CASES)


FULL = Verdicts()
QUICK = Verdicts(seeds=1, people=1000)


def jobs(plan: Verdicts, seed: int) -> list[Job]:
    """Return one job per seed."""
    return [
        Job(f"verdicts-{number}", judge_seed, (plan.people, plan.few, plan.cases, seed + number))
        for number in range(plan.seeds)
    ]


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
            result = audit_lending(net, new, table, reference, columns, seed=seed)
            assert result.verdict is not None
            counts = {"surely": result.verdict.surely, "perhaps": result.verdict.perhaps}
            found[case] = {"word": result.verdict.word, "judged": result.verdict.judged, **counts}
    return found


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
    shares = {
        case: {
            name: float(np.mean([run[case][name] / max(run[case]["judged"], 1) for run in runs]))
            for name in ("surely", "perhaps")
        }
        for case in plan.cases
    }
    return {"seeds": plan.seeds, "words": words, "shares": shares, "bars": [] if about["quick"] else shown(plan, words)}


def shown(plan: Verdicts, words: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Return what has to be shown about the cases that were run."""
    needed = {
        "shuffled, biased": ("passes", "passes for at least 95 of 100 seeds", 0.95),
        "shuffled, fair": ("passes", "passes for at least 95 of 100 seeds", 0.95),
        "biased": ("fails", "fails for every seed", 1.0),
    }
    out = []
    for case, (word, what, share) in needed.items():
        if case in words:
            said = words[case].get(word, 0)
            out.append({"bar": f"{CASES[case]}: {what}", "value": said, "holds": said >= share * plan.seeds})
    for case in ("few, biased", "few, fair"):
        if case in words:
            said = words[case].get("passes", 0)
            out.append({"bar": f"{CASES[case]} ({plan.few}): never passes", "value": said, "holds": said == 0})
    return out


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
    heads = [f"of {found['seeds']} audits", *WORDS, "surely over delta", "perhaps over delta"]
    return "\n\n".join([markdown_table(heads, rows), *([bars(found)] if found["bars"] else [])])


EXPERIMENT: Experiment[Verdicts] = Experiment(
    name="verdicts",
    description="How often an audit says that a model passes, fails, or that one cannot tell, where it is known.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=pick("cases", "case"),
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
