"""Groups that mean nothing, on real tables: everyone gets somebody else's protected value, and nobody is to be flagged.

Each model learns from four fifths of a table without the protected column. Then the protected values of all people are
shuffled, and people whom the model has not seen are audited with the rest as the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from black_box_audits import MODELS, SOURCES, Size, read_people, train
from real_data import HELD_OUT
from runner import Folders, Found, Job
from sklearn.model_selection import train_test_split
from trials import seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.pipeline import audit

LEAST = 0.95  # of all audits without anybody confidently flagged
SMALL = ("german",)  # tables with too few people to pass each time


@dataclass(frozen=True)
class Shuffles:
    """Which models are audited on which tables, and how often the groups are shuffled."""

    tables: tuple[str, ...] = ("adult", "german", "bank")
    models: tuple[str, ...] = ("hist-gradient-boosting", "random-forest", "logistic-regression")
    times: int = 8
    size: Size = Size(rows=10_000, people=2_000)  # noqa: RUF009

    @property
    def audits(self) -> list[tuple[str, str, int]]:
        """Table, model and shuffle of each audit."""
        return [*product(self.tables, self.models, range(self.times))]


FULL = Shuffles()
QUICK = Shuffles(("german",), ("logistic-regression",), 2, Size(rows=400, people=80, trees=20, refits=2))


def jobs(plan: Shuffles, seed: int) -> list[Job]:
    """Return one job per table, model and shuffle."""
    return [
        Job(f"{table}-{model}-{n}", audit_shuffled, (table, model, plan.size, seed_of(seed, table), n))
        for table, model, n in plan.audits
    ]


def audit_shuffled(
    folder: Path, needed: Folders, table: str, model: str, size: Size, seed: int, number: int
) -> dict[str, Any]:
    """Return how many people are flagged, and confidently, and the verdict."""
    source = SOURCES[table]
    frame, data = read_people(source, size.rows, seed)
    inputs = [f.name for f in data.features]
    fitting, unseen = train_test_split(np.arange(len(frame)), test_size=HELD_OUT, random_state=seed)
    trained = train(model, frame.iloc[fitting], inputs, source, size, seed)
    frame = source.shuffled(frame, seed + number)
    result = audit(
        trained,
        frame.iloc[unseen[: size.people]],
        protected=source.protected,
        label=source.label,
        reference=frame.iloc[fitting],
        columns=inputs,
        seed=seed + number,
        options={"refits": size.refits},
    ).record
    assert result.confident is not None
    assert result.verdict is not None
    counts = {"flagged": int(result.flagged.sum()), "confident": int(result.confident.sum())}
    return {"people": len(result), **counts, "verdict": result.verdict.word}


def gather(plan: Shuffles, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return every audit, and whether nearly all of them flag nobody confidently."""
    results = [
        {"table": table, "model": model, "shuffle": n, **found[f"{table}-{model}-{n}"]}
        for table, model, n in plan.audits
    ]
    return {"results": results, "bars": bars(results)}


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown: nearly nobody is confidently flagged, large tables pass, small ones never fail."""
    clean = float(np.mean([one["confident"] == 0 for one in results]))
    out = [bar(f"nobody is confidently flagged in at least {LEAST:.0%} of all audits", clean, clean >= LEAST)]
    if large := [one["verdict"] == "passes" for one in results if one["table"] not in SMALL]:
        passes = float(np.mean(large))
        out.append(bar(f"models pass in at least {LEAST:.0%} of the audits of large tables", passes, passes >= LEAST))
    fails = float(np.mean([one["verdict"] == "fails" for one in results]))
    return [*out, bar("no model fails", fails, fails == 0)]


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    heads = ["table", "model", "audits", "passes", "cannot tell", "fails", "nobody confident", "people"]
    rows = []
    for table, model in dict.fromkeys((one["table"], one["model"]) for one in found["results"]):
        own = [one for one in found["results"] if (one["table"], one["model"]) == (table, model)]
        counts = [len(own), *(sum(one["verdict"] == word for one in own) for word in heads[3:6])]
        counts.append(sum(one["confident"] == 0 for one in own))
        rows.append([SOURCES[table].title, MODELS[model].title, *map(str, counts), f"{own[0]['people']:,}"])
    return f"{markdown_table(heads, rows)}\n\n{table_of_bars(found)}"
