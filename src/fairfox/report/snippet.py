"""Cards for notebooks: a result, a comparison or a dataset as a small piece of HTML that runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fairfox.report.escaping import escaping_environment
from fairfox.report.markdown import groups_table
from fairfox.report.text import people
from fairfox.report.verdict import verdict

if TYPE_CHECKING:
    from fairfox.comparing import Compared
    from fairfox.data.dataset import Dataset, Feature, Protected
    from fairfox.result import AuditResult
    from fairfox.verdicts.drifting import Drift

MOST_ROWS = 12  # of a table on a card
_TONES = {"fails": "bad", "worse": "bad", "passes": "good", "not worse": "good"}  # any other word is neither


@dataclass(frozen=True)
class Rows:
    """A table on a card: names on the left, numbers on the right."""

    headings: Sequence[str]
    cells: Sequence[Sequence[str]]

    @property
    def left_out(self) -> int:
        """How many rows the card does not show."""
        return max(0, len(self.cells) - MOST_ROWS)


def result_card(result: AuditResult) -> str:
    """Return the verdict, the counts and the groups of an audit."""
    found = result.verdict
    told = verdict(result)
    return _card(
        title=f"fairfox audit for {', '.join(result.variables)}",
        word="no verdict" if found is None else found.word,
        lead=told[0],
        facts=_counts(result),
        lines=[] if found is None else told[1:2],  # without a verdict that sentence is the first
        tables=[_groups(result)],
        warnings=result.warnings,
        hint='result.to_html("report.html")',
    )


def compared_card(compared: Compared) -> str:
    """Return which of two models is fairer, and the sentences that say why."""
    title, _, *lines = compared.summary().splitlines()
    return _card(
        title=title, word=compared.word, lead=compared.why, lines=lines, hint='compared.to_html("report.html")'
    )


def drift_card(drift: Drift) -> str:
    """Return whether the second of two audits is worse, and the sentence that says why."""
    return _card(title="fairfox drift", word=drift.word, lead=drift.why)


def dataset_card(data: Dataset) -> str:
    """Return how many people a dataset has, its protected groups and its features; nobody's row."""
    features = [[f.name, _kind(f), "no" if bool(data.withheld[f.columns].all()) else "yes"] for f in data.features]
    held = {"weighted": data.weights is not None, "labels": data.y is not None, "known truth": data.truth is not None}
    return _card(
        title="fairfox dataset",
        facts=[people(len(data)), f"{len(data.features):,} features in {data.x.shape[1]:,} columns"]
        + [name for name, there in held.items() if there],
        tables=[
            *(Rows([p.name, "people"], _members(data, p, v)) for v, p in enumerate(data.protected)),
            Rows(["feature", "kind", "seen by the auxiliary"], features),
        ],
    )


def _counts(result: AuditResult) -> list[str]:
    told = [people(len(result)), f"{result.judged:,} judged", f"{int(result.flags.sum()):,} flagged"]
    if result.confident_flags is not None:
        told.append(f"{int(result.confident_flags.sum()):,} confidently")
    return told


def _groups(result: AuditResult) -> Rows:
    table = groups_table(result)
    return Rows([column["label"].lower() for column in table["columns"]], table["rows"])


def _kind(feature: Feature) -> str:
    if feature.kind == "categorical":
        return f"{len(feature.levels):,} categories"
    return "number, some missing" if feature.has_missing else "number"


def _members(data: Dataset, p: Protected, variable: int) -> list[list[str]]:
    """Return how many people each group of a protected variable has; a number has one group, all who have it."""
    values = data.c[:, variable]
    gone = int(values.isnan().sum())
    if p.is_continuous:
        counted = [["known", f"{len(values) - gone:,}"]]
    else:
        sizes = torch.bincount(values[~values.isnan()].long(), minlength=len(p.levels)).tolist()
        counted = [[level, f"{size:,}"] for level, size in zip(p.levels, sizes, strict=True)]
    return [*counted, ["unknown", f"{gone:,}"]] if gone else counted


def _card(
    *,
    title: str,
    word: str = "",
    lead: str = "",
    facts: Sequence[str] = (),
    lines: Sequence[str] = (),
    tables: Sequence[Rows] = (),
    warnings: Sequence[str] = (),
    hint: str = "",
) -> str:
    template = escaping_environment().get_template("card.html.j2")
    return template.render(
        title=title,
        word=word,
        tone=_TONES.get(word, "open"),
        lead=lead,
        facts=facts,
        lines=lines,
        tables=tables,
        warnings=warnings,
        hint=hint,
        most=MOST_ROWS,
    )
